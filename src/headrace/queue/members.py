"""Members: the sites and programs that take part, as plain data, and what has changed since an observer looked last.

    site        a site of the fabric                         known by its name
    client      a program that is connected to the site      by its user, or the name of its certificate
    supplier    a supplier of a channel                      by the name of the channel
    consumer    a consumer of a station                      by the name of the station

A View compares states, and never reads a list of events. So an observer that was slow, or away, misses no difference:
a member that came and went meanwhile is left out, and everything else is as it is now. A site keeps its identity over a
restart, with another `instance`; every other member exists once.

Not here: who looks (member_stream.py), and what a site knows of other sites (remote/server/membership.py).
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec

from headrace.errors import OptionError

Role = Literal["site", "client", "supplier", "consumer"]
Reason = Literal["present", "new", "returned", "restarted", "feeds", "stopped", "lost", "unreachable"]
Key = tuple[str, str, str]  # role, name, instance; a site has no instance here
ROLES: tuple[Role, ...] = get_args(Role)
FEEDS_MAX = 100  # of one member
ANY = "*"
_AWAY_MAX = 4096  # members that have left and are remembered, to recognise their return

_Text = Annotated[str, msgspec.Meta(max_length=1024)]
_Feeds = Annotated[tuple[Annotated[str, msgspec.Meta(max_length=4096)], ...], msgspec.Meta(max_length=FEEDS_MAX)]


def key_of(role: Role, name: str, instance: str) -> Key:
    return role, name, "" if role == "site" else instance


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """A site, or a program at a site."""

    role: Role
    name: _Text  # of the site, the user, the channel or the station
    site: _Text  # where it is; empty for a queue without a site
    instance: _Text  # which run of a site, which connection, which place: no two members share it
    feeds: _Feeds = ()  # a site: put there, the largest; a supplier, a consumer: the pattern of its channel or station
    user: _Text = ""  # of a program on another machine, if the site has access rules
    pid: int = 0  # of a program on the machine of the queue

    @property
    def key(self) -> Key:
        return key_of(self.role, self.name, self.instance)

    def __str__(self) -> str:
        return f"{self.role}:{self.name}"


class MemberEvent(msgspec.Struct, frozen=True):
    """What happened to a member, and when the observer noticed it."""

    kind: Literal["joined", "left", "changed"]
    reason: Reason
    member: Member  # as it is now; if it has left, as it was last
    time_ns: int

    @property
    def role(self) -> Role:
        return self.member.role

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def site(self) -> str:
        return self.member.site

    @property
    def feeds(self) -> tuple[str, ...]:
        return self.member.feeds

    def __str__(self) -> str:
        return f"{self.member} {self.kind} ({self.reason})"


class End(msgspec.Struct, frozen=True):
    """How a member left."""

    role: Role
    name: _Text
    instance: _Text
    reason: Literal["stopped", "lost"]

    @property
    def key(self) -> Key:
        return key_of(self.role, self.name, self.instance)


class Wanted(NamedTuple):
    """What `wait_for` waits for."""

    role: Role
    name: str

    def matches(self, member: Member) -> bool:
        return member.role == self.role and self.name in (ANY, member.name)


def parse_wanted(text: str) -> Wanted:
    """A member as text, `site:denver` or `supplier:*`; OptionError if it is invalid."""
    role, mark, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not mark or not name or role not in ROLES:
        hint = f"write ROLE:NAME, with one of {', '.join(ROLES)}, such as site:denver or supplier:*"
        raise OptionError(f"{text!r} is not a member", hint)
    return Wanted(check_role(role), name)


def check_role(role: str) -> Role:
    for known in ROLES:
        if role == known:
            return known
    raise OptionError(f"role {role!r} is unknown", f"choose one of {', '.join(ROLES)}")


@dataclass(frozen=True, slots=True)
class Look:
    """What an observer has seen: all members, or those that have changed and those that have left."""

    members: Iterable[Member]
    ends: Iterable[End] = ()
    is_whole: bool = True
    otherwise: Reason = "lost"  # why members have left of which there is no End


@dataclass(slots=True)
class View:
    """The members that an observer knows. `see` turns a look into events."""

    here: dict[Key, Member] = field(default_factory=dict)
    _away: OrderedDict[Key, str] = field(default_factory=OrderedDict)  # the instance that left
    _is_new: bool = True

    def see(self, look: Look) -> list[MemberEvent]:
        """The differences to the last look: members that left, then those that joined or changed."""
        now_ns = time.time_ns()
        came = {member.key: member for member in look.members}
        ended: dict[Key, Reason] = {(end.role, end.name, end.instance): end.reason for end in look.ends}
        gone = {end.key for end in look.ends}
        events = [
            MemberEvent("left", self._why(member, ended, look.otherwise), member, now_ns)
            for key, member in list(self.here.items())
            if key not in came and (look.is_whole or key in gone)
        ]
        for event in events:
            self._forget(event.member)
        came_in = [self._take(member, now_ns) for member in came.values()]
        self._is_new = False
        return events + [event for event in came_in if event is not None]

    def _why(self, member: Member, ended: Mapping[Key, Reason], otherwise: Reason) -> Reason:
        return ended.get((member.role, member.name, member.instance), otherwise)

    def _forget(self, member: Member) -> None:
        del self.here[member.key]
        self._away[member.key] = member.instance
        self._away.move_to_end(member.key)
        if len(self._away) > _AWAY_MAX:
            self._away.popitem(last=False)

    def _take(self, member: Member, now_ns: int) -> MemberEvent | None:
        before = self.here.get(member.key)
        self.here[member.key] = member
        if before is None:
            return MemberEvent("joined", self._how(member), member, now_ns)
        if before.instance != member.instance:
            return MemberEvent("changed", "restarted", member, now_ns)
        return MemberEvent("changed", "feeds", member, now_ns) if before != member else None

    def _how(self, member: Member) -> Reason:
        if self._is_new:
            return "present"
        instance = self._away.pop(member.key, None)
        return "new" if instance is None else "returned" if instance == member.instance else "restarted"

"""Members: the sites and programs that take part, as plain data, and what has changed since an observer looked last.

    site        a site of the fabric                         known by its name
    client      a program that is connected to the site      by its user, or the name of its certificate
    supplier    a supplier of a channel                      by the name of the channel
    consumer    a consumer of a station                      by the name of the station

A View compares states, and never reads a list of events. So an observer that was slow, or away, misses no difference:
a member that came and went meanwhile is left out, and everything else is as it is now. Every run of a site is a member
of its own. A run that appears when the one before has left is that site, restarted; one that appears beside another is
a duplicate: two sites have one name.

Not here: who looks (member_stream.py), and what a site knows of other sites (remote/server/membership.py).
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec

from headrace.errors import OptionError

Role = Literal["site", "client", "supplier", "consumer"]
Reason = Literal["present", "new", "returned", "restarted", "duplicate", "feeds", "stopped", "lost", "unreachable"]
Key = tuple[str, str, str]  # role, name, instance
ROLES: tuple[Role, ...] = get_args(Role)
FEEDS_MAX = 100  # of one member
ANY = "*"
_AWAY_MAX = 4096  # members that have left and are remembered, to recognise their return

_Text = Annotated[str, msgspec.Meta(max_length=1024)]
_Feeds = Annotated[tuple[Annotated[str, msgspec.Meta(max_length=4096)], ...], msgspec.Meta(max_length=FEEDS_MAX)]


class Member(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
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
        return self.role, self.name, self.instance

    def __str__(self) -> str:
        return f"{self.role}:{self.name}"


class MemberEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a member left."""

    role: Role
    name: _Text
    instance: _Text
    reason: Literal["stopped", "lost"]

    @property
    def key(self) -> Key:
        return self.role, self.name, self.instance


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
    _away: OrderedDict[Key, None] = field(default_factory=OrderedDict)  # those that left, the last one at the end
    _runs: Counter[str] = field(default_factory=Counter)  # sites that are here, by their names
    _is_new: bool = True

    def see(self, look: Look) -> list[MemberEvent]:
        """The differences to the last look: members that left, then those that joined or changed."""
        now_ns = time.time_ns()
        came = {member.key: member for member in look.members}
        ended: dict[Key, Reason] = {end.key: end.reason for end in look.ends}
        left = {key: member for key, member in self.here.items() if key not in came and (look.is_whole or key in ended)}
        for key in left:
            self._forget(key)
        before = {member.name: key for key, member in left.items() if member.role == "site"}
        came_in = [self._take(member, now_ns, before, left) for member in came.values()]
        self._is_new = False
        gone = [MemberEvent("left", ended.get(key, look.otherwise), member, now_ns) for key, member in left.items()]
        return gone + [event for event in came_in if event is not None]

    def _forget(self, key: Key) -> None:
        del self.here[key]
        if key[0] == "site":
            self._runs[key[1]] -= 1
        self._away[key] = None
        self._away.move_to_end(key)
        if len(self._away) > _AWAY_MAX:
            self._away.popitem(last=False)

    def _take(self, member: Member, now_ns: int, before: dict[str, Key], left: dict[Key, Member]) -> MemberEvent | None:
        """Take a member over. A site whose run `before` left in the same look was restarted, and has not left."""
        known = self.here.get(member.key)
        self.here[member.key] = member
        if known is not None:
            return MemberEvent("changed", "feeds", member, now_ns) if known != member else None
        if member.role == "site":
            self._runs[member.name] += 1
            if self._runs[member.name] > 1:
                return MemberEvent("joined", "duplicate", member, now_ns)
            if (key := before.pop(member.name, None)) is not None:
                del left[key]
                return MemberEvent("changed", "restarted", member, now_ns)
        return MemberEvent("joined", self._how(member), member, now_ns)

    def _how(self, member: Member) -> Reason:
        if self._is_new:
            return "present"
        if member.key in self._away:
            del self._away[member.key]
            return "returned"
        earlier = [key for key in self._away if member.role == key[0] == "site" and key[1] == member.name]
        for key in earlier:
            del self._away[key]
        return "restarted" if earlier else "new"

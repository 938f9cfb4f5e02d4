"""Roster: the members that a site knows, with a number for each state, so that a client receives differences.

Plain data without threads or clocks; membership.py looks for members and answers clients.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.queue.members import End, Key, Member

ENDS_MAX = 4096  # members that have left and are remembered; a client that is further behind gets the whole list


@dataclass(frozen=True, slots=True)
class Changes:
    """Members that are new or have changed, and those that have left; of a whole list, all that are there."""

    is_whole: bool
    members: list[Member]
    ended: list[tuple[Member, End]]


class Roster:
    """The list of one run of a site; `list_id` tells it from that of another run."""

    def __init__(self) -> None:
        self.list_id, self.state = secrets.token_hex(8), 0
        self._members: dict[Key, tuple[Member, int]] = {}  # and the state that changed it
        self._ends: OrderedDict[Key, tuple[Member, End, int]] = OrderedDict()  # the same, the oldest first
        self._complete_since = 0  # `_ends` has all that left behind this state

    def members(self) -> list[Member]:
        return [member for member, _ in self._members.values()]

    def update(self, now: Iterable[Member], end_of: Callable[[Member], End]) -> bool:
        """Take over what there is now; True if that is another state. `end_of` says how a member left."""
        here = {member.key: member for member in now}
        changed = [member for key, member in here.items() if (self._members.get(key) or (None,))[0] != member]
        gone = [member for key, (member, _) in self._members.items() if key not in here]
        if not changed and not gone:
            return False
        self.state += 1
        for member in gone:
            del self._members[member.key]
            self._note_end(member, end_of(member))
        for member in changed:
            self._members[member.key] = member, self.state
        return True

    def _note_end(self, member: Member, end: End) -> None:
        key = (end.role, end.name, end.instance)
        self._ends[key] = member, end, self.state
        self._ends.move_to_end(key)
        if len(self._ends) > ENDS_MAX:
            _, (_, _, forgotten) = self._ends.popitem(last=False)
            self._complete_since = forgotten

    def changes(self, list_id: str, state: int) -> Changes:
        """What has changed since a state that a client knows, or everything."""
        is_known = list_id == self.list_id and 0 < state <= self.state
        is_whole = not is_known or state < self._complete_since
        return Changes(
            is_whole,
            [member for member, when in self._members.values() if is_whole or when > state],
            [(member, end) for member, end, when in self._ends.values() if is_known and when > state],
        )

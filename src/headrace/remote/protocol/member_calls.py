"""The call that watches members, and its reply; calls.py says how calls travel.

A site numbers the states of its list of members. A client says which state it knows, and the site replies when there is
another one: with the difference, or with the whole list if the client knows none, or one of an earlier run of the site,
or one that is too old.
"""

from typing import Annotated

import msgspec

from headrace.queue.members import End, Member
from headrace.relay.messages.page import Sequence64
from headrace.remote.protocol.fields import CallStruct, Name, Wait

MEMBERS_MAX = 32_768  # in one reply: all roles at their limits


class WatchMembers(CallStruct, frozen=True):
    """The members that the client may see, as soon as they differ from this state of this list."""

    list_id: Name = ""
    state: Sequence64 = 0  # 0: none
    wait_s: Wait = 0.0


class MemberChanges(msgspec.Struct, frozen=True, tag=str.lower, omit_defaults=True, forbid_unknown_fields=True):
    """Members that are new or have changed, and how others left; of a whole list, all that are there."""

    list_id: str
    state: Sequence64
    is_whole: bool
    members: Annotated[list[Member], msgspec.Meta(max_length=MEMBERS_MAX)] = []
    ends: Annotated[list[End], msgspec.Meta(max_length=MEMBERS_MAX)] = []

"""What a balancer works on, how patient it is, and what it reports: plain data and one Protocol."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

from headrace.share.interface import Reason, ShareState, ShareTerms, Slices


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things take. All in seconds."""

    lease_s: float = 2.0  # a standby takes over so long after the leader has ended
    decide_s: float = 1.0  # between two decisions about loads
    session_s: float = 10.0  # for a giver to let go of one slice more
    rest_s: float = 10.0  # before a slice that has moved for its load may move again
    idle_step_s: float = 0.25  # between two steps; shorter while sessions run
    busy_step_s: float = 0.02


@runtime_checkable
class Balanced(Protocol):
    """A group, as far as a balancer uses it: any AnyShare, and `headrace.testing.MemoryGroup`."""

    @property
    def terms(self) -> ShareTerms: ...
    def state(self) -> ShareState: ...
    def lead(self, balancer: str, lease_s: float, *, yields: bool = False) -> int: ...
    def begin(self, term: int, giver: int, taker: int, slices: Slices, reason: Reason) -> int: ...
    def cancel(self, term: int, slices: Slices) -> int: ...
    def give(self, term: int, taker: int, slices: Slices, reason: Reason) -> int: ...
    def seize(self, term: int, seat: int) -> int: ...
    def drain(self, seat: int) -> None: ...


class BalancerStatistics(msgspec.Struct, frozen=True):
    """What a balancer has done since it was made."""

    name: str
    is_leader: bool
    term: int
    steps: int
    decisions: int
    decision_s: float  # the last one
    sessions: int
    slices_moved: int  # in sessions that were begun
    slices_given: int  # that had no owner
    cancelled: int
    seized: int  # nodes
    drained: int  # nodes that were released
    errors: int  # of the algorithm, of the queue and of the network
    latest_error: str
    busiest: float  # load of the busiest node, divided by the mean; 0: nothing is measured
    nodes_wanted: int

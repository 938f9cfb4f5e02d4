"""What a node and a balancer do with a group, wherever its queue is: plain data and two Protocols.

    AnyShare    Share    RemoteShare    a group: its nodes, slices and sessions; what `queue.share` returns
    AnySeat     Seat     RemoteSeat     the place of one node in it; what `share.join` returns

A node and its group exchange one kind of message: the node sends its Progress, and receives the slices that it holds if
they have changed. The message may arrive late, twice or never: a confirmation counts only from the owner in its own
epoch, positions only grow, and a report is counted by its number.

Seats are numbered from 0; NOBODY stands for none. Times are nanoseconds since 1970, except ages, in seconds.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypedDict

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.log.read import Start
from headrace.product.batch import Lost
from headrace.station.terms import Age

NOBODY = 0xFFFF
ELSEWHERE = 0xFFFE  # the owner of slices that a group does not work on
Slices = npt.NDArray[np.uint32]
Epochs = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Reason = Literal["load", "join", "drain", "idle", "dead", "hand"]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_Metric = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
_Whole = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Marks(NamedTuple):
    """How far some slices have come: everything of a slice below its position is done."""

    slices: Slices
    epochs: Epochs
    positions: Positions

    def where(self, chosen: Flags) -> "Marks":
        return Marks(self.slices[chosen], self.epochs[chosen], self.positions[chosen])

    def joined(self, others: "Marks") -> "Marks":
        return Marks(
            np.concatenate([self.slices, others.slices]), np.concatenate([self.epochs, others.epochs]),
            np.concatenate([self.positions, others.positions]),
        )  # fmt: skip

    def __bool__(self) -> bool:
        return len(self.slices) > 0


def marks(slices: Any = (), epochs: Any = (), positions: Any = ()) -> Marks:
    """Marks from any sequences."""
    return Marks(np.asarray(slices, np.uint32), np.asarray(epochs, np.uint32), np.asarray(positions, np.uint64))


NO_MARKS = marks()


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a node reports of itself."""

    cpu: _Amount = 0.0  # cores that its processes have used since the last report
    memory: _Whole = 0  # bytes
    waiting: _Whole = 0  # products of its slices that it has not begun
    in_work: _Whole = 0
    capacity: _Amount = 1.0  # how much work it can do at a time, in seconds of work per second
    metrics: dict[str, _Metric] = {}  # the user's own


class Work(NamedTuple):
    """What was done since the last report, by slice. A report with the number of an earlier one counts nothing."""

    number: int  # of the report: 1, 2, …
    slices: Slices
    products: Counts  # confirmed
    busy_ns: Counts  # time that the work on them took
    lost: Lost | None = None  # sequences evicted before the node read them; nobody knows how many were of its slices
    failed: int = 0  # attempts that raised, hung or died


class Progress(NamedTuple):
    """What a node sends."""

    seen: int = 0  # the version of the holding that it knows
    confirm: Marks = NO_MARKS
    release: Marks = NO_MARKS  # the last confirmation of slices that it lets go
    load: Load | None = None
    work: Work | None = None


class Holding(NamedTuple):
    """The slices of one seat."""

    slices: Slices
    epochs: Epochs
    positions: Positions  # where to begin, or go on
    leaving: Flags  # in session: begin nothing of it any more, then release it
    careful: Positions  # not 0: an owner died. Up to here, begin one product at a time, each announced by `begin`
    suspects: Positions  # the product that was in work when attempts failed; 0: none
    tries: npt.NDArray[np.uint8]  # how often
    coming: Slices  # in session, with this seat as the taker: they follow when the giver lets go
    draining: bool  # the node is asked to leave


class Exchanged(NamedTuple):
    """What a node receives."""

    version: int
    holding: Holding | None  # None: as the node knows it
    refused: Slices  # confirmations and releases that did not count: another node owns the slice
    pause_s: float = 0.0  # a site with many nodes asks for so much time until the next confirmation


class NodeState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One seat, as others see it."""

    seat: int
    name: str
    pid: int
    user: str
    joined_ns: int
    age_s: float  # since its last exchange
    is_alive: bool  # the heartbeat is not older than the group's `dead_after`
    draining: bool
    load: Load
    slices: int  # that it owns
    products: int  # confirmed since it joined
    busy_s: float


class Session(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A load-balancing session, in the order of its times; 0: not yet."""

    number: int
    giver: str  # names of nodes; empty: nobody, the slices had no owner
    taker: str
    slices: int
    left: int  # slices that the giver still has
    reason: Reason
    begun_ns: int  # the giver's slices are in session, and the taker has added them
    removed_ns: int  # the giver has let go of the last one
    available_ns: int  # the taker works on them
    ended_ns: int
    outcome: Literal["running", "done", "cancelled", "dead"]


class Sample(NamedTuple):
    """The load of one node at one moment."""

    time_ns: int
    node: str
    cpu: float
    busy: float  # seconds of work per second
    waiting: int
    slices: int


class ShareState(NamedTuple):
    """The whole group at one moment; columns have one entry for each slice."""

    stream: str
    group: str
    nodes: list[NodeState]
    owners: npt.NDArray[np.uint16]  # seat, or NOBODY
    takers: npt.NDArray[np.uint16]
    epochs: Epochs
    positions: Positions
    products: Counts  # confirmed since the group was made
    busy_ns: Counts
    head: int  # the sequence that the queue's next product will have
    sessions: list[Session]  # those that run, and the latest ones that ended
    leader: str  # the balancer; empty: none
    term: int
    counters: dict[str, int]  # lost, lost_last, failed, parked, refused, sessions, cancelled, deaths


class Parked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A product that was given up after too many attempts."""

    slice: int
    sequence: int
    tries: int
    error: str
    node: str
    time_ns: int


class ShareTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group as it was created."""

    group: str
    stream: str  # name of the channel
    channel: int  # number of the channel, which another one of that name does not have
    number: int  # of its file; never reused
    id: str  # unlike that of any other group, here or elsewhere
    slices: int
    only: str = ""  # the slices that this group works on, such as "0-127"; empty: all
    dead_after_s: float
    tries_max: int
    created_ns: int


class ShareOptions(TypedDict, total=False):
    """The terms of a group, as callers write them."""

    start: Start  # where a new group begins: "oldest", or as for `Queue.read`
    slices: int | None  # how many the caller expects the stream to have
    only: str | Sequence[int] | None  # the slices that the group works on, such as "0-127"; all by default
    dead_after: Age | None  # "3s": a node that is not heard of for so long loses its slices
    tries_max: int | None  # 3: attempts before a product is parked


class AnySeat(Protocol):
    """A node's place in a group. One thread at a time."""

    number: int
    name: str

    @property
    def version(self) -> int: ...
    def exchange(self, progress: Progress) -> Exchanged: ...
    def wait(self, seen: int, timeout_s: float) -> int: ...
    def begin(self, slice: int, epoch: int, sequence: int) -> bool: ...
    def fail(self, slice: int, epoch: int, sequence: int) -> int: ...
    def park(self, slice: int, epoch: int, sequence: int, error: str) -> bool: ...
    def leave(self) -> None: ...


class AnyShare(Protocol):
    """A group of nodes that share a stream."""

    @property
    def terms(self) -> ShareTerms: ...
    @property
    def feed(self) -> str: ...
    def join(self, node: str = "") -> AnySeat: ...
    def state(self) -> ShareState: ...
    def history(self) -> list[Sample]: ...
    def parked(self) -> list[Parked]: ...
    def unpark(self, sequences: Sequence[int] | None = None) -> list[Parked]: ...
    def lead(self, balancer: str, lease_s: float, *, yields: bool = False) -> int: ...
    def begin(self, term: int, giver: int, taker: int, slices: Slices, reason: Reason) -> int: ...
    def cancel(self, term: int, slices: Slices) -> int: ...
    def give(self, term: int, taker: int, slices: Slices, reason: Reason) -> int: ...
    def seize(self, term: int, seat: int) -> int: ...
    def drain(self, seat: int) -> None: ...
    def remove(self) -> None: ...

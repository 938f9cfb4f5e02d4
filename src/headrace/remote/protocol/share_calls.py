"""Calls about groups of processing nodes; calls.py says how calls travel, share_replies.py has the replies.

Each call names its group, and a call of a node also its seat, with the secret number (`instance`) that the node drew
when it joined. So a site keeps nothing of a node: a restarted one knows from the group's table whose seat it is.

Columns are bytes, little-endian and without padding. Slices are in ascending order, each once.
"""

from typing import Annotated, Any

import msgspec
import numpy as np

from headrace.errors import FabricMessageError
from headrace.product.batch import Lost
from headrace.relay.messages.page import Sequence64
from headrace.remote.protocol.fields import CallStruct, Count, Name, Number64, Options, Seconds, Start, Text, Wait
from headrace.share.interface import Load, Marks, Progress, Slices, Work
from headrace.share.layout import SEATS

SLICES_MAX = 65_536
SEQUENCES_MAX = 4_096  # of products that were given up

Column = Annotated[bytes, msgspec.Meta(max_length=8 * SLICES_MAX)]
SeatNumber = Annotated[int, msgspec.Meta(ge=0, lt=SEATS)]
Instance = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
ReasonText = Annotated[str, msgspec.Meta(pattern="^(load|join|drain|idle|dead|hand)$")]
Sequences = Annotated[list[Number64], msgspec.Meta(max_length=SEQUENCES_MAX)]


# --- parts ------------------------------------------------------------------------------------------


class Marked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far some slices have come."""

    slices: Column  # u32
    epochs: Column  # u32
    positions: Column  # u64

    @classmethod
    def of(cls, marks: Marks) -> "Marked | None":
        """Of several marks of one slice, the furthest counts."""
        if not marks:
            return None
        if not _ascends(marks.slices):
            order = np.lexsort((marks.positions, marks.slices))
            last = order[np.append(np.diff(marks.slices[order]) != 0, True)]
            marks = Marks(marks.slices[last], marks.epochs[last], marks.positions[last])
        return cls(column(marks.slices, "<u4"), column(marks.epochs, "<u4"), column(marks.positions, "<u8"))

    def marks(self) -> Marks:
        slices = slices_in(self.slices)
        count = len(slices)
        return Marks(slices, numbers_in(self.epochs, "<u4", count), numbers_in(self.positions, "<u8", count))


class Worked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was done since the last report."""

    number: Sequence64
    slices: Column  # u32
    products: Column  # u64
    busy_ns: Column  # u64
    lost_first: Sequence64 = 0  # 0: none
    lost_last: Sequence64 = 0
    failed: Sequence64 = 0

    @classmethod
    def of(cls, work: Work | None) -> "Worked | None":
        if work is None:
            return None
        slices, place = np.unique(work.slices, return_inverse=True)
        products, busy_ns = np.zeros(len(slices), np.uint64), np.zeros(len(slices), np.uint64)
        np.add.at(products, place, work.products)
        np.add.at(busy_ns, place, work.busy_ns)
        columns = column(slices, "<u4"), column(products, "<u8"), column(busy_ns, "<u8")
        first, last = (work.lost.first, work.lost.last) if work.lost is not None else (0, 0)
        return cls(work.number, *columns, first, last, work.failed)

    def work(self) -> Work:
        slices = slices_in(self.slices)
        products, busy_ns = (numbers_in(each, "<u8", len(slices)) for each in (self.products, self.busy_ns))
        if products.max(initial=0) >> 40 or busy_ns.max(initial=0) >> 47:
            raise FabricMessageError("a report of work is out of range", "report at most 39 hours of work of a slice")
        if self.lost_last < self.lost_first or (self.lost_first == 0) != (self.lost_last == 0):
            raise FabricMessageError("a lost range is invalid", "report its first and its last sequence")
        lost = Lost(self.lost_first, self.lost_last) if self.lost_last else None
        return Work(self.number, slices, products, busy_ns, lost, self.failed)


# --- groups -----------------------------------------------------------------------------------------


class ListShares(CallStruct, frozen=True):
    """The groups that the client may use, each as CHANNEL/GROUP."""


class ShareStruct(CallStruct, frozen=True):
    """A call about one group."""

    stream: Name  # a channel that has slices
    group: Name


class OpenShare(ShareStruct, frozen=True):
    """Open a group, or make it."""

    start: Start
    options: Options
    create: bool = True  # if it does not exist


class DescribeShare(ShareStruct, frozen=True):
    """The state of a group, the loads of its nodes, or the products that were given up."""

    what: Annotated[str, msgspec.Meta(pattern="^(state|history|parked)$")]


class RemoveShare(ShareStruct, frozen=True):
    pass


class UnparkProducts(ShareStruct, frozen=True):
    sequences: Sequences | None


# --- nodes ------------------------------------------------------------------------------------------


class JoinShare(ShareStruct, frozen=True):
    """Take a seat, or find the one that was taken with the same `instance`."""

    instance: Instance  # secret, drawn by the client
    node: Name
    pid: Count = 0
    may_vary: bool = False  # if a node of that name is alive, append a number


class SeatStruct(ShareStruct, frozen=True):
    """A call of the node at one seat."""

    seat: SeatNumber
    instance: Instance


class Exchange(SeatStruct, frozen=True):
    """Confirm, release and report; the reply says what the seat holds, unless that is `seen`."""

    seen: Sequence64 = 0
    confirm: Marked | None = None
    release: Marked | None = None
    load: Load | None = None
    work: Worked | None = None

    @classmethod
    def of(cls, stream: str, group: str, seat: int, instance: int, progress: Progress) -> "Exchange":
        return cls(
            stream, group, seat, instance, progress.seen, Marked.of(progress.confirm), Marked.of(progress.release),
            progress.load, Worked.of(progress.work),
        )  # fmt: skip

    def progress(self) -> Progress:
        given = {name: each.marks() for name in ("confirm", "release") if (each := getattr(self, name)) is not None}
        return Progress(self.seen, load=self.load, work=None if self.work is None else self.work.work(), **given)


class WatchSeat(SeatStruct, frozen=True):
    """The version of what the seat holds, as soon as it is not `seen`. No heartbeat: the node itself sends those."""

    seen: Sequence64
    wait_s: Wait = 0.0


class BeginProduct(SeatStruct, frozen=True):
    slice: Count
    epoch: Count
    sequence: Sequence64


class FailProduct(SeatStruct, frozen=True):
    slice: Count
    epoch: Count
    sequence: Sequence64


class ParkProduct(SeatStruct, frozen=True):
    slice: Count
    epoch: Count
    sequence: Sequence64
    error: Text


class LeaveSeat(SeatStruct, frozen=True):
    pass


# --- balancers --------------------------------------------------------------------------------------


class LeadShare(ShareStruct, frozen=True):
    """Become or stay the balancer."""

    balancer: Name
    lease_s: Seconds
    yields: bool = False  # to any balancer that does not


class MoveSlices(ShareStruct, frozen=True):
    """Begin a session."""

    term: Sequence64  # 0: by hand
    giver: SeatNumber
    taker: SeatNumber
    slices: Column  # u32
    reason: ReasonText


class CancelMoves(ShareStruct, frozen=True):
    term: Sequence64
    slices: Column


class GiveSlices(ShareStruct, frozen=True):
    """Give slices without an owner."""

    term: Sequence64
    taker: SeatNumber
    slices: Column
    reason: ReasonText


class SeizeSeat(ShareStruct, frozen=True):
    """Take the slices of a dead node."""

    term: Sequence64
    seat: SeatNumber


class DrainSeat(ShareStruct, frozen=True):
    seat: SeatNumber


NumberedShareCall = (
    OpenShare | RemoveShare | UnparkProducts | FailProduct | LeaveSeat | MoveSlices | CancelMoves | GiveSlices
    | SeizeSeat | DrainSeat
)  # fmt: skip
ShareCall = (
    NumberedShareCall | ListShares | DescribeShare | JoinShare | Exchange | WatchSeat | BeginProduct | ParkProduct
    | LeadShare
)  # fmt: skip


# --- columns ----------------------------------------------------------------------------------------


def column(numbers: Any, kind: str) -> bytes:
    """Numbers as they travel."""
    return np.ascontiguousarray(numbers, kind).tobytes()


def numbers_in(data: bytes, kind: str, count: int | None = None) -> Any:
    """The numbers of a column; FabricMessageError if there are not `count` of them."""
    size = np.dtype(kind).itemsize
    if len(data) % size or len(data) > size * SLICES_MAX or (count is not None and len(data) != count * size):
        expected = "a whole number of" if count is None else f"{count}"
        raise FabricMessageError(
            f"a column of {len(data)} bytes is invalid: it has to have {expected} numbers of {size} bytes",
            f"at most {SLICES_MAX}, and as many as there are slices",
        )
    return np.frombuffer(data, kind)


def slices_in(data: bytes) -> Slices:
    """The slices of a column, which ascend."""
    slices: Slices = numbers_in(data, "<u4")
    if not _ascends(slices):
        raise FabricMessageError("the slices of a call are not in ascending order", "send each slice once, sorted")
    return slices


def _ascends(slices: Slices) -> bool:
    return bool(np.all(slices[1:] > slices[:-1]))

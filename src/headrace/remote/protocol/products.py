"""Batches as they travel from a site to its clients: `products_of` at the site, `batch_of` at the client.

A reply `Products` has the sequences and times that the site's queue gave to the products; their records are the payload
of the message. The batch at the client is a Batch in every respect. Its payloads are views of the message, which lives
for as long as any of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import FabricMessageError, RecordsDamagedError
from headrace.kernel import _kernel as kernel
from headrace.log.records import Names, read_batch, rows_of
from headrace.product.batch import Batch, Lost
from headrace.remote.protocol.replies import PLACE_BYTES, Products

Places = npt.NDArray[np.uint32]
Rewrite = Callable[[Batch, int], bytes | None]


class RemoteBatch(Batch):
    """`got` is the number of the Get that returned it, through `attachment`; 0 for a batch that was only read."""

    __slots__ = ("at", "attachment", "got")

    def __init__(self, batch: Batch, lost: Lost | None, got: int, attachment: int, at: Places | None = None) -> None:
        rows = rows_of(batch)
        super().__init__(rows, rows.names, lost)
        self.got, self.attachment = got, attachment
        self.at = at  # where the site has these products in its batch; None: in the same places

    def take(self, places: Sequence[int] | npt.NDArray[np.integer[Any]]) -> "RemoteBatch":
        """The products at these places, as a batch without copies; IndexError if there is no such place."""
        chosen = np.ascontiguousarray(places, np.uint32)
        at = chosen if self.at is None else self.at[chosen]
        return RemoteBatch(super().take(chosen), None, self.got, self.attachment, at)


def products_of(
    batch: Batch, head: int, count: int | None = None, rewrite: Rewrite | None = None
) -> tuple[Products, bytes]:
    """The reply with a batch, or its first `count` products, and their records. `head`: the queue's next sequence.

    `rewrite` returns the records of so many products for a client that needs them in another form; None: it does not.
    """
    rows = rows_of(batch)
    count = len(rows) if count is None else count
    places, records = kernel.gather_placed(rows, count)
    other = None if rewrite is None else rewrite(batch, count)
    records = records if other is None else other
    lost = batch.lost
    first, last = (lost.first, lost.last) if lost is not None else (0, 0)
    return Products(batch.next, head, rows.bytes, places, first, last, rows.passed_over), records


def batch_of(reply: Products, records: bytes, names: Names, got: int = 0, attachment: int = 0) -> RemoteBatch:
    """The batch in a reply; FabricMessageError names what is invalid in it."""
    try:
        batch = read_batch(records, names)
        kernel.place_rows(rows_of(batch), reply.places, reply.next, reply.passed_over)
    except RecordsDamagedError as error:
        raise FabricMessageError(f"products in a reply: {error.problem}", error.hint) from None
    except (ValueError, OverflowError):
        raise FabricMessageError("a reply does not match the products in it", "retry") from None
    lost = Lost(reply.lost_first, reply.lost_last) if reply.lost_last else None
    return RemoteBatch(batch, lost, got, attachment)


def expired_in(batch: Batch, reply: Products, now_ns: int) -> npt.NDArray[np.bool_]:
    """Which products have expired by now, the site's time: their own expiry, or the station's timeout or stop time."""
    expires, inserted = batch.columns["expires_ns"], batch.columns["inserted_ns"]
    late: npt.NDArray[np.bool_] = (expires != 0) & (expires <= np.uint64(now_ns))
    if reply.timeout_ns:
        late |= inserted + np.uint64(reply.timeout_ns) <= np.uint64(now_ns)
    if reply.stop_ns and reply.stop_ns <= now_ns:
        late[:] = True
    return late


def arrive_in_time(batch: Batch, now_ns: int, timeout_ns: int, each_ns: int) -> int:
    """How many products of a batch arrive before they expire if each takes so long; at least one.

    Without this, a batch of a busy station would take so long on a slow link that all of its products expire there.
    """
    inserted = batch.columns["inserted_ns"]
    ends = inserted + np.uint64(timeout_ns)
    arrive = np.uint64(now_ns) + np.arange(1, len(batch) + 1, dtype=np.uint64) * np.uint64(each_ns)
    late = np.flatnonzero(arrive >= ends)
    return max(1, int(late[0])) if len(late) else len(batch)


def part_of(batch: RemoteBatch, reply: Products, keep: npt.NDArray[np.bool_], names: Names) -> RemoteBatch:
    """Some products of a batch from a reply, as a batch."""
    at = np.flatnonzero(keep).astype(np.uint32)
    places = np.frombuffer(reply.places, f"V{PLACE_BYTES}")[at].tobytes()
    rest = batch_of(msgspec.structs.replace(reply, places=places), rows_of(batch).gather_records(at), names)
    return RemoteBatch(rest, batch.lost, batch.got, batch.attachment, at)


def places_at_site(batch: Batch, places: Places | None) -> Places | None:
    """Where the site has these products of a batch; None: all, in their places."""
    at = batch.at if isinstance(batch, RemoteBatch) else None
    return places if at is None else at if places is None else at[places]

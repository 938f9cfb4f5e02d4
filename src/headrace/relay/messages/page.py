"""Page: products on their way to another site, and the range of the sender's log that they cover.

A page covers a range of one stream: the sender examined its queue from behind `after` up to `upto`, in sequences of its
own queue, and the page has what it found: products of one feed in a live page, of all requested feeds in a page from
the log. So a receiver that has everything up to `after` has everything up to `upto` once it has stored the page, even
a page without products. A receiver that has less knows exactly what is missing. A page from the log also says what it
leaves out of its range: a lost range, and how many products by cause (product/cause.py).

The head travels as the attachment of a message, the records (docs/format.md) as its payload. `decode` checks all of a
page before anything of it is used.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.decoding import Decoder
from headrace.errors import FabricMessageError, RecordsDamagedError
from headrace.log.records import Names, read_batch
from headrace.product.batch import Batch, rows_behind
from headrace.product.cause import Cause, LostBy
from headrace.queue import Queue
from headrace.relay.messages.version import check_version, other_version

VERSION = 2
PAGE_BYTES_MAX = 1 << 30  # of records; a session admits a little more, for the head
HEAD_BYTES_MAX = 16 << 20

Sequence64 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
SiteName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
StreamName = Annotated[str, msgspec.Meta(pattern=r"^(own|((_|[A-Za-z0-9][A-Za-z0-9._-]{0,62}):)?[0-9a-f]{16})$")]
Keep = npt.NDArray[np.uint8]  # one for each product of a page: 1 to keep it, 0 to skip it
QueueId = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class PageHead(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What a page covers. Sequences are those of the sending site's queue."""

    version: int
    site: SiteName
    queue: QueueId  # a new queue has a new id, and counts from 1 again
    stream: StreamName
    after: Sequence64
    upto: Sequence64
    head: Sequence64  # the sequence that the site's next product will have
    count: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)]
    sent_ns: Sequence64
    lost_first: Sequence64 = 0  # this range is not available from this site any more
    lost_last: Sequence64 = 0
    sequences: bytes = b""  # of the records, 8 bytes each; empty: equal to their origin sequences
    lost_by: LostBy = "evicted"
    left_out: dict[Cause, Sequence64] = {}  # from the log: products of the selection that the page does not have


class Page:
    """A decoded page. Its products are a range of a batch, which may hold other pages' products too."""

    __slots__ = ("batch", "columns", "head", "sequences")

    def __init__(self, head: PageHead, batch: Batch, sequences: npt.NDArray[np.uint64], columns: Any = None) -> None:
        self.head, self.batch, self.sequences = head, batch, sequences
        self.columns = batch.columns if columns is None else columns

    def __len__(self) -> int:
        return len(self.columns)


_HEAD: Decoder[PageHead] = Decoder(PageHead, bytes_max=HEAD_BYTES_MAX)
_encode = msgspec.msgpack.Encoder().encode


Pack = Callable[[Batch, npt.NDArray[np.uint32] | None], bytes]  # records as they leave


def records_of(batch: Batch, rows: npt.NDArray[np.uint32] | None = None) -> bytes:
    """The records of a batch one after another: all, or those of `rows`."""
    kernel_rows: Any = rows_behind(batch)
    gathered: bytes = kernel_rows.gather_records(rows)
    return gathered


def queue_id(queue: Queue) -> bytes:
    return uuid.UUID(queue.config.uuid).bytes


def encode_head(head: PageHead) -> bytes:
    return _encode(head)


def decode(head: PageHead, payload: bytes, names: Names) -> Page:
    """The page in a message; FabricMessageError if it is invalid."""
    return decode_all([(head, payload)], names)[0]


def decode_all(sent: Sequence[tuple[PageHead, bytes]], names: Names) -> list[Page]:
    """The pages in several messages, as parts of one batch: that costs about as much as decoding one of them."""
    payload = sent[0][1] if len(sent) == 1 else b"".join(payload for _, payload in sent)
    if len(payload) > PAGE_BYTES_MAX:
        raise FabricMessageError(f"a page has {len(payload)} bytes", f"the maximum is {PAGE_BYTES_MAX}")
    try:
        batch = read_batch(payload, names)
    except RecordsDamagedError as error:
        raise FabricMessageError(f"invalid page of site {sent[0][0].site!r}: {error.problem}", error.hint) from None
    count = sum(head.count for head, _ in sent)
    if len(batch) != count:
        raise FabricMessageError(f"a page of {count} products has {len(batch)} records", "it was changed on its way")
    pages, begin = list[Page](), 0
    for head, _ in sent:
        columns = batch.columns[begin : begin + head.count]
        pages.append(Page(head, batch, _sequences(head, columns), columns))
        begin += head.count
    return pages


def _sequences(head: PageHead, columns: Any) -> npt.NDArray[np.uint64]:
    """The products' sequences in the sending site's queue."""
    sequences: npt.NDArray[np.uint64] = columns["sequence"]
    if head.sequences:
        if len(head.sequences) != 8 * head.count:
            raise FabricMessageError(f"{head.count} products have {len(head.sequences)} bytes of sequences", "")
        sequences = np.frombuffer(head.sequences, np.uint64)
    _check_sequences(head, sequences)
    return sequences


def decode_head(attachment: bytes) -> PageHead:
    """The head in an attachment; FabricMessageError if it is invalid."""
    try:
        head = _HEAD.decode(attachment)
    except msgspec.DecodeError as error:
        check_version("a page", attachment, VERSION)
        raise FabricMessageError(f"invalid head of a page: {error}", "its sender is not a Headrace site") from None
    if head.version != VERSION:
        raise other_version(f"a page of site {head.site!r}", head.version, VERSION)
    if head.after > head.upto:
        raise FabricMessageError(f"a page of site {head.site!r} ends at {head.upto}, before its start {head.after}", "")
    if head.lost_last and not head.after < head.lost_first <= head.lost_last <= head.upto:
        raise FabricMessageError(f"a page of site {head.site!r} has lost a range that it does not cover", "")
    if sum(head.left_out.values()) > head.upto - head.after:
        raise FabricMessageError(f"a page of site {head.site!r} leaves out more products than it covers", "")
    return head


def _check_sequences(head: PageHead, sequences: npt.NDArray[np.uint64]) -> None:
    if not len(sequences):
        return
    first, last = int(sequences[0]), int(sequences[-1])
    rising = len(sequences) == 1 or bool((sequences[1:] > sequences[:-1]).all())
    if not rising or first <= head.after or last > head.upto:
        raise FabricMessageError(
            f"a page of site {head.site!r} for {head.after + 1}-{head.upto} has products out of order or out of range",
            "its sender is not a Headrace site, or the page was changed on its way",
        )


def sequence_bytes(sequences: Sequence[int] | npt.NDArray[np.uint64]) -> bytes:
    return np.asarray(sequences, np.uint64).tobytes()

"""Repeated puts: what an earlier attempt has stored, and could not say.

A site remembers the calls that it has executed, as long as it runs. If it dies after it has stored a product and before
its reply has arrived, the client repeats the call at the next run, and says from where on in the queue its products may
be (`since`). They are looked for here, before the put is executed: a put that was stored must not wait for a station
that its own products have filled, nor be rejected.

A queue that recognises duplicates finds products by their signatures; a single product with an ident is compared. A
queue without duplicates is searched from `since` on: a batch is stored as a whole, so its products lie one behind the
other. Remote clients give each product of such a queue a signature that no other has. Products that are put as they are
in another queue (`put_batch`) may have none; they have their origin, their sequence there and their time of creation.
Another client that puts the same batch at the same moment would be taken for this one, and then its products are in the
queue as well.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.kernel import _kernel as kernel
from headrace.log.columns import Columns
from headrace.log.log import Log
from headrace.product.batch import Batch
from headrace.remote.protocol.calls import PutOne
from headrace.remote.protocol.replies import Number, PutOutcome
from headrace.selection import Selection

_ROWS = 10_000
_BYTES = 1 << 40  # heads have no payloads
_BATCH_BYTES = 16 << 20
_AS_THEY_ARE = ("signature", "origin_sequence", "created_ns", "payload_bytes")  # of a product, whichever queue holds it

Wanted = Mapping[str, npt.NDArray[Any]]  # values of columns, one for each product of a put


def earlier_put(log: Log, call: PutOne, payload: bytes | memoryview) -> Number | None:
    """The reply to a put of one product that was stored before; None if it was not."""
    facts, since = call.facts, call.since
    if not since:
        return None
    if call.ident and facts.signature is None and log.config.dedup == "identity":
        return _duplicate(log, call, payload)
    found = _earlier(log, [facts.signature], [facts.origin], [facts.origin_sequence], since)
    return None if found is None else Number(int(found[0]))


def _duplicate(log: Log, call: PutOne, payload: bytes | memoryview) -> Number | None:
    """The reply for a product that the queue would recognise by its ident, if it was stored since the first attempt."""
    read = log.reader(Selection(call.feed), _ROWS, _BATCH_BYTES)
    position, end = max(call.since, log.oldest), log.next
    while position < end:
        batch = read(position, end)
        for place in np.flatnonzero(batch.sizes == len(payload)).tolist():
            if batch[place].ident == call.ident and batch.payload(place) == payload:
                return Number(-int(batch.sequences[place]))
        position = batch.next
    return None


def earlier_put_many(log: Log, columns: Columns, count: int, since: int) -> PutOutcome | None:
    """The reply to a put of many products that were stored before; None if they were not."""
    if not since or not count:
        return None
    columns_of = columns.facts.get
    origins = columns_of("origin")
    found = _earlier(
        log, columns_of("signature") or [None] * count, [origins] * count if isinstance(origins, str) else origins,
        columns_of("origin_sequence"), since,
    )  # fmt: skip
    return None if found is None else _outcome(found)


def earlier_put_batch(log: Log, batch: Batch, keep: npt.NDArray[np.uint8] | None, since: int) -> PutOutcome | None:
    """The reply to a put of products of another queue that were stored before; None if they were not.

    A queue that looks for duplicates recognises these by itself.
    """
    kept = np.arange(len(batch)) if keep is None else np.flatnonzero(keep)
    if not since or not len(kept) or log.config.dedup != "none":
        return None
    names, origins = log.kernel.origins, batch.origins
    wanted = {name: batch.columns[name][kept] for name in _AS_THEY_ARE}
    wanted["origin"] = np.array([names.get(origins[place], 0) for place in kept], np.uint16)
    first = _run(log, wanted, since)
    return None if first is None else PutOutcome(len(kept), len(kept), first)


def _earlier(
    log: Log, signatures: Sequence[bytes | None], origins: Any, origin_sequences: Any, since: int
) -> npt.NDArray[np.int64] | None:
    """What became of each product, as a put replies it; None if they are not known to be stored."""
    is_signed = all(signature is not None for signature in signatures)
    if log.config.dedup != "none":
        held = _held(log, _signatures(signatures), origins) if is_signed else np.zeros(1, np.uint64)
        return -held.astype(np.int64) if held.all() else None
    wanted: dict[str, npt.NDArray[Any]] = {}
    if is_signed:
        wanted["signature"] = _signatures(signatures)
    elif origins is not None and origin_sequences is not None and all(origin_sequences):
        wanted["origin"] = np.array([log.kernel.origins.get(origin, 0) for origin in origins], np.uint16)
        wanted["origin_sequence"] = np.array(origin_sequences, np.uint64)
    first = _run(log, wanted, since) if wanted else None
    return None if first is None else np.arange(first, first + len(signatures), dtype=np.int64)


def _held(log: Log, signatures: npt.NDArray[np.void], origins: Any) -> npt.NDArray[np.uint64]:
    """Where the queue holds products that came with these signatures: as given ones, or as those of its own kind."""
    ours = log.config.origin
    named = [ours if origin is None else origin for origin in origins or [None] * len(signatures)]
    given = np.full(len(signatures), kernel.SIGNATURE_GIVEN, np.uint8)
    held = log.find_signatures(signatures, given, named)
    own = np.full(len(signatures), log.config.signature_kind, np.uint8)
    return held if held.all() else np.where(held, held, log.find_signatures(signatures, own, named))


def _signatures(signatures: Sequence[bytes | None]) -> npt.NDArray[np.void]:
    return np.frombuffer(b"".join(signature or b"" for signature in signatures), "V16")


def _outcome(outcomes: npt.NDArray[np.int64]) -> PutOutcome:
    new = outcomes[outcomes > 0]
    first = int(new[0]) if len(new) else 0
    return PutOutcome(len(outcomes), len(new), first, None if len(new) == len(outcomes) else outcomes.tobytes())


def _run(log: Log, wanted: Wanted, since: int) -> int | None:
    """The first sequence of products, one behind the other, that have these columns; at `since` or behind it."""
    count = len(next(iter(wanted.values())))
    read = log.reader(Selection(), _ROWS, _BYTES, heads=True)
    position, end = max(since, log.oldest), log.next
    while position < end:
        batch = read(position)
        for first in batch.sequences[_equal(batch, wanted, 0)].tolist():
            whole = log.reader(Selection(), count, _BYTES, heads=True)(first, first + count)
            if len(whole) == count and _equal(whole, wanted, slice(None)).all():
                return int(first)
        position = batch.next
    return None


def _equal(batch: Batch, wanted: Wanted, place: Any) -> npt.NDArray[np.bool_]:
    """Which products of a batch have the columns of the product at `place`, or each of its own."""
    equal = np.ones(len(batch), np.bool_)
    for name, values in wanted.items():
        equal &= batch.columns[name] == values[place]
    return equal

"""Large products: a put that a queue does not accept as one product is stored as fragments, by itself.

A payload may be a quarter of the queue, and 4 GiB. A larger one, up to half of the queue, becomes products of the same
feed and ident: a manifest of kind `product`, then fragments, all with the facts of the put. Readers see them marked,
and `product.payload` refuses to pass for a whole (FragmentError); `join.py` joins them.

It is the same product if it is put again: feed, ident and payload give the same transfer and the same signatures, so a
queue recognises each part that it holds. A process that dies meanwhile leaves a product that is never complete; the
next put of the same product completes it. Without an ident, each put is another product.
"""

import os
from typing import Any

from blake3 import blake3

from headrace.log.append import Duplicate
from headrace.log.config import QueueConfig
from headrace.payload.fragments.cutting import fragment_bytes_for
from headrace.payload.fragments.manifest import Manifest, encode_manifest, hash_of, transfer_of
from headrace.payload.fragments.mark import Mark, facts_of
from headrace.payload.fragments.putting import SendQueue

_BATCH_BYTES = 16 << 20
_OWN = ("signature", "origin", "origin_sequence", "previous", "options")  # facts that belong to one record


def may_cut(size: int, config: QueueConfig, facts: Any) -> bool:
    """Whether a put that is too large for one product may become fragments."""
    return size <= config.put_bytes_max and not any(facts.get(name) is not None for name in _OWN)


def put_cut(queue: SendQueue, payload: Any, feed: str, ident: str, timeout: Any, facts: Any) -> int | Duplicate:
    """Store a large product as fragments; the sequence of its manifest, or the Duplicate of the one that is held."""
    view = memoryview(payload).cast("B")
    fragment_bytes = fragment_bytes_for(len(view), queue.config)
    pieces = [view[place : place + fragment_bytes] for place in range(0, len(view), fragment_bytes)]
    hashes = b"".join(hash_of(piece) for piece in pieces)
    identity = (feed, ident, hashes.hex()) if ident else (feed, os.urandom(16).hex())
    manifest = Manifest(
        transfer=transfer_of("product", *identity).hex(), kind="product", name=ident, size=len(view),
        fragment_bytes=fragment_bytes, hashes=hashes,
    )  # fmt: skip
    count, each = len(pieces), max(1, _BATCH_BYTES // fragment_bytes)
    first = _put(queue, [encode_manifest(manifest)], [count], manifest, feed, timeout, facts)
    is_held = bool(first.duplicates[0])
    for place in range(0, count, each):
        numbers = list(range(place, min(place + each, count)))
        receipt = _put(queue, pieces[place : place + each], numbers, manifest, feed, timeout, facts)
        is_held = is_held and not receipt.stored
    sequence = int(first.sequences[0])
    return Duplicate(sequence) if is_held else sequence


def _put(
    queue: SendQueue, payloads: list[Any], numbers: list[int], manifest: Manifest, feed: str, timeout: Any, facts: Any
) -> Any:
    marks = [Mark(manifest.transfer, number, manifest.count) for number in numbers]
    same = bytes.fromhex(manifest.transfer)
    signatures = [blake3(same + number.to_bytes(4)).digest(16) for number in numbers]
    return queue.put_many(
        payloads, feed=feed, ident=manifest.name, timeout=timeout, signature=signatures, **facts, **facts_of(marks)
    )


def bytes_of(payload: Any) -> int:
    """The size of a payload; 0 if it is not bytes-like."""
    try:
        return memoryview(payload).nbytes
    except TypeError:
        return 0

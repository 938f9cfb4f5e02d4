"""Cutting: how large fragments are, and how many of them may be on their way through a queue.

A queue consists of segments of equal size (docs/format.md), and a record lies in one of them. So fragments have a size
of which some fill a segment nearly completely. Fragments that were cut for another queue may waste up to half of each
segment: a site on the way may have a smaller queue than the sender. `room_in` takes that into account.
"""

from headrace.errors import TransferError
from headrace.log.config import QueueConfig
from headrace.payload.fragments.manifest import FRAGMENTS_MAX
from headrace.units import format_size

_USUAL_BYTES = 2 << 20  # the cost of a call does not count, and it is one message over a slow link between sites
_SMALLEST_BYTES = 1 << 16
_IN_SEGMENT = 4  # so many fragments fill a segment, unless they would be smaller or larger than that
_RECORD_BYTES = 4096  # for what a record has besides its payload
_LARGEST_SHARE = 8  # a fragment is this part of a queue at most,
_MANIFEST_SHARE = 32  # and the manifest this part
_LISTED_BYTES = 44  # of a hash in the manifest, in Base64
_ENTRY_BYTES = 1 << 10  # of the manifest of a small file, and the rows and records of both of its products


def fragment_bytes_for(size: int, config: QueueConfig) -> int:
    """How large the fragments of something of that size are, in such a queue.

    TransferError if it needs a larger queue: the manifest with all hashes is one product, too.
    """
    segment = config.segment_bytes
    count = max(-(-segment // _USUAL_BYTES), min(_IN_SEGMENT, segment // _SMALLEST_BYTES))
    fits = segment // count // 4096 * 4096 - _RECORD_BYTES
    count_max = min(FRAGMENTS_MAX, config.size // _MANIFEST_SHARE // _LISTED_BYTES)
    needed = -(-size // count_max // 4096) * 4096
    if needed > config.size // _LARGEST_SHARE:
        raise TransferError(
            f"{format_size(size)} in fragments do not pass through a queue of {format_size(config.size)}, which takes "
            f"{format_size(count_max * (config.size // _LARGEST_SHARE))} at most",
            "use a larger queue",
        )
    return max(fits, needed)


def room_in(config: QueueConfig, fragment_bytes: int) -> int:
    """Bytes of fragments of this size that may be on their way: half of what the queue surely holds of them."""
    segment, record = config.segment_bytes, fragment_bytes + _RECORD_BYTES
    fitting = segment // record
    # a record that does not fit into a segment has one of its own, and small products beside it have another
    share = fitting * fragment_bytes / segment if fitting else fragment_bytes / (record + segment)
    return int(config.size * share) // 2


def kept_bytes(size: int, name: str) -> int:
    """About what a file takes of a queue that is to keep it, with its manifest."""
    return size + _ENTRY_BYTES + 3 * len(name.encode())

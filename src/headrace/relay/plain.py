"""Plain: records for a client that may not have the dictionary with which their payloads are compressed.

A dictionary consists of pieces of the products that it was trained with. So it is given to those who may receive all
feeds of its pattern, and to nobody else (dictionaries.py). Anybody else gets such a product with its payload as it was
put: the same product with the same signature, in a longer record. A product that cannot be expanded is sent as it is.

Everything else is sent as it is stored, without a look at each record.
"""

import struct

import numpy as np
import numpy.typing as npt

from headrace.errors import DictionaryError, ProductDamagedError
from headrace.kernel import _kernel as kernel
from headrace.link.rights import Feeds
from headrace.log.records import rows_of
from headrace.product.batch import Batch
from headrace.product.options import decode_options
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.relay.dictionaries import may_have
from headrace.relay.messages.page import Pack, records_of
from headrace.relay.signing.covered import parts_of

GROWN_BYTES_MAX = 32 << 20  # of a page that was expanded, unless its only product is larger
REPLY_BYTES_MAX = 256 << 20  # of what one reply to a remote client expands; the rest is sent as it is
_HEADER = 56
_EXPIRES = 1 << 6
_COMPRESSION = 128
_WORD, _LENGTH = struct.Struct("<I"), struct.Struct("<H")

Places = npt.NDArray[np.uint32]


class Plain:
    """For clients that may receive these feeds. Threads may share it."""

    def __init__(self, queue: Queue, feeds: Feeds, pack: Pack = records_of) -> None:
        """`pack` makes the records of what is sent as it is; it may sign them, with their payloads as they were put."""
        self._dictionaries, self._feeds, self._pack = log_of(queue).dictionaries, feeds, pack
        self._withheld: dict[int, bool] = {}

    def growth(self, batch: Batch) -> npt.NDArray[np.uint64] | None:
        """How many bytes longer the record of each product becomes; None: it is sent as it is stored."""
        if not self._is_needed(batch):
            return None
        longer = np.zeros(len(batch), np.uint64)
        for place in range(len(batch)):
            options = decode_options(rows_of(batch).options(place))
            if options.compression is not None and self._withholds(options.compression.dictionary):
                longer[place] = max(0, options.compression.size - int(batch.sizes[place]))
        return longer

    def records(self, batch: Batch, rows: Places | None = None) -> bytes:
        """The records of a batch one after another, as `records_of` has them: all, or those of `rows`."""
        if not self._is_needed(batch):
            return self._pack(batch, rows)
        places = range(len(batch)) if rows is None else rows.tolist()
        return b"".join(self._record(batch, place) for place in places)

    def first_records(self, batch: Batch, count: int) -> bytes | None:
        """The records of the first `count` products; None: they are sent as they are stored."""
        growth = self.growth(batch)
        if growth is None:
            return None
        fits = np.cumsum(growth) <= REPLY_BYTES_MAX
        return b"".join(
            self._record(batch, place) if fits[place] else records_of(batch, np.array([place], np.uint32))
            for place in range(count)
        )

    def _is_needed(self, batch: Batch) -> bool:
        return any(self._withholds(number) for number in kernel.needed_dictionaries(rows_of(batch)))

    def _withholds(self, number: int) -> bool:
        """Whether the client may not have a dictionary that is here."""
        if number not in self._withheld:
            found = self._dictionaries.get(number) if number else None
            if found is None:
                return False  # it may come later
            self._withheld[number] = not may_have(found, self._feeds)
        return self._withheld[number]

    def _record(self, batch: Batch, place: int) -> bytes:
        stored = self._pack(batch, np.array([place], np.uint32))
        options = decode_options(rows_of(batch).options(place))
        if options.compression is None or not self._withholds(options.compression.dictionary):
            return stored
        try:
            payload = bytes(batch.payload(place))
        except (DictionaryError, ProductDamagedError):
            return stored
        return rewritten(stored, _plain_options(stored), payload)


def rewritten(record: bytes, options: bytes, payload: bytes) -> bytes:
    """A record with other options and another payload (docs/format.md), padded as on the wire."""
    flags, ident, feed, origin = record[3], *_sizes(record)
    head_bytes = _HEADER + feed + origin + ident + _LENGTH.unpack_from(record, 52)[0] + (8 if flags & _EXPIRES else 0)
    head = bytearray(record[:head_bytes])
    head[2] = 2 if options else 1
    _WORD.pack_into(head, 8, len(payload))
    if options:
        head += _LENGTH.pack(len(options)) + options
    made = _padded(bytes(head)) + payload
    checksum = (kernel.checksum(made[8:]) & 0xFFFF_FFFF) ^ _WORD.unpack_from(made)[0]
    return _padded(made[:4] + _WORD.pack(checksum) + made[8:])


def _plain_options(record: bytes) -> bytes:
    """The options of a record, but for its compression."""
    entries = parts_of(record).options
    return b"".join(bytes([kind, len(value)]) + value for kind, value in entries if kind != _COMPRESSION)


def _sizes(record: bytes) -> tuple[int, int, int]:
    return _LENGTH.unpack_from(record, 12)[0], record[14], record[15]


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)

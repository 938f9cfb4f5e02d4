"""Downloads: replies with products that clients fetch in parts.

A product is read as a whole, and may be too large for one message over a slow link. The first part goes with the reply,
and the rest is kept until the client has fetched it: call by call, each with a timeout of its own. Beyond the limits
the oldest one goes, at the site that of the principal who has most; the client hears that, and reads again at the same
position.
"""

import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING

import msgspec

from headrace.remote.protocol.calls import ReadPart
from headrace.remote.protocol.replies import Products

if TYPE_CHECKING:
    from headrace.remote.server.clients import Client

BYTES_MAX = 1 << 30  # at a site, the last one excepted
_OF_ONE_MAX = 4  # of one client


class Downloads:
    """All downloads of a site. Threads may share it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int], bytes] = OrderedDict()  # by client and number; the oldest first
        self._whose: dict[tuple[int, int], Hashable] = {}  # those who are served in turn
        self._bytes = 0
        self._lock = threading.Lock()

    def first_part(self, client: "Client", reply: Products, records: bytes, part_bytes: int) -> tuple[Products, bytes]:
        """The reply as it goes out: with all records, or with the first part of them."""
        if not part_bytes or len(records) <= part_bytes:
            return reply, records
        number = secrets.randbits(62) + 1
        with self._lock:
            own = [key for key in self._kept if key[0] == id(client)]
            for key in own[: max(0, len(own) - _OF_ONE_MAX + 1)]:
                self._drop(key)
            while self._kept and self._bytes + len(records) > BYTES_MAX:
                self._drop(self._oldest_of_most())
            self._kept[id(client), number] = records
            self._whose[id(client), number] = client.turn
            self._bytes += len(records)
        return msgspec.structs.replace(reply, download=number, total_bytes=len(records)), records[:part_bytes]

    def part(self, client: "Client", call: ReadPart) -> bytes | None:
        """A part; None if it is not kept any more. The last part may be fetched again."""
        with self._lock:
            records = self._kept.get((id(client), call.download))
        if records is None or not call.part_bytes or call.offset >= len(records):
            return None
        return records[call.offset : call.offset + call.part_bytes]

    def _oldest_of_most(self) -> tuple[int, int]:
        """The oldest download of the principal who has most bytes here."""
        held = Counter[Hashable]()
        for key, records in self._kept.items():
            held[self._whose[key]] += len(records)
        most = max(held, key=held.__getitem__)
        return next(key for key in self._kept if self._whose[key] is most)

    def _drop(self, key: tuple[int, int]) -> None:
        self._bytes -= len(self._kept.pop(key))
        del self._whose[key]

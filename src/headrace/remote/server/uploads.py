"""Uploads: payloads that clients send in parts, before the put that uses them.

A product that is too large for one message over a slow link comes in parts, each with a timeout of its own; the put
that follows names them, and the product is stored as one. The parts lie in a file without a name in the directory of
the queue, so that they take no memory that cannot be written back, and are gone with the process.

An upload belongs to one client. It is kept for some minutes, because the put may be repeated. Beyond the limits of a
client or of the site the oldest one goes, at the site that of the principal who has most; its client hears that, and
begins again. What the uploads of one principal may have together is its quota `waiting_bytes`, and is counted when the
first part comes; a single upload is always taken.
"""

import mmap
import os
import tempfile
import threading
import time
from collections import Counter, OrderedDict
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from headrace.errors import DiskFullError, FabricMessageError, PayloadTooLargeError
from headrace.queue import Queue
from headrace.remote.protocol.calls import PutPart
from headrace.remote.protocol.envelope import CALL_BYTES_MAX
from headrace.units import format_size

if TYPE_CHECKING:
    from headrace.remote.server.clients import Client

UPLOADS_MAX = 64  # at a site
UPLOADS_OF_ONE_MAX = 8  # of one client
_KEPT_S = 300.0  # after the last part


class _Upload:
    """One payload; the parts come in order."""

    def __init__(self, folder: str, total: int, owner: "Client") -> None:
        self.total, self.received, self.used_s, self.owner = total, 0, time.monotonic(), owner
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it lives as long as the upload
        self.lock = threading.Lock()

    def add(self, offset: int, part: bytes | memoryview) -> int:
        """Write a part if it is the next one; how much has come."""
        self.used_s = time.monotonic()
        with self.lock:
            if offset == self.received:
                try:
                    os.pwrite(self._file.fileno(), part, offset)
                except OSError as error:
                    raise DiskFullError(f"a part of a put could not be kept: {error}", "free some space") from None
                self.received += len(part)
            return self.received

    def whole(self) -> memoryview | None:
        """All parts; None if some are missing. The view keeps the bytes."""
        with self.lock:
            if self.received != self.total:
                return None
            return memoryview(mmap.mmap(self._file.fileno(), self.total, prot=mmap.PROT_READ))

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()


class Uploads:
    """All uploads of a site. Threads may share it."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._uploads: OrderedDict[tuple[int, bytes], _Upload] = OrderedDict()  # by client and id; the oldest first
        self._lock = threading.Lock()

    def add(self, client: "Client", call: PutPart, part: bytes | memoryview) -> int:
        """Keep a part; how many bytes have come so far, which is where the next part begins."""
        limit = max(self._queue.config.payload_bytes_max, CALL_BYTES_MAX)
        if call.total > limit:
            raise PayloadTooLargeError(
                f"a put of {format_size(call.total)} exceeds the {format_size(limit)} that the site takes",
                "send it in fragments: headrace send",
            )
        if len(call.upload) != 16 or not part or call.offset + len(part) > call.total:
            raise FabricMessageError(
                "a part of a put does not fit", "give 16 bytes of id, and a part that is not empty"
            )
        return self._of(client, call).add(call.offset, part)

    def _of(self, client: "Client", call: PutPart) -> _Upload:
        key = (id(client), call.upload)
        with self._lock:
            found = self._uploads.get(key)
            if found is None or found.total != call.total:
                self._drop_old(id(client), call.upload)
                self._check_quota(client, call.total)
                found = self._uploads[key] = _Upload(str(self._queue.path), call.total, client)
            self._uploads.move_to_end(key)
            return found

    def _drop_old(self, client: int, upload: bytes) -> None:
        """Make room for one more upload of a client."""
        now = time.monotonic()
        old = {key for key, each in self._uploads.items() if now - each.used_s > _KEPT_S}
        old |= {(client, upload)} & self._uploads.keys()
        own = [key for key in self._uploads if key[0] == client and key not in old]
        old |= set(own[: max(0, len(own) - UPLOADS_OF_ONE_MAX + 1)])
        for key in old:
            self._uploads.pop(key).close()
        while len(self._uploads) >= UPLOADS_MAX:
            of = Counter(each.owner.turn for each in self._uploads.values())
            most = max(of, key=of.__getitem__)
            self._uploads.pop(next(key for key, each in self._uploads.items() if each.owner.turn is most)).close()

    def _check_quota(self, client: "Client", total: int) -> None:
        """QuotaError if the principal would have too many bytes here."""
        quotas, principal = client.principal.quotas, client.principal
        held = sum(each.total for each in self._uploads.values() if each.owner.principal is principal)
        if quotas is not None and held and held + total > quotas.waiting_bytes:
            raise principal.refuse("waiting_bytes")

    def take(self, client: "Client", upload: bytes) -> memoryview | None:
        """The whole payload; None if it is not here, or not complete. It stays for a repetition of the put."""
        with self._lock:
            found = self._uploads.get((id(client), upload))
        return None if found is None else found.whole()

    def close(self) -> None:
        """Drop all of them; the views that are in use keep their bytes."""
        with self._lock:
            for upload in self._uploads.values():
                upload.close()
            self._uploads.clear()

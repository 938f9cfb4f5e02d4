"""Progress: how far each request has got at each site, kept over restarts.

A file beside the queue, written as a whole about once a second and at the end. It may be a second behind the queue;
therefore it says where the queue was, and what has arrived since then is found in the queue itself (`arrived_since`).
A site that has ended in good order says so: whatever was put since has not come through a request.
"""

import os
from pathlib import Path

import msgspec

from headrace.errors import FabricError
from headrace.queue import Queue


class Reached(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything up to `base` in the queue with this id has arrived."""

    queue: str
    base: int


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int = 1
    next: int = 0  # of our queue, when this was noted
    ended: bool = False  # and nothing has arrived since
    requests: dict[str, dict[str, Reached]] = {}


class Progress:
    """One for each site; `note` by anybody, `save` by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _File()
        self._saved = b""
        if path.exists():
            try:
                self._file = msgspec.json.decode(path.read_bytes(), type=_File)
            except (msgspec.DecodeError, OSError) as error:
                raise FabricError(
                    f"{path} cannot be read: {error}", "move it away; requests then begin where `from` says"
                ) from None

    def known(self, request: str, site: str) -> tuple[bytes, int] | None:
        reached = self._file.requests.get(request, {}).get(site)
        return None if reached is None else (bytes.fromhex(reached.queue), reached.base)

    @property
    def next(self) -> int:
        """From here on products may have arrived in our queue that are not noted; 0: there are none."""
        return 0 if self._file.ended else self._file.next

    def begin(self) -> None:
        """From now on products may arrive."""
        if self._file.ended:
            self._file.ended = False
            self.save()

    def begin_note(self, next_sequence: int) -> None:
        """Before the requests are noted: the next sequence of our queue."""
        self._file.next = next_sequence

    def note(self, request: str, site: str, known: tuple[bytes, int]) -> None:
        queue, base = known
        if queue:
            self._file.requests.setdefault(request, {})[site] = Reached(queue.hex(), base)

    def end(self) -> None:
        """Nothing arrives any more."""
        self._file.ended = True
        self.save()

    def save(self) -> None:
        data = msgspec.json.format(msgspec.json.encode(self._file))
        if data == self._saved:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_bytes(data)
        os.replace(part, self._path)
        self._saved = data


def arrived_since(queue: Queue, start: int) -> dict[str, dict[str, int]]:
    """By origin and feed: the sequence there of the latest product that was put into our queue from `start` on."""
    latest: dict[str, dict[str, int]] = {}
    position = max(start, queue.oldest)
    while position < queue.next:
        batch = queue.read(position, limit=10_000)
        columns = batch.columns
        for origin, feed, sequence in zip(batch.origins, batch.feeds, columns["origin_sequence"].tolist(), strict=True):
            feeds = latest.setdefault(origin, {})
            feeds[feed] = max(sequence, feeds.get(feed, 0))
        position = batch.next
    return latest

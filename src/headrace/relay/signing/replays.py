"""Replays: an old product that somebody sends again is not taken for a new one.

A signature stays valid, so a relay may send a product of last year again. As long as the queue holds the first
copy, it is a duplicate. After that, the time of its put decides, which is signed, too. Two rules admit a product:

    it is newer than everything of its origin and feed that was stored here so far
    or it was put after the oldest product that the queue holds was stored: had it been here, it would still be held

The first lets a backlog in that is longer than the queue, in its order; the second lets gaps be repaired, and a further
request bring what was not asked for before. The second holds only where a copy would be recognised: by a duplicate
signature that the origin gave and signed, in a queue that rejects duplicates. A relay could add any other one. Clocks
may differ by MARGIN_S. The newest times are kept beside the queue in `site/signed.json`, for FEEDS_MAX feeds; of those
that are forgotten, the newest time of their origin remains.

What this does not stop: a product that this site never had may come late, with the time at which it was put; and one
that was deleted here may come again.
"""

import logging
import threading
from collections import OrderedDict
from pathlib import Path

import msgspec

from headrace.decoding import Decoder
from headrace.errors import ProductDamagedError
from headrace.log.documents import replace_file
from headrace.queue import Queue
from headrace.queue.queue import log_of

MARGIN_S = 60
FEEDS_MAX = 65_536
_FILE = Path("site") / "signed.json"

log = logging.getLogger("headrace.fabric")
_ANY = 1 << 63  # above every sequence


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    newest: list[tuple[str, str, int, int]]  # origin, feed, time, sequence
    floors: dict[str, int]  # by origin: the newest time of a feed that was forgotten


_DECODER: Decoder[_Saved] = Decoder(_Saved, encoding="json")


class Replays:
    """What a site remembers of signed products. Threads may share it."""

    def __init__(self, queue: Queue) -> None:
        self._queue, self._path = queue, queue.path / _FILE
        self._rejects_duplicates = queue.config.dedup != "none"
        self._lock = threading.Lock()
        self._horizon: tuple[int, int] = (0, 0)  # the oldest sequence, and when it was stored
        saved = self._load()
        self._newest = OrderedDict(((origin, feed), (at, sequence)) for origin, feed, at, sequence in saved.newest)
        self._floors, self._changed = dict(saved.floors), False

    def is_new(self, origin: str, feed: str, put_ns: int, sequence: int, *, is_recognised: bool) -> bool:
        """Whether a product cannot have been here and been evicted.

        `is_recognised`: its origin gave it a duplicate signature, so that a copy of it would be dropped.
        """
        with self._lock:
            newest = self._newest.get((origin, feed), (self._floors.get(origin, 0), _ANY))
        if (put_ns, sequence) > newest:
            return True
        return is_recognised and self._rejects_duplicates and put_ns >= self._remembers_since()

    def note(self, origin: str, feed: str, put_ns: int, sequence: int) -> None:
        """A signed product was stored."""
        with self._lock:
            key = (origin, feed)
            if (put_ns, sequence) > self._newest.get(key, (0, 0)):
                self._newest[key], self._changed = (put_ns, sequence), True
                self._newest.move_to_end(key)
            while len(self._newest) > FEEDS_MAX:
                (forgotten, _), (at, _) = self._newest.popitem(last=False)
                self._floors[forgotten] = max(at, self._floors.get(forgotten, 0))

    def _remembers_since(self) -> int:
        """Everything that was put later than this and was stored here is still held."""
        oldest = self._queue.oldest
        if oldest <= 1:
            return 0  # nothing was ever evicted
        with self._lock:
            if self._horizon[0] == oldest:
                return self._horizon[1]
        queue = log_of(self._queue)
        since = queue.now_ns()
        try:
            batch = queue.reader(None, 1, 1, heads=True, expired=True)(oldest)
            if len(batch):
                since = int(batch.columns["inserted_ns"][0])
        except ProductDamagedError:
            pass
        since += MARGIN_S * 10**9
        with self._lock:
            self._horizon = (oldest, since)
        return since

    def save(self) -> None:
        """Write what has changed. OSError if the disk refuses."""
        with self._lock:
            if not self._changed:
                return
            newest = [(*key, *value) for key, value in self._newest.items()]
            data, self._changed = msgspec.json.encode(_Saved(newest, self._floors)), False
        try:
            self._path.parent.mkdir(exist_ok=True)
            replace_file(self._path, data, None)
        except OSError:
            self._changed = True
            raise

    def _load(self) -> _Saved:
        try:
            return _DECODER.decode(self._path.read_bytes())
        except FileNotFoundError:
            return _Saved([], {})
        except msgspec.DecodeError as error:
            log.error(
                "%s is invalid, and begins anew: an old product may be taken for a new one: %s", self._path, error
            )
            return _Saved([], {})

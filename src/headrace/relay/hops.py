"""Hops: through which site each product of the queue has come here.

A product says itself where and when it was created, and its row when it arrived; this file beside the queue says from
whom: ranges of sequences, each with the site that sent them. What was put here has no entry. Neighbours from one site
are one range, ranges that the queue no longer holds are forgotten, and there is a limit, so the file stays small.
"""

import bisect
import os
import threading
from pathlib import Path

import msgspec

RANGES_MAX = 100_000


class Hop(msgspec.Struct, frozen=True, array_like=True):
    """Sequences `first` to `last` came through `site`."""

    first: int
    last: int
    site: str


class Hops:
    """Of one queue. Threads may share it; one of them saves."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._hops: list[Hop] = []
        self._changed = False
        if path.exists():
            try:
                self._hops = msgspec.json.decode(path.read_bytes(), type=list[Hop])
            except msgspec.DecodeError:
                self._hops = []  # nothing depends on it but curiosity

    def add(self, first: int, last: int, site: str) -> None:
        with self._lock:
            newest = self._hops[-1] if self._hops else None
            if newest is not None and newest.site == site and newest.last + 1 == first:
                self._hops[-1] = Hop(newest.first, last, site)
            else:
                bisect.insort(self._hops, Hop(first, last, site), key=lambda hop: hop.first)
            self._changed = True

    def site_of(self, sequence: int) -> str | None:
        """The site that sent the product; None if it was put here, or nobody knows any more."""
        with self._lock:
            place = bisect.bisect_right(self._hops, sequence, key=lambda hop: hop.first) - 1
            if place < 0 or self._hops[place].last < sequence:
                return None
            return self._hops[place].site

    def save(self, oldest: int) -> None:
        with self._lock:
            if not self._changed:
                return
            self._hops = [hop for hop in self._hops if hop.last >= oldest][-RANGES_MAX:]
            data, self._changed = msgspec.json.encode(self._hops), False
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_bytes(data)
        os.replace(part, self._path)

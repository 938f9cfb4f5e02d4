"""Hops: through which site each product of a queue came.

A product itself says where and when it was created, and its row when it arrived. `site/hops.json` beside the queue says
which site sent it: ranges of sequences, each with the sending site. Products that were put here have no entry.
Adjacent ranges from one site are joined, and their number is limited. Of ranges that the queue has evicted, the file
keeps only that they came from elsewhere, with an empty site and joined, so it stays small: this site can then tell a
receiver of its own products that a range that is gone had none. The site saves it about once a second; `headrace hop`
reads it.

The file is replaced as a whole and survives the death of processes, not a power failure. Without it, nothing is lost:
diagnosis knows less, and a receiver takes more for lost.
"""

import bisect
import logging
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from headrace.errors import QueueDamagedError
from headrace.log.documents import replace_file

RANGES_MAX = 100_000
EVICTED_MAX = 1000  # joined ranges
_FILE = Path("site") / "hops.json"

log = logging.getLogger("headrace.fabric")


class Hop(msgspec.Struct, frozen=True, array_like=True):
    """Sequences `first` to `last` came through `site`."""

    first: int
    last: int
    site: str


_DECODER = msgspec.json.Decoder(list[Hop])


def read_hops(queue: Path) -> list[Hop]:
    """The hops that the site of a queue has saved, in order; empty if no site has run. QueueDamagedError or OSError."""
    path = queue / _FILE
    try:
        return _DECODER.decode(path.read_bytes())
    except FileNotFoundError:
        return []
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise QueueDamagedError(f"{path} is invalid: {error}", "delete it; the site writes a new one") from None


def site_of(hops: list[Hop], sequence: int) -> str | None:
    """The site that sent a product; None if it was put here, or its site was forgotten."""
    hop = _hop_of(hops, sequence)
    return None if hop is None else hop.site or None


def _hop_of(hops: list[Hop], sequence: int) -> Hop | None:
    index = bisect.bisect_right(hops, sequence, key=lambda hop: hop.first) - 1
    return hops[index] if index >= 0 and hops[index].last >= sequence else None


def _joined(hops: Iterable[Hop]) -> list[Hop]:
    """The ranges alone, without their sites."""
    joined: list[Hop] = []
    for hop in hops:
        if joined and joined[-1].last + 1 == hop.first:
            joined[-1] = Hop(joined[-1].first, hop.last, "")
        else:
            joined.append(Hop(hop.first, hop.last, ""))
    return joined


class Hops:
    """The hops of one queue, at its site. Threads may share it; one of them saves."""

    def __init__(self, queue: Path) -> None:
        self._path = queue / _FILE
        self._lock = threading.Lock()
        self._changed = False
        try:
            self._hops = read_hops(queue)
        except QueueDamagedError as error:
            log.warning("%s", error)
            self._hops = []

    def add(self, first: int, last: int, site: str) -> None:
        with self._lock:
            newest = self._hops[-1] if self._hops else None
            if newest is not None and newest.site == site and newest.last + 1 == first:
                self._hops[-1] = Hop(newest.first, last, site)
            else:
                bisect.insort(self._hops, Hop(first, last, site), key=lambda hop: hop.first)
            self._changed = True

    def site_of(self, sequence: int) -> str | None:
        """The site that sent a product; None if it was put here, or the range was forgotten."""
        with self._lock:
            return site_of(self._hops, sequence)

    def without_received(self, first: int, last: int) -> tuple[int, int]:
        """The range without products at both ends that came from other sites; empty if the first is the greater one."""
        with self._lock:
            while first <= last and (hop := _hop_of(self._hops, first)) is not None:
                first = hop.last + 1
            while first <= last and (hop := _hop_of(self._hops, last)) is not None:
                last = hop.first - 1
        return first, last

    def save(self, oldest: int) -> None:
        """Write the hops from sequence `oldest` on, if there are new ones. OSError if the disk refuses."""
        with self._lock:
            if not self._changed:
                return
            evicted = _joined(hop for hop in self._hops if hop.last < oldest)[-EVICTED_MAX:]
            self._hops = evicted + [hop for hop in self._hops if hop.last >= oldest][-RANGES_MAX:]
            data, self._changed = msgspec.json.encode(self._hops), False
        try:
            self._path.parent.mkdir(exist_ok=True)
            replace_file(self._path, data, None)
        except OSError:
            self._changed = True
            raise

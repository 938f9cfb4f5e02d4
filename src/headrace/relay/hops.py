"""Hops: through which site each product of a queue came.

A product itself says where and when it was created, and its row when it arrived. `site/hops.json` beside the queue says
which site sent it: ranges of sequences, each with the sending site, and the sequences in that site's queue (its
sources). Products that were put here have no entry. Adjacent ranges from one site are joined, up to CHUNK sequences,
and their number is limited. Ranges that the queue has evicted are joined whatever their sites are, so the file stays
small: the site is empty then, and the sources are those of all parts. Of the oldest ones only that they came from
elsewhere is known. So this site can tell a receiver of its own products that a range that is gone had none, and any
receiver from where the products of a range came. The site saves the file about once a second; `headrace hop` reads it.

The file is replaced as a whole and survives the death of processes, not a power failure. Without it, nothing is lost:
diagnosis knows less, and a receiver takes more for lost.
"""

import bisect
import itertools
import logging
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from headrace.decoding import Decoder
from headrace.errors import QueueDamagedError
from headrace.files import make_folder, read_regular
from headrace.log.documents import UNREADABLE, replace_file
from headrace.relay.messages.source import Source

RANGES_MAX = 100_000
EVICTED_MAX = 1000  # joined ranges
CHUNK = 1 << 14  # sequences; sources of a joined range are known no better than that
_SOURCES_MAX = 16  # of one range
_ANY = 1 << 64
_FILE = Path("site") / "hops.json"

log = logging.getLogger("headrace.fabric")


class Hop(msgspec.Struct, frozen=True, array_like=True):
    """Sequences `first` to `last` came through `site`. No `sources`: those are unknown."""

    first: int
    last: int
    site: str
    sources: tuple[Source, ...] = ()


_DECODER: Decoder[list[Hop]] = Decoder(list[Hop], encoding="json")


def read_hops(queue: Path) -> list[Hop]:
    """The hops that the site of a queue has saved, in order; empty if no site has run. QueueDamagedError or OSError."""
    path = queue / _FILE
    try:
        return _DECODER.decode(read_regular(path))
    except FileNotFoundError:
        return []
    except UNREADABLE as error:
        raise QueueDamagedError(f"{path} is invalid: {error}", "delete it; the site writes a new one") from None


def site_of(hops: list[Hop], sequence: int) -> str | None:
    """The site that sent a product; None if it was put here, or its site was forgotten."""
    hop = _hop_of(hops, sequence)
    return None if hop is None else hop.site or None


def _hop_of(hops: list[Hop], sequence: int) -> Hop | None:
    index = bisect.bisect_right(hops, sequence, key=lambda hop: hop.first) - 1
    return hops[index] if index >= 0 and hops[index].last >= sequence else None


def _joined(hops: Iterable[Hop], chunk: int) -> list[Hop]:
    """The ranges without their sites, joined up to `chunk` sequences. Sources are kept only if all parts have them."""
    joined: list[Hop] = []
    for hop in hops:
        before = joined[-1] if joined else None
        if before is not None and before.last + 1 == hop.first and hop.last - before.first < chunk:
            joined[-1] = Hop(before.first, hop.last, "", _union(before.sources, hop.sources))
        else:
            joined.append(Hop(hop.first, hop.last, "", hop.sources))
    return joined


def _union(one: tuple[Source, ...], other: tuple[Source, ...]) -> tuple[Source, ...]:
    """Both together, one for each queue; none if one of the two is unknown, or if they are too many."""
    sources = {(source.site, source.queue): source for source in one}
    for source in other:
        key = (source.site, source.queue)
        same = sources.get(key, source)
        sources[key] = Source(*key, min(source.first, same.first), max(source.last, same.last))
    return tuple(sources.values()) if one and other and len(sources) <= _SOURCES_MAX else ()


def _joint(one: tuple[Source, ...], other: tuple[Source, ...]) -> tuple[Source, ...]:
    """As `_union`, of sources in the same queues."""
    return tuple(
        Source(a.site, a.queue, min(a.first, b.first), max(a.last, b.last)) for a, b in zip(one, other, strict=True)
    )


def _continues(newest: Hop, hop: Hop) -> bool:
    """Whether the two can be one range: of one queue of one site, and not too long."""
    is_next = newest.site == hop.site and newest.last + 1 == hop.first and hop.last - newest.first < CHUNK
    return is_next and [source.queue for source in newest.sources] == [source.queue for source in hop.sources]


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

    def add(self, first: int, last: int, site: str, source: Source | None = None) -> None:
        """Sequences `first` to `last` came from `site`, where they are those of `source`."""
        hop = Hop(first, last, site, () if source is None else (source,))
        with self._lock:
            newest = self._hops[-1] if self._hops else None
            if newest is not None and _continues(newest, hop):
                self._hops[-1] = Hop(newest.first, last, site, _joint(newest.sources, hop.sources))
            else:
                bisect.insort(self._hops, hop, key=lambda hop: hop.first)
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

    def sources(self, first: int, last: int) -> tuple[tuple[Source, ...], tuple[int, int]]:
        """From where the products of a range came, and the smallest range that has all others.

        The others were put here, or it is not known from where they came. The range is empty if there are none.
        """
        sources: tuple[Source, ...] = ()
        others: list[tuple[int, int]] = []
        position = first
        with self._lock:
            begin = max(0, bisect.bisect_right(self._hops, first, key=lambda hop: hop.first) - 1)
            for hop in itertools.islice(self._hops, begin, None):
                if hop.first > last:
                    break
                if hop.last < first or not hop.sources:
                    continue
                if hop.first > position:
                    others.append((position, hop.first - 1))
                position = hop.last + 1
                sources = _union(sources, hop.sources) if sources else hop.sources
                if not sources:  # too many
                    return (), (first, last)
        if position <= last:
            others.append((position, last))
        return sources, (others[0][0], others[-1][1]) if others else (last + 1, last)

    def save(self, oldest: int) -> None:
        """Write the hops from sequence `oldest` on, if there are new ones. OSError if the disk refuses."""
        with self._lock:
            if not self._changed:
                return
            evicted = _joined((hop for hop in self._hops if hop.last < oldest), CHUNK)
            older = [Hop(hop.first, hop.last, "") for hop in evicted[:-EVICTED_MAX]]
            held = [hop for hop in self._hops if hop.last >= oldest][-RANGES_MAX:]
            self._hops = _joined(older, _ANY)[-EVICTED_MAX:] + evicted[-EVICTED_MAX:] + held
            data, self._changed = msgspec.json.encode(self._hops), False
        try:
            make_folder(self._path.parent)
            replace_file(self._path, data, None)
        except OSError:
            self._changed = True
            raise

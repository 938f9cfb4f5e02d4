"""Plan: everything that the processes of a demonstration must agree on.

The queues' limit is more than the feeder can put in the time, so that nothing is evicted before a watcher has seen
it. The rate is some twelve times that of the real feeds, and well below what two cores can carry.

METAR bulletins are a stream of their own, far faster than life: what they are about goes on for hours, so that hourly
statistics have hours to close. It ends about now. A few are garbled, and say so in their idents.
"""

import heapq
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.testing import Draft, FeedGenerator
from headrace.testing.profiles import PROFILES

RATE = 1500.0  # products per second without copies, and without METAR
METAR, METAR_RATE = "metar", 500.0
PAYLOAD_BYTES_MAX = 8 << 10  # so that half a minute fits into a temporary directory
DUPLICATES = 0.02
_BURST = 1.5  # arrivals come in bursts: a short stream may have more than its mean
_SPARE_BYTES = 64 << 20
_HOUR_NS = 3600 * 10**9


@dataclass(frozen=True, slots=True)
class Watcher:
    """One that sees everything it wants: its name, and what that is."""

    name: str
    select: str


FIRST, SECOND = "one", "two"  # the sites: products are put at the first, everything else happens at the second
WATCHERS = (Watcher("everything", f"** origin {FIRST}"), Watcher("radar", "wx/radar/**"))

STATION, STATION_SELECT = "decode", "wx/**"
WORKERS = ("worker 1", "worker 2", "worker 3")  # they share what the station selects
VICTIM = WORKERS[1]  # killed with products in hand

KILL_AT, CUT_AT, CUT_SHARE = 0.25, 0.5, 0.2  # shares of the time: when one is killed, the link is cut, and for how long

GARBLED = " garbled"  # how the ident of such a bulletin ends
_GARBLED_ONE_IN = 200
ALERT_FEED = "alert/gust"  # nothing that the station selects


@dataclass(frozen=True, slots=True)
class Plan:
    """Handed to every process."""

    queues: Path  # directory with the queues of both sites, and what the pipeline makes
    notes: Path  # directory in which each process leaves what it sent or saw
    seed: int
    seconds: float
    start_ns: int | None = None  # of what METAR bulletins are about; a fixed day if None

    @property
    def first(self) -> Path:
        return self.queues / FIRST

    @property
    def second(self) -> Path:
        return self.queues / SECOND

    @property
    def pipeline(self) -> Path:
        """Rules, tables, files, and what Spark has to say."""
        return self.queues / "pipeline"

    @property
    def queue_bytes(self) -> int:
        return int((RATE + METAR_RATE) * self.seconds * PAYLOAD_BYTES_MAX * _BURST) + _SPARE_BYTES

    def drafts(self) -> Iterator[Draft]:
        others = self._generator([kind for kind in PROFILES if kind != METAR], RATE)
        return heapq.merge(others, self.metar_drafts(), key=lambda draft: draft.at_s)

    def metar_drafts(self) -> Iterator[Draft]:
        """Those of METAR alone."""
        return map(_garble_some, self._generator([METAR], METAR_RATE))

    def _generator(self, feeds: list[str], rate: float) -> FeedGenerator:
        return FeedGenerator(
            seed=self.seed,
            feeds=feeds,
            duration_s=self.seconds,
            rate=rate,
            duplicates=DUPLICATES,
            start_ns=self.start_ns,
            size_max=PAYLOAD_BYTES_MAX,
            giants=False,
        )

    def notes_of(self, actor: str) -> Path:
        return self.notes / f"{actor}.msgpack"

    def latencies_of(self, watcher: str) -> Path:
        return self.notes / f"{watcher}.npy"


def observed_hours(seconds: float) -> float:
    """How long a time the METAR bulletins of a demonstration are about."""
    return seconds * METAR_RATE / PROFILES[METAR].products_per_s / 3600


def start_of(seconds: float, now_ns: int) -> int:
    """When that time begins if it shall end about now: at a full hour."""
    return int(now_ns - observed_hours(seconds) * _HOUR_NS) // _HOUR_NS * _HOUR_NS


def _garble_some(draft: Draft) -> Draft:
    """Copies as their products."""
    if zlib.crc32(draft.payload) % _GARBLED_ONE_IN:
        return draft
    return replace(draft, ident=draft.ident + GARBLED, payload=draft.payload[::-1])

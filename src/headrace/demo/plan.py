"""Plan: everything that the processes of a demonstration must agree on.

The queues are larger than what the feeder can put in the time, so that nothing is evicted before a watcher has read it.
The rate is about twelve times that of the real feeds, and well below what two cores can carry.

METAR bulletins are a stream of their own, much faster than in reality: their observation times span hours and end about
now, so that the hourly statistics have hours to close. A few bulletins are garbled; their idents say so.
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
_BURST = 1.5  # products arrive in bursts: a short stream may exceed the mean rate
_SPARE_BYTES = 64 << 20
_HOUR_NS = 3600 * 10**9


@dataclass(frozen=True, slots=True)
class Watcher:
    """A process that reads every selected product."""

    name: str
    select: str


FIRST, SECOND = "one", "two"  # the sites: products are put at the first and used at the second
WATCHERS = (Watcher("everything", f"** origin {FIRST}"), Watcher("radar", "wx/radar/**"))

STATION, STATION_SELECT = "decode", "wx/**"
WORKERS = ("worker 1", "worker 2", "worker 3")  # they share the products of the station
KILLED_WORKER = WORKERS[1]  # killed while it holds products

STREAM, STREAM_FEED, SLICES = "weather", "wx/**", 64  # at the second site: a channel that two nodes share
NODES = ("node-1", "node-2")  # the second one joins while the first one works

PACER, PACED = "pacer", "lab/camera"  # beside the sites: a process that releases a stream evenly

KILL_AT, CUT_AT, CUT_SHARE = 0.25, 0.5, 0.2  # shares of the run: the worker is killed, the link is cut, for how long

GARBLED = " garbled"  # end of the ident of such a bulletin
_GARBLED_ONE_IN = 200
ALERT_FEED = "alert/gust"  # not selected by the station


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one run; every process gets a copy."""

    queues: Path  # directory with the queues of both sites and the output of the pipeline
    records: Path  # directory where each process records what it sent or received
    seed: int
    seconds: float
    start_ns: int | None = None  # first observation time of METAR bulletins; None: a fixed day

    @property
    def first(self) -> Path:
        return self.queues / FIRST

    @property
    def second(self) -> Path:
        return self.queues / SECOND

    @property
    def pipeline(self) -> Path:
        """The directory with rules, tables, files and the log of Spark."""
        return self.queues / "pipeline"

    @property
    def rate(self) -> float:
        """Products per second without copies."""
        return RATE + METAR_RATE

    @property
    def queue_bytes(self) -> int:
        return int(self.rate * self.seconds * PAYLOAD_BYTES_MAX * _BURST) + _SPARE_BYTES

    def drafts(self) -> Iterator[Draft]:
        others = self._generator([kind for kind in PROFILES if kind != METAR], RATE)
        return heapq.merge(others, self.metar_drafts(), key=lambda draft: draft.at_s)

    def metar_drafts(self) -> Iterator[Draft]:
        """The METAR bulletins alone."""
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

    def records_of(self, process: str) -> Path:
        return self.records / f"{process}.msgpack"

    def times_of(self, process: str) -> Path:
        """For the plot: the latencies of a watcher, or the times at which a worker acknowledged."""
        return self.records / f"{process}.npy"


def observed_hours(seconds: float) -> float:
    """How many hours the observation times of the METAR bulletins span."""
    return seconds * METAR_RATE * (1 - DUPLICATES) / PROFILES[METAR].products_per_s / 3600


def start_of(seconds: float, now_ns: int) -> int:
    """The full hour at which the observation times start, so that they end about now."""
    return int(now_ns - observed_hours(seconds) * _HOUR_NS) // _HOUR_NS * _HOUR_NS


def _garble_some(draft: Draft) -> Draft:
    """Reverse the payload of some bulletins; copies of a bulletin are garbled like the original."""
    if zlib.crc32(draft.payload) % _GARBLED_ONE_IN:
        return draft
    return replace(draft, ident=draft.ident + GARBLED, payload=draft.payload[::-1])

"""Plan: everything that the processes of a demonstration must agree on.

The queues' limit is more than the feeder can put in the time, so that nothing is evicted before a watcher has seen
it. The rate is some twelve times that of the real feeds, and well below what two cores can carry.
"""

from dataclasses import dataclass
from pathlib import Path

from headrace.testing import FeedGenerator

RATE = 2000.0  # products per second without copies
PAYLOAD_BYTES_MAX = 8 << 10  # so that half a minute fits into a temporary directory
DUPLICATES = 0.02
_BURST = 1.5  # arrivals come in bursts: a short stream may have more than its mean
_SPARE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Watcher:
    """One that sees everything it wants: its name and the feeds."""

    name: str
    select: str


FIRST, SECOND = "one", "two"  # the sites: products are put at the first, everything else happens at the second
WATCHERS = (Watcher("everything", "**"), Watcher("radar", "wx/radar/**"))

STATION, STATION_SELECT = "decode", "wx/**"
WORKERS = ("worker 1", "worker 2", "worker 3")  # they share what the station selects
VICTIM = WORKERS[1]  # killed with products in hand

KILL_AT, CUT_AT, CUT_SHARE = 0.25, 0.5, 0.2  # shares of the time: when one is killed, the link is cut, and for how long


@dataclass(frozen=True, slots=True)
class Plan:
    """Handed to every process."""

    queues: Path  # directory with the queues of both sites
    notes: Path  # directory in which each process leaves what it sent or saw
    seed: int
    seconds: float

    @property
    def first(self) -> Path:
        return self.queues / FIRST

    @property
    def second(self) -> Path:
        return self.queues / SECOND

    @property
    def queue_bytes(self) -> int:
        return int(RATE * self.seconds * PAYLOAD_BYTES_MAX * _BURST) + _SPARE_BYTES

    def drafts(self) -> FeedGenerator:
        return FeedGenerator(
            seed=self.seed,
            duration_s=self.seconds,
            rate=RATE,
            duplicates=DUPLICATES,
            size_max=PAYLOAD_BYTES_MAX,
            giants=False,
        )

    def notes_of(self, actor: str) -> Path:
        return self.notes / f"{actor}.msgpack"

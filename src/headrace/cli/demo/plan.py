"""Plan: everything that the processes of a demonstration must agree on.

The queue's limit is more than the feeder can put in the time, so that nothing is evicted before a watcher has seen
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


WATCHERS = (Watcher("everything", "**"), Watcher("radar", "wx/radar/**"))

STATION, STATION_SELECT = "decode", "wx/**"
WORKERS = ("worker 1", "worker 2", "worker 3")  # they share what the station selects
VICTIM = WORKERS[1]  # killed half way, with products in hand


@dataclass(frozen=True, slots=True)
class Plan:
    """Handed to every process."""

    queue: Path
    notes: Path  # directory in which each process leaves what it sent or saw
    seed: int
    seconds: float

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

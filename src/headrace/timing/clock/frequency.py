"""Frequency: how fast UTC runs against this machine's boot time, learned from intervals that hold the truth.

Two moments with an interval each limit the frequency between them: it is neither steeper than from the lowest of the
first to the highest of the second, nor flatter than the other way round. What all pairs allow is an interval for the
frequency. Its width, and how far a crystal strays, are how fast the bound of the clock grows, and never less than RFC
5905's 15 ppm. So a clock of which little is known says so: at first 500 ppm, after a minute with near servers 15.

The value inside the interval is the slope of the line through the offsets, as far as they are worth more than what was
known before: crystals are rarely off by more than 50 ppm, and a line through a few noisy offsets may be.
"""

from collections import deque
from dataclasses import dataclass

from headrace.timing.clock.samples import DISPERSION_PPB, Rate

POINTS = 32
LIMIT_PPB = 500_000  # no crystal is worse
WANDER_PPB = 5_000  # how far a crystal strays from its mean while the points last
USUAL_PPB = 50_000  # how far most crystals are off
_PPB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Point:
    """The truth lay between `low_ns` and `high_ns` at one moment; offsets as in samples.py."""

    boot_ns: int
    offset_ns: int
    low_ns: int
    high_ns: int


@dataclass(frozen=True, slots=True)
class _Known:
    """A point, and what it and those before it allow, in ppb."""

    point: Point
    low: float
    high: float


class Frequency:
    """The last 32 points, and what was known before them."""

    def __init__(self, before: Rate | None = None) -> None:
        self._known: deque[_Known] = deque(maxlen=POINTS)
        self.rate = self._before = before or Rate()

    def add(self, point: Point) -> None:
        """Points come in the order of time. One that contradicts the earlier ones replaces them."""
        if self._known and point.boot_ns <= self._known[-1].point.boot_ns:
            return
        self._known.append(_Known(point, *self._limits(point)))
        low = max(self._before.ppb - self._before.drift_ppb, max(each.low for each in self._known))
        high = min(self._before.ppb + self._before.drift_ppb, min(each.high for each in self._known))
        if low > high:
            self.forget()
            self._known.append(_Known(point, -LIMIT_PPB, LIMIT_PPB))
            return
        ppb = round(min(max(self._guess(), low), high))
        wide = round(max(high - ppb, ppb - low)) + WANDER_PPB
        self.rate = Rate(ppb, max(wide, DISPERSION_PPB))

    def forget(self, before: Rate | None = None) -> None:
        """Everything that was learned is void, because the clock itself was changed."""
        self._known.clear()
        self.rate = self._before = before or Rate()

    def _limits(self, point: Point) -> tuple[float, float]:
        low, high = float(-LIMIT_PPB), float(LIMIT_PPB)
        for each in self._known:
            earlier = each.point
            per_ns = _PPB / (point.boot_ns - earlier.boot_ns)
            low = max(low, (point.low_ns - earlier.high_ns) * per_ns - WANDER_PPB)
            high = min(high, (point.high_ns - earlier.low_ns) * per_ns + WANDER_PPB)
        return low, high

    def _guess(self) -> float:
        """The slope of the line through all points, narrow ones first; less of it, the more they scatter."""
        count = len(self._known)
        if count < 2:
            return self._before.ppb
        first = self._known[0].point
        points = [each.point for each in self._known]
        times = [(each.boot_ns - first.boot_ns) / _PPB for each in points]
        offsets = [float(each.offset_ns - first.offset_ns) for each in points]
        weights = [1.0 / max(1, each.high_ns - each.low_ns) ** 2 for each in points]
        total = sum(weights)
        mean_time = sum(w * t for w, t in zip(weights, times, strict=True)) / total
        mean_offset = sum(w * o for w, o in zip(weights, offsets, strict=True)) / total
        spread = sum(w * (t - mean_time) ** 2 for w, t in zip(weights, times, strict=True))
        slope = (
            sum(w * (t - mean_time) * (o - mean_offset) for w, t, o in zip(weights, times, offsets, strict=True))
            / spread
        )
        scatter = sum(
            w * (o - mean_offset - slope * (t - mean_time)) ** 2
            for w, t, o in zip(weights, times, offsets, strict=True)
        )
        variance = (scatter / (count - 2) if count > 3 else 0.25) / spread
        usual = min(USUAL_PPB, self._before.drift_ppb)
        return self._before.ppb + (slope - self._before.ppb) * usual**2 / (usual**2 + variance)

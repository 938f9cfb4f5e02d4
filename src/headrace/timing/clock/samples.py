"""Samples: what replies of one server tell about the time, and the best of the last eight (RFC 5905, section 10).

An *offset* is UTC minus CLOCK_BOOTTIME, which only passes: nobody can set it, so offsets of different moments can be
compared even if somebody sets the clock of the system in between. All four times of an exchange are of these two:

    we send at t1 and receive at t4 (boot time); the server receives at t2 and sends at t3 (UTC)
    offset = ((t2 - t1) + (t3 - t4)) / 2        delay = (t4 - t1) - (t3 - t2)

Nobody knows how the delay is divided between the two ways. If all of it was on one way, the offset is wrong by half of
it. So a sample is an interval, `offset` ± `distance`, that holds the truth even then, if the server is honest: half the
delay, half the server's delay to the clock that it follows, and the dispersion of both.

A sample ages: it moves with the frequency of the clock, and its distance grows with what is unknown about that.
"""

from collections import deque
from dataclasses import dataclass
from math import sqrt

STAGES = 8
DISPERSION_PPB = 15_000  # RFC 5905's PHI: how far the frequency of a clock strays
PRECISION_NS = 1_000  # of reading our own clock and handing over a datagram
_PPB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast UTC runs against boot time, and how far that may be off; parts per 1,000,000,000."""

    ppb: int = 0
    drift_ppb: int = 500_000  # nothing is known: what a kernel corrects at most


@dataclass(frozen=True, slots=True)
class Sample:
    """One exchange with a server, valid at `boot_ns`."""

    boot_ns: int
    offset_ns: int
    delay_ns: int
    distance_ns: int  # the truth is at most this far from the offset

    def aged(self, boot_ns: int, rate: Rate) -> "Sample":
        """The same sample at a later moment."""
        age_ns = boot_ns - self.boot_ns
        return Sample(
            boot_ns, self.offset_ns + age_ns * rate.ppb // _PPB, self.delay_ns,
            self.distance_ns + abs(age_ns) * rate.drift_ppb // _PPB + 1,
        )  # fmt: skip

    @property
    def low_ns(self) -> int:
        return self.offset_ns - self.distance_ns

    @property
    def high_ns(self) -> int:
        return self.offset_ns + self.distance_ns


class SampleFilter:
    """A shift register of the last eight samples of one server. `best` is the one with the smallest distance now."""

    def __init__(self) -> None:
        self._stages: deque[Sample] = deque(maxlen=STAGES)

    def __len__(self) -> int:
        return len(self._stages)

    def add(self, sample: Sample, rate: Rate) -> bool:
        """False if it contradicts an earlier one: the server has stepped, and only the new sample is kept."""
        agrees = all(
            sample.low_ns <= earlier.high_ns and earlier.low_ns <= sample.high_ns
            for earlier in (each.aged(sample.boot_ns, rate) for each in self._stages)
        )
        if not agrees:
            self._stages.clear()
        self._stages.append(sample)
        return agrees

    def clear(self) -> None:
        self._stages.clear()

    def best(self, boot_ns: int, rate: Rate) -> Sample | None:
        return min((each.aged(boot_ns, rate) for each in self._stages), key=lambda each: each.distance_ns, default=None)

    def jitter_ns(self, boot_ns: int, rate: Rate) -> int:
        """How far the offsets of the others are from the best one (RFC 5905's jitter); at least the precision."""
        best = self.best(boot_ns, rate)
        if best is None or len(self._stages) < 2:
            return PRECISION_NS
        squares = sum((each.aged(boot_ns, rate).offset_ns - best.offset_ns) ** 2 for each in self._stages)
        return max(PRECISION_NS, int(sqrt(squares / (len(self._stages) - 1))))

    @property
    def latest_ns(self) -> int:
        """When the latest sample was taken; 0 if there is none."""
        return self._stages[-1].boot_ns if self._stages else 0

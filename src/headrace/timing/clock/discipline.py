"""Discipline: from where the truth is to the words by which every process tells the time.

The clock continues from what it shows. It is behind: it runs faster, by at most a twelfth, or jumps if it is behind by
more than `STEP_NS`. It is ahead: it runs slower, by at most a twelfth, however long that takes; it never goes back. A
correction takes at least `SLEW_NS`, so that the spacing of time stamps stays true: 1 ms is corrected at 125 ppm.

The bound that is stated holds at every moment of a correction. It is the distance from what the clock shows to the
farther end of the interval that holds the truth, at the beginning or at the end, whichever is larger: in between it is
never more. So what remains of a correction is part of the bound. From then on it grows with what is unknown about the
frequency.
"""

from dataclasses import dataclass

from headrace.log.clock_words import ClockWords
from headrace.timing.clock.samples import Rate

STEP_NS = 128_000_000  # RFC 5905's step threshold
SLEW_NS = 8_000_000_000
SLEW_MAX = 12  # at most a twelfth, as chrony does
READING_NS = 1_000  # of two clocks one after the other
_PPB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """Where the truth is at one moment: UTC minus boot time (samples.py)."""

    boot_ns: int
    offset_ns: int
    low_ns: int
    high_ns: int
    rate: Rate

    def aged(self, boot_ns: int, rate: Rate) -> "Estimate":
        """The same at a later moment, with what is known about the frequency then."""
        age_ns = boot_ns - self.boot_ns
        moved, spread = age_ns * rate.ppb // _PPB, abs(age_ns) * rate.drift_ppb // _PPB + 1
        return Estimate(
            boot_ns, self.offset_ns + moved, self.low_ns + moved - spread, self.high_ns + moved + spread, rate
        )


@dataclass(frozen=True, slots=True)
class Steered:
    """The new words, and by how far they jump ahead."""

    words: ClockWords
    correction_ns: int
    stepped_ns: int = 0


def steer(shown_ns: int, estimate: Estimate, source: int, system_ns: int) -> Steered:
    """The words that continue from `shown_ns`, which the clock shows at the moment of the estimate.

    `system_ns`: what the clock of the system shows then.
    """
    boot_ns, rate = estimate.boot_ns, estimate.rate
    target_ns = boot_ns + estimate.offset_ns
    correction_ns = target_ns - shown_ns
    stepped_ns = correction_ns if correction_ns > STEP_NS else 0
    begin_ns = shown_ns + stepped_ns
    slew_ppb, lasts_ns = _slew(correction_ns - stepped_ns)
    low_ns, high_ns = boot_ns + estimate.low_ns, boot_ns + estimate.high_ns
    bound_ns = max(abs(end - place) for end in (low_ns, high_ns) for place in (begin_ns, target_ns))
    words = ClockWords(
        boot_ns=boot_ns,
        utc_ns=begin_ns,
        rate_ppb=rate.ppb + slew_ppb,
        until_boot_ns=boot_ns + lasts_ns,
        then_ppb=rate.ppb,
        bound_ns=bound_ns + READING_NS,
        drift_ppb=rate.drift_ppb,
        source=source,
        offset_ns=begin_ns - system_ns,
    )
    return Steered(words, correction_ns, stepped_ns)


def _slew(correction_ns: int) -> tuple[int, int]:
    """By how much faster or slower the clock runs, and for how long."""
    if not correction_ns:
        return 0, 0
    size_ns = abs(correction_ns)
    ppb = max(1, min(_PPB // SLEW_MAX, size_ns * _PPB // SLEW_NS))
    return (ppb if correction_ns > 0 else -ppb), size_ns * _PPB // ppb

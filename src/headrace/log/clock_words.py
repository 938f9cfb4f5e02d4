"""ClockWords: how time since the machine started becomes UTC, as it lies in the control file.

One process writes them, every process reads them in the kernel: `utc = utc_ns + passed + passed * rate_ppb / 10**9`, at
`rate_ppb` up to `until_boot_ns`, and at `then_ppb` from then on, so that a correction ends by itself. The same formulas
are here, for those who compute new words (timing/clock) and for display.
"""

from dataclasses import asdict, dataclass

from headrace.kernel import _kernel as kernel

NO_SOURCE, SYSTEM, NTP = kernel.CLOCK_NONE, kernel.CLOCK_SYSTEM, kernel.CLOCK_NTP
SOURCES = {NO_SOURCE: "none", SYSTEM: "system", NTP: "ntp"}
_PPB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ClockWords:
    """The words; kernel/layout.pxi has the same fields."""

    boot_ns: int  # one moment in both clocks
    utc_ns: int
    rate_ppb: int = 0  # how much faster than boot time UTC runs
    then_ppb: int = 0
    until_boot_ns: int = 0
    bound_ns: int = 0  # how far from the truth it may be at that moment; 0: unknown
    drift_ppb: int = 0  # by how much the bound grows
    source: int = NO_SOURCE
    offset_ns: int = 0  # UTC minus the clock of the system, when the words were written

    def at(self, boot_ns: int) -> int:
        """UTC at this time since the machine started."""
        passed = max(0, boot_ns - self.boot_ns)
        slewed = min(passed, max(0, self.until_boot_ns - self.boot_ns))
        return self.utc_ns + passed + slewed * self.rate_ppb // _PPB + (passed - slewed) * self.then_ppb // _PPB

    def bound_at(self, boot_ns: int) -> int:
        """How far from the truth the clock may be at this time; 0 unknown."""
        if not self.bound_ns:
            return 0
        return self.bound_ns + max(0, boot_ns - self.boot_ns) * self.drift_ppb // _PPB + 1


def read_clock(log: kernel.Log) -> ClockWords | None:
    """The words that count; None if none have been written since the machine started."""
    words = log.clock()
    return None if words is None else ClockWords(**words)


def write_clock(log: kernel.Log, words: ClockWords) -> None:
    """Make these words count; ValueError if they would put the clock back."""
    log.set_clock(**asdict(words))

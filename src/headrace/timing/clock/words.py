"""ClockWords: a stand-in."""

from dataclasses import dataclass

NO_SOURCE, SYSTEM, NTP = range(3)
_PPB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ClockWords:
    boot_ns: int = 0
    utc_ns: int = 0
    rate_ppb: int = 0
    until_boot_ns: int = 0
    then_ppb: int = 0
    bound_ns: int = 0
    drift_ppb: int = 0
    source: int = 0
    offset_ns: int = 0

    def at(self, boot_ns: int) -> int:
        first = min(max(boot_ns, self.boot_ns), max(self.until_boot_ns, self.boot_ns)) - self.boot_ns
        rest = boot_ns - self.boot_ns - first
        return self.utc_ns + first + rest + first * self.rate_ppb // _PPB + rest * self.then_ppb // _PPB

    def bound_at(self, boot_ns: int) -> int:
        return self.bound_ns + (boot_ns - self.boot_ns) * self.drift_ppb // _PPB + 1

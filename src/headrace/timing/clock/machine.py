"""Machine: the clocks of the system, and what its kernel knows about them (adjtimex(2)).

CLOCK_BOOTTIME only passes, CLOCK_REALTIME can be set. Both run at the same rate, which a daemon such as chronyd or ntpd
adjusts; so their difference changes only when the time is set.

Reading the state needs no rights. The bound is what the daemon states (`maxerror`, which the kernel lets grow by 500
ppm), and what the kernel has still to correct. systemd-timesyncd states 0: where it runs, the bound is the largest
distance of a server that it accepts.
"""

import ctypes
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

KERNEL_DRIFT_PPB = 500_000  # by which maxerror grows
TIMESYNCD = Path("/run/systemd/timesync/synchronized")
TIMESYNCD_BOUND_NS = 5_000_000_000  # its RootDistanceMaxSec
_STA_UNSYNC, _STA_NANO = 0x0040, 0x2000
_TIME_ERROR = 5
_READS = 3


class _Timex(ctypes.Structure):
    _fields_ = [
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("constant", ctypes.c_long),
        ("precision", ctypes.c_long), ("tolerance", ctypes.c_long), ("time_s", ctypes.c_long),
        ("time_part", ctypes.c_long), ("tick", ctypes.c_long), ("rest", ctypes.c_byte * 256),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the kernel knows about its clock at one moment."""

    is_disciplined: bool
    bound_ns: int  # of CLOCK_REALTIME, if it is disciplined
    rate_ppb: int  # by which the clocks are made faster than the crystal
    trouble: str = ""  # why nothing is known


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment in both clocks; `width_ns` is how exactly it is the same."""

    boot_ns: int
    system_ns: int
    width_ns: int = 0


class Machine(Protocol):
    """The seam for tests."""

    def moment(self) -> Moment: ...
    def kernel(self) -> Kernel: ...


class RealMachine:
    """The clocks of this machine."""

    def __init__(self) -> None:
        self._adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex

    def moment(self) -> Moment:
        """The best of a few attempts: this thread may be interrupted between two clocks."""
        return min((_moment() for _ in range(_READS)), key=lambda each: each.width_ns)

    def kernel(self) -> Kernel:
        found = _Timex()
        state = self._adjtimex(ctypes.byref(found))
        if state < 0:
            reason = os.strerror(ctypes.get_errno())
            return Kernel(False, 0, 0, f"the state of the system's clock cannot be read (adjtimex: {reason})")
        in_ns = 1 if found.status & _STA_NANO else 1000
        bound_ns = found.maxerror * 1000 + abs(found.offset) * in_ns
        if TIMESYNCD.exists():
            bound_ns += TIMESYNCD_BOUND_NS
        rate_ppb = found.freq * 1000 // 65536 + (found.tick - 10_000) * 100_000
        return Kernel(state != _TIME_ERROR and not found.status & _STA_UNSYNC, bound_ns, rate_ppb)


def _moment() -> Moment:
    before_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    system_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    after_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return Moment((before_ns + after_ns) // 2, system_ns, (after_ns - before_ns) // 2 + 1)

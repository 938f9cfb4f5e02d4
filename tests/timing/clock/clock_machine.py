"""A queue's clock words in memory, and a machine whose clock can be set and whose daemon can be switched."""

import time
from dataclasses import replace

from headrace.log.clock_words import ClockWords
from headrace.timing.clock.machine import Kernel, Moment, RealMachine


class MemoryClock:
    """The words; refuses to go back, as the kernel does."""

    def __init__(self) -> None:
        self.words: ClockWords | None = None

    def read_clock(self) -> ClockWords | None:
        return self.words

    def write_clock(self, words: ClockWords) -> None:
        assert self.words is None or words.at(words.boot_ns) >= self.words.at(words.boot_ns)
        self.words = words

    def clear_clock(self) -> None:
        self.words = None


def error_ns(clock: MemoryClock) -> int:
    """How far the clock is from that of this machine, at one moment of both."""
    moment = RealMachine().moment()
    assert clock.words is not None
    return clock.words.at(moment.boot_ns) - moment.system_ns


def bound_ns(clock: MemoryClock) -> int:
    """How far it says that it may be."""
    assert clock.words is not None
    return clock.words.bound_at(time.clock_gettime_ns(time.CLOCK_BOOTTIME))


class FakeMachine:
    """Real boot time; a system clock that is off and can be set; a kernel whose state is given."""

    def __init__(self, off_ns: int = 0, kernel: Kernel | None = None) -> None:
        self.off_ns = off_ns
        self.state = kernel or Kernel(False, 16_000_000_000, 0)

    def moment(self) -> Moment:
        moment = RealMachine().moment()
        return replace(moment, system_ns=moment.system_ns + self.off_ns)

    def kernel(self) -> Kernel:
        return self.state

    def discipline(self, bound_ns: int) -> None:
        self.state = replace(self.state, is_disciplined=True, bound_ns=bound_ns)

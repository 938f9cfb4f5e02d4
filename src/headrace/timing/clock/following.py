"""Following: the clock of the system as a source, and whether somebody sets it.

UTC minus boot time changes only when the time is set (machine.py). Then the clock of the site continues from what it
shows, as after any other correction: set ahead, it follows or jumps; set back, it runs slower until it is right.
"""

from headrace.timing.clock.discipline import Estimate
from headrace.timing.clock.machine import KERNEL_DRIFT_PPB, Kernel, Moment
from headrace.timing.clock.samples import Rate

SET_NS = 1_000_000  # a smaller difference is how exactly two clocks can be read


class Following:
    """The clock of the system, looked at about once a second."""

    def __init__(self) -> None:
        self.steps = 0
        self.step_ns = 0  # by the last one
        self._offset_ns: int | None = None

    def look(self, moment: Moment) -> bool:
        """Whether the time was set since the last look."""
        offset_ns = moment.system_ns - moment.boot_ns
        before_ns, self._offset_ns = self._offset_ns, offset_ns
        if before_ns is None or abs(offset_ns - before_ns) < SET_NS + moment.width_ns:
            return False
        self.steps, self.step_ns = self.steps + 1, offset_ns - before_ns
        return True

    @staticmethod
    def estimate(moment: Moment, kernel: Kernel) -> Estimate:
        """Where the truth is by the system's clock and its own bound; without one, the truth is taken to be there."""
        offset_ns, half_ns = moment.system_ns - moment.boot_ns, kernel.bound_ns + moment.width_ns
        return Estimate(moment.boot_ns, offset_ns, offset_ns - half_ns, offset_ns + half_ns, Rate(0, KERNEL_DRIFT_PPB))

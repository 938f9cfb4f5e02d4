"""Failpoints: die at a chosen step of a put, an eviction, a segment change or a cursor save.

    arm("append:row-written", passes=3)     # the third time this process gets there, it is killed (SIGKILL)

`POINTS` lists them in the order of the work. Arming is per process; a child that is to die arms itself.
"""

from headrace.errors import OptionError
from headrace.kernel import _kernel as kernel

CURSOR_POINTS = ("cursor:cell-written", "cursor:name-written", "cursor:half-saved", "cursor:saved")
POINTS: tuple[str, ...] = (*kernel.FAILPOINTS, *CURSOR_POINTS)


def arm(point: str, passes: int = 1) -> None:
    """Kill this process when it reaches `point` for the `passes`-th time."""
    if point not in POINTS:
        raise OptionError(f"failpoint {point!r} is unknown", f"choose one of {', '.join(POINTS)}")
    kernel.arm_failpoint(point, passes)


def disarm() -> None:
    kernel.arm_failpoint("", 0)

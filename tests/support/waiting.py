"""Wait for an event, with a limit that is only a safety net: no test passes or fails by the clock."""

import time
from collections.abc import Callable
from pathlib import Path


def until(
    condition: Callable[[], object], what: str | Callable[[], object] = "the condition holds", seconds: float = 240
) -> float:
    """Wait until the condition holds; return how long that took. `what` describes it in the error."""
    begun_s = time.monotonic()
    while not condition():
        if time.monotonic() > begun_s + seconds:
            raise AssertionError(f"did not happen within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(0.01)
    return time.monotonic() - begun_s


def is_asleep(pid: int) -> bool:
    """Whether the main thread of a process waits in the kernel."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"

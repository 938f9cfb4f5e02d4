"""Wait for an event, with a limit that is only a safety net: no test passes or fails by the clock."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], what: str | Callable[[], object], seconds: float = 60) -> float:
    """Wait until the condition holds; return how long that took. `what` describes it in the error."""
    begun_s = time.monotonic()
    while not condition():
        if time.monotonic() > begun_s + seconds:
            raise AssertionError(f"did not happen within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(0.01)
    return time.monotonic() - begun_s

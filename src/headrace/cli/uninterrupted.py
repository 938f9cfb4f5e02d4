"""A few lines that belong together: Ctrl-C and SIGTERM wait until they are done."""

import signal
from types import FrameType, TracebackType
from typing import Any

TURN_S = 0.5  # that a put waits for a blocking station, before it is looked whether a signal came


class Uninterrupted:
    """`with Uninterrupted():` - a signal that comes inside takes effect at the end. For the main thread."""

    def __init__(self) -> None:
        self._came: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._came is not None and error is None:
            signal.raise_signal(self._came)

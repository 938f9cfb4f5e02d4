"""When: the clock, the release buffer, the pacer, replay."""

from headrace.timing.buffer import BufferStatistics, ReleaseBuffer
from headrace.timing.jitter import JitterStatistics
from headrace.timing.pacer import Pacer, PacerStatistics

__all__ = ["BufferStatistics", "JitterStatistics", "Pacer", "PacerStatistics", "ReleaseBuffer"]

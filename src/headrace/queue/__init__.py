"""Where products rest: a bounded, shared, crash-safe log."""

from headrace.queue.check import Finding
from headrace.queue.clock import Clock
from headrace.queue.config import QueueConfig
from headrace.queue.cursor import Cursor, CursorState
from headrace.queue.follower import Follower
from headrace.queue.queue import Queue
from headrace.queue.receipt import Duplicate, Receipt
from headrace.queue.statistics import Statistics
from headrace.queue.storage import Storage

__all__ = [
    "Clock", "Cursor", "CursorState", "Duplicate", "Finding", "Follower", "Queue", "QueueConfig",
    "Receipt", "Statistics", "Storage",
]  # fmt: skip

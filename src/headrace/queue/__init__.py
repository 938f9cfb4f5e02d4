"""Where products rest: a bounded, shared, crash-safe log."""

from headrace.channel.interface import AnyChannel, AnySupplier
from headrace.log.append import Duplicate, Receipt
from headrace.log.check import Finding
from headrace.log.config import QueueConfig
from headrace.log.cursor import Cursor, CursorState
from headrace.log.follow import AnyFollower, Follower
from headrace.log.seams import Clock, Storage
from headrace.log.statistics import Statistics
from headrace.queue.interface import AnyCursor, AnyQueue, local_queue
from headrace.queue.member_stream import MemberStream
from headrace.queue.members import Member, MemberEvent
from headrace.queue.queue import Queue
from headrace.station.interface import AnyConsumer, AnyStation

__all__ = [
    "AnyChannel", "AnyConsumer", "AnyCursor", "AnyFollower", "AnyQueue", "AnyStation", "AnySupplier", "Clock", "Cursor",
    "CursorState", "Duplicate", "Finding", "Follower", "Member", "MemberEvent", "MemberStream", "Queue", "QueueConfig",
    "Receipt", "Statistics", "Storage", "local_queue",
]  # fmt: skip

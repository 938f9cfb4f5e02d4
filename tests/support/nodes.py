"""Helpers for tests of groups of processing nodes."""

from headrace.share.interface import AnyShare
from headrace.share.share import Share

_FUTURE = 1 << 62


def silence(share: AnyShare, seat: int) -> None:
    """Let a node count as dead, however lately it was heard of; `share` is on the machine of the queue."""
    assert isinstance(share, Share)
    share.table.seats["heartbeat"][seat] = _FUTURE  # which is impossible, and counts for nothing

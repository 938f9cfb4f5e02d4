"""Counts: what became of the products that a site has requested. Plain numbers, since the site's start; losses are
kept over restarts (losses.py).

    UpstreamStatistics   one request at one other site: what came, and what that site left out or could not give
    Arrivals             one request: what this site's own queue did with the products that came
    Tally                all of them; it stays when requests change, and when a request fails over and returns

Every product of a request that is not in this queue is counted under a cause (product/cause.py): by the upstream if it
was not sent, by the arrivals if it was not stored. A product that one upstream left out may have come from another.
"""

import threading
from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec

from headrace.product.cause import Cause, LostBy
from headrace.relay.messages.source import Source

RANGES_MAX = 50  # lost ranges that are remembered

Key = tuple[str, str]  # the name of a request, and of a site
Dropped = Literal["catching up", "full"]  # why a live message was not kept: the log is read; or they came too fast


def nothing_dropped() -> dict[Dropped, int]:
    return {"catching up": 0, "full": 0}


class Unseen(msgspec.Struct, frozen=True):
    """A range that a site evicted before it could be compared, and from where its products came (unseen.py)."""

    first: int
    last: int
    sources: tuple[Source, ...]
    rest_first: int  # the smallest range with all that came from nowhere else; empty if this is the greater one
    rest_last: int
    look_at: float = 0.0  # when to look for the rest in our own queue, in monotonic seconds
    looks: int = 0


class UpstreamStatistics(msgspec.Struct):
    """Counts of one request at one site."""

    state: str = "asking"
    problem: str = ""  # the latest
    failing: str = ""  # the reason, from a failure until something comes again
    products: int = 0
    from_others: int = 0  # of these, received from other holders
    waiting: int = 0  # that other holders have, behind one that none of them has: while the site is away
    live: int = 0  # pages
    old_pages: int = 0
    dropped: dict[Dropped, int] = msgspec.field(default_factory=nothing_dropped)  # live messages; the log has them
    pulled: int = 0
    gaps: int = 0
    repairs: int = 0
    from_standby: int = 0  # of these, read while the site stood by: the active site did not bring them
    begun_again: int = 0  # times that its log ended before the position here
    begun_again_at: float = 0.0  # monotonic seconds of the latest
    refused: int = 0  # invalid messages
    refused_at: float = 0.0  # monotonic seconds of the latest
    wire_bytes: int = 0  # of pages, as they came over the link
    page_bytes: int = 0  # and without compression of the link
    latency_ns: int = 0  # of the last live page, from sending to arrival, by the clocks of both sites
    lost: list[tuple[int, int, LostBy]] = msgspec.field(default_factory=list)  # the latest ranges; see `LostBy`
    lost_sequences: int = 0  # in all ranges
    lost_by: dict[LostBy, int] = {}
    unseen: list[Unseen] = msgspec.field(default_factory=list)  # the latest, as long as they are not supplied
    refused_upto: int = 0  # the last product of the site that this one refused, and so did not take from it
    left_out: dict[Cause, int] = {}  # by the site, lost ranges included; and what this site refused (REFUSED_HERE)
    left_out_at: dict[Cause, float] = {}  # monotonic seconds of the latest

    def lose(self, first: int, last: int, cause: LostBy, now: float) -> None:
        self.lost = [*self.lost[1 - RANGES_MAX :], (first, last, cause)]
        self.lost_sequences += last - first + 1
        self.lost_by = {**self.lost_by, cause: self.lost_by.get(cause, 0) + last - first + 1}
        self.leave_out({cause: last - first + 1}, now)

    def watch(self, unseen: Unseen) -> None:
        """This range has been lost as `evicted unseen`, and may be taken back."""
        self.unseen = [*self.unseen[1 - RANGES_MAX :], unseen]

    def looked_at(self, unseen: Unseen, look_at: float) -> None:
        later = msgspec.structs.replace(unseen, look_at=look_at, looks=unseen.looks + 1)
        self.unseen = [later if each == unseen else each for each in self.unseen]

    def take_back(self, unseen: Unseen, first: int, last: int) -> None:
        """Of this range, only `first` to `last` may be lost: nothing, if the first is the greater one."""
        is_left = first <= last
        sequences = unseen.last - unseen.first - (last - first if is_left else -1)
        cause: LostBy = "evicted unseen"
        entry, lost = (unseen.first, unseen.last, cause), list(self.lost)
        if entry in lost:
            place = lost.index(entry)
            lost[place : place + 1] = [(first, last, cause)] if is_left else []
        self.lost, self.lost_sequences = lost, self.lost_sequences - sequences
        self.lost_by = _without(self.lost_by, cause, sequences)
        self.left_out = _without(self.left_out, cause, sequences)
        kept = [each for each in self.unseen if (each.first, each.last) != (unseen.first, unseen.last)]
        if is_left:
            rest = msgspec.structs.replace(unseen, first=first, last=last, rest_first=first, rest_last=last)
            kept.append(msgspec.structs.replace(rest, sources=(), looks=unseen.looks + 1))
        self.unseen = kept

    def begin_again(self, now: float) -> None:
        self.begun_again, self.begun_again_at = self.begun_again + 1, now

    def leave_out(self, counts: Mapping[Cause, int], now: float) -> None:
        """Other threads may iterate over the mappings meanwhile; so they are replaced, not changed."""
        self.left_out = {**self.left_out, **{cause: self.left_out.get(cause, 0) + n for cause, n in counts.items()}}
        self.left_out_at = {**self.left_out_at, **dict.fromkeys(counts, now)}


Word = TypeVar("Word", bound=str)


def _without(counts: Mapping[Word, int], cause: Word, count: int) -> dict[Word, int]:
    left = {**counts, cause: counts.get(cause, 0) - count}
    return {cause: count for cause, count in left.items() if count > 0}


class Arrivals(msgspec.Struct):
    """Counts of one request."""

    products: int = 0  # stored
    duplicates: int = 0
    refused: int = 0  # the queue can never take them
    expired: int = 0  # of those stored: no reader sees them, by the clock of this site
    returned: int = 0  # they were put here
    refused_at: float = 0.0  # monotonic seconds of the latest
    expired_at: float = 0.0
    waiting: str = ""  # why the queue does not take products at the moment


class Tally:
    """The counts of one site. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrivals: dict[str, Arrivals] = {}
        self._upstreams: dict[Key, UpstreamStatistics] = {}

    def arrivals(self, request: str) -> Arrivals:
        with self._lock:
            return self._arrivals.setdefault(request, Arrivals())

    def upstream(self, request: str, site: str) -> UpstreamStatistics:
        with self._lock:
            return self._upstreams.setdefault((request, site), UpstreamStatistics())

    def upstreams(self) -> dict[Key, UpstreamStatistics]:
        """Of all that there ever were, those of earlier requests and of sites that a request has left included."""
        with self._lock:
            return dict(self._upstreams)

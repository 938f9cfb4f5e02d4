"""Frame: the difference between two successive snapshots of a queue, as rows to show.

Everything here is plain data: no queue, no clock, no terminal. A rate is None where there is nothing to compare with:
in the first frame, and for a station or consumer that is new. A new feed had no products before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from headrace.cli.station_chain import depth_of
from headrace.log.statistics import FeedStatistics, Statistics
from headrace.station import ConsumerStatistics, StationStatistics
from headrace.units import format_time

Counts = TypeVar("Counts")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Statistics at one moment. The numbers of a queue in use may differ from each other by a few products."""

    path: str
    time_ns: int
    at_s: float  # monotonic
    queue: Statistics
    stations: list[StationStatistics]
    consumers: list[ConsumerStatistics]


class QueueRow(msgspec.Struct, frozen=True):
    """The queue as a whole. Names that end in `_s` are rates per second; `oldest_age_s` is in seconds."""

    path: str
    size: int
    file_bytes: int
    fill: float  # of 1
    held_products: int
    oldest_age_s: float | None
    products_s: float | None
    bytes_s: float | None
    duplicates_s: float | None
    evicted_s: float | None
    undurable: int
    readers: int
    writers: int


class FeedRow(msgspec.Struct, frozen=True):
    """One feed: totals since the queue was created, and rates."""

    feed: str
    products: int
    bytes: int
    products_s: float | None
    bytes_s: float | None


class StationRow(msgspec.Struct, frozen=True):
    """One station."""

    name: str
    depth: int  # stages ahead of it
    group: str | None
    blocking: bool
    paused: bool
    durable: bool
    capacity: int | None
    fill: float  # share of its capacity; without a limit, the share of the queue's size that waits for it
    waiting: int
    leased: int
    parked: int
    retries: int
    behind: int
    consumers: int
    admitted_s: float | None
    acknowledged_s: float | None
    dropped_s: float | None  # dropped, expired or evicted before delivery
    lag_s: float


class ConsumerRow(msgspec.Struct, frozen=True):
    """One consumer."""

    station: str
    place: int
    pid: int
    leased: int
    acknowledged: int
    delivered_s: float | None
    acknowledged_s: float | None
    beat_age_s: float
    alive: bool


class Frame(msgspec.Struct, frozen=True):
    """One screen. Rates are measured over `seconds`."""

    time: str
    seconds: float | None
    queue: QueueRow
    feeds: list[FeedRow]  # the busiest first
    stations: list[StationRow]
    consumers: list[ConsumerRow]


def frame_of(before: Snapshot | None, now: Snapshot) -> Frame:
    """The rows for `now`, with rates since `before`."""
    seconds = None if before is None else now.at_s - before.at_s
    return Frame(
        time=format_time(now.time_ns),
        seconds=seconds,
        queue=_queue_row(before, now, seconds),
        feeds=_feed_rows(before, now, seconds),
        stations=_station_rows(before, now, seconds),
        consumers=_consumer_rows(before, now, seconds),
    )


def rate(old: Counts | None, new: Counts, seconds: float | None, count: Callable[[Counts], int]) -> float | None:
    """The growth of a count per second; None if there is no older count, or if the counter was reset."""
    if old is None or not seconds or count(new) < count(old):
        return None
    return (count(new) - count(old)) / seconds


def _queue_row(before: Snapshot | None, now: Snapshot, seconds: float | None) -> QueueRow:
    new, old = now.queue, before.queue if before else None
    return QueueRow(
        path=now.path,
        size=new.size,
        file_bytes=new.file_bytes,
        fill=new.file_bytes / new.size,
        held_products=new.held_products,
        oldest_age_s=new.oldest_age_s,
        products_s=rate(old, new, seconds, lambda counts: counts.inserted_products),
        bytes_s=rate(old, new, seconds, lambda counts: counts.inserted_bytes),
        duplicates_s=rate(old, new, seconds, lambda counts: counts.duplicates),
        evicted_s=rate(old, new, seconds, lambda counts: counts.evicted_products),
        undurable=new.undurable,
        readers=new.readers,
        writers=new.writers,
    )


def _feed_rows(before: Snapshot | None, now: Snapshot, seconds: float | None) -> list[FeedRow]:
    """Feeds that have had a product, sorted by rate, then by total."""
    earlier = {feed.feed: feed for feed in before.queue.feeds} if before else {}
    rows = []
    for new in now.queue.feeds:
        old = earlier.get(new.feed) or (FeedStatistics(new.feed, 0, 0, 0) if before else None)
        products_s = rate(old, new, seconds, lambda counts: counts.products)
        bytes_s = rate(old, new, seconds, lambda counts: counts.bytes)
        if new.products:
            rows.append(FeedRow(new.feed, new.products, new.bytes, products_s, bytes_s))
    return sorted(rows, key=lambda row: (-(row.products_s or 0.0), -row.products, row.feed))


def _station_rows(before: Snapshot | None, now: Snapshot, seconds: float | None) -> list[StationRow]:
    earlier = {(each.name, each.chain): each for each in before.stations} if before else {}
    room = now.queue.held_products / min(1.0, now.queue.file_bytes / now.queue.size or 1.0)
    return [
        _station_row(earlier.get((each.name, each.chain)), each, room, depth_of(each, now.stations), seconds)
        for each in now.stations
    ]


def _station_row(
    old: StationStatistics | None, new: StationStatistics, room: float, depth: int, seconds: float | None
) -> StationRow:
    same = (
        "name", "group", "blocking", "paused", "durable", "capacity", "waiting", "leased", "parked", "retries",
        "behind", "consumers",
    )  # fmt: skip
    return StationRow(
        depth=depth,
        fill=min(1.0, new.waiting / new.capacity if new.capacity else (new.waiting + new.behind) / max(1.0, room)),
        admitted_s=rate(old, new, seconds, lambda counts: counts.admitted),
        acknowledged_s=rate(old, new, seconds, lambda counts: counts.acknowledged),
        dropped_s=rate(old, new, seconds, _dropped),
        lag_s=new.oldest_age_s or 0.0,
        **{field: getattr(new, field) for field in same},
    )


def _dropped(counts: StationStatistics) -> int:
    return sum(counts.dropped.values()) + counts.expired + counts.evicted


def _consumer_rows(before: Snapshot | None, now: Snapshot, seconds: float | None) -> list[ConsumerRow]:
    earlier = {_identity(each): each for each in before.consumers} if before else {}
    rows = [_consumer_row(earlier.get(_identity(each)), each, seconds) for each in now.consumers]
    return sorted(rows, key=lambda row: (row.station, row.place))


def _identity(each: ConsumerStatistics) -> tuple[str, int, int]:
    """The identity of a consumer: another consumer may take its place later."""
    return each.station, each.place, each.attached_ns


def _consumer_row(old: ConsumerStatistics | None, new: ConsumerStatistics, seconds: float | None) -> ConsumerRow:
    return ConsumerRow(
        station=new.station,
        place=new.place,
        pid=new.pid,
        leased=new.leased,
        acknowledged=new.acknowledged,
        delivered_s=rate(old, new, seconds, lambda counts: counts.delivered),
        acknowledged_s=rate(old, new, seconds, lambda counts: counts.acknowledged),
        beat_age_s=new.beat_age_s,
        alive=new.alive,
    )

"""Frame: what two successive snapshots tell, as rows to be shown.

Everything here is plain data made of plain data: no queue, no clock, no terminal. A rate is None where there is
nothing to compare with: in the first frame, and for whatever has just come into being.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from headrace.cli.station.standing import depth_of
from headrace.cli.top.snapshot import Snapshot
from headrace.log.statistics import FeedStatistics
from headrace.station import ConsumerStatistics, StationStatistics
from headrace.units import format_time

Told = TypeVar("Told")


class QueueRow(msgspec.Struct, frozen=True):
    """The queue as a whole; names ending in `_s` are per second, or seconds where they are ages."""

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
    """One feed: all that was ever put, and what comes now."""

    feed: str
    products: int
    bytes: int
    products_s: float | None
    bytes_s: float | None


class StationRow(msgspec.Struct, frozen=True):
    """One station."""

    name: str
    depth: int  # stages before it
    group: str | None
    blocking: bool
    paused: bool
    durable: bool
    capacity: int | None
    fill: float  # of its capacity; if that is the queue itself, how much of the queue's size waits for it
    waiting: int
    leased: int
    parked: int
    retries: int
    behind: int
    consumers: int
    admitted_s: float | None
    acknowledged_s: float | None
    dropped_s: float | None  # dropped, expired or evicted before they were handed out
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
    """One picture: `seconds` is what the rates are measured over."""

    time: str
    seconds: float | None
    queue: QueueRow
    feeds: list[FeedRow]  # the busiest first
    stations: list[StationRow]
    consumers: list[ConsumerRow]


def frame_of(before: Snapshot | None, now: Snapshot) -> Frame:
    """What to show of `now`, with rates since `before`."""
    seconds = None if before is None else now.at_s - before.at_s
    return Frame(
        time=format_time(now.time_ns),
        seconds=seconds,
        queue=_queue_row(before, now, seconds),
        feeds=_feed_rows(before, now, seconds),
        stations=_station_rows(before, now, seconds),
        consumers=_consumer_rows(before, now, seconds),
    )


def rate(old: Told | None, new: Told, seconds: float | None, count: Callable[[Told], int]) -> float | None:
    """A count's growth per second; None if there was nothing before, or if it has begun anew."""
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
        products_s=rate(old, new, seconds, lambda told: told.inserted_products),
        bytes_s=rate(old, new, seconds, lambda told: told.inserted_bytes),
        duplicates_s=rate(old, new, seconds, lambda told: told.duplicates),
        evicted_s=rate(old, new, seconds, lambda told: told.evicted_products),
        undurable=new.undurable,
        readers=new.readers,
        writers=new.writers,
    )


def _feed_rows(before: Snapshot | None, now: Snapshot, seconds: float | None) -> list[FeedRow]:
    """Feeds that ever had a product, by what comes now, then by what came ever."""
    earlier = {feed.feed: feed for feed in before.queue.feeds} if before else {}
    rows = []
    for new in now.queue.feeds:
        old = earlier.get(new.feed) or (FeedStatistics(new.feed, 0, 0, 0) if before else None)
        products_s = rate(old, new, seconds, lambda told: told.products)
        bytes_s = rate(old, new, seconds, lambda told: told.bytes)
        if new.products:
            rows.append(FeedRow(new.feed, new.products, new.bytes, products_s, bytes_s))
    return sorted(rows, key=lambda row: (-(row.products_s or 0.0), -row.products, row.feed))


def _station_rows(before: Snapshot | None, now: Snapshot, seconds: float | None) -> list[StationRow]:
    earlier = {(told.name, told.line): told for told in before.stations} if before else {}
    room = now.queue.held_products / min(1.0, now.queue.file_bytes / now.queue.size or 1.0)
    return [
        _station_row(earlier.get((told.name, told.line)), told, room, depth_of(told, now.stations), seconds)
        for told in now.stations
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
        admitted_s=rate(old, new, seconds, lambda told: told.admitted),
        acknowledged_s=rate(old, new, seconds, lambda told: told.acknowledged),
        dropped_s=rate(old, new, seconds, lambda told: sum(told.dropped.values()) + told.expired + told.evicted),
        lag_s=new.oldest_age_s or 0.0,
        **{field: getattr(new, field) for field in same},
    )


def _consumer_rows(before: Snapshot | None, now: Snapshot, seconds: float | None) -> list[ConsumerRow]:
    earlier = {_attachment(told): told for told in before.consumers} if before else {}
    rows = [_consumer_row(earlier.get(_attachment(told)), told, seconds) for told in now.consumers]
    return sorted(rows, key=lambda row: (row.station, row.place))


def _attachment(told: ConsumerStatistics) -> tuple[str, int, int]:
    """Places are taken again by others."""
    return told.station, told.place, told.attached_ns


def _consumer_row(old: ConsumerStatistics | None, new: ConsumerStatistics, seconds: float | None) -> ConsumerRow:
    return ConsumerRow(
        station=new.station,
        place=new.place,
        pid=new.pid,
        leased=new.leased,
        acknowledged=new.acknowledged,
        delivered_s=rate(old, new, seconds, lambda told: told.delivered),
        acknowledged_s=rate(old, new, seconds, lambda told: told.acknowledged),
        beat_age_s=new.beat_age_s,
        alive=new.alive,
    )

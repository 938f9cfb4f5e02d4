"""headrace top: rates and rows from two snapshots."""

from itertools import islice

import msgspec
import pytest
from snapshots import consumer_statistics, queue_statistics, snapshot, station_statistics

from headrace import Queue
from headrace.cli.top.command import SnapshotReader, frames
from headrace.cli.top.frame import Snapshot, frame_of
from headrace.log.statistics import FeedStatistics


def test_the_first_frame_has_counts_and_no_rates() -> None:
    feed = FeedStatistics("wx/text", 5, 50, 5)
    frame = frame_of(
        None, snapshot(0, queue_statistics(feeds=[feed]), station_statistics("a"), consumer_statistics("a"))
    )
    assert frame.seconds is None
    assert (frame.queue.products_s, frame.feeds[0].products_s, frame.feeds[0].bytes_s) == (None, None, None)
    assert (frame.stations[0].acknowledged_s, frame.consumers[0].acknowledged_s) == (None, None)
    assert (frame.feeds[0].products, frame.stations[0].name) == (5, "a")


def test_rates_of_the_queue_are_per_second_between_two_snapshots() -> None:
    before = snapshot(
        10.0, queue_statistics(inserted_products=100, inserted_bytes=5000, duplicates=7, evicted_products=0)
    )
    now = snapshot(
        12.0, queue_statistics(inserted_products=150, inserted_bytes=9000, duplicates=8, evicted_products=20)
    )
    told = frame_of(before, now).queue
    assert (told.products_s, told.bytes_s, told.duplicates_s, told.evicted_s) == (25.0, 2000.0, 0.5, 10.0)


def test_the_busiest_feeds_come_first_and_a_new_feed_had_nothing_before() -> None:
    before = snapshot(
        0, queue_statistics(feeds=[FeedStatistics("old", 900, 9000, 1), FeedStatistics("busy", 10, 100, 2)])
    )
    feeds = [
        FeedStatistics("old", 900, 9000, 1), FeedStatistics("busy", 20, 200, 3), FeedStatistics("new", 4, 40, 4),
        FeedStatistics("only a name", 0, 0, 0),
    ]  # fmt: skip
    rows = frame_of(before, snapshot(2, queue_statistics(feeds=feeds))).feeds
    assert [(row.feed, row.products_s, row.bytes_s) for row in rows] == [
        ("busy", 5.0, 50.0), ("new", 2.0, 20.0), ("old", 0.0, 0.0),
    ]  # fmt: skip


def test_a_station_has_rates_of_admitted_acknowledged_and_dropped_products() -> None:
    before = snapshot(0, None, station_statistics("a", admitted=10, acknowledged=5, dropped={"fifo": 1}))
    now = station_statistics(
        "a", admitted=30, acknowledged=15, dropped={"fifo": 3}, expired=1, evicted=1, oldest_age_s=3.5
    )
    (row,) = frame_of(before, snapshot(2, None, now)).stations
    assert (row.admitted_s, row.acknowledged_s, row.dropped_s, row.lag_s) == (10.0, 5.0, 2.0, 3.5)


def test_a_station_that_was_added_again_has_no_rate_yet() -> None:
    before = snapshot(0, None, station_statistics("a", chain=1, acknowledged=500))
    (row,) = frame_of(before, snapshot(1, None, station_statistics("a", chain=2, acknowledged=900))).stations
    assert row.acknowledged_s is None


def test_a_counter_that_was_reset_has_no_rate_yet() -> None:
    before = snapshot(0, None, station_statistics("a", acknowledged=500))
    (row,) = frame_of(before, snapshot(1, None, station_statistics("a", acknowledged=3))).stations
    assert row.acknowledged_s is None


def test_the_bar_of_a_station_is_the_fill_of_its_capacity() -> None:
    (row,) = frame_of(None, snapshot(0, None, station_statistics("a", capacity=200, waiting=50, behind=1000))).stations
    assert row.fill == 0.25


def test_without_a_capacity_the_bar_is_the_share_of_the_queue_that_waits() -> None:
    half_full = queue_statistics(held_products=100, file_bytes=500, size=1000)
    (row,) = frame_of(None, snapshot(0, half_full, station_statistics("a", waiting=40, behind=10))).stations
    assert row.fill == 0.25


def test_an_empty_queue_has_empty_bars() -> None:
    (row,) = frame_of(None, snapshot(0, queue_statistics(), station_statistics("a"))).stations
    assert row.fill == 0.0


def test_the_depth_of_a_station_is_the_number_of_stages_ahead_of_it() -> None:
    stations = [station_statistics("a", stage=1), station_statistics("b", stage=2), station_statistics("c", stage=2, group="g"),
                station_statistics("d", stage=3), station_statistics("e", chain=2, stage=9)]  # fmt: skip
    rows = frame_of(None, snapshot(0, None, *stations)).stations
    assert [(row.name, row.depth) for row in rows] == [("a", 0), ("b", 1), ("c", 1), ("d", 2), ("e", 0)]


def test_a_new_consumer_in_the_place_of_another_has_no_rate_yet() -> None:
    before = snapshot(
        0,
        None,
        consumer_statistics("a", 0, acknowledged=10, delivered=12),
        consumer_statistics("a", 1, acknowledged=50),
    )
    now = snapshot(
        2,
        None,
        consumer_statistics("a", 1, acknowledged=60, attached_ns=2),
        consumer_statistics("a", 0, acknowledged=20, delivered=24),
    )
    rows = frame_of(before, now).consumers
    assert [(row.place, row.acknowledged_s, row.delivered_s) for row in rows] == [(0, 5.0, 6.0), (1, None, None)]


def test_a_frame_is_json_for_programs() -> None:
    frame = frame_of(snapshot(0), snapshot(1, None, station_statistics("a"), consumer_statistics("a")))
    told = msgspec.json.decode(msgspec.json.encode(frame))
    assert set(told) == {"time", "seconds", "queue", "feeds", "stations", "consumers"}
    assert told["seconds"] == 1.0


def test_the_queue_is_read_once_per_interval() -> None:
    """The next reading comes a whole interval after the last, however long a reading takes."""
    readings = iter([snapshot(100.0), snapshot(103.5), snapshot(104.6)])
    paused: list[float] = []

    class Fake:
        def read(self) -> Snapshot:
            return next(readings)

    shown = frames(Fake(), 1.0, paused.append)  # type: ignore[arg-type]
    assert [next(shown).seconds for _ in range(3)] == pytest.approx([None, 3.5, 1.1])
    assert paused == [101.0, 104.5]


def test_the_frames_of_a_queue_count_each_product_once(queue: Queue) -> None:
    """Products are put during the pauses, so that no clock decides which frame counts them."""
    puts = iter([50, 0, 30])
    counts = []

    def pause(due_s: float) -> None:
        queue.put_many([b"%d %f" % (n, due_s) for n in range(next(puts))], feed="wx/text")

    shown = frames(SnapshotReader(queue), 0.0, pause)
    for frame in islice(shown, 1, 4):
        assert frame.seconds is not None
        counts.append(round(sum((feed.products_s or 0.0) * frame.seconds for feed in frame.feeds)))
    assert counts == [50, 0, 30]

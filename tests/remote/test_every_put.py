"""The terms of a channel hold for every put, however it arrives: docs/channels.md, "Products of plain puts"."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from headrace import Channel, Queue
from headrace.cli.main import headrace
from headrace.errors import BlockedError, ChannelEndedError, RejectedError, SuppliersFullError
from headrace.pipeline.source.options import write_options
from headrace.pipeline.source.writers import BatchWriter
from headrace.queue import AnyQueue
from support.fleet import Fabric, want
from support.serving import Served, work
from support.waiting import until

Way = Callable[["Place", AnyQueue, str, float | None], Any]


class Place:
    """A site with its queue, from here and from elsewhere, and a queue of another origin."""

    def __init__(self, served: Served, other: Queue) -> None:
        self.here, self.there, self.other = served.queue, served.connect(), other
        self.endpoint = f"{served.endpoint}?site={served.name}"

    def feed(self, way: str) -> str:
        return f"c{EVERY.index(way)}"

    def channel(self, way: str, **terms: Any) -> tuple[str, Channel]:
        """A channel with a station, for one way; and its feed."""
        feed = self.feed(way)
        channel = self.here.channel(feed, feed, **terms)
        channel.station(feed)
        return feed, channel

    def put(self, way: str, feed: str, timeout: float | None = None) -> None:
        """Put a product; raises what refused it."""
        kind, _, where = way.partition(", ")
        WAYS[kind](self, self.there if where == "remote" else self.here, feed, timeout)


def push(place: Place, queue: AnyQueue, feed: str, timeout: float | None) -> None:
    with queue.channel(feed).supplier() as supplier:
        supplier.push(b"abc", timeout=timeout)


def push_many(place: Place, queue: AnyQueue, feed: str, timeout: float | None) -> None:
    with queue.channel(feed).supplier() as supplier:
        supplier.push_many([b"abc"], timeout=timeout)


def put_batch(place: Place, queue: AnyQueue, feed: str, timeout: float | None) -> None:
    sequence = place.other.put(b"abc", feed=feed)
    assert isinstance(sequence, int)
    assert queue.put_batch(place.other.read_batch(sequence), timeout=timeout).stored == 1


def put_by_consumer(place: Place, queue: AnyQueue, feed: str, timeout: float | None) -> None:
    with queue.station("somebody", "elsewhere/**").attach() as consumer:
        consumer.put(consumer.new(1, 3, feed=feed))


def put_by_command(place: Place, queue: AnyQueue, feed: str, timeout: float | None) -> None:
    where = place.endpoint if queue is place.there else str(place.here.path)
    done = CliRunner().invoke(headrace, ["put", where, "-", "--feed", feed], input=b"abc")
    if done.exit_code:
        assert done.exit_code == 3
        raise RejectedError(done.output)


def put_by_spark(place: Place, queue: AnyQueue, feed: str, timeout: float | None) -> None:
    """The code of a task, without Java."""
    address = {"site": place.endpoint} if queue is place.there else {"queue": str(place.here.path)}
    rows = pa.RecordBatch.from_pydict({"payload": pa.array([feed.encode() + str(timeout).encode()], pa.binary())})
    BatchWriter(write_options({**address, "feed": feed})).write(iter([rows]))


WAYS: dict[str, Way] = {
    "push": push,
    "push_many": push_many,
    "put": lambda _, queue, feed, timeout: queue.put(b"abc", feed=feed, timeout=timeout),
    "put with facts": lambda _, queue, feed, timeout: queue.put(b"abc", feed=feed, slice=1, timeout=timeout),
    "put_many": lambda _, queue, feed, timeout: queue.put_many([b"abc"], feed=feed, timeout=timeout),
    "put_async": lambda _, queue, feed, timeout: asyncio.run(queue.put_async(b"abc", feed=feed, timeout=timeout)),
    "put_batch": put_batch,
    "consumer": put_by_consumer,
    "command": put_by_command,
    "Spark": put_by_spark,
}
EVERY = [f"{way}, {where}" for way in WAYS for where in ("local", "remote")]
WITHOUT_TIMEOUT = ("consumer", "command", "Spark")


@pytest.fixture
def place(served: Served, make_quick: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    opened: dict[Any, AnyQueue] = {}
    monkeypatch.setattr("headrace.pipeline.source.open_queues._open", opened)  # a task leaves its queues open
    yield Place(served, make_quick("other", origin="other"))
    for queue in opened.values():
        queue.close()


def test_max_queue_rejects_every_put(place: Place) -> None:
    for way in EVERY:
        feed, channel = place.channel(way, max_queue=2)
        for payload in (b"1", b"2"):
            place.here.put(payload, feed=feed)
        before = place.here.next
        with pytest.raises(RejectedError, match="its max_queue; nothing was stored"):
            place.put(way, feed)
        assert place.here.next == before, way
        assert place.here.station(feed).statistics().rejected == 1, way
        assert channel.statistics().rejected == way.startswith("push"), way


def test_a_persistent_channel_makes_every_put_wait(place: Place) -> None:
    for way in EVERY:
        feed, _ = place.channel(way, reliability="persistent", max_per_consumer=1)
        station = place.here.station(feed)
        place.put(way, feed)
        if not way.startswith(WITHOUT_TIMEOUT):
            with pytest.raises(BlockedError, match="nothing was stored"):
                place.put(way, feed, 0)
        waiting = threading.Thread(target=place.put, args=(way, feed, 240.0))
        waiting.start()
        got = 0
        while waiting.is_alive() or station.lag().products:
            taken = len(work(station, 10))
            assert taken <= 1, way
            got += taken
        waiting.join()
        assert (got, station.statistics().dropped) == (2, dict.fromkeys(station.statistics().dropped, 0)), way


def test_the_timeout_of_a_channel_holds_for_every_put(place: Place) -> None:
    feeds = {way: place.channel(way, timeout="1ms")[0] for way in EVERY}
    for way, feed in feeds.items():
        place.put(way, feed)
    time.sleep(0.01)
    for way, feed in feeds.items():
        assert work(place.here.station(feed)) == [], way
        assert place.here.station(feed).statistics().expired == 1, way


def test_nothing_is_delivered_before_the_start_time_however_it_was_put(place: Place) -> None:
    for way in EVERY:
        feed, _ = place.channel(way, start_time="2100-01-01T00:00:00Z")
        place.put(way, feed)
        assert work(place.here.station(feed)) == [], way
        assert place.here.station(feed).statistics().waiting == 1, way


def test_from_the_stop_time_on_pushes_are_refused_and_other_puts_are_not_delivered(place: Place) -> None:
    for way in EVERY:
        stop = datetime.now(UTC) + timedelta(seconds=0.5)
        place.channel(way, stop_time=stop)
    until(lambda: datetime.now(UTC) > stop, "all channels have ended")
    for way in EVERY:
        feed, before = place.feed(way), place.here.next
        is_push = way.startswith("push")
        with pytest.raises(ChannelEndedError, match="nothing was stored") if is_push else nullcontext():
            place.put(way, feed)
        assert place.here.next == before + (not is_push), way
        assert work(place.here.station(feed)) == [], way
        assert place.here.station(feed).statistics().expired == (not is_push), way


def test_a_plain_put_needs_no_slot_of_a_supplier(place: Place) -> None:
    for way in EVERY:
        feed, channel = place.channel(way, suppliers_max=1)
        with channel.supplier(), pytest.raises(SuppliersFullError) if way.startswith("push") else nullcontext():
            place.put(way, feed)
        assert (channel.statistics().pushed, len(work(place.here.station(feed)))) == (0, not way.startswith("push")), (
            way
        )


def test_a_relay_waits_at_max_queue_and_loses_nothing(fabric: Fabric) -> None:
    source = fabric.add("source")
    target = fabric.add("target", want("c/**", "oldest"), near=("source",))
    station = target.channel("c", "c", max_queue=2).station("s")
    for number in range(10):
        source.put(b"%d" % number, feed="c", ident=str(number))
        until(lambda number=number: station.lag().products >= min(2, number + 1), "it arrives")  # type: ignore[misc]
    until(lambda: station.statistics().rejected > 0, "a put of the relay is rejected")
    got: list[str] = []
    while len(got) < 10:
        got += work(station, 1)
    assert got == [str(number) for number in range(10)]

"""Stations and consumers: the same tests on a queue here and on the queue of a site."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zenoh

from headrace import Batch, Consumer, Queue, Selection, Station
from headrace.errors import (
    BlockedError,
    InvalidError,
    LeaseLostError,
    OptionError,
    PayloadTooLargeError,
    RejectedError,
    SelectionError,
    StationError,
    StationExistsError,
    StationMissingError,
)
from support.fleet import free_port, open_plain
from support.serving import Served

Router = tuple[zenoh.Session, str]


@pytest.fixture(scope="module")
def router() -> Iterator[Router]:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    session = open_plain([endpoint], [])
    yield session, endpoint
    session.close()


@pytest.fixture
def served(shared_memory: Path, router: Router) -> Iterator[Served]:
    made = Served(shared_memory, router)
    yield made
    made.close()


@pytest.fixture(params=["here", "remote"])
def queue(request: pytest.FixtureRequest, served: Served) -> Queue:
    return served.queue if request.param == "here" else served.connect()


@pytest.fixture
def station(queue: Queue) -> Station:
    return queue.station("s", "**")


@pytest.fixture
def consumer(station: Station) -> Iterator[Consumer]:
    with station.attach() as attached:
        yield attached


def put(queue: Queue, *idents: str, feed: str = "a", **more: Any) -> None:
    for ident in idents:
        queue.put(ident.encode(), feed=feed, ident=ident, **more)


def idents(batch: Batch) -> list[str]:
    return [product.ident for product in batch]


def work(station: Station, n: int = 1000) -> list[str]:
    """What a consumer that attaches now gets, and puts."""
    with station.attach() as consumer:
        batch = consumer.get_nowait(n)
        consumer.ack(batch)
        return idents(batch)


# --- stations ---------------------------------------------------------------------------------------


def test_a_station_is_made_and_opened_on_its_terms(queue: Queue) -> None:
    made = queue.station(
        "s", Selection("wx/**", ident="^S", every=2), blocking=True, capacity=10, hung_after=timedelta(minutes=1),
        timeout="10s", start_time=datetime(2026, 1, 1, tzinfo=UTC), batch_max=5, pacing=0.25, consumers_max=None,
    )  # fmt: skip
    terms = made.terms
    assert (terms.selection, terms.prescale, terms.capacity, terms.blocking) == (
        str(Selection("wx/**", ident="^S")),
        2,
        10,
        True,
    )
    assert (terms.hung_after_s, terms.timeout_s, terms.start_ns) == (60.0, 10.0, 1767225600 * 10**9)
    assert (queue.stations(), queue.station("s").name) == (["s"], "s")
    with pytest.raises(StationExistsError, match="capacity 10, not 11"):
        queue.station("s", capacity=11)


def test_a_station_begins_where_it_is_told(queue: Queue) -> None:
    put(queue, *"123")
    assert work(queue.station("old", "**", start="oldest")) == ["1", "2", "3"]
    assert work(queue.station("third", "**", start=3)) == ["3"]
    assert work(queue.station("new", "**")) == []


def test_terms_change_while_it_works(queue: Queue, station: Station) -> None:
    station.change(selection="b", capacity=7, timeout=None)
    assert (station.terms.selection, station.terms.capacity) == ("b", 7)
    put(queue, "1", feed="a")
    put(queue, "2", feed="b")
    assert work(station) == ["2"]
    with pytest.raises(OptionError, match="cannot change"):
        station.change(group="g")


def test_a_station_is_paused_moved_and_removed(queue: Queue, station: Station) -> None:
    put(queue, *"12")
    station.pause()
    assert (station.terms.paused, work(station)) == (True, [])
    station.resume()
    assert work(station) == ["1", "2"]
    assert station.seek("oldest") == 1
    assert work(station) == ["1", "2"]
    station.remove()
    assert queue.stations() == []
    with pytest.raises(StationMissingError, match="was removed"):
        station.terms


def test_a_station_tells_of_itself(queue: Queue, station: Station) -> None:
    put(queue, *"123")
    with station.attach() as consumer:
        consumer.get(2)
        told, lag = station.statistics(), station.lag()
        assert (told.waiting, told.leased, told.delivered, told.consumers) == (1, 2, 2, 1)
        assert (lag.products, lag.retries) == (3, 0)
        assert [(each.station, each.leased, each.alive) for each in station.consumers()] == [("s", 2, True)]
        mine = consumer.statistics()
        assert (mine.leased, mine.delivered, mine.acknowledged, mine.alive) == (2, 2, 0, True)


def test_a_function_is_refused_from_elsewhere(served: Served) -> None:
    remote = served.connect()
    for use in (lambda: remote.station("s", lambda product: True), lambda: remote.read(selection=len)):  # type: ignore[arg-type]
        with pytest.raises(SelectionError, match="does not work on another machine"):
            use()


# --- consumers --------------------------------------------------------------------------------------


def test_consumers_share_what_a_station_selects(queue: Queue, station: Station) -> None:
    with station.attach() as first, station.attach() as second:
        put(queue, *"1234")
        got = (
            idents(first.get_nowait(1)),
            idents(second.get_nowait(2)),
            idents(first.get_nowait(9)),
            len(second.get_nowait()),
        )
        assert got == (["1"], ["2", "3"], ["4"], 0)


def test_a_get_waits_for_the_first_product(queue: Queue, consumer: Consumer) -> None:
    timer = threading.Timer(0.2, put, (queue, "1"))
    timer.start()
    assert idents(consumer.get(10, timeout=20)) == ["1"]
    timer.join()
    begun = time.monotonic()
    assert len(consumer.get(10, timeout="300ms")) == 0
    assert 0.3 <= time.monotonic() - begun < 3


def test_what_was_put_does_not_come_again(queue: Queue, station: Station) -> None:
    put(queue, *"12345")
    with station.attach() as consumer:
        batch = consumer.get(5)
        consumer.ack(batch[0])
        consumer.ack([batch[1], batch[2]])
        consumer.discard(batch[3])
    assert work(station) == ["5"]
    told = station.statistics()
    assert (told.acknowledged, told.discarded, told.redelivered) == (4, 1, 1)


def test_what_is_given_back_comes_again_and_is_parked_in_the_end(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=2)
    put(queue, "1", "2")
    with station.attach() as consumer:
        consumer.nack(consumer.get(2))
        batch = consumer.get(2)
        assert batch.deliveries.tolist() == [1, 1]
        consumer.ack(batch[1])
        consumer.nack(batch[0], failed=True)
        consumer.nack(consumer.get(1), failed=True)
        assert len(consumer.get_nowait()) == 0
    assert [(each.sequence, each.deliveries, each.ident) for each in station.parked()] == [(1, 2, "1")]
    assert (station.retry([1]), work(station)) == (1, ["1"])
    assert (station.parked(), station.forget()) == ([], 0)


def test_to_put_twice_is_told(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, *"123")
    batch = consumer.get(3)
    consumer.ack(batch[1])
    with pytest.raises(LeaseLostError, match="1 of 3 products were not leased to this consumer of 's'; the others are"):
        consumer.ack(batch)
    with pytest.raises(LeaseLostError, match="3 of 3 products"):
        consumer.ack(batch)
    assert station.statistics().acknowledged == 3


def test_what_was_not_got_cannot_be_put(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1", "2")
    with station.attach() as other:
        batch = other.get(1)
        with pytest.raises(LeaseLostError):
            consumer.ack(batch)
        with pytest.raises(StationError, match="not in the last 64 batches"):
            consumer.ack(batch[0])
        with pytest.raises(LeaseLostError):
            consumer.ack(queue.read())
    with pytest.raises(OptionError, match="is not a lease"):
        consumer.ack(5)  # type: ignore[arg-type]


def test_changed_payloads_go_on_to_the_next_station(queue: Queue) -> None:
    first = queue.station("first", "**")
    second = queue.station("second", "**", after="first")
    third = queue.station("third", "**", after="second")
    put(queue, *"123", properties={"p": 1})
    with first.attach() as consumer:
        batch = consumer.get(3)
        consumer.ack(batch, [b"one", None, memoryview(b"three")])
    with second.attach() as consumer:
        batch = consumer.get(3)
        assert [bytes(product.payload) for product in batch] == [b"one", b"2", b"three"]
        assert (idents(batch), batch.revisions.tolist()) == (["1", "2", "3"], [1, 0, 1])
        assert [dict(product.properties) for product in batch] == [{"p": 1}] * 3
        with pytest.raises(InvalidError):
            queue.put_batch(batch)
        consumer.ack([batch[2]], [b"THREE"])
        consumer.ack(batch[0])
        with pytest.raises(OptionError, match="one entry for each"):
            consumer.ack(batch, [b"x"])
        with pytest.raises(OptionError, match="is not bytes"):
            consumer.ack(batch[1], [5])
    with third.attach() as consumer:
        batch = consumer.get(3)
        assert [(product.ident, bytes(product.payload)) for product in batch] == [("3", b"THREE"), ("1", b"one")]
    assert [bytes(product.payload) for product in queue.read()] == [b"1", b"2", b"3"]


def test_a_payload_that_is_too_large_is_refused(queue: Queue) -> None:
    first = queue.station("first", "**")
    queue.station("second", "**", after="first")
    put(queue, "1")
    with first.attach() as consumer:
        batch = consumer.get(1)
        with pytest.raises(PayloadTooLargeError):
            consumer.ack(batch, [bytes(2 << 20)])
        consumer.ack(batch)


def test_drafts_are_filled_in_and_put(queue: Queue, consumer: Consumer) -> None:
    drafts = consumer.new(2, 3, feed="a", ident="d")
    drafts[0].payload[:] = b"abc"
    drafts[1].properties["n"] = 1
    consumer.put(drafts)
    batch = consumer.get(2)
    assert [bytes(product.payload) for product in batch] == [b"abc", b"\0\0\0"]


def test_a_loop_puts_each_product_when_it_asks_for_the_next(queue: Queue, station: Station) -> None:
    put(queue, *"12345")
    with station.attach() as consumer:
        seen = []
        for product in consumer:
            seen.append(product.ident)
            if product.ident == "4":
                break
    assert seen == ["1", "2", "3", "4"]
    assert (station.statistics().acknowledged, work(station)) == (3, ["4", "5"])


def test_a_loop_over_batches_puts_what_is_left(queue: Queue, station: Station) -> None:
    put(queue, *"123456")
    with station.attach() as consumer:
        for batch in consumer.batches(3, timeout=0.2):
            consumer.discard(batch[1])
    told = station.statistics()
    assert (told.acknowledged, told.discarded, told.waiting, told.leased) == (4, 2, 0, 0)


def test_consumers_work_with_async_for(queue: Queue, station: Station) -> None:
    put(queue, *"1234")

    async def consume() -> list[str]:
        found = []
        with station.attach() as consumer:
            async for product in consumer:
                found.append(product.ident)
                if len(found) == 2:
                    break
            async for batch in consumer.batches_async(5, timeout=0.2):
                found += idents(batch)
        return found

    assert asyncio.run(consume()) == ["1", "2", "3", "4"]
    assert station.statistics().leased == 0


def test_a_get_that_is_cancelled_keeps_nothing(queue: Queue, station: Station, consumer: Consumer) -> None:
    async def cancel() -> None:
        getting = asyncio.ensure_future(consumer.get_async(5))
        await asyncio.sleep(0.2)
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting

    asyncio.run(cancel())
    put(queue, "1")
    assert idents(consumer.get(5, timeout=5)) == ["1"]


def test_an_interrupted_get_is_empty(consumer: Consumer) -> None:
    timer = threading.Timer(0.2, consumer.interrupt)
    timer.start()
    begun = time.monotonic()
    assert len(consumer.get(5)) == 0
    assert time.monotonic() - begun < 3
    timer.join()


def test_a_detached_consumer_has_given_back(queue: Queue, station: Station) -> None:
    put(queue, "1", "2")
    consumer = station.attach()
    consumer.get(2)
    consumer.detach()
    assert (station.statistics().leased, station.statistics().consumers) == (0, 0)
    with pytest.raises(StationError, match="has detached"):
        consumer.get(1)
    consumer.detach()


def test_an_attached_consumer_is_alive(consumer: Consumer) -> None:
    assert consumer.statistics().alive


def test_a_consumer_that_is_abandoned_leaves_as_the_dead_do(queue: Queue, station: Station) -> None:
    put(queue, "1")
    consumer = station.attach()
    consumer.get(1)
    consumer.abandon()
    assert (station.statistics().restored, station.statistics().consumers) == (1, 0)
    with pytest.raises(StationError, match="has detached"):
        consumer.get(1)
    consumer.detach()


def test_a_transient_station_goes_with_its_last_consumer(queue: Queue) -> None:
    with queue.station("t", "**", durable=False).attach():
        assert queue.stations() == ["t"]
    assert queue.stations() == []


def test_pacing_fills_batches(queue: Queue) -> None:
    station = queue.station("s", "**", batch_max=4, pacing=0.5)
    with station.attach() as consumer:
        put(queue, "1")
        timer = threading.Timer(0.1, put, (queue, "2", "3", "4"))
        timer.start()
        assert idents(consumer.get(9, timeout=5)) == ["1", "2", "3", "4"]
        timer.join()


def test_more_consumers_than_agreed_are_refused(queue: Queue) -> None:
    station = queue.station("s", "**", consumers_max=1)
    with station.attach(), pytest.raises(StationError, match="1 consumer, its consumers_max"):
        station.attach()


# --- those who put ----------------------------------------------------------------------------------


def test_a_put_waits_for_a_blocking_station(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=2)
    put(queue, "1", "2")
    with pytest.raises(BlockedError, match="blocking station 's' was full"):
        put(queue, "3", timeout=0)
    begun = time.monotonic()
    with pytest.raises(BlockedError, match="nothing was stored"):
        queue.put_many([b"3", b"4"], feed="a", timeout="200ms")
    assert 0.2 <= time.monotonic() - begun < 3
    with station.attach() as consumer:
        timer = threading.Timer(0.2, lambda: consumer.ack(consumer.get(2)))
        timer.start()
        put(queue, "3")
        timer.join()
    assert queue.next == 4


def test_a_put_that_waits_long_is_asked_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.server.puts._WAIT_S", 0.1)
    remote = served.connect()
    station = remote.station("s", "**", blocking=True, capacity=1)
    put(remote, "1")
    timer = threading.Timer(0.7, work, (station,))
    timer.start()
    put(remote, "2")
    timer.join()
    with pytest.raises(BlockedError):
        put(remote, "3", timeout=0.5)
    assert served.queue.next == 3


def test_many_blocked_puts_hold_up_nobody_else(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.server.puts.BLOCKED_MAX", 2)
    remote = served.connect()
    remote.station("s", "a", blocking=True, capacity=1)
    put(remote, "1")
    threads = [threading.Thread(target=_blocked, args=(remote, f"more {n}")) for n in range(12)]
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    put(remote, "else", feed="b", timeout=5)
    assert time.monotonic() - begun < 2
    for thread in threads:
        thread.join()
    assert served.queue.next == 3


def _blocked(queue: Queue, ident: str) -> None:
    with pytest.raises(BlockedError):
        put(queue, ident, timeout=1)


def test_a_put_is_rejected_where_too_many_wait(queue: Queue) -> None:
    queue.station("s", "**", max_queue=1)
    put(queue, "1")
    with pytest.raises(RejectedError, match="1 products waiting"):
        put(queue, "2")


# --- large ------------------------------------------------------------------------------------------


def test_a_get_brings_no_more_than_fits_into_an_answer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.server.consumer.PAGE_BYTES_MAX", 1000)
    remote = served.connect()
    station = remote.station("s", "**")
    for number in range(6):
        remote.put(bytes([number]) * 400, feed="a")
    with station.attach() as consumer:
        batch = consumer.get(6)
        assert batch.sequences.tolist() == [1, 2, 3]
        consumer.ack(batch)
        assert consumer.get(6).sequences.tolist() == [4, 5, 6]
    assert station.statistics().redelivered == 0


@pytest.mark.parametrize("act", ["get", "batches"])
def test_all_of_many_products_are_consumed_once(served: Served, act: str) -> None:
    count, seen, lock = 3000, [], threading.Lock()
    station = served.connect().station("s", "**")
    served.queue.put_many([b"%d" % n for n in range(count)], feed="a")

    def consume() -> None:
        with served.connect().station("s").attach() as consumer:
            batches: Callable[[], Iterator[Batch]] = lambda: consumer.batches(70, timeout=0.3)  # noqa: E731
            for batch in batches():
                if act == "get":
                    consumer.ack(batch)
                with lock:
                    seen.extend(batch.sequences.tolist())

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, count + 1))
    assert station.statistics().acknowledged == count

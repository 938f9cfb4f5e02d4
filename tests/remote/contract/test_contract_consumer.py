"""Consumers: the same tests on a local and on a remote queue."""

import asyncio
import threading
import time
from contextlib import suppress

import pytest

from headrace.errors import (
    InvalidError,
    LeaseLostError,
    OptionError,
    PayloadTooLargeError,
    StationError,
)
from headrace.queue import AnyConsumer, AnyQueue, AnyStation
from support.serving import idents, put, work


def test_consumers_share_what_a_station_selects(queue: AnyQueue, station: AnyStation) -> None:
    with station.attach() as first, station.attach() as second:
        put(queue, *"1234")
        got = (
            idents(first.get_nowait(1)),
            idents(second.get_nowait(2)),
            idents(first.get_nowait(9)),
            len(second.get_nowait()),
        )
        assert got == (["1"], ["2", "3"], ["4"], 0)


def test_a_get_waits_for_the_first_product(queue: AnyQueue, consumer: AnyConsumer) -> None:
    timer = threading.Timer(0.2, put, (queue, "1"))
    timer.start()
    assert idents(consumer.get(10, timeout=60)) == ["1"]
    timer.join()
    begun = time.monotonic()
    assert len(consumer.get(10, timeout="300ms")) == 0
    assert time.monotonic() - begun >= 0.3


def test_acknowledged_products_are_not_delivered_again(queue: AnyQueue, station: AnyStation) -> None:
    put(queue, *"12345")
    with station.attach() as consumer:
        batch = consumer.get(5)
        consumer.ack(batch[0])
        consumer.ack([batch[1], batch[2]])
        consumer.discard(batch[3])
    assert work(station) == ["5"]
    told = station.statistics()
    assert (told.acknowledged, told.discarded, told.redelivered) == (4, 1, 0)


def test_products_given_back_are_delivered_again_and_parked_at_the_limit(queue: AnyQueue) -> None:
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


def test_acknowledging_twice_is_refused(queue: AnyQueue, station: AnyStation, consumer: AnyConsumer) -> None:
    put(queue, *"123")
    batch = consumer.get(3)
    consumer.ack(batch[1])
    with pytest.raises(LeaseLostError, match="1 of 3 products were not leased to this consumer of 's'; the others are"):
        consumer.ack(batch)
    with pytest.raises(LeaseLostError, match="3 of 3 products"):
        consumer.ack(batch)
    assert station.statistics().acknowledged == 3


def test_products_of_another_consumer_cannot_be_acknowledged(
    queue: AnyQueue, station: AnyStation, consumer: AnyConsumer
) -> None:
    put(queue, "1", "2")
    with station.attach() as other:
        batch = other.get(1)
        with pytest.raises(LeaseLostError):
            consumer.ack(batch)
        with pytest.raises(StationError, match="not in the last 64 batches"):
            consumer.ack(batch[0])
        with pytest.raises(LeaseLostError):
            consumer.ack(queue.read_batch())
    with pytest.raises(OptionError, match="is not a lease"):
        consumer.ack(5)  # type: ignore[arg-type]


def test_new_payloads_reach_the_next_station(queue: AnyQueue) -> None:
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
    assert [bytes(product.payload) for product in queue.read_batch()] == [b"1", b"2", b"3"]


def test_a_payload_that_is_too_large_is_refused(queue: AnyQueue) -> None:
    first = queue.station("first", "**")
    queue.station("second", "**", after="first")
    put(queue, "1")
    with first.attach() as consumer:
        batch = consumer.get(1)
        with pytest.raises(PayloadTooLargeError):
            consumer.ack(batch, [bytes(2 << 20)])
        consumer.ack(batch)


def test_drafts_are_filled_in_and_put(queue: AnyQueue, consumer: AnyConsumer) -> None:
    drafts = consumer.new(2, 3, feed="a", ident="d")
    drafts[0].payload[:] = b"abc"
    drafts[1].properties["n"] = 1
    consumer.put(drafts)
    batch = consumer.get(2)
    assert [bytes(product.payload) for product in batch] == [b"abc", b"\0\0\0"]


def test_a_loop_acknowledges_each_product_when_it_asks_for_the_next(queue: AnyQueue, station: AnyStation) -> None:
    put(queue, *"12345")
    with station.attach() as consumer:
        seen = []
        for product in consumer:
            seen.append(product.ident)
            if product.ident == "4":
                break
    assert seen == ["1", "2", "3", "4"]
    assert (station.statistics().acknowledged, work(station)) == (3, ["4", "5"])


def test_a_loop_over_batches_acknowledges_the_rest(queue: AnyQueue, station: AnyStation) -> None:
    put(queue, *"123456")
    with station.attach() as consumer:
        for batch in consumer.batches(3, timeout=0.2):
            consumer.discard(batch[1])
    told = station.statistics()
    assert (told.acknowledged, told.discarded, told.waiting, told.leased) == (4, 2, 0, 0)


def test_consumers_work_with_async_for(queue: AnyQueue, station: AnyStation) -> None:
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


def test_a_cancelled_get_keeps_no_products(queue: AnyQueue, station: AnyStation, consumer: AnyConsumer) -> None:
    async def cancel() -> None:
        getting = asyncio.ensure_future(consumer.get_async(5))
        await asyncio.sleep(0.2)
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting

    asyncio.run(cancel())
    put(queue, "1")
    assert idents(consumer.get(5, timeout=60)) == ["1"]


def test_an_interrupted_get_is_empty(consumer: AnyConsumer) -> None:
    timer = threading.Timer(0.2, consumer.interrupt)
    timer.start()
    assert len(consumer.get(5)) == 0
    timer.join()


def test_a_detached_consumer_gives_its_products_back(queue: AnyQueue, station: AnyStation) -> None:
    put(queue, "1", "2")
    consumer = station.attach()
    consumer.get(2)
    consumer.detach()
    assert (station.statistics().leased, station.statistics().consumers) == (0, 0)
    with pytest.raises(StationError, match="has detached"):
        consumer.get(1)
    consumer.detach()


def test_an_attached_consumer_is_alive(consumer: AnyConsumer) -> None:
    assert consumer.statistics().alive


def test_an_abandoned_consumer_leaves_like_a_dead_one(queue: AnyQueue, station: AnyStation) -> None:
    put(queue, "1")
    consumer = station.attach()
    consumer.get(1)
    consumer.abandon()
    assert (station.statistics().restored, station.statistics().consumers) == (1, 0)
    with pytest.raises(StationError, match="has detached"):
        consumer.get(1)
    consumer.detach()


def test_leaving_on_request_is_no_delivery(queue: AnyQueue, station: AnyStation) -> None:
    put(queue, "1")
    for _ in range(7):
        with station.attach() as consumer:
            assert consumer.get(1, timeout=60).deliveries.tolist() == [1]
    for _ in range(7):
        consumer = station.attach()
        assert consumer.get(1, timeout=60).deliveries.tolist() == [1]
        consumer.detach()
    with suppress(KeyboardInterrupt), station.attach() as consumer:
        assert consumer.get(1, timeout=60).deliveries.tolist() == [1]
        raise KeyboardInterrupt
    assert (station.statistics().parked, work(station)) == (0, ["1"])


def test_a_product_on_which_with_blocks_fail_is_parked(queue: AnyQueue) -> None:
    station = queue.station("s", "**", deliveries_max=2)
    put(queue, "1")
    for deliveries in (1, 2):
        with pytest.raises(ValueError, match="cannot be decoded"), station.attach() as consumer:
            assert consumer.get(1, timeout=60).deliveries.tolist() == [deliveries]
            raise ValueError("cannot be decoded")
    assert work(station) == []
    assert station.statistics().parked == 1


def test_a_part_of_a_batch_is_acknowledged(queue: AnyQueue, station: AnyStation, consumer: AnyConsumer) -> None:
    put(queue, *"123456")
    batch = consumer.get_nowait(6)
    part = batch.take([5, 0, 2])
    consumer.ack(part.take([0, 2]))
    consumer.nack(part.take([1]))
    consumer.discard(batch.take([1]))
    with pytest.raises(LeaseLostError):
        consumer.ack(part)
    counts = station.statistics()
    assert (counts.acknowledged, counts.discarded, counts.leased, counts.waiting) == (2, 1, 2, 1)

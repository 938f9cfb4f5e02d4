"""Programs with an event loop: the same tests on a local and on a remote queue."""

import asyncio
import threading
from typing import Any

import pytest

from headrace import Duplicate
from headrace.errors import BlockedError, FeedError, QueueClosedError, StationError
from headrace.queue import AnyQueue, AnyStation
from support.serving import Served, idents, put, work
from support.waiting import until


def test_puts_are_awaited(queue: AnyQueue) -> None:
    async def puts() -> list[Any]:
        return [
            await queue.put_async(b"1", feed="a", ident="i", priority=6),
            await queue.put_async(b"1", feed="a", ident="i"),
            await queue.put_async(bytes(100_000), feed="a"),
            (await queue.put_many_async([b"x", b"y"], feed="a", ident=["j", "k"], timeout="5s")).stored,
        ]

    assert asyncio.run(puts()) == [1, Duplicate(1), 2, 2]
    assert [product.size for product in queue.read()] == [1, 100_000, 1, 1]
    with pytest.raises(FeedError):
        asyncio.run(queue.put_async(b"x", feed="*"))


def test_a_put_that_waits_for_a_station_lets_other_tasks_run(queue: AnyQueue) -> None:
    station = queue.station("s", blocking=True, capacity=1)
    put(queue, "1")

    async def both() -> list[str]:
        putting = asyncio.create_task(queue.put_async(b"2", feed="a", ident="2"))
        done, _ = await asyncio.wait([putting], timeout=0.3)
        assert not done, "the station is full"
        found = []
        async with station.attach() as consumer:
            while len(found) < 2:
                batch = await consumer.get_async(1, timeout=240)
                found += idents(batch)
                consumer.ack(batch)
        assert await putting == 2
        return found

    assert asyncio.run(both()) == ["1", "2"]


def test_a_put_ends_at_its_timeout(queue: AnyQueue) -> None:
    queue.station("s", blocking=True, capacity=1)
    put(queue, "1")
    for timeout in (0, 0.1, "1.1s"):
        with pytest.raises(BlockedError, match="blocking station 's' was full"):
            asyncio.run(queue.put_async(b"2", feed="a", timeout=timeout))
    with pytest.raises(BlockedError):
        asyncio.run(queue.put_many_async([b"2"], feed="a", timeout=0.1))
    assert queue.next == 2


def test_a_cancelled_put_stops_waiting(queue: AnyQueue, served: Served) -> None:
    station = queue.station("s", blocking=True, capacity=1)
    put(queue, "1")

    async def cancel() -> None:
        putting = asyncio.create_task(queue.put_async(b"2", feed="a", ident="2"))
        await asyncio.sleep(0.1)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting

    asyncio.run(cancel())
    putting = {"headrace-put", "headrace-blocked"}  # of a queue here, and of a site
    until(lambda: not putting & {thread.name for thread in threading.enumerate()}, "the attempt under way has ended")
    assert work(station) == ["1"]
    assert served.queue.next == 2


def test_a_block_with_async_closes_what_it_opened(served: Served, station: AnyStation) -> None:
    async def use() -> tuple[Any, Any]:
        async with served.connect() as queue:
            async with queue.station("s").attach() as consumer:
                await queue.put_async(b"1", feed="a", ident="1")
                assert idents(await consumer.get_async(1, timeout=240)) == ["1"]
            assert station.statistics().consumers == 0
            async with queue.follow("oldest", timeout=0) as follower:
                assert [idents(batch) async for batch in follower] == [["1"]]
        return queue, consumer

    queue, consumer = asyncio.run(use())
    with pytest.raises(QueueClosedError):
        queue.put(b"x", feed="a")
    with pytest.raises(QueueClosedError):
        asyncio.run(asyncio.wait_for(queue.put_async(b"x", feed="a"), 240))
    with pytest.raises(StationError, match="has detached"):
        consumer.get()


def test_a_follower_stops_at_the_end_of_its_block(queue: AnyQueue) -> None:
    put(queue, "1")

    async def use() -> list[str]:
        async with queue.follow("oldest") as follower:
            async for batch in follower:
                found = idents(batch)
                break
        assert [each async for each in follower] == [], "it was stopped"
        return found

    assert asyncio.run(use()) == ["1"]


def test_work_that_fails_in_a_block_counts_as_a_delivery(queue: AnyQueue) -> None:
    station = queue.station("s", deliveries_max=2)
    put(queue, "1")

    async def fail() -> None:
        async with station.attach() as consumer:
            await consumer.get_async(1, timeout=240)
            raise ValueError("cannot be decoded")

    for _ in range(2):
        with pytest.raises(ValueError, match="cannot be decoded"):
            asyncio.run(fail())
    assert work(station) == []
    assert station.statistics().parked == 1

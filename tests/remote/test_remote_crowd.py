"""Many clients on one site: no thread for each, at the site and in the program of the clients."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headrace import Batch, Queue
from headrace.remote.client.consumer import RemoteConsumer
from headrace.remote.server.gets import GET_THREADS, THREADS
from support.serving import Served, idents, put
from support.waiting import until

MANY = 60


def threads_of(*names: str) -> int:
    return sum(thread.name.startswith(names) for thread in threading.enumerate())


def waiting_gets(served: Served) -> int:
    assert served.site is not None
    return len(served.site._remote._gets)


def system_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_many_tasks_on_one_connection_have_no_thread_each(served: Served) -> None:
    """Consumers, suppliers and followers; what is put arrives once."""
    queue = served.connect()
    channel, station = queue.channel("c", "a"), queue.station("s", "**")
    got: list[str] = []

    async def consume() -> None:
        async with station.attach() as consumer:
            async for batch in consumer.batches_async(3):
                got.extend(idents(batch))

    async def follow() -> int:
        count = 0
        async with queue.follow("next") as follower:
            async for batch in follower:
                count += len(batch)
                if count == 2 * MANY:
                    break
        return count

    async def live(many: int) -> int:
        tasks = [asyncio.create_task(consume()) for _ in range(many)]
        following = [asyncio.create_task(follow()) for _ in range(5)]
        while waiting_gets(served) < many:
            await asyncio.sleep(0.01)
        suppliers = [channel.supplier() for _ in range(many)]
        threads = threading.active_count() + system_threads()
        names = [f"{many}-{number}" for number in range(2 * MANY)]
        wanted = set(names)  # what was not acknowledged before its consumer was cancelled comes again
        await asyncio.gather(
            *(suppliers[number % many].push_async(b"x", ident=name) for number, name in enumerate(names))
        )
        while len(arrived := [name for name in got if name in wanted]) < len(names):
            await asyncio.sleep(0.01)
        assert sorted(arrived) == sorted(names)
        assert await asyncio.gather(*following) == [2 * MANY] * 5
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return threads

    few = asyncio.run(live(2))
    got.clear()
    many = asyncio.run(live(MANY))
    assert many - few < 2 * (GET_THREADS + THREADS), "Zenoh and the executors start threads when they need them"
    until(lambda: station.statistics().consumers == 0, "all consumers have detached")
    assert station.statistics().acknowledged + station.statistics().waiting == 4 * MANY


def test_consumers_that_wait_have_no_thread_at_the_site(served: Served) -> None:
    station = served.connect().station("s", "**")
    names = ("headrace-get", "headrace-consumer", "headrace-deadline")

    async def wait(consumer: RemoteConsumer) -> Batch:
        return await consumer.get_async(1, timeout=240)

    async def live() -> list[Batch]:
        consumers = [station.attach() for _ in range(MANY)]
        tasks = [asyncio.create_task(wait(consumer)) for consumer in consumers]
        while waiting_gets(served) < MANY:
            await asyncio.sleep(0.01)
        assert threads_of(*names) <= GET_THREADS + THREADS + 1
        put(served.queue, *(str(number) for number in range(MANY)))
        return await asyncio.gather(*tasks)

    got = asyncio.run(live())
    assert sorted(int(ident) for batch in got for ident in idents(batch)) == list(range(MANY))
    assert all(len(batch) == 1 for batch in got)
    assert waiting_gets(served) == 0


def test_the_consumer_that_has_waited_longest_is_served_first(served: Served) -> None:
    station = served.connect().station("s", "**")

    async def live() -> list[list[str]]:
        consumers = [station.attach() for _ in range(4)]
        tasks = []
        for number, consumer in enumerate(consumers):
            tasks.append(asyncio.create_task(consumer.get_async(1, timeout=240)))
            while waiting_gets(served) <= number:
                await asyncio.sleep(0.01)
        for number in range(4):
            put(served.queue, str(number))
            await tasks[number]
        return [idents(task.result()) for task in tasks]

    assert asyncio.run(live()) == [["0"], ["1"], ["2"], ["3"]]


def test_a_get_ends_at_its_time_while_others_wait(served: Served) -> None:
    station = served.connect().station("s", "**")

    async def live() -> list[int]:
        consumers = [station.attach() for _ in range(8)]
        waiting = asyncio.create_task(consumers[0].get_async(1, timeout=240))
        gets = [consumer.get_async(1, timeout=0.02 * number) for number, consumer in enumerate(consumers[1:])]
        ended = [len(batch) for batch in await asyncio.gather(*gets)]
        assert not waiting.done()
        put(served.queue, "1")
        return [*ended, len(await waiting)]

    assert asyncio.run(live()) == [0] * 7 + [1]


@pytest.mark.parametrize("terms", [{}, {"pacing": 0.2, "batch_max": 2}], ids=["plain", "paced"])
def test_a_station_that_is_resumed_serves_those_that_wait(served: Served, terms: dict[str, Any]) -> None:
    station = served.connect().station("s", "**", **terms)
    station.pause()

    async def live() -> list[str]:
        consumers = [station.attach() for _ in range(3)]
        tasks = [asyncio.create_task(consumer.get_async(1, timeout=240)) for consumer in consumers]
        while waiting_gets(served) < 3:
            await asyncio.sleep(0.01)
        put(served.queue, *"123")
        await asyncio.sleep(0.3)
        assert not any(task.done() for task in tasks)
        station.resume()
        return sorted(ident for batch in await asyncio.gather(*tasks) for ident in idents(batch))

    assert asyncio.run(live()) == ["1", "2", "3"]


def test_an_acknowledgement_does_not_wait_for_the_next_get(served: Served) -> None:
    station = served.connect().station("s", "**")
    put(served.queue, "1")

    async def live() -> None:
        consumer = station.attach()
        batch = await consumer.get_async(1, timeout=240)
        getting = asyncio.create_task(consumer.get_async(1, timeout=240))
        while not waiting_gets(served):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(consumer.ack, batch)
        assert (station.statistics().acknowledged, getting.done()) == (1, False)
        put(served.queue, "2")
        assert idents(await getting) == ["2"]

    asyncio.run(live())


# --- a task that is cancelled ---------------------------------------------------------------------


def cancelled_get(consumer: RemoteConsumer, served: Served) -> None:
    async def live() -> None:
        getting = asyncio.create_task(consumer.get_async(1))
        while not waiting_gets(served):
            await asyncio.sleep(0.01)
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting

    asyncio.run(live())


def test_what_came_for_a_cancelled_get_goes_back(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the site does not hear of the cancellation in time."""
    station = served.connect().station("s", "**")
    with station.attach() as consumer, station.attach() as other:
        monkeypatch.setattr(RemoteConsumer, "_wake", lambda _: None)
        cancelled_get(consumer, served)
        put(served.queue, "1")
        until(lambda: station.statistics().delivered == 1, "it was leased to the cancelled get")
        batch = other.get(1, timeout=240)
        assert (idents(batch), batch.deliveries.tolist()) == (["1"], [1])
        other.ack(batch)
        put(served.queue, "2")
        assert idents(consumer.get(1, timeout=240)) == ["2"], "the consumer goes on"


def test_the_next_get_takes_over_what_a_cancelled_one_gets(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    station = served.connect().station("s", "**")
    with station.attach() as consumer:
        monkeypatch.setattr(RemoteConsumer, "_wake", lambda _: None)
        cancelled_get(consumer, served)
        threading.Timer(0.2, lambda: put(served.queue, "1")).start()
        batch = consumer.get(1, timeout=240)
        assert idents(batch) == ["1"]
        consumer.ack(batch)
    told = station.statistics()
    assert (told.delivered, told.acknowledged, told.waiting) == (1, 1, 0)


def test_tasks_that_are_cancelled_at_random_keep_and_lose_nothing(served: Served) -> None:
    """Every product is acknowledged once, by whichever get had it last."""
    station = served.connect().station("s", "**")
    count = 200
    done: list[str] = []

    async def work(pause_s: float) -> None:
        async with station.attach() as consumer:
            while len(done) < count:
                try:
                    batch = await asyncio.wait_for(consumer.get_async(2), pause_s)
                except TimeoutError:
                    continue
                consumer.ack(batch)
                done.extend(idents(batch))

    async def live() -> None:
        tasks = [asyncio.create_task(work(0.003 * (1 + number % 7))) for number in range(12)]
        for number in range(count):
            await asyncio.to_thread(put, served.queue, str(number))
            await asyncio.sleep(0.001)
        await asyncio.wait_for(asyncio.gather(*tasks), 240)

    asyncio.run(live())
    assert sorted(map(int, done)) == list(range(count))
    told = station.statistics()
    assert (told.acknowledged, told.waiting, told.leased) == (count, 0, 0)


# --- many consumers -------------------------------------------------------------------------------


def test_a_station_has_hundreds_of_consumers(shared_memory: Path) -> None:
    with Queue.create(shared_memory / "q", size="4MiB", durability="memory") as queue:
        station = queue.station("s", "**")
        consumers = [station.attach() for _ in range(300)]
        put(queue, *(str(number) for number in range(300)))
        got = [consumer.get(1, 0) for consumer in consumers]
        assert sorted(int(ident) for batch in got for ident in idents(batch)) == list(range(300))
        assert len(station.consumers()) == 300
        consumers[299].ack(got[299])
        for consumer in consumers:
            consumer.detach()
        assert (station.statistics().waiting, station.statistics().acknowledged) == (299, 1)


def test_a_station_serves_those_that_wait_from_its_start_time_on(served: Served) -> None:
    """Nothing is put at that moment, and so nobody is woken up."""
    station = served.connect().station("s", "**", start_time=time.time_ns() + 500_000_000)
    put(served.queue, "1")
    with station.attach() as consumer:
        assert idents(consumer.get(1, timeout=240)) == ["1"]

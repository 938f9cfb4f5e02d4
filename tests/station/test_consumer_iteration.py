"""Loops over a consumer, with `for` and `async for`, and how they end."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from handling import idents, put, work

from headrace import Queue
from headrace.errors import StationError
from headrace.station import Consumer, Station
from headrace.station.leases import Getter, get_async
from support.commandline import interruptible
from support.waiting import until

# --- iterate --------------------------------------------------------------------------------------


def test_iteration_acknowledges_each_product_when_the_next_is_asked_for(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, *"123")
    seen = []
    for product in consumer:
        seen.append((product.ident, station.statistics().acknowledged))
        if product.ident == "3":
            break
    assert seen == [("1", 0), ("2", 1), ("3", 2)]
    assert station.statistics().leased == 1, "the product in hand"


def test_a_fast_loop_leases_several_products_at_once_and_gives_the_rest_back(
    queue: Queue, station: Station, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("_PORTION_S", "_HELD_S"):
        monkeypatch.setattr(f"headrace.station.consumer.{limit}", 240.0)  # whatever this machine does meanwhile
    put(queue, *map(str, range(100)))
    leased = []
    for product in consumer:
        leased.append(station.statistics().leased)
        if product.ident == "40":
            break
    assert leased == [1, 2, 1, 4, 3, 2, 1, *range(8, 0, -1), *range(16, 0, -1), *range(16, 6, -1)]
    told = station.statistics()
    assert (told.acknowledged, told.leased) == (40, 1)
    with station.attach() as other:
        batch = other.get(100)
    assert (idents(batch), set(batch.deliveries.tolist())) == ([str(n) for n in range(41, 100)], {1})


def test_products_leased_behind_one_that_takes_long_go_back(
    queue: Queue, station: Station, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.station.consumer._PORTION_S", 240.0)
    put(queue, *map(str, range(100)))
    seen = []
    for product in consumer:
        seen.append(product.ident)
        if product.ident == "20":
            until(lambda: station.statistics().leased == 1, "only the product in hand is leased")
            with station.attach() as other:
                batch = other.get(50)
                assert (idents(batch), set(batch.deliveries.tolist())) == ([str(n) for n in range(21, 71)], {1})
                other.ack(batch)
        if product.ident == "99":
            consumer.ack(product)
            break
    assert seen == [str(n) for n in (*range(21), *range(71, 100))]
    told = station.statistics()
    assert (told.acknowledged, told.leased, told.waiting, told.redelivered) == (100, 0, 0, 0)


def test_a_slow_loop_leases_one_product_at_a_time(
    queue: Queue, station: Station, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.station.consumer._PORTION_S", 0.0)
    put(queue, *"12345")
    for product in consumer:
        assert station.statistics().leased == 1
        if product.ident == "5":
            break


def test_a_loop_may_settle_each_product_itself(
    queue: Queue, station: Station, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.station.consumer._PORTION_S", 240.0)
    put(queue, *map(str, range(20)))
    for product in consumer:
        if product.ident == "19":
            break
        (consumer.discard if int(product.ident) % 2 else consumer.ack)(product)
    told = station.statistics()
    assert (told.acknowledged, told.discarded, told.leased) == (10, 9, 1)


def test_a_loop_ends_with_an_error_when_its_consumer_is_detached(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, *map(str, range(50)))
    with pytest.raises(StationError, match="has detached"):
        for product in consumer:
            if product.ident == "30":
                consumer.detach()
    assert (station.statistics().acknowledged, station.statistics().leased) == (30, 0)


LOOP = """
import os, sys
from headrace import Queue

queue = Queue.open(sys.argv[1])
for product in queue.station("s").attach():
    print(product.ident, flush=True)
    if product.ident == "40":
        os.kill(os.getpid(), 9)
"""


def test_a_loop_that_is_killed_repeats_only_what_it_had_not_acknowledged(tmp_path: Path) -> None:
    with Queue.create(tmp_path / "q", size="1MiB") as queue:
        station = queue.station("s")
        put(queue, *map(str, range(100)))
        done = subprocess.run(
            [sys.executable, "-c", LOOP, str(tmp_path / "q")], capture_output=True, text=True, timeout=240, check=False
        )
        assert done.stdout.split() == [str(n) for n in range(41)]
        assert station.statistics().acknowledged == 40
        assert sorted(map(int, drain(station))) == list(range(40, 100))
        assert queue.check() == []


def drain(station: Station) -> list[str]:
    with station.attach() as consumer:
        return [ident for batch in consumer.batches(1, timeout=0) for ident in idents(batch)]


def test_a_forked_child_does_not_acknowledge_in_a_loop_of_its_parent(
    queue: Queue, station: Station, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.station.consumer._PORTION_S", 240.0)
    put(queue, *"1234567")
    products = iter(consumer)
    assert [next(products).ident for _ in range(4)] == ["1", "2", "3", "4"]
    child = os.fork()
    if not child:
        try:
            next(products)
        except StationError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (station.statistics().acknowledged, station.statistics().leased) == (3, 4)
    assert next(products).ident == "5"


def test_a_product_whose_work_failed_goes_to_another_consumer(queue: Queue, station: Station) -> None:
    put(queue, "1", "2")
    with pytest.raises(ZeroDivisionError), station.attach() as consumer:
        for product in consumer:
            if product.ident == "2":
                1 / 0
    with station.attach() as other:
        batch = other.get_nowait(9)
    assert (idents(batch), batch.deliveries.tolist()) == (["2"], [2])


def test_batches_end_after_an_empty_timeout(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, *"12345")
    assert [idents(batch) for batch in consumer.batches(2, timeout=0)] == [["1", "2"], ["3", "4"], ["5"]]
    assert (station.statistics().acknowledged, station.statistics().leased) == (5, 0)


@pytest.mark.parametrize("how", ["ack", "discard", "nack"])
def test_a_loop_may_settle_a_product_itself(queue: Queue, station: Station, consumer: Consumer, how: str) -> None:
    put(queue, "1", "2")
    seen = []
    for batch in consumer.batches(1, timeout=0):
        if batch[0].ident == "1" and len(seen) == 0:
            getattr(consumer, how)(batch)
        seen.append(batch[0].ident)
    assert seen == (["1", "1", "2"] if how == "nack" else ["1", "2"])


def test_async_iteration_acknowledges_too(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, *"123")

    async def collect() -> list[str]:
        seen = []
        async for product in consumer:
            seen.append(product.ident)
            if len(seen) == 3:
                break
        return seen

    assert asyncio.run(collect()) == ["1", "2", "3"]
    assert station.statistics().acknowledged == 2


def test_async_batches_end_after_an_empty_timeout(queue: Queue, consumer: Consumer) -> None:
    put(queue, *"123")

    async def collect() -> list[list[str]]:
        return [idents(batch) async for batch in consumer.batches_async(2, timeout=0)]

    assert asyncio.run(collect()) == [["1", "2"], ["3"]]


def test_an_async_get_lets_other_tasks_run_while_it_waits(queue: Queue, consumer: Consumer) -> None:
    async def both() -> list[str]:
        getting = asyncio.create_task(consumer.get_async(1, timeout=240))
        while not getting.done() and queue.next == 1:
            await asyncio.sleep(0)
            put(queue, "1")
        return idents(await getting)

    assert asyncio.run(both()) == ["1"]


def test_a_cancelled_async_get_does_not_hold_up_the_event_loop() -> None:
    """Its thread may end later: here it ends only after the task was cancelled."""
    ended, given_back = threading.Event(), threading.Event()

    def get(n: int, timeout: object, stop: threading.Event) -> list[int]:
        assert ended.wait(20)
        assert stop.is_set()
        return [1]

    def nack(what: list[int]) -> None:
        assert what == [1]
        given_back.set()

    async def cancel() -> None:
        getting = asyncio.create_task(get_async(Getter(get, lambda: None, nack), 1, None))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting
        assert not ended.is_set()

    timer = threading.Timer(10, ended.set)  # if the event loop waits
    timer.start()
    asyncio.run(cancel())
    timer.cancel()
    ended.set()
    assert given_back.wait(20), "what had come goes back"


def test_a_cancelled_async_get_keeps_nothing(queue: Queue, station: Station, consumer: Consumer) -> None:
    async def cancel() -> None:
        getting = asyncio.create_task(consumer.get_async(1))
        await asyncio.sleep(0.05)
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting

    asyncio.run(cancel())
    put(queue, "1")
    assert work_soon(consumer) == ["1"]
    assert (station.statistics().acknowledged, station.statistics().leased) == (1, 0)


def work_soon(consumer: Consumer) -> list[str]:
    batch = consumer.get(1, timeout=240)
    consumer.ack(batch)
    return idents(batch)


def test_a_product_that_arrives_at_a_cancelled_get_goes_back(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    """The product is leased before the task is cancelled, and the task has not received it yet."""

    async def cancel_too_late() -> None:
        getting = asyncio.create_task(consumer.get_async(1))
        await asyncio.sleep(0)  # the thread has begun
        put(queue, "1")
        until(lambda: station.statistics().delivered == 1, "the product is leased")  # the event loop does not run
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting

    asyncio.run(cancel_too_late())
    batch = station.attach().get(1, timeout=240)
    assert (idents(batch), batch.deliveries.tolist()) == (["1"], [1])


DROPPED = """
import asyncio, sys
from headrace import Queue

queue = Queue.open(sys.argv[1])  # and not closed: that would end the waits
consumer = queue.station("s").attach()
loop = asyncio.new_event_loop()
tasks = [
    loop.create_task(consumer.get_async()), loop.create_task(anext(aiter(queue.follow()))),
    loop.create_task(queue.put_async(b"2", feed="a")),
]
loop.run_until_complete(asyncio.sleep(0.2))
print("dropped", [task.done() for task in tasks])
"""


def test_a_program_ends_although_its_event_loop_was_dropped_while_tasks_waited(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue.create(path, size="1MiB") as queue:
        queue.station("full", blocking=True, capacity=1)
        put(queue, "1")
        queue.station("s")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", DROPPED, str(path)], capture_output=True, text=True, timeout=240,
            check=False,
        )  # fmt: skip
        assert (done.stdout, done.returncode) == ("dropped [False, False, False]\n", 0), done.stderr
        assert queue.check() == []


def test_an_interrupt_ends_a_get_without_a_timeout(queue: Queue, consumer: Consumer) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.get)
        consumer.interrupt()
        assert len(waiting.result(240)) == 0
    put(queue, "1")
    assert idents(consumer.get(1, timeout=5)) == ["1"]


def test_control_c_ends_a_get_without_a_timeout(queue: Queue, consumer: Consumer) -> None:
    with interruptible(), pytest.raises(KeyboardInterrupt):
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        consumer.get()
    put(queue, "1")
    assert work(consumer) == ["1"]

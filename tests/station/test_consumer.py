"""Consumers: who gets what, and what becomes of it."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from handling import FORK, drain, idents, in_child, payloads, put, vanish, work

from headrace import Queue, Selection
from headrace.errors import LeaseLostError, OptionError, PayloadTooLargeError, StationError
from headrace.station import Consumer, Station
from support.commandline import interruptible


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    return make_quick()


@pytest.fixture
def station(queue: Queue) -> Station:
    return queue.station("s", "**")


@pytest.fixture
def consumer(station: Station) -> Consumer:
    return station.attach()


# --- get ------------------------------------------------------------------------------------------


def test_consumers_of_one_station_share_its_products(queue: Queue, station: Station) -> None:
    first, second = station.attach(), station.attach()
    put(queue, "1", "2", "3", "4")
    assert idents(first.get_nowait(1)) == ["1"]
    assert idents(second.get_nowait(2)) == ["2", "3"]
    assert idents(first.get_nowait(9)) == ["4"]
    assert idents(second.get_nowait(9)) == []


def test_a_get_takes_what_is_there_up_to_its_number(queue: Queue, consumer: Consumer) -> None:
    put(queue, "1", "2", "3")
    assert idents(consumer.get(2, timeout=5)) == ["1", "2"]
    assert idents(consumer.get(2, timeout=5)) == ["3"]


def test_a_get_waits_for_the_first_product(queue: Queue, consumer: Consumer) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.get, 10, 20)
        put(queue, "1")
        assert idents(waiting.result(20)) == ["1"]


def test_a_get_for_ever_is_woken_by_another_process(queue: Queue, consumer: Consumer) -> None:
    worker = FORK.Process(target=lambda: put(queue, "1"))
    worker.start()
    assert idents(consumer.get()) == ["1"]
    worker.join()


def test_a_get_whose_time_is_over_is_empty(consumer: Consumer) -> None:
    batch = consumer.get(timeout="10ms")
    assert (len(batch), list(batch)) == (0, [])


@pytest.mark.parametrize("selection", [Selection("a"), Selection(ident="^x")], ids=["by rows", "by reading"])
def test_a_get_whose_time_is_over_did_not_end_before(queue: Queue, selection: Selection) -> None:
    consumer = queue.station("w", selection).attach()
    begun = time.monotonic()
    consumer.get(timeout=0.5)
    assert 0.5 <= time.monotonic() - begun < 5


def test_get_nowait_finds_what_has_been_put_before(queue: Queue) -> None:
    consumer = queue.station("w", Selection("a")).attach()
    for ident in ("1", "2", "3"):
        put(queue, ident)
        assert work(consumer) == [ident]


def test_get_nowait_finds_what_has_been_put_before_also_where_idents_decide(queue: Queue) -> None:
    consumer = queue.station("w", Selection(ident="^x")).attach()
    for ident in ("x1", "x2", "x3"):
        put(queue, ident)
        assert work(consumer) == [ident]


@pytest.mark.parametrize("n", [0, -1, True, 1.0, "1", None])
def test_a_number_of_products_that_makes_no_sense_is_refused(consumer: Consumer, n: object) -> None:
    with pytest.raises(OptionError, match="ask for one or more"):
        consumer.get(n, timeout=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [-1, -0.5, "soon", float("nan")])
def test_a_time_out_that_makes_no_sense_is_refused(consumer: Consumer, timeout: float) -> None:
    with pytest.raises(OptionError, match="timeout"):
        consumer.get(1, timeout)


def test_what_is_leased_is_got_by_nobody_else(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1")
    batch = consumer.get_nowait()
    others = [station.attach() for _ in range(3)]
    assert [idents(other.get_nowait()) for other in others] == [[], [], []]
    consumer.ack(batch)
    assert [idents(other.get_nowait()) for other in others] == [[], [], []]


def test_a_batch_says_how_often_each_product_was_handed_out_and_changed(queue: Queue, consumer: Consumer) -> None:
    put(queue, "1", "2")
    batch = consumer.get_nowait(2)
    assert (batch.deliveries.tolist(), batch.revisions.tolist()) == ([1, 1], [0, 0])
    consumer.nack(batch[0], failed=True)
    put(queue, "3")
    assert consumer.get_nowait(2).deliveries.tolist() == [2, 1]


def test_a_batch_stays_readable_after_its_put(queue: Queue, consumer: Consumer) -> None:
    put(queue, "1", "2")
    batch = consumer.get_nowait(2)
    consumer.ack(batch)
    assert payloads(batch) == [b"1", b"2"]


# --- put, discard, give back ----------------------------------------------------------------------


def test_batches_products_and_lists_of_products_can_be_put(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, *"123456")
    consumer.ack(consumer.get_nowait(2))
    batch = consumer.get_nowait(4)
    consumer.ack(batch[0])
    consumer.ack([batch[2], batch[1]])
    assert (station.statistics().acknowledged, station.statistics().leased) == (5, 1)
    consumer.ack([])
    consumer.ack((batch[3],))
    assert (station.statistics().acknowledged, station.statistics().leased) == (6, 0)


def test_a_list_may_have_products_of_several_batches(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, *"1234")
    first, second = consumer.get_nowait(2), consumer.get_nowait(2)
    consumer.ack([first[1], second[0], first[0]])
    consumer.detach()
    assert drain(station) == ["4"]


def test_products_may_be_put_in_any_order(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, *"123")
    first, second, third = (consumer.get_nowait() for _ in range(3))
    for batch in (third, first, second):
        consumer.ack(batch)
    assert (station.statistics().acknowledged, station.lag().products) == (3, 0)


def test_a_second_put_is_refused(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1", "2")
    batch = consumer.get_nowait(2)
    consumer.ack(batch)
    for again in (batch, batch[0], [batch[1]]):
        with pytest.raises(StationError):
            consumer.ack(again)
    assert station.statistics().acknowledged == 2


def test_of_a_batch_that_was_partly_put_the_rest_is_put_and_the_refusal_told(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, *"123")
    batch = consumer.get_nowait(3)
    consumer.ack(batch[1])
    with pytest.raises(LeaseLostError, match="1 of 3 products"):
        consumer.ack(batch)
    assert (station.statistics().acknowledged, station.statistics().leased) == (3, 0)


def test_a_product_that_was_read_and_not_got_cannot_be_put(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1", "2")
    consumer.get_nowait(1)
    read = queue.read("oldest")
    with pytest.raises(StationError):
        consumer.ack(read[1])
    with pytest.raises(LeaseLostError):
        consumer.ack(read)
    assert (station.statistics().acknowledged, station.statistics().leased) == (0, 1)


def test_what_another_consumer_holds_cannot_be_put(queue: Queue, station: Station, consumer: Consumer) -> None:
    other = station.attach()
    put(queue, "1", "2")
    mine, theirs = consumer.get_nowait(), other.get_nowait()
    with pytest.raises(LeaseLostError):
        consumer.ack(theirs)
    with pytest.raises(StationError):
        consumer.ack(theirs[0])
    assert station.statistics().leased == 2
    consumer.ack(mine)
    other.ack(theirs)


def test_a_batch_of_another_station_cannot_be_put(queue: Queue, station: Station, consumer: Consumer) -> None:
    other = queue.station("other", "b").attach()
    put(queue, "1", "2")
    put(queue, "3", "4", feed="b")
    mine, theirs = consumer.get_nowait(2), other.get_nowait(2)
    with pytest.raises(LeaseLostError):
        consumer.ack(theirs)
    assert (station.statistics().acknowledged, station.statistics().leased) == (0, 2)
    consumer.ack(mine)


@pytest.mark.parametrize("what", ["abc", [1, 2], b"x", 5, None])
def test_what_is_no_product_cannot_be_put(consumer: Consumer, what: object) -> None:
    with pytest.raises(OptionError, match=r"is not a product|is not a lease"):
        consumer.ack(what)  # type: ignore[arg-type]


def test_a_product_that_was_got_long_ago_is_put_with_its_batch(queue: Queue, consumer: Consumer) -> None:
    put(queue, *(str(number) for number in range(100)))
    batches = [consumer.get_nowait() for _ in range(100)]
    with pytest.raises(StationError, match="acknowledge the whole batch instead"):
        consumer.ack(batches[0][0])
    for batch in batches:
        consumer.ack(batch)


def test_discarded_products_are_counted_and_gone(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1", "2", "3")
    batch = consumer.get_nowait(3)
    consumer.discard(batch[0])
    consumer.discard([batch[1]])
    consumer.ack(batch[2])
    told = station.statistics()
    assert (told.discarded, told.acknowledged, told.leased, told.waiting) == (2, 1, 0, 0)
    consumer.detach()
    assert drain(station) == []


def test_what_is_given_back_comes_again_before_younger_ones(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, *"1234")
    batch = consumer.get_nowait(3)
    consumer.nack([batch[2], batch[0]])
    other = station.attach()
    again = other.get_nowait(9)
    assert idents(again) == ["1", "3", "4"]
    assert again.deliveries.tolist() == [1, 1, 1]


def test_what_is_given_back_as_failed_counts_as_delivered(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1")
    consumer.nack(consumer.get_nowait(), failed=True)
    assert (station.statistics().retries, station.statistics().redelivered) == (1, 0)
    assert consumer.get_nowait().deliveries.tolist() == [2]
    assert station.statistics().redelivered == 1


def test_what_was_given_back_cannot_be_put(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1")
    batch = consumer.get_nowait()
    consumer.nack(batch)
    with pytest.raises(StationError):
        consumer.ack(batch)
    again = consumer.get_nowait()
    with pytest.raises(LeaseLostError):
        consumer.ack(batch)
    consumer.ack(again)
    assert station.statistics().acknowledged == 1


def test_what_is_given_back_wakes_a_consumer_that_waits(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1")
    batch = consumer.get_nowait()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(station.attach().get, 1, 20)
        consumer.nack(batch)
        assert idents(waiting.result(20)) == ["1"]


@pytest.mark.parametrize("payloads", [[], [b"1"], [b"1", b"2", b"3"], b"12", None])
def test_payloads_are_one_for_each_product(queue: Queue, consumer: Consumer, payloads: object) -> None:
    put(queue, "1", "2")
    batch = consumer.get_nowait(2)
    if payloads is None:
        consumer.ack(batch, payloads=payloads)
        return
    with pytest.raises(OptionError, match="one for each"):
        consumer.ack(batch, payloads=payloads)  # type: ignore[arg-type]
    consumer.ack(batch)


def test_a_payload_that_is_not_bytes_is_refused_and_nothing_is_put(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, "1", "2")
    batch = consumer.get_nowait(2)
    with pytest.raises(OptionError, match="not bytes"):
        consumer.ack(batch, payloads=[b"fine", "text"])
    assert station.statistics().leased == 2
    consumer.ack(batch)


def test_a_payload_that_is_too_large_is_refused_in_words(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1")
    batch = consumer.get_nowait()
    with pytest.raises(PayloadTooLargeError):
        consumer.ack(batch, payloads=[bytes(1 << 20)])
    assert station.statistics().leased == 1


# --- new ------------------------------------------------------------------------------------------


def test_drafts_are_filled_in_and_put_as_one_batch(queue: Queue, consumer: Consumer) -> None:
    monitor = queue.station("monitor", "b/**").attach()
    drafts = consumer.new(3, 4, feed="b/new", ident="fresh")
    for number, draft in enumerate(drafts):
        draft.payload[:] = b"%04d" % number
        draft.priority = 5
        draft.properties["run"] = number
    consumer.put(drafts)
    batch = monitor.get_nowait(9)
    assert payloads(batch) == [b"0000", b"0001", b"0002"]
    assert [(p.feed, p.ident, p.priority, dict(p.properties)) for p in batch] == [
        ("b/new", "fresh", 5, {"run": number}) for number in range(3)
    ]


def test_a_draft_may_change_its_length(queue: Queue, consumer: Consumer) -> None:
    (draft,) = consumer.new(feed="b")
    draft.payload += b"as long as needed"
    consumer.put([draft])
    assert payloads(consumer.get_nowait()) == [b"as long as needed"]


@pytest.mark.parametrize(("count", "size"), [(0, 1), (-1, 1), (1, -1), (1.5, 1), (1, "2")])
def test_drafts_that_make_no_sense_are_refused(consumer: Consumer, count: int, size: int) -> None:
    with pytest.raises(OptionError):
        consumer.new(count, size, feed="b")


# --- iterate --------------------------------------------------------------------------------------


def test_iteration_puts_each_product_when_the_next_is_asked_for(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, *"123")
    seen = []
    for product in consumer:
        seen.append((product.ident, station.statistics().acknowledged, station.statistics().leased))
        if product.ident == "3":
            break
    assert seen == [("1", 0, 1), ("2", 1, 1), ("3", 2, 1)]


def test_a_product_whose_work_failed_goes_to_another_consumer(queue: Queue, station: Station) -> None:
    put(queue, "1", "2")
    with pytest.raises(ZeroDivisionError), station.attach() as consumer:
        for product in consumer:
            if product.ident == "2":
                1 / 0
    with station.attach() as other:
        batch = other.get_nowait(9)
    assert (idents(batch), batch.deliveries.tolist()) == (["2"], [2])


def test_batches_end_when_nothing_has_come_for_the_time_out(queue: Queue, station: Station, consumer: Consumer) -> None:
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


def test_async_iteration_puts_as_well(queue: Queue, station: Station, consumer: Consumer) -> None:
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


def test_async_batches_end_when_nothing_has_come_for_the_time_out(queue: Queue, consumer: Consumer) -> None:
    put(queue, *"123")

    async def collect() -> list[list[str]]:
        return [idents(batch) async for batch in consumer.batches_async(2, timeout=0)]

    assert asyncio.run(collect()) == [["1", "2"], ["3"]]


def test_an_async_get_lets_others_run_while_it_waits(queue: Queue, consumer: Consumer) -> None:
    async def both() -> list[str]:
        getting = asyncio.create_task(consumer.get_async(1, timeout=20))
        while not getting.done() and queue.next == 1:
            await asyncio.sleep(0)
            put(queue, "1")
        return idents(await getting)

    assert asyncio.run(both()) == ["1"]


def test_a_cancelled_async_get_takes_nothing_with_it(queue: Queue, station: Station, consumer: Consumer) -> None:
    async def cancel() -> None:
        getting = asyncio.create_task(consumer.get_async(1))
        await asyncio.sleep(0.05)
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting

    asyncio.run(cancel())
    put(queue, "1")
    assert idents(consumer.get(1, timeout=5)) == ["1"]
    assert station.statistics().delivered == 1


def test_a_product_that_came_to_a_cancelled_get_goes_back(queue: Queue, station: Station, consumer: Consumer) -> None:
    """The product is there before the task is cancelled, and nobody has fetched it from the future yet."""

    async def cancel_too_late() -> None:
        getting = asyncio.create_task(consumer.get_async(1))
        await asyncio.sleep(0)  # the thread has begun
        put(queue, "1")
        deadline = time.monotonic() + 20
        while station.statistics().delivered == 0 and time.monotonic() < deadline:
            pass
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting

    asyncio.run(cancel_too_late())
    batch = station.attach().get(1, timeout=5)
    assert (idents(batch), batch.deliveries.tolist()) == (["1"], [1])


def test_an_interrupt_ends_a_get_that_would_wait_for_ever(queue: Queue, consumer: Consumer) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.get)
        consumer.interrupt()
        assert len(waiting.result(20)) == 0
    put(queue, "1")
    assert idents(consumer.get(1, timeout=5)) == ["1"]


def test_control_c_ends_a_get_that_would_wait_for_ever(queue: Queue, consumer: Consumer) -> None:
    with interruptible(), pytest.raises(KeyboardInterrupt):
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        consumer.get()
    put(queue, "1")
    assert work(consumer) == ["1"]


# --- attach and detach ----------------------------------------------------------------------------


def test_detaching_gives_back_what_was_got_and_not_put(queue: Queue, station: Station) -> None:
    put(queue, *"123")
    with station.attach() as consumer:
        consumer.ack(consumer.get_nowait(3)[1])
    assert drain(station) == ["1", "3"]


def test_detaching_wakes_a_consumer_that_waits(queue: Queue, station: Station) -> None:
    put(queue, "1")
    first, second = station.attach(), station.attach()
    first.get_nowait()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.get, 1, 20)
        first.detach()
        assert idents(waiting.result(20)) == ["1"]


def test_detaching_is_not_counted_as_a_death(queue: Queue, station: Station) -> None:
    put(queue, "1")
    with station.attach() as consumer:
        consumer.get_nowait()
    assert station.statistics().restored == 0


def test_what_a_forgotten_consumer_held_comes_back(queue: Queue, station: Station) -> None:
    put(queue, "1")
    station.attach().get_nowait()
    assert station.statistics().consumers == 0
    assert drain(station) == ["1"]


def test_a_detached_consumer_says_so(queue: Queue, station: Station) -> None:
    put(queue, "1", "2")
    consumer = station.attach()
    batch = consumer.get_nowait()
    consumer.detach()
    consumer.detach()
    for act in (consumer.get_nowait, lambda: consumer.ack(batch), lambda: consumer.discard(batch), consumer.statistics):
        with pytest.raises(StationError, match="has detached"):
            act()
    assert "detached" in repr(consumer)
    assert drain(station) == ["1", "2"]


def test_a_consumer_tells_what_it_did(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, *"1234")
    consumer.ack(consumer.get_nowait(3)[0])
    told = consumer.statistics()
    assert (told.station, told.pid, told.alive) == ("s", os.getpid(), True)
    assert (told.delivered, told.acknowledged, told.leased) == (3, 1, 2)
    assert 0 <= told.beat_age_s < 20
    assert [other.place for other in station.consumers()] == [told.place]


def test_the_products_of_a_vanished_consumer_come_back_first(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, *"1234")
    consumer.ack(consumer.get_nowait(3)[1])
    vanish(consumer)
    assert [told.alive for told in station.consumers()] == [False]
    other = station.attach()
    batch = other.get_nowait(9)
    assert (idents(batch), batch.deliveries.tolist()) == (["1", "3", "4"], [2, 2, 1])
    assert (station.statistics().restored, station.statistics().redelivered) == (2, 2)
    assert [told.alive for told in station.consumers()] == [True]


def test_a_consumer_that_waits_finds_out_about_a_death_by_itself(queue: Queue, station: Station) -> None:
    put(queue, "1")
    dying, waiting = station.attach(), station.attach()
    dying.get_nowait()
    with ThreadPoolExecutor(1) as pool:
        getting = pool.submit(waiting.get, 1, 20)
        vanish(dying)
        assert idents(getting.result(20)) == ["1"]


def test_a_consumer_that_was_taken_for_dead_cannot_put(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1", "2")
    batch = consumer.get_nowait()
    vanish(consumer)
    consumer._detached = consumer._foreign = False  # it is alive after all, and knows nothing
    station.statistics()
    for act in (lambda: consumer.ack(batch), lambda: consumer.ack(batch, [b"new"]), consumer.get_nowait):
        with pytest.raises(LeaseLostError, match="taken for dead"):
            act()
    consumer._detached = consumer._foreign = True
    assert drain(station) == ["1", "2"]


# --- processes and threads ------------------------------------------------------------------------


def test_a_forked_child_cannot_get_in_its_parents_name(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1", "2")
    assert in_child(consumer.get_nowait).startswith("StationError: this consumer of 's' belongs to process")
    assert (station.statistics().leased, station.statistics().consumers) == (0, 1)


def test_a_forked_child_cannot_get_in_its_parents_name_even_when_that_has_been_at_work(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, "1", "2")
    consumer.ack(consumer.get_nowait())
    assert "belongs to process" in in_child(consumer.get_nowait)
    assert station.statistics().leased == 0


@pytest.mark.parametrize("how", ["ack", "discard", "nack"])
def test_a_forked_child_cannot_settle_what_its_parent_holds(
    queue: Queue, station: Station, consumer: Consumer, how: str
) -> None:
    put(queue, "1")
    batch = consumer.get_nowait()
    assert "belongs to process" in in_child(lambda: getattr(consumer, how)(batch))
    assert station.statistics().leased == 1
    consumer.ack(batch)


def test_a_forked_child_attaches_anew_and_shares(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1", "2", "3")
    mine = consumer.get_nowait()
    assert in_child(lambda: drain(station)) == "['2', '3']"
    consumer.ack(mine)
    assert (station.statistics().acknowledged, station.statistics().consumers) == (3, 1)


def test_a_child_that_ends_does_not_detach_its_parent(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1")
    batch = consumer.get_nowait()
    assert in_child(consumer.detach) == "None"
    assert station.statistics().leased == 1
    consumer.ack(batch)
    assert station.statistics().acknowledged == 1


def test_the_death_of_a_parent_is_noticed_while_its_child_lives(queue: Queue, station: Station) -> None:
    """The child inherits the parent's lock and must not keep it."""
    put(queue, "1")
    ready, ending = FORK.Pipe(duplex=False), FORK.Pipe(duplex=False)

    def parent() -> None:
        consumer = station.attach()
        assert len(consumer.get_nowait()) == 1
        child = os.fork()
        if child == 0:
            ready[1].send("x")
            ending[0].poll(20)
            os._exit(0)
        signal.pause()

    process = FORK.Process(target=parent)
    process.start()
    assert ready[0].poll(20)
    process.kill()
    process.join()
    batch = station.attach().get(1, timeout=10)
    ending[1].send("x")
    assert (idents(batch), batch.deliveries.tolist()) == (["1"], [2])


def test_the_products_of_a_killed_process_come_back(queue: Queue, station: Station) -> None:
    put(queue, "1", "2")
    ready = FORK.Pipe(duplex=False)

    def take_and_wait() -> None:
        consumer = station.attach()
        ready[1].send(idents(consumer.get_nowait(2)))
        signal.pause()

    process = FORK.Process(target=take_and_wait)
    process.start()
    assert ready[0].poll(20)
    process.kill()
    process.join()
    assert drain(station) == ["1", "2"]


def consume(station: Station, ended: Any) -> list[int]:
    """All sequences that one consumer gets until the last has been put."""
    got: list[int] = []
    with station.attach() as consumer:
        while True:
            last = ended.is_set()
            batch = consumer.get(7, timeout="50ms")
            consumer.ack(batch)
            got += batch.sequences.tolist()
            if last and not len(batch):
                return got


def test_threads_with_consumers_of_their_own_share_everything_once(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(dedup="none", size="8MiB")
    station = queue.station("s", "**")
    ended = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(consume, station, ended) for _ in range(4)]
        for number in range(1000):
            queue.put(b"x", feed=f"a/{number % 5}")
        ended.set()
        shares = [worker.result(60) for worker in workers]
    assert sorted(sequence for share in shares for sequence in share) == list(range(1, 1001))
    told = station.statistics()
    assert (told.acknowledged, told.delivered, told.redelivered, told.consumers) == (1000, 1000, 0, 0)


def test_processes_share_everything_once(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(dedup="none", size="8MiB")
    station = queue.station("s", "**")
    ended = FORK.Event()

    def run(send: Any) -> None:
        with Queue.open(queue.path) as mine:
            send.send(consume(mine.station("s"), ended))

    results = []
    for _ in range(3):
        receive, send = FORK.Pipe(duplex=False)
        worker = FORK.Process(target=run, args=(send,))
        worker.start()
        results.append((worker, receive))
    for _ in range(500):
        queue.put(b"x", feed="a")
    ended.set()
    shares = [receive.recv() for _, receive in results]
    for worker, _ in results:
        worker.join()
    assert sorted(sequence for share in shares for sequence in share) == list(range(1, 501))
    assert (station.statistics().acknowledged, station.statistics().redelivered) == (500, 0)

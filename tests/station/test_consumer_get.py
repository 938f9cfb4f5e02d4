"""Consumers get products: how many, how long they wait, and which consumer gets which."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from handling import EPOCH_NS, FORK, idents, payloads, put, work

from headrace import Queue, Selection
from headrace.errors import OptionError
from headrace.kernel._kernel import CODES
from headrace.queue.queue import stations_of
from headrace.station import Consumer, Station
from headrace.testing import MockClock

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
        assert idents(waiting.result(240)) == ["1"]


def test_a_get_without_a_timeout_is_woken_by_another_process(queue: Queue, consumer: Consumer) -> None:
    worker = FORK.Process(target=lambda: put(queue, "1"))
    worker.start()
    assert idents(consumer.get()) == ["1"]
    worker.join()


def test_a_get_is_empty_after_its_timeout(consumer: Consumer) -> None:
    batch = consumer.get(timeout="10ms")
    assert (len(batch), list(batch)) == (0, [])


@pytest.mark.parametrize("selection", [Selection("a"), Selection(ident="^x")], ids=["by rows", "by reading"])
def test_a_get_does_not_end_before_its_timeout(queue: Queue, selection: Selection) -> None:
    consumer = queue.station("w", selection).attach()
    begun = time.monotonic()
    consumer.get(timeout=0.5)
    assert time.monotonic() - begun >= 0.5


def test_get_nowait_finds_products_that_were_put_before(queue: Queue) -> None:
    consumer = queue.station("w", Selection("a")).attach()
    for ident in ("1", "2", "3"):
        put(queue, ident)
        assert work(consumer) == [ident]


def test_get_nowait_finds_earlier_products_with_a_selection_by_ident(queue: Queue) -> None:
    consumer = queue.station("w", Selection(ident="^x")).attach()
    for ident in ("x1", "x2", "x3"):
        put(queue, ident)
        assert work(consumer) == [ident]


@pytest.mark.parametrize("n", [0, -1, True, 1.0, "1", None])
def test_an_invalid_number_of_products_is_refused(consumer: Consumer, n: object) -> None:
    with pytest.raises(OptionError, match="ask for one or more"):
        consumer.get(n, timeout=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [-1, -0.5, "soon", float("nan")])
def test_an_invalid_timeout_is_refused(consumer: Consumer, timeout: float) -> None:
    with pytest.raises(OptionError, match="timeout"):
        consumer.get(1, timeout)


def test_a_leased_product_goes_to_no_other_consumer(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1")
    batch = consumer.get_nowait()
    others = [station.attach() for _ in range(3)]
    assert [idents(other.get_nowait()) for other in others] == [[], [], []]
    consumer.ack(batch)
    assert [idents(other.get_nowait()) for other in others] == [[], [], []]


def test_a_batch_has_the_deliveries_and_revisions_of_each_product(queue: Queue, consumer: Consumer) -> None:
    put(queue, "1", "2")
    batch = consumer.get_nowait(2)
    assert (batch.deliveries.tolist(), batch.revisions.tolist()) == ([1, 1], [0, 0])
    consumer.nack(batch[0], failed=True)
    put(queue, "3")
    assert consumer.get_nowait(2).deliveries.tolist() == [2, 1]


def test_a_batch_stays_readable_after_its_acknowledgement(queue: Queue, consumer: Consumer) -> None:
    put(queue, "1", "2")
    batch = consumer.get_nowait(2)
    consumer.ack(batch)
    assert payloads(batch) == [b"1", b"2"]


def test_a_get_that_does_not_wait_finds_a_product_behind_very_many_that_have_expired(
    make_queue: Callable[..., Queue],
) -> None:
    """More than a station takes up at once; the statistics have taken up as many."""
    clock = MockClock(EPOCH_NS)
    queue = make_queue(size="16MiB", clock=clock)
    queue.put_many([b""] * 20_000, feed="a", expiry="1s")
    queue.put(b"last", feed="a")
    station = queue.station("s", start="oldest")
    assert station.statistics().waiting > 0
    clock.advance(2)
    with station.attach() as consumer:
        assert [bytes(product.payload) for product in consumer.get_nowait(10)] == [b"last"]
    assert station.statistics().expired == 20_000


def test_consumers_in_threads_of_one_queue_get_products_of_new_feeds(queue: Queue) -> None:
    """Several of them find a feed at the same time that none of them knows, and one learns its name for all."""
    station = queue.station("s", "f/**")

    def get(_: int) -> list[str]:
        with station.attach() as consumer:
            return [product.feed for batch in consumer.batches(3, timeout=1) for product in batch]

    feeds = [f"f/{n}" for n in range(300)]
    with ThreadPoolExecutor(6) as pool:
        found = [pool.submit(get, n) for n in range(6)]
        for feed in feeds:
            queue.put(b"", feed=feed)
        assert sorted(feed for future in found for feed in future.result(240)) == sorted(feeds)


def test_a_feed_whose_name_another_thread_has_learnt_is_no_damage(queue: Queue) -> None:
    station = queue.station("s", "f/**")
    stations = stations_of(queue)
    chain = stations.chain(station.terms.chain)
    queue.put(b"", feed="f/new")
    for _ in range(2):  # two threads were stopped by the new feed
        chain.attend(CODES["unknown_feed"], lambda: stations.in_chain(chain.number))
    assert station.statistics().waiting == 1

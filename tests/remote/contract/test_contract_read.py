"""Read, follow and statistics: the same tests on a local and on a remote queue."""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from headrace import Selection
from headrace.errors import ProductDamagedError
from headrace.queue import AnyQueue
from support.serving import Served, idents, put


def test_a_batch_is_the_same_in_all_its_columns(served: Served) -> None:
    put(served.queue, "1", "2", feed="x", properties={"p": 1})
    put(served.queue, "3", feed="y", expiry="1h", slice=2)
    here, remote = served.queue.read_batch(), served.connect().read_batch()
    assert remote.to_arrow() == here.to_arrow()
    assert (remote.next, remote.lost, remote.scanned, len(remote)) == (here.next, None, 3, 3)
    assert remote.record(1) == here.record(1)
    assert remote.deliveries.tolist() == [0, 0, 0]


def test_a_read_takes_what_the_selection_wants_up_to_the_limits(queue: AnyQueue) -> None:
    put(queue, *"12345678", feed="a")
    put(queue, "9", feed="b")
    assert idents(queue.read_batch("oldest", "b")) == ["9"]
    batch = queue.read_batch(3, Selection("a", ident="[2468]"), limit=2)
    assert (idents(batch), batch.next, batch.filtered) == (["4", "6"], 8, 4)
    assert idents(queue.read_batch(limit=100, bytes_limit=3)) == ["1", "2", "3"]
    assert idents(queue.read_batch(selection=Selection(every=4))) == ["4", "8"]
    assert (len(queue.read_batch("next")), queue.read_batch("next").next) == (0, 10)
    assert (len(queue.read_batch(selection="none")), queue.read_batch(selection="none").scanned) == (0, 9)


def test_every_kind_of_start_is_resolved(queue: AnyQueue) -> None:
    put(queue, *"123")
    begun = datetime.now(UTC) - timedelta(minutes=1)
    for start in ("oldest", 0, 1, "1h", timedelta(hours=1), begun, begun.isoformat()):
        assert queue.resolve(start) == 1
    assert (queue.resolve("next"), queue.resolve(timedelta(0))) == (4, 4)
    assert (queue.oldest, queue.next) == (1, 4)


def test_a_reader_that_fell_behind_receives_the_lost_range(queue: AnyQueue) -> None:
    for number in range(60):
        queue.put(number.to_bytes(2, "big") + bytes(100_000), feed="a")
    batch = queue.read_batch(2, limit=1)
    assert batch.lost is not None
    assert (batch.lost.first, batch.lost.last) == (2, queue.oldest - 1)
    assert batch.sequences.tolist() == [queue.oldest]


def test_a_damaged_product_is_named_and_can_be_skipped(queue: AnyQueue, served: Served) -> None:
    put(queue, "first", "second", "third")
    served.spoil(b"second")
    assert idents(queue.read_batch()) == ["first"]
    with pytest.raises(ProductDamagedError, match="product 2 in") as caught:
        queue.read_batch(2)
    assert (caught.value.sequence, caught.value.next) == (2, 3)
    follower = queue.follow("oldest", timeout=0)
    assert idents(next(follower)) == ["first"]
    with pytest.raises(ProductDamagedError):
        next(follower)
    follower.position = caught.value.next
    assert [idents(batch) for batch in follower] == [["third"]]


def test_a_follower_returns_held_and_new_products(queue: AnyQueue) -> None:
    put(queue, "1", "2")
    follower = queue.follow("oldest", limit=1, timeout=60)
    assert [idents(next(follower)) for _ in range(2)] == [["1"], ["2"]]
    timer = threading.Timer(0.2, put, (queue, "3"))
    timer.start()
    assert idents(next(follower)) == ["3"]
    assert follower.position == 4
    timer.join()


def test_a_follower_ends_at_its_timeout(queue: AnyQueue) -> None:
    put(queue, "1", feed="b")
    begun = time.monotonic()
    assert list(queue.follow("oldest", "a", timeout=0.3)) == []
    assert time.monotonic() - begun >= 0.3


def test_a_follower_with_timeout_zero_sees_new_products(queue: AnyQueue) -> None:
    follower = queue.follow("oldest", timeout=0)
    for ident in "123":
        put(queue, ident)
        assert idents(next(follower)) == [ident]
    assert list(follower) == []


def test_a_follower_can_be_stopped_by_another_thread(queue: AnyQueue) -> None:
    follower = queue.follow()
    timer = threading.Timer(0.2, follower.stop)
    timer.start()
    assert list(follower) == []
    timer.join()


def test_a_follower_that_was_stopped_does_not_wait(queue: AnyQueue) -> None:
    follower = queue.follow()
    follower.stop()
    follower.wait(3600)


def test_a_follower_can_be_set_to_another_position(queue: AnyQueue) -> None:
    put(queue, *"12345")
    follower = queue.follow("oldest", limit=1, timeout=5)
    next(follower)
    follower.position = 4
    assert idents(next(follower)) == ["4"]
    follower.position = 2
    assert idents(follower.next_nowait() or queue.read_batch("next")) == ["2"]
    follower.position = 6
    assert follower.next_nowait() is None


def test_every_nth_is_counted_across_batches(queue: AnyQueue) -> None:
    put(queue, *map(str, range(1, 11)))
    batches = queue.follow("oldest", Selection(every=3), limit=1, timeout=0)
    assert [idents(batch) for batch in batches] == [["3"], ["6"], ["9"]]


def test_a_follower_works_with_async_for(queue: AnyQueue) -> None:
    put(queue, "1")

    async def follow() -> list[str]:
        found = []
        async for batch in queue.follow("oldest", timeout=0.5):
            found += idents(batch)
            if found == ["1"]:
                put(queue, "2")
        return found

    assert asyncio.run(follow()) == ["1", "2"]


def test_many_products_arrive_complete_and_in_order(queue: AnyQueue) -> None:
    def produce() -> None:
        for number in range(40):
            queue.put_many([b"%d/%d" % (number, n) for n in range(50)], feed=f"feed/{number % 3}")

    producer = threading.Thread(target=produce)
    follower = queue.follow("oldest", timeout=60)
    producer.start()
    sequences: list[int] = []
    while len(sequences) < 2000:
        sequences += next(follower).sequences.tolist()
    producer.join()
    assert sequences == list(range(1, 2001))


def test_statistics_and_properties_of_a_queue(queue: AnyQueue, served: Served) -> None:
    put(queue, "1", "2", feed="x")
    queue.cursor("c")
    told = queue.statistics()
    assert (told.held_products, told.next, [each.feed for each in told.feeds]) == (2, 3, ["x"])
    assert [each.name for each in told.cursors] == ["c"]
    assert queue.config == served.queue.config
    assert queue.origins == [served.name]
    assert queue.wanted("x") == served.queue.wanted("x")
    queue.flush()

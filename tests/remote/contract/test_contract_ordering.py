"""Release buffers and pacers on consumers and followers: leases, positions, ends. Order itself: tests/timing."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from headrace import Batch, LeaseLostError, Pacer, ReleaseBuffer
from headrace.errors import HeadraceError, InvalidError, OptionError
from headrace.queue import AnyConsumer, AnyQueue, AnyStation
from support.serving import idents, put, work
from support.waiting import until

FIRST_NS = 1_700_000_000_000_000_000


def put_mixed(queue: AnyQueue, order: str = "3142") -> None:
    """Products whose idents say when they were created, in milliseconds; they arrive at once."""
    created = [FIRST_NS + int(ident) * 1_000_000 for ident in order]
    queue.put_many([ident.encode() for ident in order], feed="a", ident=list(order), created=created)


def take(stream: ReleaseBuffer | Pacer, count: int = 4) -> list[str]:
    """The next so many products, acknowledged."""
    found: list[str] = []
    while len(found) < count:
        batch = next(stream)
        found += idents(batch)
        stream.ack(batch)
    return found


make = pytest.mark.parametrize(
    "make",
    [
        lambda *sources, **more: ReleaseBuffer(*sources, hold="50ms", **more),
        lambda *sources, **more: Pacer(*sources, delay="50ms", **more),
    ],
    ids=["buffer", "pacer"],
)
Make = Callable[..., ReleaseBuffer | Pacer]


@make
def test_products_of_a_consumer_come_in_the_order_of_their_creation_and_are_acknowledged(
    queue: AnyQueue, station: AnyStation, consumer: AnyConsumer, make: Make
) -> None:
    put_mixed(queue)
    with make(consumer) as stream:
        assert take(stream) == ["1", "2", "3", "4"]
        assert (stream.statistics().received, stream.statistics().released, stream.statistics().held) == (4, 4, 0)
    counts = station.statistics()
    assert (counts.acknowledged, counts.leased, counts.waiting) == (4, 0, 0)


@make
def test_products_of_a_follower_come_in_the_order_of_their_creation(queue: AnyQueue, make: Make) -> None:
    put_mixed(queue)
    with make(queue.follow("oldest")) as stream:
        assert take(stream) == ["1", "2", "3", "4"]


def test_the_end_of_all_sources_releases_everything_and_ends_the_loop(queue: AnyQueue) -> None:
    put_mixed(queue)
    with ReleaseBuffer(queue.follow("oldest", timeout=0), queue.follow("oldest", timeout=0), hold="1h") as buffer:
        assert [idents(batch) for batch in buffer] == [["1", "2", "3", "4"]]
        assert (buffer.statistics().repeated, buffer.statistics().releases["end"]) == (4, 1)


def test_what_is_held_is_leased_and_goes_back_when_the_buffer_is_closed(
    queue: AnyQueue, station: AnyStation, consumer: AnyConsumer
) -> None:
    put_mixed(queue)
    with ReleaseBuffer(consumer, hold="1h", products_max=4) as buffer:
        assert idents(next(buffer)) == ["1", "2"]
        assert (station.statistics().leased, buffer.statistics().held) == (4, 2)
        assert buffer.statistics().releases == {"products": 1, "bytes": 0, "hold": 0, "end": 0}
    assert (station.statistics().leased, station.statistics().waiting) == (2, 2)  # the batch in hand stays leased
    consumer.detach()
    assert sorted(work(station)) == ["1", "2", "3", "4"]


def test_a_loop_may_settle_products_itself(queue: AnyQueue, station: AnyStation, consumer: AnyConsumer) -> None:
    put_mixed(queue)
    with ReleaseBuffer(consumer, hold="50ms") as buffer:
        batch = next(buffer)
        consumer.nack(batch.take([1]), failed=True)
        consumer.discard(batch.take([2]))
        consumer.ack(batch.take([0]))
        with pytest.raises(LeaseLostError):
            buffer.ack(batch.take([0]))
        again = next(buffer)  # acknowledges the rest
        assert (idents(again), again.late, again.deliveries.tolist()) == (["2"], 1, [2])
        buffer.ack(again)
    counts = station.statistics()
    assert (counts.acknowledged, counts.discarded, counts.leased, counts.waiting) == (3, 1, 0, 0)


def test_a_new_payload_may_be_given_with_the_acknowledgement(queue: AnyQueue, station: AnyStation) -> None:
    behind = queue.station("behind", "**", after="s")
    with station.attach() as consumer:
        put_mixed(queue)
        with ReleaseBuffer(consumer, hold="50ms") as buffer:
            batch = next(buffer)
            consumer.ack(batch, [product.ident.encode() * 2 for product in batch])
    with behind.attach() as consumer:
        assert sorted(bytes(product.payload) for product in consumer.get_nowait(9)) == [b"11", b"22", b"33", b"44"]


@pytest.mark.parametrize("late", ["release", "drop"])
def test_late_products_are_released_apart_or_acknowledged_and_counted(
    queue: AnyQueue, station: AnyStation, consumer: AnyConsumer, late: str
) -> None:
    put_mixed(queue, "56")
    with ReleaseBuffer(consumer, hold="10ms", late=late) as buffer:
        assert take(buffer, 2) == ["5", "6"]
        put_mixed(queue, "12")
        if late == "release":
            batch = next(buffer)
            assert (idents(batch), batch.late) == (["1", "2"], 2)
        put_mixed(queue, "7")
        assert take(buffer, 1) == ["7"]
        counts = buffer.statistics()
        assert (counts.late, counts.dropped_late) == ((2, 0) if late == "release" else (0, 2))
    assert (station.statistics().leased, station.statistics().acknowledged) == (0, 5)


def test_a_cursor_is_committed_up_to_the_first_product_that_is_held(queue: AnyQueue) -> None:
    put_mixed(queue, "41235")
    cursor = queue.cursor("c", "oldest")
    with ReleaseBuffer(cursor.follow(timeout=0), hold="1h", products_max=5) as buffer:
        batch = next(buffer)
        assert idents(batch) == ["1", "2", "3"]
        cursor.commit(batch)
        assert cursor.position == 1  # product 4 was put first, and is held
        cursor.commit(next(buffer))
        assert cursor.position == 6


def test_several_sources_are_joined_and_each_product_is_acknowledged_where_it_came_from(queue: AnyQueue) -> None:
    wx, lab = queue.station("wx", "wx"), queue.station("lab", "lab")
    put(queue, "2", "3", feed="wx", created=FIRST_NS)
    put(queue, "1", feed="lab", created=FIRST_NS - 1_000)
    with wx.attach() as one, lab.attach() as other:
        follower = queue.follow("oldest", "lab", timeout=0)
        with ReleaseBuffer(one, other, follower, hold="1h", products_max=4, factor=1) as buffer:
            batch = next(buffer)
            assert (idents(batch), batch.feeds[0]) == (["1", "2", "3"], "lab")
            assert buffer.statistics().repeated == 1  # from the follower and from the station
            with pytest.raises(InvalidError, match="several sources"):
                one.ack(batch)
            with pytest.raises(InvalidError, match="no single position"):
                _ = batch.next
            buffer.ack(batch)
    assert [each.statistics().acknowledged for each in (wx, lab)] == [2, 1]


def test_no_more_is_taken_than_the_buffer_may_hold(queue: AnyQueue, station: AnyStation, consumer: AnyConsumer) -> None:
    queue.put_many([b"x"] * 50, feed="a", created=[FIRST_NS + n for n in range(50)])
    with ReleaseBuffer(consumer, hold="1h", products_max=10) as buffer:
        for _ in range(5):
            assert len(next(buffer)) >= 5
            assert station.statistics().leased <= 10 + 10  # in hand, and held


def test_a_source_that_fails_does_not_keep_the_products_of_another_leased(queue: AnyQueue) -> None:
    """`one` is detached, so its product is delivered again; that of `other` is acknowledged all the same."""
    one, other = (queue.station(feed, feed).attach() for feed in ("a", "b"))
    with other, ReleaseBuffer(one, other, hold="1h", products_max=2, factor=1) as buffer:
        queue.put_many([b"1", b"2"], feed=["a", "b"], created=FIRST_NS)
        batch = next(buffer)
        one.detach()
        with pytest.raises(HeadraceError):
            buffer.ack(batch)
        assert queue.station("b").statistics().acknowledged == 1
    assert queue.station("a").statistics().waiting == 1


def test_an_async_loop_gets_the_same_and_a_cancelled_task_loses_nothing(
    queue: AnyQueue, station: AnyStation, consumer: AnyConsumer
) -> None:
    async def run() -> list[str]:
        found: list[str] = []
        async with ReleaseBuffer(consumer, hold="50ms") as buffer:
            waiting = asyncio.ensure_future(anext(aiter(buffer)))
            await asyncio.sleep(0.02)
            put_mixed(queue)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
            async for batch in buffer:
                found += idents(batch)
                buffer.ack(batch)
                if len(found) == 4:
                    break
        return found

    assert asyncio.run(run()) == ["1", "2", "3", "4"]
    assert (station.statistics().acknowledged, station.statistics().leased) == (4, 0)


def test_a_source_that_detaches_or_is_none_is_an_error(consumer: AnyConsumer) -> None:
    with pytest.raises(OptionError, match="not a source"):
        ReleaseBuffer(17)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="0 sources"):
        Pacer()
    with ReleaseBuffer(consumer, hold="50ms") as buffer:
        consumer.detach()
        with pytest.raises(Exception, match="detached"):
            next(buffer)


def test_a_buffer_that_is_dropped_ends_its_threads(queue: AnyQueue, consumer: AnyConsumer) -> None:
    import gc
    import threading

    put_mixed(queue)
    batch: Batch = next(ReleaseBuffer(consumer, hold="10ms"))
    assert len(batch) == 4
    gc.collect()
    until(lambda: not any(each.name == "headrace-intake" for each in threading.enumerate()), "the end of the threads")

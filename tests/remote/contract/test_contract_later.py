"""A subscription that becomes active at a time: a follower, a cursor and a station, local and remote."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from headrace.errors import StartAheadError
from headrace.queue import AnyQueue
from support.waiting import until


def later(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def put_around(queue: AnyQueue, moment: datetime) -> None:
    """A product before the time, and one after."""
    queue.put(b"before", feed="a")
    until(lambda: datetime.now(UTC) > moment)
    queue.put(b"after", feed="a")


def test_a_follower_from_a_time_in_the_future_begins_with_what_is_put_then(queue: AnyQueue) -> None:
    moment = later(1.0)
    follower = queue.follow(moment, timeout="30s")
    assert follower.next_nowait() is None
    putting = threading.Thread(target=put_around, args=(queue, moment))
    putting.start()
    product = next(iter(follower))[0]
    putting.join()
    assert product.sequence == next(each.sequence for each in queue.read() if each.inserted >= moment)


def test_the_timeout_of_such_a_follower_counts_from_that_time(queue: AnyQueue) -> None:
    moment = later(0.5)
    assert list(queue.follow(moment, timeout="10ms")) == []
    assert datetime.now(UTC) >= moment


def test_a_follower_that_is_not_active_yet_can_be_stopped(queue: AnyQueue) -> None:
    follower = queue.follow(later(3600.0))
    threading.Timer(0.05, follower.stop).start()
    assert list(follower) == []


def test_an_async_follower_from_a_time_in_the_future_waits_for_it(queue: AnyQueue) -> None:
    async def first() -> timedelta:
        moment = later(0.5)
        async with queue.follow(moment, timeout="30s") as follower:
            queue.put(b"before", feed="a")
            asyncio.get_running_loop().call_later(0.6, lambda: queue.put(b"after", feed="a"))
            async for batch in follower:
                return batch[0].inserted - moment
        return timedelta(-1)

    assert asyncio.run(first()) >= timedelta(0)


def test_positions_in_the_future_are_refused_where_nothing_waits_for_them(queue: AnyQueue) -> None:
    queue.put(b"x", feed="a")
    cursor = queue.cursor("c")
    for use in (
        queue.resolve,
        cursor.seek,
        lambda start: list(queue.read(start)),
        lambda start: queue.cursor("d", start),
    ):
        with pytest.raises(StartAheadError, match="is in the future") as error:
            use(later(3600.0))
        assert 3000 < error.value.ahead_s <= 3600

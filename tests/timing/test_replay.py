"""Replays of a queue: spacing, pause, seek, speed, eviction, live."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import Batch, Lost, Queue
from headrace.errors import OptionError
from headrace.testing import MockClock
from headrace.timing.replay import Replay
from support.mock_time import MockTime, S

START = 1_800_000_000 * S


Made = Callable[..., Queue]


@pytest.fixture
def recorded(make_queue: Made) -> Queue:
    """Products 1 to 6, inserted 0, 1, 2, 4, 8 and 16 seconds after START."""
    clock = MockClock(START)
    queue = make_queue(clock=clock)
    for number, second in enumerate((0, 1, 2, 4, 8, 16)):
        clock.set(START + second * S)
        queue.put(b"%d" % number, feed="wx/even" if number % 2 == 0 else "wx/odd", created=START - number * S)
    return queue


def begin(queue: Queue, *window: Any, time: MockTime, **terms: Any) -> Replay:
    replay = queue.replay(*window, **terms)
    replay._elapsed = time
    return replay


def seen(replay: Iterator[Batch], time: MockTime) -> list[tuple[float, list[int]]]:
    """When each batch came, and its sequences."""
    return [(time.now_ns / S, batch.sequences.tolist()) for batch in replay]


def test_products_come_in_their_original_spacing(recorded: Queue) -> None:
    time = MockTime()
    assert seen(begin(recorded, time=time), time) == [(0, [1]), (1, [2]), (2, [3]), (4, [4]), (8, [5]), (16, [6])]


@pytest.mark.parametrize(("speed", "ends"), [("4x", 4.0), (0.5, 32.0), ("max", 0.0)])
def test_a_speed_divides_the_distances(recorded: Queue, speed: str | float, ends: float) -> None:
    time = MockTime()
    batches = seen(begin(recorded, time=time, speed=speed), time)
    assert [sequence for _, each in batches for sequence in each] == [1, 2, 3, 4, 5, 6]
    assert batches[-1][0] == ends


def test_a_window_is_given_by_sequences_or_times_and_any_selection(recorded: Queue) -> None:
    def sequences(*window: Any) -> list[int]:
        time = MockTime()
        return [sequence for _, each in seen(begin(recorded, *window, time=time), time) for sequence in each]

    assert sequences(2, 5) == [2, 3, 4]
    assert sequences("2027-01-15T08:00:01Z", "2027-01-15T08:00:08Z") == [2, 3, 4]
    assert sequences("oldest", "next", "wx/even") == [1, 3, 5]
    assert sequences("oldest", "next", "wx/** every 2") == [2, 4, 6]
    assert sequences(3, 3) == []
    with pytest.raises(OptionError, match="before it begins"):
        recorded.replay(5, 2)
    with pytest.raises(OptionError, match="in the future"):
        recorded.replay(5, "2027-02-01")


def test_products_that_are_out_of_order_in_time_are_due_with_the_one_before(recorded: Queue) -> None:
    time = MockTime()
    assert seen(begin(recorded, time=time, by="created"), time) == [(0, [1, 2, 3, 4, 5, 6])]


def test_pause_resume_speed_and_seek_take_effect_at_once(recorded: Queue) -> None:
    time = MockTime()
    replay = begin(recorded, time=time)
    time.at(3, replay.pause)  # one of two seconds before product 4
    time.at(100, replay.resume)
    time.at(103, lambda: replay.speed(8))  # two of four seconds after it
    time.at(104, lambda: replay.seek(2))  # 8 of the next 8 seconds have not passed yet
    assert seen(replay, time)[:6] == [(0, [1]), (1, [2]), (2, [3]), (101, [4]), (103.25, [5]), (104, [2])]


def test_a_seek_may_be_relative_and_stays_in_the_window(recorded: Queue) -> None:
    time = MockTime()
    replay = begin(recorded, 2, 6, time=time)
    with pytest.raises(OptionError, match="counts from the last product"):
        replay.seek("+5s")
    assert [next(replay).sequences.tolist() for _ in range(2)] == [[2], [3]]
    assert replay.seek("+6s") == 5
    assert next(replay).sequences.tolist() == [5]
    assert [replay.seek(to) for to in ("-7s", "-1h", "oldest", 1)] == [2, 2, 2, 2]
    assert replay.seek("+10min") == 6
    assert list(replay) == []
    assert replay.seek(5) == 5  # also after the end
    assert [batch.sequences.tolist() for batch in replay] == [[5]]


def test_seeks_add_up_while_a_replay_is_paused(recorded: Queue) -> None:
    time = MockTime()
    replay = begin(recorded, time=time)
    next(replay)
    replay.pause()
    assert [replay.seek("+3s") for _ in range(3)] == [4, 5, 6]  # 3, 6 and 9 seconds behind the first product
    assert [replay.seek("-3s") for _ in range(2)] == [5, 4]
    assert replay.seek(5) == 5
    time.at(10, lambda: replay.seek("+1s"))  # one second behind product 5, which nobody has got yet
    time.at(20, replay.resume)
    assert seen(replay, time) == [(20, [6])]


def test_a_batch_may_be_committed_to_a_cursor(recorded: Queue) -> None:
    time, cursor = MockTime(), recorded.cursor("reader", 1)
    replay = begin(recorded, time=time)
    for expected in (2, 3):
        cursor.commit(next(replay))
        assert cursor.position == expected
    assert recorded.replay(cursor.position).progress().position == 3


def test_a_slow_consumer_gets_larger_batches_and_learns_how_late_it_is(recorded: Queue) -> None:
    time = MockTime()
    replay = begin(recorded, time=time)
    next(replay)
    time.now_ns = 5 * S
    assert next(replay).sequences.tolist() == [2, 3, 4]
    progress = replay.progress()
    assert (progress.behind_s, progress.products, progress.position, progress.fraction) == (4, 4, 5, 4 / 6)


def test_expired_products_are_part_of_the_past(make_queue: Made) -> None:
    clock = MockClock(START)
    queue = make_queue(clock=clock)
    queue.put(b"short", feed="a", expiry="10s", properties={"level": 3})
    clock.advance(60)
    queue.put(b"long", feed="a", properties={"level": 3})
    assert [bytes(each.payload) for each in queue.read()] == [b"long"]
    for selection in (None, "a where level = 3", "a ident ~ ''"):
        batches = queue.replay("oldest", "next", selection, speed="max")
        assert [bytes(each.payload) for batch in batches for each in batch] == [b"short", b"long"]


def test_what_is_evicted_under_a_replay_is_an_exact_range(make_queue: Made) -> None:
    queue = make_queue(size="1MiB")
    payload = bytes(20_000)
    for number in range(20):
        queue.put(payload, feed="a", ident=str(number))
    time = MockTime()
    replay = begin(queue, time=time)
    assert next(replay).sequences.tolist() == [1]
    replay.pause()
    time.at(3600, lambda: [queue.put(payload, feed="b") for _ in range(200)])  # longer than the retention
    time.at(7200, replay.resume)
    batch = next(replay)
    assert (len(batch), batch.lost) == (0, Lost(2, 20))
    assert batch.next == 21
    assert list(replay) == []
    progress = replay.progress()
    assert (progress.products, progress.lost, progress.position, progress.fraction) == (1, 19, 21, 1.0)


def test_a_replay_that_waits_holds_no_memory_of_the_queue(make_queue: Made) -> None:
    clock = MockClock(START)
    queue = make_queue(size="1MiB", clock=clock)
    queue.put(bytes(20_000), feed="a")
    clock.advance(7200)
    for _ in range(3):
        queue.put(bytes(20_000), feed="a")
    time = MockTime()
    replay = begin(queue, time=time)
    assert len(next(replay)) == 1
    time.at(3600, lambda: [queue.put(bytes(20_000), feed="b") for _ in range(200)])
    assert next(replay).lost == Lost(2, 4)
    assert queue.statistics().pinned_evictions == 0


def test_without_an_end_live_products_follow_without_gap_or_repetition(recorded: Queue) -> None:
    time = MockTime()
    replay = begin(recorded, 3, None, time=time, speed=100)
    got: list[int] = []
    for batch in replay:
        got += batch.sequences.tolist()
        if got[-1] == 6:  # the last one that there was: now live
            recorded.put(b"live", feed="wx/even")
        if got[-1] == 7:
            recorded.put(b"live too", feed="wx/even")
        if got[-1] == 8:
            break
    assert got == [3, 4, 5, 6, 7, 8]
    assert replay.progress().is_live or replay.progress().stop is None


def test_a_live_replay_that_waits_is_stopped_at_once(recorded: Queue) -> None:
    replay = recorded.replay("next", None)
    ended = threading.Event()
    thread = threading.Thread(target=lambda: (list(replay), ended.set()))
    thread.start()
    replay.stop()
    assert ended.wait(60)
    thread.join()


async def _async_sequences(queue: Queue) -> list[int]:
    async with queue.replay(speed="max") as replay:
        return [sequence async for batch in replay for sequence in batch.sequences.tolist()]


def test_a_replay_works_in_an_event_loop(recorded: Queue) -> None:
    import asyncio

    assert asyncio.run(_async_sequences(recorded)) == [1, 2, 3, 4, 5, 6]


def test_real_time_is_waited_for(make_queue: Made) -> None:
    """By the machine's clock: a lower limit only, so that a busy machine fails nothing."""
    import time

    queue = make_queue(clock=(clock := MockClock(START)))
    for _ in range(3):
        queue.put(b"x", feed="a")
        clock.advance(0.05)
    begun = time.monotonic()
    assert sum(map(len, queue.replay())) == 3
    assert time.monotonic() - begun >= 0.1

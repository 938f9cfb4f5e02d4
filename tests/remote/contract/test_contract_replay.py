"""Replays: spacing aside, what a window gives, wherever the queue is."""

import asyncio
import threading

import pytest

from headrace.errors import OptionError
from headrace.queue import AnyQueue
from headrace.timing.replay.marks import Stored
from support.serving import Served, put


def test_a_window_by_sequences_and_a_selection(queue: AnyQueue) -> None:
    put(queue, *"abcdef")
    put(queue, "g", feed="b")
    assert [batch.idents for batch in queue.replay(2, 5, speed="max")] == [["b", "c", "d"]]
    assert [batch.idents for batch in queue.replay("oldest", "next", "b", speed="max")] == [["g"]]
    assert [len(batch) for batch in queue.replay("1h", "next", "** every 3", speed="max")] == [2]
    with pytest.raises(OptionError):
        queue.replay(speed="fast")


def test_expired_products_are_included(queue: AnyQueue) -> None:
    put(queue, "gone", expiry="1ms")
    put(queue, "here")
    assert [batch.idents for batch in queue.replay(speed="max")] == [["gone", "here"]]


def test_pause_seek_and_resume_from_another_thread(queue: AnyQueue) -> None:
    put(queue, *"abc")
    replay = queue.replay(speed="max")
    replay.pause()
    threading.Timer(0.05, lambda: (replay.seek(2), replay.resume())).start()
    assert [batch.idents for batch in replay] == [["b", "c"]]


def test_batches_may_be_committed_to_a_cursor(queue: AnyQueue) -> None:
    put(queue, *"abc")
    cursor = queue.cursor("c")
    for batch in queue.replay(1, 3, speed="max"):
        cursor.commit(batch)
    assert cursor.position == 3


def test_a_replay_in_an_event_loop(queue: AnyQueue) -> None:
    put(queue, *"abc")

    async def idents() -> list[str]:
        async with queue.replay(speed="max") as replay:
            return [ident async for batch in replay for ident in batch.idents]

    assert asyncio.run(idents()) == ["a", "b", "c"]


def test_a_replay_onto_a_feed_is_marked_and_stored_once_in_each_run(queue: AnyQueue, served: Served) -> None:
    put(queue, *"abc")
    runs = [list(queue.replay(speed="max").put_into(queue, "again/**", run=run)) for run in (1, 1, 2)]
    assert runs == [[Stored(3, 3)], [Stored(3, 0, 3)], [Stored(3, 3)]]
    batch = queue.read_batch("oldest", "again/a replay 0000000000000002")
    assert [product.options.replay.sequence for product in batch if product.options.replay] == [1, 2, 3]
    assert len(queue.read_batch("oldest", "replay false")) == 3


@pytest.mark.parametrize("speed", ["max", 1000])
def test_what_was_missed_and_then_live_products_come_in_one_sequence(
    queue: AnyQueue, served: Served, speed: str | float
) -> None:
    """A producer puts all the time; the late participant never sees a gap or a repetition at the hand-over."""
    put(served.queue, *map(str, range(200)))
    ended = threading.Event()

    def produce() -> None:
        while not ended.wait(0.0005):
            served.queue.put(b"live", feed="a")

    producer = threading.Thread(target=produce)
    producer.start()
    found: list[int] = []
    try:
        with queue.replay("oldest", None, speed=speed) as replay:
            for batch in replay:
                found += batch.sequences.tolist()
                if len(found) > 300:
                    break
    finally:
        ended.set()
        producer.join()
    assert found == list(range(1, len(found) + 1))

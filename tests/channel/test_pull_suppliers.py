"""Pull suppliers: a function is called at an interval."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Queue
from headrace.channel.channel import Channel
from headrace.channel.pull import BACK_OFF_S_MAX, PullSupplier, next_tick
from headrace.channel.worker import INTERVAL_S, ErrorLog
from headrace.errors import OptionError

SOON_S = 60.0  # the limit of every wait: a safety net


@pytest.fixture
def channel(queue: Queue) -> Channel:
    return queue.channel("radar", "wx/radar")


class Source:
    """Returns the given results one after another, then None; `over` is set when all have been returned."""

    def __init__(self, *results: Any) -> None:
        self._results: Iterator[Any] = iter(results)
        self.over = threading.Event()

    def __call__(self) -> Any:
        try:
            result = next(self._results)
        except StopIteration:
            self.over.set()
            return None
        if isinstance(result, Exception):
            raise result
        return result


def pulled(channel: Channel, source: Source, **options: Any) -> PullSupplier:
    """A pull supplier that has fetched all results, and is stopped."""
    with channel.pull(source, every="1ms", **options) as pull:
        assert source.over.wait(SOON_S)
    return pull


# --- the grid -------------------------------------------------------------------------------------


def test_ticks_lie_on_a_grid_however_long_a_call_takes() -> None:
    assert next_tick(100.0, 1.0, 100.0, 0) == (1, 101.0)
    assert next_tick(100.0, 1.0, 100.9, 0) == (1, 101.0)
    assert next_tick(100.0, 1.0, 101.0, 0) == (2, 102.0)
    assert next_tick(100.0, 1.0, 107.3, 0) == (8, 108.0)


def test_the_pause_doubles_with_each_failure_up_to_a_minute() -> None:
    pauses = [next_tick(0.0, 1.0, 0.0, failures)[1] for failures in range(1, 9)]
    assert pauses == [3.0, 5.0, 9.0, 17.0, 33.0, 61.0, 61.0, 61.0]
    assert next_tick(0.0, 3600.0, 0.0, 5)[1] == 7200.0


@given(st.floats(0, 1e6), st.floats(0.001, 1e4), st.floats(0, 1e6), st.integers(0, 100))
def test_the_next_tick_is_always_ahead(begin_s: float, every_s: float, passed_s: float, failures: int) -> None:
    now_s = begin_s + passed_s
    number, due_s = next_tick(begin_s, every_s, now_s, failures)
    assert number >= 1
    assert (
        now_s - 1e-6 * max(1, now_s) <= due_s <= now_s + max(every_s, BACK_OFF_S_MAX) + every_s + 1e-6 * max(1, now_s)
    )


# --- what a function returns ----------------------------------------------------------------------


def test_returned_products_are_pushed(queue: Queue, channel: Channel) -> None:
    source = Source(
        b"one", None, [b"two", b"three"], [], {"payload": b"four", "ident": "mine", "feed": "wx/radar/x"},
        [{"payload": b"five"}, b"six"],
    )  # fmt: skip
    pull = pulled(channel, source, feed="wx/radar/KFTG", priority=6)
    products = list(queue.read_batch())
    assert [bytes(p.payload) for p in products] == [b"one", b"two", b"three", b"four", b"five", b"six"]
    assert [(p.feed, p.ident, p.priority) for p in products][3] == ("wx/radar/x", "mine", 6)
    assert {p.feed for p in products} == {"wx/radar/KFTG", "wx/radar/x"}
    told = pull.statistics()
    assert (told.pushed, told.failures, told.pending, told.running) == (6, 0, 0, False)
    assert told.polls >= 7


def test_a_pull_supplier_counts_until_it_is_stopped(channel: Channel) -> None:
    source = Source()
    with channel.pull(source, every="1ms"):
        assert source.over.wait(SOON_S)
        assert channel.statistics().suppliers == 1
    assert channel.statistics().suppliers == 0


def test_a_function_that_fails_is_called_again(
    queue: Queue, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(b"one", ValueError("no link"), ConnectionError("still no link"), b"two")
    with caplog.at_level(logging.WARNING):
        pull = pulled(channel, source)
    assert [bytes(p.payload) for p in queue.read_batch()] == [b"one", b"two"]
    assert (pull.statistics().failures, pull.statistics().latest_failure) == (2, "ConnectionError: still no link")
    assert [record.message for record in caplog.records] == [
        "pull supplier of channel 'radar': the function failed: ValueError: no link"
    ]


def test_invalid_results_are_counted_and_skipped(queue: Queue, channel: Channel) -> None:
    pull = pulled(channel, Source("text", {"payload": b"x", "feed": "wx/text"}, {"nonsense": 1}, b"good"))
    assert [bytes(p.payload) for p in queue.read_batch()] == [b"good"]
    assert pull.statistics().failures == 3


def test_rejected_products_are_pushed_again(queue: Queue) -> None:
    channel = queue.channel("c", "a", max_queue=1)
    station = channel.station("s", "a/**")
    source = Source(b"one", b"two", b"three")
    with channel.pull(source, every="1ms") as pull, station.attach() as consumer:
        for expected in (b"one", b"two", b"three"):
            batch = consumer.get(1, timeout=SOON_S)
            assert [bytes(p.payload) for p in batch] == [expected]
            consumer.ack(batch)
        assert source.over.wait(SOON_S)
    assert pull.statistics().pushed == 3


def test_a_pull_supplier_can_be_stopped_while_a_blocking_station_is_full(queue: Queue) -> None:
    channel = queue.channel("c", "a", reliability="persistent", max_per_consumer=1)
    channel.station("s", "a/**")
    queue.put(b"full", feed="a")
    called = threading.Event()

    def source() -> bytes:
        called.set()
        return b"waits"

    pull = channel.pull(source, every="1ms")
    assert called.wait(SOON_S)
    assert pull.stop(SOON_S)
    assert pull.statistics().pending == 1
    assert queue.next == 2


def test_a_pull_supplier_ends_when_its_channel_is_removed(queue: Queue, channel: Channel) -> None:
    go = threading.Event()

    def source() -> bytes:
        go.wait(SOON_S)
        return b"too late"

    pull = channel.pull(source, every="1ms")
    channel.remove()
    go.set()
    pull._worker.thread.join(SOON_S)
    assert not pull.statistics().running
    assert pull.statistics().latest_failure.startswith("ChannelMissingError")
    assert queue.next == 1


def test_a_function_may_stop_its_own_supplier(channel: Channel) -> None:
    made: list[PullSupplier] = []
    ready, over = threading.Event(), threading.Event()

    def source() -> None:
        ready.wait(SOON_S)
        made[0].stop()
        over.set()

    made.append(channel.pull(source, every="1ms"))
    ready.set()
    assert over.wait(SOON_S)
    assert made[0].stop(SOON_S)


def test_an_interval_of_zero_is_refused(channel: Channel) -> None:
    with pytest.raises(OptionError, match=r"every 0\.0 s is too short"):
        channel.pull(lambda: None, every=0)
    with pytest.raises(OptionError):
        channel.pull(lambda: None, every="now and then")
    assert channel.statistics().suppliers == 0


def test_a_value_that_does_not_fit_its_column_ends_no_supplier(queue: Queue) -> None:
    channel = queue.channel("c", "a", timeout="1h")
    source = Source([b"1"], {"payload": b"2", "expiry": None})
    with channel.pull(source, every="1ms", expiry=[-1]) as pull:
        assert source.over.wait(SOON_S)
    assert (pull.statistics().failures, pull.statistics().pushed, queue.next) == (1, 1, 2)


# --- errors ----------------------------------------------------------------------------------------


def test_all_errors_are_counted_and_few_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    errors = ErrorLog(logging.getLogger("test"), lambda: now_s[0])
    for _ in range(5):
        errors.add("it", ValueError("bad"))
    now_s[0] = INTERVAL_S
    errors.add("it", ValueError("worse"))
    assert errors.count == 6
    assert [record.message for record in caplog.records] == [
        "it: ValueError: bad", "it: ValueError: worse (4 more since the last message)",
    ]  # fmt: skip

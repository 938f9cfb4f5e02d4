"""The clock of a queue: every process stamps by its words, in the kernel, and time never falls."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import Queue
from headrace.log.clock_words import NTP, SYSTEM, ClockWords
from headrace.queue.queue import log_of

SECOND = 1_000_000_000
MS = 1_000_000
MakeQueue = Callable[..., Queue]


def boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def ahead(seconds: float, **more: int) -> ClockWords:
    """Words of a clock that is ahead of the system's."""
    return ClockWords(boot_ns(), time.time_ns() + int(seconds * SECOND), bound_ns=5 * MS, source=NTP, **more)


def test_products_are_stamped_by_the_clock_and_carry_its_bound(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put(b"before", feed="a")
    log_of(queue).write_clock(ahead(3600.0, drift_ppb=15_000))
    queue.put(b"one", feed="a")
    queue.put_many([b"two", b"three"], feed="a")
    queue.put(b"four", feed="a", created=17, ident="x")
    before, one, two, three, four = queue.read()
    assert before.bound_ns is None
    for product in (one, two, three, four):
        assert product.inserted_ns > before.inserted_ns + 3599 * SECOND
    assert all(each.created_ns == each.inserted_ns for each in (one, two, three))
    assert all(5 * MS <= (each.bound_ns or 0) < 50 * MS for each in (one, two, three))
    assert four.created_ns == 17
    assert four.bound_ns is None  # nobody knows how right the time of the producer is


def test_an_expiry_in_words_counts_from_the_time_of_the_clock(make_queue: MakeQueue) -> None:
    queue = make_queue()
    log_of(queue).write_clock(ahead(3600.0))
    queue.put(b"1", feed="a", expiry="10min")
    queue.put_many([b"2"], feed="a", expiry="10min")
    assert len(list(queue.read())) == 2
    log_of(queue).write_clock(ahead(3600.0 + 601.0))
    assert list(queue.read()) == []


def test_selections_by_age_and_positions_by_time_use_the_clock(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put(b"old", feed="a")
    log_of(queue).write_clock(ahead(3600.0))
    queue.put(b"new", feed="a")
    assert [bytes(each.payload) for each in queue.read("10min")] == [b"new"]
    assert [bytes(each.payload) for each in queue.read("oldest", "a age < 10min")] == [b"new"]


def test_words_that_put_the_clock_back_are_refused(make_queue: MakeQueue) -> None:
    log = log_of(make_queue())
    with pytest.raises(ValueError, match="back"):
        log.write_clock(ahead(-1.0))
    log.write_clock(ahead(10.0))
    with pytest.raises(ValueError, match="back"):
        log.write_clock(ahead(9.0))
    assert log.now_ns() > time.time_ns() + 9 * SECOND


def test_words_of_a_slower_clock_that_come_late_continue_from_what_it_shows(make_queue: MakeQueue) -> None:
    log = log_of(make_queue())
    log.write_clock(ahead(1.0))
    start = boot_ns()
    shown = log.read_clock().at(start)  # type: ignore[union-attr]
    late = ClockWords(start, shown, rate_ppb=-8_000_000, until_boot_ns=start + 60 * SECOND, bound_ns=5 * MS, source=NTP)
    time.sleep(0.05)
    before = log.now_ns()
    log.write_clock(late)
    assert log.now_ns() > before
    words = log.read_clock()
    assert words is not None
    assert words.boot_ns > start
    too_much_ns = 8 * (words.boot_ns - start) // 1000
    assert too_much_ns >= 400_000
    assert 0 <= words.bound_ns - 5 * MS - too_much_ns < MS // 10


def test_time_never_falls_while_the_clock_is_corrected_many_times(make_queue: MakeQueue) -> None:
    queue = make_queue()
    log, done, falls = log_of(queue), threading.Event(), []

    def watch() -> None:
        last = 0
        while not done.is_set():
            for _ in range(200):
                now = log.kernel.now_ns()
                if now < last:
                    falls.append(last - now)
                last = now

    log.write_clock(ahead(1.0))
    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for each in watchers:
        each.start()
    for number in range(300):
        at = boot_ns()
        shown = log.read_clock().at(at)  # type: ignore[union-attr]
        rate = -83_333_333 if number % 2 else 83_333_333
        log.write_clock(ClockWords(at, shown, rate, 0, at + SECOND, 5 * MS, 0, SYSTEM))
    done.set()
    for each in watchers:
        each.join()
    assert falls == []


def test_another_process_stamps_by_the_same_words_and_they_outlive_their_writer(make_queue: MakeQueue) -> None:
    queue = make_queue()
    child = os.fork()
    if child == 0:
        log_of(queue).write_clock(ahead(7200.0))
        os._exit(0)
    os.waitpid(child, 0)
    queue.put(b"x", feed="a")
    (product,) = queue.read()
    assert product.created_ns > time.time_ns() + 7199 * SECOND
    assert queue.statistics().clock.source == "ntp"
    assert 0.005 <= (queue.statistics().clock.bound_s or 0) < 1
    state = queue.clock()
    assert (state.source, state.situation, state.why) == ("ntp", "holdover", "nobody keeps the clock")


def test_after_a_restart_of_the_machine_the_clock_of_the_system_counts(make_queue: MakeQueue, tmp_path: Path) -> None:
    queue = make_queue()
    assert queue.clock().why == "nobody keeps the clock: it is that of the system"
    assert queue.statistics().clock.bound_s is None
    assert abs(log_of(queue).now_ns() - time.time_ns()) < SECOND


def test_words_that_only_follow_the_system_count_while_somebody_follows_it(make_queue: MakeQueue) -> None:
    queue = make_queue()
    log = log_of(queue)
    log.write_clock(ClockWords(boot_ns(), time.time_ns() + 100 * SECOND))
    assert log.now_ns() > time.time_ns() + 99 * SECOND
    long_ago = boot_ns() - 31 * SECOND
    log.kernel.set_clock(
        boot_ns=long_ago, utc_ns=time.time_ns(), rate_ppb=0, then_ppb=0, until_boot_ns=0, bound_ns=0, drift_ppb=0,
        source=0, offset_ns=0, back=True,
    )  # fmt: skip
    assert abs(log.now_ns() - time.time_ns()) < SECOND

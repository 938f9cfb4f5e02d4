"""A wait is said after a second, then after pauses that grow, once for all attempts."""

import fcntl
import itertools
import logging
import os
import threading
from pathlib import Path

import pytest

from headrace.log.locks import lock_file
from headrace.log.waits import FORGOTTEN_S, PAUSE_S_MAX, Waits
from support.waiting import until


class Seconds:
    """A clock that moves only when the test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def said(waits: Waits, clock: Seconds, seconds: float, sign: object = None) -> list[float]:
    """When it is said during a wait with eight attempts a second."""
    begun, times = clock.now, []
    for _ in range(round(seconds * 8) + 1):
        if waits.is_due("s", sign):
            times.append(clock.now - begun)
        clock.now += 0.125
    return times


def test_it_is_said_after_a_second_and_then_at_growing_intervals() -> None:
    clock = Seconds()
    times = said(Waits(clock), clock, 300)
    assert times[:5] == [1.0, 3.0, 7.0, 15.0, 31.0]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= PAUSE_S_MAX


def test_a_wait_that_gets_somewhere_within_a_second_is_never_said() -> None:
    clock = Seconds()
    waits = Waits(clock)
    assert [said(waits, clock, 0.5, sign) for sign in range(50)] == [[]] * 50


def test_a_put_that_waits_for_a_second_says_so_though_others_get_room() -> None:
    clock = Seconds()
    waits = Waits(clock)
    assert waits.is_due("s", 1, clock.now - 0.9) is False
    clock.now += 0.2
    assert waits.is_due("s", 2, clock.now - 1.1) is True


def test_a_new_wait_begins_after_one_that_is_over() -> None:
    clock = Seconds()
    waits = Waits(clock)
    assert said(waits, clock, 5) == [1.0, 3.0]
    waits.end("s")
    assert said(waits, clock, 5) == [1.0, 3.0]
    clock.now += FORGOTTEN_S + 1
    assert said(waits, clock, 5) == [1.0, 3.0]


def test_a_process_that_waits_for_a_lock_says_who_holds_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "lock"
    file.touch()
    held, wanted = os.open(file, os.O_RDWR), os.open(file, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    with caplog.at_level(logging.WARNING, "headrace"):
        waiter = threading.Thread(target=lock_file, args=(wanted,), daemon=True)
        waiter.start()
        until(lambda: caplog.messages, "the message")
    assert caplog.messages[0].startswith(f"waiting for the lock on {file}")
    os.close(held)
    waiter.join(60)
    assert not waiter.is_alive()
    os.close(wanted)

"""Pool: a fixed number of threads; every wake-up leads to a step, sites take turns, and nothing ends a thread."""

import threading
import time
from collections.abc import Iterator

import pytest

from headrace.guard import FAILURES
from headrace.relay.receive.pool import AT_A_TIME, NAME, Pool
from support.waiting import until

SOON_S = 20.0


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(threads=4)
    yield pool
    pool.close()


def threads(pool: Pool) -> int:
    return len(pool._threads)


def test_a_thousand_tasks_have_the_same_threads(pool: Pool) -> None:
    ran = threading.Semaphore(0)
    tasks = [pool.task(f"s{number}", ran.release) for number in range(1000)]
    for task in tasks:
        task.wake()
    assert all(ran.acquire(timeout=SOON_S) for _ in tasks)
    assert threads(pool) <= 5


def test_a_task_that_is_woken_while_it_runs_runs_again_and_never_twice_at_once(pool: Pool) -> None:
    begun, may_go, running = threading.Semaphore(0), threading.Semaphore(0), [0]

    def step() -> None:
        running[0] += 1
        begun.release()
        assert may_go.acquire(timeout=SOON_S)
        running[0] -= 1

    task = pool.task("a", step)
    task.wake()
    assert begun.acquire(timeout=SOON_S)
    for _ in range(3):
        task.wake()
    assert running == [1]
    may_go.release(2)
    assert begun.acquire(timeout=SOON_S)
    until(lambda: not task.is_running)
    assert not begun.acquire(blocking=False)
    assert running == [0]


def test_a_site_whose_steps_do_not_end_leaves_threads_to_the_others(pool: Pool) -> None:
    may_go, ran = threading.Event(), threading.Event()
    begun = threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        may_go.wait()

    try:
        for task in [pool.task("slow", hang) for _ in range(20)]:
            task.wake()
        assert all(begun.acquire(timeout=SOON_S) for _ in range(AT_A_TIME))
        pool.task("other", ran.set).wake()
        assert ran.wait(SOON_S)
        assert not begun.acquire(blocking=False)
    finally:
        may_go.set()


def test_sites_take_turns() -> None:
    order: list[str] = []
    may_go, begun = threading.Event(), threading.Event()
    pool = Pool(threads=1)
    try:
        pool.task("first", lambda: (begun.set(), may_go.wait())).wake()  # type: ignore[arg-type, return-value]
        assert begun.wait(SOON_S)
        for name in ("busy", "busy", "busy", "quiet"):
            pool.task(name, lambda name=name: order.append(name)).wake()  # type: ignore[misc]
        may_go.set()
        until(lambda: len(order) == 4)
        assert order == ["busy", "quiet", "busy", "busy"]
    finally:
        may_go.set()
        pool.close()


def test_times_wake_tasks_in_their_order(pool: Pool) -> None:
    order: list[str] = []
    now = time.monotonic()
    for name, seconds in (("late", 0.2), ("early", 0.05), ("past", -1.0)):
        pool.task(name, lambda name=name: order.append(name)).wake_at(now + seconds)  # type: ignore[misc]
    until(lambda: len(order) == 3)
    assert order == ["past", "early", "late"]


def test_of_several_times_the_earliest_counts(pool: Pool) -> None:
    ran = threading.Semaphore(0)
    task = pool.task("a", ran.release)
    for seconds in (3600.0, 0.0, 1800.0):
        task.wake_at(time.monotonic() + seconds)
    assert ran.acquire(timeout=SOON_S)
    assert len(pool._times) <= 2


def test_an_error_ends_neither_a_thread_nor_the_task(pool: Pool) -> None:
    FAILURES.forget()
    ran = threading.Semaphore(0)

    def fail() -> None:
        ran.release()
        raise ValueError("unexpected")

    task = pool.task("a", fail)
    for _ in range(10):
        task.wake()
        assert ran.acquire(timeout=SOON_S)
    until(lambda: FAILURES.count(NAME) == 10)
    FAILURES.forget()
    assert all(thread.is_alive() for thread in pool._threads)


def test_nothing_runs_after_close() -> None:
    pool, ran = Pool(), threading.Event()
    pool.close()
    task = pool.task("a", ran.set)
    task.wake()
    task.wake_at(0.0)
    assert not ran.is_set()
    assert not any(thread.is_alive() for thread in pool._threads)

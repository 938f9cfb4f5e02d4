"""FairThreads: principals are served in turn, and none takes all threads or all room."""

import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.link.fair import SHARE_MIN, WORK_MAX, Busy, FairThreads
from support.waiting import until


@pytest.fixture
def make() -> Iterator[Callable[[int], FairThreads]]:
    made: list[FairThreads] = []

    def start(threads: int) -> FairThreads:
        made.append(FairThreads(threads, "test"))
        return made[-1]

    yield start
    for threads in made:
        threads.shutdown(cancel=True)


class Held:
    """Work that does not end before it may."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()

    def __call__(self, _: object) -> None:
        self.begun.release()
        self.may_end.wait()


def test_who_sends_one_call_waits_for_one_call_of_each_other(make: Callable[[int], FairThreads]) -> None:
    threads, held, done = make(1), Held(), list[str]()
    threads.submit("first", held, None)
    held.begun.acquire()
    for number in range(100):
        threads.submit("greedy", done.append, f"greedy {number}")
    for name in ("ann", "bob"):
        threads.submit(name, done.append, name)
    held.may_end.set()
    threads.shutdown()
    assert done[:4] == ["greedy 0", "ann", "bob", "greedy 1"]
    assert len(done) == 102


def test_an_idle_thread_that_was_given_work_already_counts_for_no_other_work(
    make: Callable[[int], FairThreads],
) -> None:
    for _ in range(50):
        threads, held, done = make(2), Held(), threading.Event()
        threads.submit("ann", lambda _: None, None)
        until(lambda threads=threads: not len(threads), "the first thread takes it")
        threads.submit("ann", held, None)
        threads.submit("bob", lambda _, done=done: done.set(), None)
        until(done.is_set, "bob is served while the call of ann hangs")
        held.may_end.set()


def test_one_principal_never_takes_all_threads(make: Callable[[int], FairThreads]) -> None:
    threads, held, done = make(3), Held(), threading.Event()
    for _ in range(10):
        threads.submit("greedy", held, None)
    for _ in range(2):
        held.begun.acquire()
    threads.submit("ann", lambda _: done.set(), None)
    until(done.is_set, "ann is served while the calls of the other hang")
    assert len(threads) == 8
    held.may_end.set()


def test_threads_end_although_the_last_work_is_of_one_principal(make: Callable[[int], FairThreads]) -> None:
    for _ in range(20):
        threads, held = make(3), Held()
        for _ in range(8):
            threads.submit("greedy", held, None)
        for _ in range(2):
            held.begun.acquire()
        held.may_end.set()
        threads.shutdown()
        assert len(threads) == 0


def test_the_work_of_one_principal_leaves_room_for_others(make: Callable[[int], FairThreads]) -> None:
    threads, held = make(1), Held()
    threads.submit("first", held, None)
    held.begun.acquire()
    for _ in range(WORK_MAX):
        threads.check_room("greedy")
        threads.submit("greedy", held, None)
    with pytest.raises(Busy):
        threads.check_room("greedy")
    for number in range(WORK_MAX // SHARE_MIN):
        threads.check_room(f"user {number}")
        threads.submit(f"user {number}", held, None)
    held.may_end.set()


def test_work_that_fails_ends_no_thread(make: Callable[[int], FairThreads], caplog: pytest.LogCaptureFixture) -> None:
    threads, done = make(1), list[int]()
    threads.submit("ann", lambda _: 1 // 0, None)
    threads.submit("ann", done.append, 1)
    threads.shutdown()
    assert done == [1]
    assert "ZeroDivisionError" in caplog.text
    with pytest.raises(Busy):
        threads.submit("ann", done.append, 2)

"""The watchdog: each loop of a site and of its clients fails, is counted, and goes on.

In each test an unexpected error is raised three times within the loop of one thread. Then the same thread must be
alive, must have come back to the same place without an error, and the site must list the failure among its problems.
"""

import heapq
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zenoh

from headrace.errors import DiskFullError
from headrace.guard import FAILURES, PLACES_MAX, Failures, GuardedThread, OnceThread, counted, guarded
from headrace.link.declarations import Declarations
from headrace.link.fair import FairThreads
from headrace.log.flush import Flusher
from headrace.payload.fragments.listening import Listener
from headrace.pipeline.actions.programs import Programs
from headrace.relay.messages.query import Identify, IdentifyReply, Unreachable
from headrace.relay.quench import Quench
from headrace.relay.receive.failover import Failover
from headrace.relay.receive.live_buffer import LiveBuffer
from headrace.relay.receive.pool import Pool
from headrace.relay.receive.receiver import Receiver, Request
from headrace.relay.serve import Server
from headrace.relay.site_client import SiteClient
from headrace.relay.stream import Stream
from headrace.remote.client.queue import RemoteQueue
from headrace.remote.server.clients import Clients
from headrace.remote.server.gets import WaitingGets
from headrace.remote.server.membership import Membership
from headrace.remote.server.reads import WaitingReads
from headrace.remote.server.seat_waits import WaitingSeats
from headrace.selection import Selection
from headrace.site import logs
from headrace.site.site import Site
from headrace.site.watch import Watch
from headrace.station import Consumer
from support.fleet import Fabric
from support.waiting import until

TIMES = 3
OTHERWISE = {  # why a name of a thread is not in LOOPS
    "headrace-clock": "it catches everything, and says so in the problem `clock`",
    "headrace-acks": "it catches everything, and the program that asks the pacer gets it",
    "headrace-balancer": "it catches everything, and counts it in its statistics",
    "headrace-status": "it needs Spark; its loop is that of headrace-progress",
    "headrace-door": "tests/link/test_lockout.py",
    **dict.fromkeys(map("headrace-{}".format, ("call", "consumer", "function", "measure", "read", "share")), "executors"),
    "headrace-deadline": "below", "headrace-calls": "below", "headrace-receipts": "below", "headrace-logs": "below",
    "headrace-pipe-idle": "below",
}  # fmt: skip


class Fault:
    """A method that fails `TIMES` times, by whatever thread it is called, and then does what it should."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self._real, self.failed, self.passed = real, 0, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.failed < TIMES:
            self.failed += 1
            raise RecursionError("nobody expected this")
        result = self._real(*args, **kwargs)
        self.passed += 1
        return result

    def __get__(self, owner: Any, kind: type) -> Any:
        return lambda *args, **kwargs: self(owner, *args, **kwargs)


@dataclass(frozen=True)
class World:
    """Two sites in this process, `near` and `far`, and a program with the queue of `near`."""

    site: Site
    far: Site
    session: zenoh.Session
    program: RemoteQueue


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    fabric = Fabric(folder)
    fabric.add("far")
    fabric.add("spare")
    request = Request("r", Selection.parse("wx/**"), "oldest", ("far", "spare"), redundancy="failover")
    queue = fabric.add("near", request, near=("far", "spare"))
    endpoint = fabric._endpoints["near"]
    import headrace

    program = headrace.connect(f"{endpoint}?site=near", patience=10)
    queue.put(b"1", feed="wx/a")
    consumer = queue.station("held").attach()  # it beats
    queue.channel("c", "wx/**", slices=8)
    queue.share("c")  # a group whose seats are watched
    until(lambda: "live" in {each.state for each in fabric.sites["near"].describe().upstreams}, "near receives")
    try:
        yield World(fabric.sites["near"], fabric.sites["far"], fabric.sessions["near"], program)  # type: ignore[arg-type]
    finally:
        consumer.detach()
        program.close()
        fabric.close()
        FAILURES.forget()


def ask(world: World) -> None:
    with suppress(Unreachable):
        SiteClient(world.session, "far").query(Identify(), IdentifyReply, 0.2)


def get(world: World) -> None:
    with world.program.station("s", "wx/none").attach() as consumer:
        consumer.get(timeout=0.05)


def wake_seats(world: World) -> None:
    seats = world.site._remote._seats
    with seats._lock:
        seats._start()
    seats._is_used.set()


def nothing(world: World) -> None:
    """The loop comes by itself."""


Act = Callable[[World], object]
LOOPS: dict[str, tuple[Any, str, Act]] = {  # what fails, and what makes the thread come there
    "headrace-flush": (Flusher, "_flush", nothing),
    "headrace-heartbeat": (Consumer, "_beat", nothing),
    "headrace-declare": (Declarations, "renew", lambda world: world.site._declarations._due.set()),
    "headrace-quench": (Quench, "_look_once", nothing),
    "headrace-receive": (LiveBuffer, "take", nothing),
    "headrace-receive-times": (Pool, "_wake_due", nothing),
    "headrace-failover": (Failover, "look", nothing),
    "headrace-progress": (Receiver, "_save", nothing),
    "headrace-send": (Stream, "step", lambda world: world.site._queue.put(b"x", feed="wx/b")),
    "headrace-beat": (Stream, "beat", nothing),
    "headrace-log": (Server, "_reply", ask),
    "headrace-seats": (WaitingSeats, "_turn", wake_seats),
    "headrace-waiting": (WaitingReads, "_due", lambda world: world.site._remote._waiting._is_used.set()),
    "headrace-clients": (Clients, "_forget", nothing),
    "headrace-get": (WaitingGets, "_look", get),
    "headrace-members": (Membership, "_turn", lambda world: world.site._remote._membership._wake.set()),
    "headrace-watch": (Watch, "note", nothing),
}


def failed(name: str) -> int:
    return sum(failure.count for failure in FAILURES.all() if failure.where.startswith(name))


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_of_a_site_fails_is_counted_and_goes_on(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.relay.receive.driver._RESTART_S", 0.0)
    owner, method, act = LOOPS[name]
    before = {thread for thread in threading.enumerate() if thread.name.startswith(name)}
    fault = Fault(getattr(owner, method))
    monkeypatch.setattr(owner, method, fault)

    def has_passed() -> bool:
        act(world)
        return bool(fault.passed)

    until(has_passed, lambda: str(FAILURES.all()))
    assert failed(name) >= TIMES
    assert (before and all(thread.is_alive() for thread in before)) or name == "headrace-seats"
    told = [problem for problem in world.site.problems() if problem.kind == "thread"]
    assert any(problem.subject.startswith(name) and "RecursionError" in problem.text for problem in told)


def test_the_thread_of_deadlines_survives_a_get_that_cannot_be_looked_at(world: World) -> None:
    gets = world.site._remote._gets
    for _ in range(TIMES):
        with gets._times_changed:
            heapq.heappush(gets._times, (0.0, -next(gets._ticks), lambda: SimpleNamespace()))  # type: ignore[misc]
            gets._times_changed.notify()
    until(lambda: failed("headrace-deadline") == TIMES)
    assert any(thread.name == "headrace-deadline" and thread.is_alive() for thread in gets._own_threads)


def test_the_thread_that_sends_for_tasks_survives(world: World) -> None:
    sender = world.program._connection.sender
    assert sender.submit(lambda: 1).result(10) == 1

    def fail() -> None:
        raise RecursionError

    for _ in range(TIMES):
        sender._acts.put(fail)
    assert sender.submit(lambda: 2).result(10) == 2
    assert failed("headrace-calls") == TIMES


def test_the_thread_of_receipts_survives_what_is_no_error_of_ours() -> None:
    class Follower:
        turns = 0

        def __iter__(self) -> Iterator[Any]:
            self.turns += 1
            if self.turns <= TIMES:
                raise RecursionError
            return iter(())

        def stop(self) -> None: ...

    follower, listener = Follower(), Listener()
    listener.start(follower)
    until(lambda: follower.turns == TIMES + 1)
    listener.stop()
    assert failed("headrace-receipts") == TIMES


def test_the_threads_that_execute_calls_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, done = FairThreads(1, "fair"), threading.Event()
    monkeypatch.setattr(threads, "_next", Fault(threads._next))
    threads.submit("alice", lambda _: 1 // 0, None)
    threads.submit("alice", lambda _: done.set(), None)
    assert done.wait(60)
    threads.shutdown()
    assert (failed("fair_0"), failed("fair")) == (TIMES, TIMES + 1)


def test_the_thread_that_ends_idle_programs_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipeline.actions.programs._IDLE_POLL_S", 0.01)
    fault = Fault(Programs._least_used)
    monkeypatch.setattr(Programs, "_least_used", fault)
    programs = Programs()
    line: Any = type("Line", (), {"used": 0.0, "idle_s": 1e12})()
    programs.note_use(line, line)
    until(lambda: fault.passed)
    programs._lines.clear()
    programs.close()
    assert failed("headrace-pipe-idle") == TIMES


def test_the_thread_that_sums_up_the_log_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_SUMMARY_S", 0.01)
    fault = Fault(logs._summarise)
    monkeypatch.setattr(logs, "_summarise", fault)
    root = logging.getLogger("headrace")
    before = (root.handlers, root.level, root.propagate)
    handler = logs.begin_logs("info", tmp_path / "log", 100.0)
    try:
        until(lambda: fault.passed)
        assert failed("headrace-logs") == TIMES
    finally:
        root.handlers, root.level, root.propagate = before
        handler.close()


# --- the guard itself -------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    FAILURES.forget()
    yield
    FAILURES.forget()


def test_a_thread_that_fails_again_and_again_pauses_longer_and_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def fail() -> None:
        raise ValueError("again")

    thread = GuardedThread(fail, "t", until=lambda: len(slept) == 9)
    monkeypatch.setattr(thread, "_pause", slept.append)
    thread.run()
    assert slept == sorted(slept)
    assert (slept[0], slept[-1]) == (0.1, 5.0)
    assert failed("t") == 10


def test_a_thread_that_is_to_end_does_not_begin_again() -> None:
    def fail() -> None:
        raise ValueError

    thread = GuardedThread(fail, "t", until=lambda: True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_what_ends_a_program_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = GuardedThread(lambda: (_ for _ in ()).throw(SystemExit), "t", until=lambda: False)
    with pytest.raises(SystemExit):
        thread.run()
    assert FAILURES.all() == ()


def test_a_condition_that_a_loop_expects_is_a_problem_and_no_failure(world: World) -> None:
    """A full disk is what it was: the problem names it, and the thread has nothing to outlive."""
    flusher = world.site._queue._log._flusher  # type: ignore[attr-defined]
    assert flusher is not None
    flusher._note(DiskFullError("the disk is full", "free some space"))
    assert {problem.kind for problem in world.site.problems()} >= {"disk"}
    assert failed("headrace-flush") == 0


def test_an_errand_and_a_callback_count_what_nobody_caught() -> None:
    def fail(*_: object) -> None:
        raise ValueError("\x1b[31m\u202ered")

    thread = OnceThread(fail, "errand", args=(1,))
    thread.start()
    thread.join(10)
    guarded(fail)(None)
    with counted("piece"):
        fail()
    told = {failure.where: failure.latest for failure in FAILURES.all()}
    assert set(told) == {"errand", "piece", f"callback {fail.__qualname__}"}
    assert set(told.values()) == {"\\x1b[31m\\u202ered"}


def test_the_counts_are_bounded_and_the_log_is_rare(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures()
    for _ in range(1000):
        failures.note("t", ValueError("x"))
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "t failed once", "t failed 10 times", "t failed 100 times", "t failed 1,000 times",
    ]  # fmt: skip
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False, False]
    for number in range(2 * PLACES_MAX):
        failures.note(f"t{number}", ValueError("x"))
    assert len(failures.all()) == PLACES_MAX + 1
    assert sum(failure.count for failure in failures.all()) == 1000 + 2 * PLACES_MAX

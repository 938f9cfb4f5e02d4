"""Guard: threads and callbacks that outlive every exception, and the counts of what they outlived.

    GuardedThread(self._run, "headrace-quench", until=self._stopped.is_set).start()    # a loop
    OnceThread(meet, "headrace-meet").start()                                          # something that ends by itself
    session.declare_subscriber(key, guarded(self._see))                                # on a thread of Zenoh's
    with counted("headrace-beat"): stream.beat()                                       # one of many in a loop

What a thread expects, it handles itself: a full disk, a site that is away, a queue that was moved are problems of the
site, which it names and which heal. What nobody expects arrives here. It is counted by thread and cause, logged with
its traceback the first time and then rarely, and listed among the problems of the site (`headrace sites`). Then the
thread goes on: a GuardedThread calls its target again, after a pause that grows while it fails again and again, so that
it never spins. So a target must be a loop that can begin again at any time; what it works on is `self`'s, not its own.

An exception that ends the program, as SystemExit does, is left alone, and so is every exception of the main thread: a
site that cannot start, or cannot keep its configuration, ends with its error as before.

A process has one set of threads, as it has one log; hence FAILURES, which is the only thing here that lasts. A test
looks for threads and callbacks in the source that do not come through here.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec

from headrace.text import visible

PLACES_MAX = 256  # thread and cause; further ones are counted together
ELSEWHERE = "other threads"
_TEXT_MAX = 300
_PAUSE_S, _PAUSE_S_MAX = 0.05, 5.0
_STEADY_S = 10.0  # a thread that has run for so long begins with the shortest pause again
_STEP_S = 0.05

log = logging.getLogger("headrace.threads")
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, slots=True)
class Failure:
    """What a thread or callback outlived: how often, and the latest one; `at` in monotonic seconds."""

    where: str
    cause: str
    count: int
    latest: str
    at: float

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count:,} times"
        return f"{self.where} failed {times}: {self.cause}: {self.latest}"


class Failures:
    """Counts by thread and cause. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str], Failure] = {}

    def note(self, where: str, error: BaseException) -> None:
        """Count an error that nobody expected; it is logged the first time, and then at 10, 100, 1000 times."""
        cause = type(error).__name__
        with self._lock:
            key = (where, cause)
            if key not in self._found and len(self._found) >= PLACES_MAX:
                key = (ELSEWHERE, cause if (ELSEWHERE, cause) in self._found else "")
            before = self._found.get(key)
            count = 1 if before is None else before.count + 1
            latest = visible(str(error), _TEXT_MAX)
            failure = self._found[key] = Failure(*key, count, latest, time.monotonic())
        if str(count).strip("0") == "1":
            log.error("%s; it goes on", failure, exc_info=error if count == 1 else None)

    def forget(self) -> None:
        """For tests."""
        with self._lock:
            self._found.clear()

    def all(self) -> tuple[Failure, ...]:
        """The latest first."""
        with self._lock:
            return tuple(sorted(self._found.values(), key=lambda failure: -failure.at))

    def count(self, where: str) -> int:
        """Of one thread or callback, all causes together."""
        return sum(failure.count for failure in self.all() if failure.where == where)


FAILURES = Failures()


class GuardedThread(threading.Thread):
    """Calls `target` until it returns; after an exception, again. `until` says that it is about to end."""

    def __init__(
        self, target: Callable[..., object], name: str, *, until: Callable[[], bool], args: tuple[Any, ...] = (),
        daemon: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name=name, daemon=daemon)
        self._act, self._until, self._act_args = target, until, args

    def run(self) -> None:
        try:
            self._run()
        finally:
            del self._act, self._act_args, self._until  # what they refer to may end before this object does

    def _run(self) -> None:
        pause_s = _PAUSE_S
        while True:
            begun = time.monotonic()
            try:
                self._act(*self._act_args)
                return
            except Exception as error:  # noqa: BLE001 - the thread goes on, whatever it was
                FAILURES.note(self.name, error)
            if self._until():
                return
            pause_s = _PAUSE_S if time.monotonic() - begun > _STEADY_S else min(2 * pause_s, _PAUSE_S_MAX)
            self._pause(pause_s)

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._until() and time.monotonic() < end:
            time.sleep(_STEP_S)


class OnceThread(threading.Thread):
    """Calls `target` once. Its errors belong to somebody who waits; what nobody caught is counted."""

    def __init__(
        self, target: Callable[..., object], name: str, *, args: tuple[Any, ...] = (), daemon: bool = True
    ) -> None:
        super().__init__(name=name, daemon=daemon)
        self._act, self._act_args = target, args

    def run(self) -> None:
        act, args = self._act, self._act_args
        del self._act, self._act_args  # what they refer to may end before this object does
        with counted(self.name):
            act(*args)


@contextmanager
def counted(where: str) -> Iterator[None]:
    """Outlive one piece of work: what it raises is counted, and the caller goes on behind it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it was, the others must be served
        FAILURES.note(where, error)


def guarded(callback: Callable[Arguments, object]) -> Callable[Arguments, None]:
    """A callback for a thread of Zenoh's that raises nothing; its name says in the counts where it was."""
    where = f"callback {_name_of(callback)}"

    @wraps(callback)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            callback(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - Zenoh would only print it
            FAILURES.note(where, error)

    return call


def _name_of(act: Callable[..., object]) -> str:
    return getattr(act, "__qualname__", type(act).__name__)

"""MemberStream: the members of a queue as events, for `for` and `async for`; made by `Queue.members`.

It begins with the members that are there (`joined`, reason `present`) and goes on with what changes. It looks when the
program asks for the next event, and compares what it sees with what it has told. So a program that is slow misses no
difference, and nothing piles up for it.

A Source looks: here at the files of the queue, once in a while; for a remote queue, at what the site replies. A task of
an event loop waits in a thread here, and without one for a remote queue.
"""

import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Protocol

from headrace.errors import MemberAbsentError, OptionError
from headrace.log.in_thread import in_thread
from headrace.log.log import Log
from headrace.queue.members import ANY, Look, Member, MemberEvent, Role, View, Wanted, check_role
from headrace.queue.programs import Programs
from headrace.units import format_age

LOOK_S = 0.5  # between two looks at the files


class Source(Protocol):
    """Where looks come from."""

    def look(self, deadline: float | None) -> Look | None:
        """What has changed; None if nothing had by the deadline, or `stop` was called. It may return early."""
        ...

    async def look_async(self, deadline: float | None) -> Look | None:
        """As `look`, while the event loop goes on."""
        ...

    def stop(self) -> None:
        """End a look that waits, from another thread."""
        ...


class MemberStream:
    """Events without end, unless there is a `timeout`: then until none has come for so long."""

    def __init__(self, source: Source, role: str | None, timeout_s: float | None) -> None:
        self._source, self._timeout_s = source, timeout_s
        self._role: Role | None = None if role is None else check_role(role)
        self._view = View()
        self._events: deque[MemberEvent] = deque()
        self._stopped = False

    @property
    def here(self) -> list[Member]:
        """The members that are there, as the events so far have told, and those that are waiting to be read."""
        return [member for member in self._view.here.values() if self._role in (None, member.role)]

    def stop(self) -> None:
        """End the iteration from another thread; it wakes up at once."""
        self._stopped = True
        self._source.stop()

    def next_until(self, deadline: float | None) -> MemberEvent | None:
        """The next event; None if there is none by the deadline (of the monotonic clock), or after `stop`."""
        while not self._events and not self._stopped:
            self._take(self._source.look(deadline))
            if _is_over(deadline):
                break
        return self._pop()

    async def next_until_async(self, deadline: float | None) -> MemberEvent | None:
        """As `next_until`, while the event loop goes on."""
        while not self._events and not self._stopped:
            self._take(await self._source.look_async(deadline))
            if _is_over(deadline):
                break
        return self._pop()

    def _take(self, look: Look | None) -> None:
        if look is not None:
            self._events += [event for event in self._view.see(look) if self._role in (None, event.role)]

    def _pop(self) -> MemberEvent | None:
        return self._events.popleft() if self._events and not self._stopped else None

    def _deadline(self) -> float | None:
        return None if self._timeout_s is None else time.monotonic() + self._timeout_s

    def __iter__(self) -> Iterator[MemberEvent]:
        """The stream itself: after a `break`, another loop goes on with the next event."""
        return self

    def __next__(self) -> MemberEvent:
        event = self.next_until(self._deadline())
        if event is None:
            raise StopIteration
        return event

    async def __aiter__(self) -> AsyncIterator[MemberEvent]:
        """As `__iter__`, for an event loop; a `break` stops the stream."""
        try:
            while (event := await self.next_until_async(self._deadline())) is not None:
                yield event
        finally:
            self.stop()

    async def __aenter__(self) -> "MemberStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def wait_for(stream: MemberStream, wanted: Wanted, timeout_s: float | None) -> Member:
    """The first member that matches; MemberAbsentError if there is none within the timeout."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while (event := stream.next_until(deadline)) is not None:
        if event.kind != "left" and wanted.matches(event.member):
            return event.member
    raise _absent(wanted, timeout_s)


async def wait_for_async(stream: MemberStream, wanted: Wanted, timeout_s: float | None) -> Member:
    """As `wait_for`, while the event loop goes on."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    try:
        while (event := await stream.next_until_async(deadline)) is not None:
            if event.kind != "left" and wanted.matches(event.member):
                return event.member
        raise _absent(wanted, timeout_s)
    finally:
        stream.stop()  # also if the task was cancelled


def _absent(wanted: Wanted, timeout_s: float | None) -> MemberAbsentError:
    within = "" if timeout_s is None else f" within {format_age(timeout_s)}"
    named = "" if wanted.name == ANY else f" called {wanted.name!r}"
    return MemberAbsentError(
        f"there is no {wanted.role}{named}, and none joined{within}", "start it, check its name, or wait for longer"
    )


class LocalSource:
    """Looks at the files of a queue on this machine: suppliers and consumers. Only its site knows sites and clients."""

    def __init__(self, log: Log, programs: Programs) -> None:
        self._log, self._programs = log, programs
        self._before: list[Member] | None = None
        self._stopped = threading.Event()

    def look(self, deadline: float | None) -> Look | None:
        if self._before is not None:
            left_s = LOOK_S if deadline is None else min(LOOK_S, deadline - time.monotonic())
            if left_s <= 0 or self._stopped.wait(left_s):
                return None
        self._log.check_open()
        now, before = self._programs.look(), self._before or []
        here = {member.key for member in now}
        self._before = now
        return Look(now, [self._programs.end_of(member) for member in before if member.key not in here])

    async def look_async(self, deadline: float | None) -> Look | None:
        return await in_thread(lambda: self.look(deadline), "members-look")

    def stop(self) -> None:
        self._stopped.set()


def check_local_role(role: str | None) -> None:
    """OptionError if members of this role are not seen from the files of a queue."""
    if role in ("site", "client"):
        raise OptionError(
            f"a queue that is opened by its directory does not know its {role}s",
            "connect to its site: headrace.connect('tcp/host:7447'), or watch suppliers and consumers",
        )

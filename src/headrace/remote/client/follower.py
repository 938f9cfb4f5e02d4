"""RemoteFollower: batches of a site's queue as they come; made by `RemoteQueue.follow`.

It asks for what lies at its position, and the site answers when there is something, in the order of its queue. While
one batch is worked on, the question for the next one stands already. So a product is on its way as soon as it is put,
a slow reader holds up nobody, and no more than one batch waits here. An answer that does not arrive is asked for again
at the same position: whatever happens to the connection, nothing is lost and nothing comes twice.
"""

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import OptionError, ProductDamagedError
from headrace.log.follow import iterate_async
from headrace.log.log import Wanted
from headrace.product.batch import Batch
from headrace.remote.client.arguments import selection_text
from headrace.remote.client.connection import Connection, PendingReply, RawReply
from headrace.remote.protocol.calls import PAGE_BYTES_MAX, PAGE_PRODUCTS_MAX, WAIT_S_MAX, Next
from headrace.remote.protocol.products import RemoteBatch, batch_of
from headrace.remote.protocol.replies import Products
from headrace.selection import Selection
from headrace.units import parse_size

if TYPE_CHECKING:
    from headrace.remote.client.queue import RemoteQueue


@dataclass(frozen=True, slots=True)
class Terms:
    """What is read: by which selection, and how much at a time."""

    selection: str
    limit: int
    bytes_limit: int
    counts: bool = False  # it has `every`
    stop: int = 0  # nothing from here on; 0: no end

    @classmethod
    def of(cls, selection: Wanted, limit: int, bytes_limit: int | str, stop: int = 0) -> "Terms":
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise OptionError(f"limit {limit!r} is not a positive number", "give how many products you want at most")
        wanted = Selection.of(selection)
        size = max(1, parse_size(bytes_limit, "bytes_limit"))
        return cls(selection_text(wanted), limit, size, wanted.every > 1, stop)

    def question(self, position: int | str, follower: int, wait_s: float = 0.0) -> Next:
        limit, bytes_limit = min(self.limit, PAGE_PRODUCTS_MAX), min(self.bytes_limit, PAGE_BYTES_MAX)
        return Next(self.selection, position, limit, bytes_limit, wait_s, self.stop, follower)


class _Standing:
    """A question whose answer has not been looked at."""

    __slots__ = ("_came", "_has_come", "asked", "position", "wait_s")

    def __init__(self, position: int, wait_s: float, asked: PendingReply) -> None:
        self.position, self.wait_s, self.asked = position, wait_s, asked
        self._came: RawReply | None = None
        self._has_come = False

    def take(self) -> RawReply | None:
        if not self._has_come:
            self._came, self._has_come = self.asked.take(), True
        return self._came

    @property
    def is_ready(self) -> bool:
        """Its answer is here, or will be at once."""
        return self._has_come or not self.wait_s


class RemoteFollower:
    """A read without end. It implements `AnyFollower`."""

    def __init__(
        self, queue: "RemoteQueue", connection: Connection, terms: Terms, start: int, timeout_s: float | None
    ) -> None:
        self._queue = queue  # which closes the connection when everybody has forgotten it
        self._connection, self._terms, self._timeout_s = connection, terms, timeout_s
        self._number = connection.new_follower() if terms.counts else 0
        self._standing: _Standing | None = None
        self._stopped = False
        self.position = start

    def stop(self) -> None:
        self._stopped = True
        standing = self._standing
        if standing is not None:
            standing.asked.cancel()

    # --- one batch --------------------------------------------------------------------------------

    def next_nowait(self) -> Batch | None:
        """The next batch if there is one at the site."""
        self._connection.check_open()
        standing = self._standing
        if standing is not None and (not standing.is_ready or standing.position != self.position):
            standing.asked.cancel()
            self._standing = standing = None
        came = self._take(standing) if standing is not None else None
        if came is None:
            came = self._connection.ask(self._terms.question(self.position, self._number), Products)
        batch = self._move(*came)
        if batch is not None and self.position < came[0].head:
            self._stand(0.0)
        return batch

    def wait(self, timeout_s: float) -> None:
        """Sleep until there is something to look at, or somebody says `stop`."""
        standing = self._standing
        if standing is None or standing.position != self.position:
            standing = self._stand(min(timeout_s, WAIT_S_MAX))
        standing.take()

    def __next__(self) -> Batch:
        deadline = self._deadline()
        turn = 0
        while not self._stopped:
            standing, is_new = self._question(deadline)
            came = self._take(standing)
            if came is not None and (batch := self._move(*came)) is not None:
                self._ask_ahead(came[0])
                return batch
            if self._stopped or (is_new and deadline is not None and time.monotonic() >= deadline):
                if came is None and not self._stopped:
                    raise self._connection.unreachable()
                break
            if came is None:
                self._connection.pause(turn)
            turn = turn + 1 if came is None else 0
        raise StopIteration

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __aiter__(self) -> AsyncIterator[Batch]:
        """As `__iter__`; the waiting is in a thread of its own, which ends with the iteration."""
        return iterate_async(self)

    def _deadline(self) -> float | None:
        return None if self._timeout_s is None else time.monotonic() + self._timeout_s

    def _question(self, deadline: float | None) -> tuple[_Standing, bool]:
        """The question that stands at our position, or a new one: only that one has looked since we were called."""
        standing = self._standing
        if standing is not None and standing.position == self.position:
            return standing, False
        if standing is not None:
            standing.asked.cancel()
        return self._stand(self._wait_s(deadline)), True

    def _ask_ahead(self, answer: Products) -> None:
        """For what comes next, unless there is nothing and nobody would wait for it."""
        wait_s = self._wait_s(None)
        if wait_s or answer.next < answer.head:
            self._stand(wait_s)

    def _wait_s(self, deadline: float | None) -> float:
        left = self._timeout_s if deadline is None else max(0.0, deadline - time.monotonic())
        return WAIT_S_MAX if left is None else min(left, WAIT_S_MAX)

    def _stand(self, wait_s: float) -> _Standing:
        question = self._terms.question(self.position, self._number, wait_s)
        standing = self._standing = _Standing(self.position, wait_s, self._connection.stand(question, wait_s=wait_s))
        if self._stopped:  # before there was anything to cancel
            standing.asked.cancel()
        return standing

    def _take(self, standing: _Standing) -> tuple[Products, bytes] | None:
        came = standing.take()
        self._standing = None
        return None if came is None and self._stopped else self._connection.read(came, Products)

    def _move(self, answer: Products, records: bytes) -> RemoteBatch | None:
        batch = batch_of(answer, records, self._connection.names)
        self.position = batch.next
        return batch if len(batch) or batch.lost else None


def read_at_once(connection: Connection, terms: Terms, start: int | str) -> RemoteBatch:
    """All that the terms ask for in one batch, however many answers it takes."""
    number = connection.new_follower() if terms.counts else 0
    first, records = connection.ask(terms.question(start, number), Products)
    count, size, parts, answers, end = first.count, first.payload_bytes, [records], [first], first.head
    while answers[-1].next < end and count < terms.limit and size < terms.bytes_limit:
        rest = replace(terms, limit=terms.limit - count, bytes_limit=terms.bytes_limit - size)
        try:
            answer, records = connection.ask(rest.question(answers[-1].next, number), Products)
        except ProductDamagedError:  # the next read will tell
            break
        if answer.lost_last:
            break
        count, size = count + answer.count, size + answer.payload_bytes
        parts.append(records)
        answers.append(answer)
    return batch_of(_joined(answers) if len(answers) > 1 else first, b"".join(parts), connection.names)


def _joined(answers: list[Products]) -> Products:
    scanned, filtered, deleted, damaged, expired = (
        sum(counts) for counts in zip(*(answer.passed_over for answer in answers), strict=True)
    )
    return Products(
        answers[-1].next, answers[-1].head, sum(answer.payload_bytes for answer in answers),
        b"".join(answer.places for answer in answers), answers[0].lost_first, answers[0].lost_last,
        (scanned, filtered, deleted, damaged, expired),
    )  # fmt: skip

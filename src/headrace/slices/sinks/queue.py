"""QueueSink: results as products of a feed, in a queue on this machine or at another site.

A queue has no place for positions, and needs none: each result becomes a product with a signature that is computed from
the id of the group, the sequence of the product that it came of, and its number among the results of that product. If
the work is repeated, by the same node or by another one, the queue recognises the signature and drops the repetition.
There is no fence either. A node that lost its slices and does not know it yet stores the same products as the new
owner; whichever comes first counts. This presumes that the work returns the same number of results for a product each
time; if their content differs, the first one stays.

The queue recognises a signature as long as it holds the first copy. So its retention is the window: if the repetition
comes after the first copy was evicted, there are two. A repetition comes when a slice has its next owner after a crash,
or when a node that was stopped goes on. Give the queue a size and an age that exceed the longest time that a group may
stand still.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple, NoReturn

from blake3 import blake3

from headrace.errors import (
    BlockedError,
    ChannelEndedError,
    DiskFullError,
    InvalidError,
    OptionError,
    RejectedError,
    SinkError,
    SinkRefusedError,
    SinkUnavailableError,
    SiteUnreachableError,
)
from headrace.log.append import in_halves
from headrace.log.seams import Timeout
from headrace.product.feed import check_feed
from headrace.product.put import expiry_of, time_of
from headrace.queue import AnyQueue
from headrace.remote import connect
from headrace.share.interface import Marks, Positions
from headrace.slices.sinks.fencing import Counter, check_group
from headrace.slices.sinks.interface import Result, SinkStatistics, values_of

FACTS = frozenset(["payload", "feed", "ident", "created", "priority", "expiry", "properties", "slice"])
_PART = 1000  # products in one put
_PART_BYTES = 8 << 20
_TEXT = (str, bytes, bytearray, memoryview)
_READ: dict[str, Callable[[Any], Any]] = {  # into the form that columns have
    "payload": lambda payload: payload.encode() if isinstance(payload, str) else payload,
    "created": lambda when: time_of(when, "created"),
    "expiry": lambda when: expiry_of(when, 0),
}
_TRANSIENT = (BlockedError, RejectedError, DiskFullError, SiteUnreachableError)


class _Draft(NamedTuple):
    """One product to put."""

    result: Result
    signature: bytes
    facts: Mapping[str, Any]


class QueueSink:
    """A result is a payload for `feed`, as bytes or text, or a mapping of a payload and other facts of a product."""

    def __init__(self, queue: AnyQueue | str | os.PathLike[str], feed: str | None = None, *, timeout: Timeout = "30s"):
        """`queue` is an open queue, or what `headrace.connect` takes. OptionError: an argument is invalid."""
        if feed is not None:
            check_feed(feed)
        self._is_own = isinstance(queue, str | os.PathLike)
        self._queue: AnyQueue = connect(queue) if isinstance(queue, str | os.PathLike) else queue
        self._feed, self._timeout, self._counter = feed, timeout, Counter()
        if self._queue.config.dedup == "none":
            path = self._queue.path
            self.close()
            raise OptionError(
                f"{path} keeps duplicates, so it would hold results twice",
                "use a queue with dedup, such as the default",
            )

    def claim(self, group: str, marks: Marks) -> Positions:
        """The given positions: this sink has none of its own."""
        check_group(group)
        self._counter.add(claims=1)
        return marks.positions.copy()

    def store(self, group: str, results: Sequence[Result], marks: Marks) -> None:
        """Put the results in parts; after an error some of them are stored, and the repetition drops these."""
        drafts = self._drafts(check_group(group), results)
        stored = 0
        with self._explained():
            for _, alike in groupby(drafts, lambda draft: tuple(draft.facts)):
                for part in _parts(list(alike)):
                    stored += self._put(part)
        self._counter.add(stores=1, results=stored, repeated=len(drafts) - stored)

    def statistics(self) -> SinkStatistics:
        return self._counter.statistics

    def close(self) -> None:
        """Close the queue, if this object has opened it."""
        if self._is_own:
            self._queue.close()

    def _drafts(self, group: str, results: Sequence[Result]) -> list[_Draft]:
        seed, drafts = blake3(b"headrace sink\0" + group.encode() + b"\0"), []
        for result in results:
            for index, value in enumerate(values_of(result)):
                made = seed.copy()
                made.update(b"%d/%d" % (result.sequence, index))
                drafts.append(_Draft(result, made.digest(16), self._facts(result, value)))
        return drafts

    def _facts(self, result: Result, value: Any) -> Mapping[str, Any]:
        facts = {"payload": value} if isinstance(value, _TEXT) else value
        if not isinstance(facts, Mapping) or "payload" not in facts:
            raise self._refused(result, f"{value!r:.100} is not a payload", "return bytes, text, or {'payload': …}")
        if not facts.keys() <= FACTS:
            unknown = min(map(str, facts.keys() - FACTS))
            raise self._refused(result, f"fact {unknown!r} is unknown", f"facts are {', '.join(sorted(FACTS))}")
        if "feed" not in facts and self._feed is None:
            raise self._refused(result, "it has no feed", "give the sink a feed, or each result one")
        made = {"feed": self._feed, "ident": "", **facts}
        try:
            for name, read in _READ.items():
                if name in made:
                    made[name] = read(made[name])
        except (InvalidError, UnicodeEncodeError) as error:
            raise self._refused(result, str(error), "change what the work returns") from error
        return made

    def _put(self, drafts: Sequence[_Draft]) -> int:
        """Put products with the same facts; how many were new. SinkRefusedError names the one at fault."""
        stored = 0

        def put(start: int, stop: int) -> None:
            nonlocal stored
            part = drafts[start:stop]
            columns: dict[str, Any] = {name: [draft.facts[name] for draft in part] for name in drafts[0].facts}
            signatures = [draft.signature for draft in part]
            payloads = columns.pop("payload")
            stored += self._queue.put_many(payloads, timeout=self._timeout, signature=signatures, **columns).stored

        def refuse(place: int, error: InvalidError) -> NoReturn:
            raise self._refused(drafts[place].result, error.problem, error.hint) from error

        in_halves(len(drafts), put, refuse)
        return stored

    def _refused(self, result: Result, problem: str, hint: str) -> SinkRefusedError:
        self._counter.add(refused=1)
        return SinkRefusedError(
            f"{self._queue.path} refuses the result of product {result.sequence}: {problem}", hint,
            result.slice, result.sequence,
        )  # fmt: skip

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except _TRANSIENT as error:
            raise SinkUnavailableError(error.problem, error.hint) from error
        except ChannelEndedError as error:
            raise SinkError(error.problem, error.hint) from error


def _parts(drafts: list[_Draft]) -> Iterator[list[_Draft]]:
    """In order, each small beside a queue."""
    part, size = list[_Draft](), 0
    for draft in drafts:
        payload = draft.facts["payload"]
        payload_bytes = memoryview(payload).nbytes if isinstance(payload, bytes | bytearray | memoryview) else 0
        if part and (len(part) == _PART or size + payload_bytes > _PART_BYTES):
            yield part
            part, size = [], 0
        part.append(draft)
        size += payload_bytes
    if part:
        yield part

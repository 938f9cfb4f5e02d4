"""Putting: fragments and manifests of files as products of a feed.

    Putting(…, at_once=1)    a put is made here and now: for a queue in this machine
    Putting(…, at_once=2)    for a queue at a site: one batch travels while the site stores the one before

Fragments that are put at the same time may be stored in any order, which receivers do not mind. A manifest that ends a
transfer must be behind all of them: `drain` first.

Threads that wait for a site are daemons. A program that ends closes its connection, and nobody waits for them.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, Unpack

from headrace.guard import OnceThread
from headrace.log.append import Receipt
from headrace.log.columns import PutColumns, Texts
from headrace.log.config import QueueConfig
from headrace.log.seams import Timeout
from headrace.payload.fragments.flow import Flow
from headrace.payload.fragments.manifest import Manifest, encode_manifest
from headrace.payload.fragments.mark import Mark, facts_of
from headrace.payload.fragments.reading import Filled, ReadAhead
from headrace.payload.fragments.sending import ON_ITS_WAY


class SendQueue(Protocol):
    """What a sender needs of a queue, wherever that is."""

    @property
    def config(self) -> QueueConfig: ...
    def put_many(
        self, payloads: Any, *, feed: Texts, ident: Texts = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt: ...
    def follow(self, start: Any = ..., selection: Any = ...) -> Any: ...


class Putting:
    """The puts of one sender; for one thread."""

    def __init__(self, queue: SendQueue, feed: str, flow: Flow, reads: ReadAhead, at_once: int) -> None:
        self._queue, self._feed, self._flow, self._reads, self._at_once = queue, feed, flow, reads, at_once
        self._session = os.urandom(8)
        self._pending: deque[tuple[list[Filled], Future[Receipt]]] = deque()
        self.sent_bytes = self.again_bytes = 0

    @property
    def is_pending(self) -> bool:
        """Whether puts are on their way to a site."""
        return bool(self._pending)

    def put_fragments(self, filled: list[Filled]) -> None:
        """Put a batch; with others on their way, return before it is stored."""
        idents = [ident_of(sending.manifest, number) for sending, number, _ in filled]
        signatures = [sending.signature(number, self._session) for sending, number, _ in filled]
        marks = [Mark(sending.manifest.transfer, number, sending.manifest.count) for sending, number, _ in filled]
        for sending, number, view in filled:
            self.again_bytes += view.nbytes if sending.attempts[number] else 0
            self.sent_bytes += view.nbytes
            sending.sent[number], sending.to_send[number] = ON_ITS_WAY, False
            sending.attempts[number] += 1
            self._flow.pending_bytes += view.nbytes

        def put() -> Receipt:
            return self._queue.put_many(
                [view for _, _, view in filled], feed=self._feed, ident=idents, signature=signatures, **facts_of(marks)
            )

        self._pending.append((filled, _begun(put) if self._at_once > 1 else _done(put)))
        while len(self._pending) >= self._at_once:
            self.take()

    def take(self) -> None:
        """Wait until the oldest batch is stored."""
        filled, future = self._pending.popleft()
        receipt = future.result()
        for (sending, number, view), sequence in zip(filled, receipt.sequences.tolist(), strict=True):
            sending.sent[number] = sequence
            self._flow.pending_bytes -= view.nbytes
            self._flow.note_put(sequence, view.nbytes)
        self._reads.give_back(filled)

    def drain(self) -> None:
        """Wait until all batches are stored."""
        while self._pending:
            self.take()

    def put_manifests(self, manifests: Sequence[Manifest]) -> list[int]:
        """Put manifests, behind all fragments; their sequences."""
        self.drain()
        payloads = [encode_manifest(each) for each in manifests]
        receipt = self._queue.put_many(
            payloads, feed=self._feed, ident=[each.name for each in manifests],
            signature=[os.urandom(16) for _ in manifests],
            **facts_of([Mark(each.transfer, each.count, each.count) for each in manifests]),
        )  # fmt: skip
        sequences: list[int] = receipt.sequences.tolist()
        for sequence, payload in zip(sequences, payloads, strict=True):
            self._flow.note_put(sequence, len(payload))
        return sequences


def _begun(put: Callable[[], Receipt]) -> "Future[Receipt]":
    future: Future[Receipt] = Future()

    def run() -> None:
        try:
            future.set_result(put())
        except BaseException as error:  # noqa: BLE001 - for the thread that takes it
            future.set_exception(error)

    OnceThread(run, "headrace-put").start()
    return future


def _done(put: Callable[[], Receipt]) -> "Future[Receipt]":
    future: Future[Receipt] = Future()
    future.set_result(put())
    return future


def ident_of(manifest: Manifest, number: int) -> str:
    """For people: the name, and which fragment it is."""
    return f"{manifest.name} {number + 1}/{manifest.count}"

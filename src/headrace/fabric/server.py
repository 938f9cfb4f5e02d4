"""Server: answers what other sites ask of this site's log.

Questions come on a thread of Zenoh's, which must not wait; they are put into a short line and answered by a few threads
of our own. A question that finds the line full is refused at once and asked again later.
"""

import queue as line_of
import threading
import time
from collections.abc import Callable

import zenoh

from headrace.errors import HeadraceError, ProductDamagedError
from headrace.fabric.declarations import Declarations
from headrace.fabric.keys import log_key
from headrace.fabric.page import VERSION, PageHead, encode_head, queue_id, records_of, sequence_bytes
from headrace.fabric.question import (
    Card,
    CardAnswer,
    Listen,
    ListenAnswer,
    Read,
    Where,
    WhereAnswer,
    decode_question,
    encode,
)
from headrace.fabric.streams import stream_name
from headrace.product.batch import Batch
from headrace.queue import Queue
from headrace.selection import Selection

_THREADS = 3
_LINE = 256  # questions that may wait

Listening = Callable[[Selection], str]


class Server:
    """Answers until `close`. `listen` gives the name of a stream for a selection."""

    def __init__(
        self, session: zenoh.Session, declarations: Declarations, queue: Queue, site: str, listen: Listening
    ) -> None:
        self._queue, self._site, self._listen = queue, site, listen
        self._key = log_key(site)
        self._started_ns = time.time_ns()
        self._line: line_of.Queue[zenoh.Query | None] = line_of.Queue(_LINE)
        self.answered = self.refused = 0
        self._threads = [threading.Thread(target=self._run, name=f"headrace-log-{i}") for i in range(_THREADS)]
        for thread in self._threads:
            thread.start()
        self._queryable = declarations.add(lambda: session.declare_queryable(self._key, self._take, complete=True))

    def _take(self, query: zenoh.Query) -> None:
        """On Zenoh's thread."""
        try:
            self._line.put_nowait(query)
        except line_of.Full:
            self.refused += 1
            query.reply_err(b"busy")
            query.drop()  # type: ignore[no-untyped-call]

    def _run(self) -> None:
        while (query := self._line.get()) is not None:
            with query:
                self._answer(query)

    def _answer(self, query: zenoh.Query) -> None:
        try:
            question = decode_question(query.payload.to_bytes() if query.payload else b"")
            if isinstance(question, Read):
                self._reply_pages(query, question)
            else:
                query.reply(self._key, encode(self._answer_shortly(question)))
            self.answered += 1
        except (HeadraceError, OSError) as error:
            self.refused += 1
            query.reply_err(str(error).encode())
        except zenoh.ZError:  # whoever asked has gone
            self.refused += 1

    def _answer_shortly(self, question: Card | Where | Listen) -> CardAnswer | WhereAnswer | ListenAnswer:
        if isinstance(question, Where):
            return WhereAnswer(self._queue.resolve(question.start))
        if isinstance(question, Listen):
            return ListenAnswer(self._listen(Selection.parse(question.selection)))
        statistics = self._queue.statistics()
        return CardAnswer(
            self._site, queue_id(self._queue), self._queue.oldest, self._queue.next, self._started_ns,
            statistics.held_products, statistics.held_bytes, len(statistics.feeds), tuple(self._queue.origins),
        )  # fmt: skip

    def _reply_pages(self, query: zenoh.Query, question: Read) -> None:
        selection = Selection.parse(question.selection)
        follower = self._queue.follow(
            question.after + 1, selection=selection, limit=question.products, bytes_limit=question.payload_bytes
        )
        for _ in range(question.pages):
            after, batch = follower.position - 1, None
            try:
                batch = follower.next_nowait()
            except ProductDamagedError as error:  # it cannot be had here; what comes behind can
                follower.position = error.next
            self._reply_page(query, selection, after, follower.position - 1, batch)
            if follower.position >= self._queue.next:
                return

    def _reply_page(self, query: zenoh.Query, selection: Selection, after: int, upto: int, batch: Batch | None) -> None:
        count, sequences, lost = 0, b"", None
        if batch is not None:
            count, sequences, lost = len(batch), sequence_bytes(batch.sequences), batch.lost
        head = PageHead(
            VERSION, self._site, queue_id(self._queue), stream_name(selection), after, max(after, upto),
            self._queue.next, count, time.time_ns(), lost.first if lost else 0, lost.last if lost else 0, sequences,
        )  # fmt: skip
        records = records_of(batch) if batch is not None and len(batch) else b""
        query.reply(self._key, records, attachment=encode_head(head))

    def close(self) -> None:
        self._queryable.undeclare()
        for _ in self._threads:
            self._line.put(None)
        for thread in self._threads:
            thread.join()

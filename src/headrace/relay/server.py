"""Server: answers what other sites ask of this site's log.

Questions come on a thread of Zenoh's, which must not wait; they are put into a short line and answered by a few threads
of our own. A question that finds the line full is refused at once and asked again later.
"""

import logging
import queue as line_of
import threading
import time
from collections.abc import Callable, Sequence

import zenoh

from headrace.errors import HeadraceError
from headrace.link.access import Rule, asker, receivable
from headrace.link.declarations import Declarations
from headrace.link.keys import log_key
from headrace.queue import Queue
from headrace.relay.description import Description, visible_to
from headrace.relay.page import queue_id
from headrace.relay.pager import Pager
from headrace.relay.question import (
    Card,
    CardAnswer,
    Describe,
    Listen,
    ListenAnswer,
    Measure,
    MeasureAnswer,
    Read,
    Where,
    WhereAnswer,
    decode_question,
    encode,
)
from headrace.relay.round_trip import round_trips
from headrace.selection import Selection

log = logging.getLogger("headrace.fabric")

_THREADS = 3
_LINE = 256  # questions that may wait

Listening = Callable[[Selection], str]
Describing = Callable[["Server"], Description]
ShortAnswer = CardAnswer | WhereAnswer | ListenAnswer | MeasureAnswer | Description


class Server:
    """Answers until `close`. `listen` gives the name of a stream for a selection, `describe` tells all of the site."""

    def __init__(
        self, session: zenoh.Session, declarations: Declarations, queue: Queue, site: str, listen: Listening,
        describe: Describing, rules: Sequence[Rule] = (),
    ) -> None:  # fmt: skip
        self._session, self._queue, self._site, self._listen = session, queue, site, listen
        self._describe, self._rules = describe, rules
        key = f"{log_key(site)}/**"
        self.started_ns = time.time_ns()
        self._line: line_of.Queue[zenoh.Query | None] = line_of.Queue(_LINE)
        self.answered = self.refused = 0
        self._threads = [threading.Thread(target=self._run, name=f"headrace-log-{i}") for i in range(_THREADS)]
        for thread in self._threads:
            thread.start()
        self._queryable = declarations.add(lambda: session.declare_queryable(key, self._take, complete=True))

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
            question, key = decode_question(query.payload.to_bytes() if query.payload else b""), str(query.key_expr)
            if isinstance(question, Read):
                pager = Pager(self._queue, self._site, receivable(self._rules, asker(key)))
                for head, records in pager.pages(question):
                    query.reply(key, records, attachment=head)
            else:
                query.reply(key, encode(self._answer_shortly(question, asker(key))))
            self.answered += 1
        except (HeadraceError, OSError) as error:
            self.refused += 1
            query.reply_err(str(error).encode())
        except zenoh.ZError:  # whoever asked has gone
            self.refused += 1
        except Exception as error:  # noqa: BLE001 whatever it is, the next question is to be answered
            self.refused += 1
            log.error("a question was not answered: %r", error)

    def _answer_shortly(self, question: Card | Where | Listen | Describe | Measure, name: str | None) -> ShortAnswer:
        if isinstance(question, Where):
            return WhereAnswer(self._queue.resolve(question.start))
        if isinstance(question, Listen):
            return ListenAnswer(self._listen(Selection.parse(question.selection)))
        if isinstance(question, Describe):
            return visible_to(self._describe(self), receivable(self._rules, name))
        if isinstance(question, Measure):
            return MeasureAnswer(round_trips(self._session, question.site, question.times))
        statistics = self._queue.statistics()
        return CardAnswer(
            self._site, queue_id(self._queue), self._queue.oldest, self._queue.next, self.started_ns,
            statistics.held_products, statistics.held_bytes, len(statistics.feeds), tuple(self._queue.origins),
            str(self._session.zid()),
        )  # fmt: skip

    def close(self) -> None:
        self._queryable.undeclare()
        for _ in self._threads:
            self._line.put(None)
        for thread in self._threads:
            thread.join()

"""Asking: questions to one site's log, and what comes back.

The caller's thread waits, Zenoh's never: there is room here for all that was asked for. Pages come one by one while
later ones are still on their way, so that asking, sending and putting overlap. They let pass whatever is sent live, and
short questions and their answers overtake both, so that nobody seems to be away who is merely busy.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import zenoh

from headrace.link.access import asking_key
from headrace.link.keys import log_key
from headrace.log.records import Names
from headrace.relay.pace import Pace
from headrace.relay.page import Page, decode, decode_head
from headrace.relay.question import Question, Read, decode_answer, encode

_ANSWER_S = 5.0
_SPARE = 2  # room for words of Zenoh's own


_Asked = tuple[Read, Iterator[tuple[bytes, bytes]]]  # a question, and the answers as they come


class Unreachable(Exception):  # noqa: N818
    """The site does not answer now."""


class Asker:
    """Of one site. `principal` is the name that the other side knows us by, if it has rules for who gets what."""

    def __init__(self, session: zenoh.Session, site: str, principal: str | None = None) -> None:
        self._session, self.site = session, site
        self._key = asking_key(log_key(site), principal)
        self._pace = Pace()
        self._ahead: _Asked | None = None

    def ask(self, question: Question, kind: type[Any], timeout_s: float = _ANSWER_S) -> Any:
        """The short answer, which is a `kind`."""
        for _, payload in self._query(question, timeout_s, 1, zenoh.Priority.DATA_HIGH):
            return decode_answer(payload, kind, self.site)
        raise Unreachable("no answer")

    def pages(self, selection: str, after: int, names: Names, *, hurry: bool = False) -> Iterator[Page]:
        """What it has behind `after`, as much as is good for the link; at least one page, or Unreachable.

        In a `hurry`, they do not let others pass: something is missing of what comes live. When the last page has come
        and there are more behind it, they are asked for before it is given, so that the link is not idle meanwhile.
        """
        priority = zenoh.Priority.DATA if hurry else zenoh.Priority.DATA_LOW
        asked = self._ahead
        if asked is None or asked[0].selection != selection or asked[0].after != after:
            asked = self._ask_for_pages(selection, after, priority)
        self._ahead = None
        (question, replies), size, came, waited_s, begun = asked, 0, 0, 0.0, time.monotonic()
        try:
            for attachment, payload in replies:
                size, waited_s = size + len(attachment) + len(payload), waited_s + time.monotonic() - begun
                page, came = decode(decode_head(attachment), payload, names), came + 1
                if came == question.pages and page.head.upto < page.head.head - 1:
                    self._pace.answered(size, waited_s)
                    self._ahead = self._ask_for_pages(selection, page.head.upto, priority)
                yield page
                begun = time.monotonic()
        except Unreachable:
            self._pace.gave_up()
            raise
        if not size:
            raise Unreachable("no page came")
        if self._ahead is None:
            self._pace.answered(size, waited_s)

    def _ask_for_pages(self, selection: str, after: int, priority: zenoh.Priority) -> _Asked:
        question = self._pace.question(selection, after)
        return question, self._query(question, self._pace.patience_s, question.pages, priority)

    def _query(
        self, question: Question, timeout_s: float, answers: int, priority: zenoh.Priority
    ) -> Iterator[tuple[bytes, bytes]]:
        replies = self._session.get(
            self._key, zenoh.handlers.FifoChannel(answers + _SPARE), payload=encode(question), timeout=timeout_s,
            consolidation=zenoh.ConsolidationMode.NONE, congestion_control=zenoh.CongestionControl.BLOCK,
            priority=priority,
        )  # fmt: skip
        return self._answers(replies)

    def _answers(self, replies: Iterable[zenoh.Reply]) -> Iterator[tuple[bytes, bytes]]:
        for reply in replies:
            if reply.ok is None:
                raise Unreachable(reply.err.payload.to_bytes().decode(errors="replace") if reply.err else "no answer")
            attachment = reply.ok.attachment
            yield attachment.to_bytes() if attachment else b"", reply.ok.payload.to_bytes()

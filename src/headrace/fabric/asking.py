"""Asking: questions to one site's log, and what comes back.

The caller's thread waits. Pages come one by one while later ones are still on their way, so that asking, sending and
putting overlap; no more than a few wait here.
"""

from collections.abc import Iterator
from typing import Any

import zenoh

from headrace.fabric.access import asking_key
from headrace.fabric.keys import log_key
from headrace.fabric.page import Page, decode
from headrace.fabric.question import Question, Read, decode_answer, encode
from headrace.queue.records import Names

_ANSWER_S = 5.0
_PULL_S = 60.0
_WAITING = 4  # pages


class Unreachable(Exception):  # noqa: N818
    """The site does not answer now."""


class Asker:
    """Of one site. `principal` is the name that the other side knows us by, if it has rules for who gets what."""

    def __init__(self, session: zenoh.Session, site: str, principal: str | None = None) -> None:
        self._session, self.site = session, site
        self._key = asking_key(log_key(site), principal)

    def ask(self, question: Question, kind: type[Any], timeout_s: float = _ANSWER_S) -> Any:
        """The short answer, which is a `kind`."""
        for _, payload in self._query(question, timeout_s):
            return decode_answer(payload, kind, self.site)
        raise Unreachable("no answer")

    def pages(self, question: Read, names: Names) -> Iterator[Page]:
        """At least one, or Unreachable."""
        came = False
        for attachment, payload in self._query(question, _PULL_S):
            yield decode(attachment, payload, names)
            came = True
        if not came:
            raise Unreachable("no page came")

    def _query(self, question: Question, timeout_s: float) -> Iterator[tuple[bytes, bytes]]:
        replies = self._session.get(
            self._key, zenoh.handlers.FifoChannel(_WAITING), payload=encode(question), timeout=timeout_s,
            consolidation=zenoh.ConsolidationMode.NONE, congestion_control=zenoh.CongestionControl.BLOCK,
        )  # fmt: skip
        for reply in replies:
            if reply.ok is None:
                raise Unreachable(reply.err.payload.to_bytes().decode(errors="replace") if reply.err else "no answer")
            attachment = reply.ok.attachment
            yield attachment.to_bytes() if attachment else b"", reply.ok.payload.to_bytes()

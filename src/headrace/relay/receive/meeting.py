"""Meeting: ask a site that has appeared who it is and what it holds, without a thread that waits for it."""

import logging
from collections.abc import Callable

import zenoh

from headrace.errors import FabricError
from headrace.guard import FAILURES
from headrace.relay.messages.query import Identify, IdentifyReply, Unreachable
from headrace.relay.receive.pool import NAME, Pool
from headrace.relay.replies import PENDING
from headrace.relay.site_client import Asked, SiteClient

Met = Callable[[str, IdentifyReply | None], None]

log = logging.getLogger("headrace.fabric")


class Meeting:
    """Asks once. `begun` is called before that, and `ended` after it: with None if the site does not reply."""

    def __init__(self, pool: Pool, session: zenoh.Session, site: str, principal: str | None, *,
                 begun: Callable[[str], None], ended: Met) -> None:  # fmt: skip
        self._site, self._begun, self._ended = site, begun, ended
        self._task = pool.task(site, self._step)
        self._client = SiteClient(session, site, principal, wake=self._task.wake)
        self._asked: Asked | None = None
        self._is_over = False

    def start(self) -> None:
        self._task.wake()

    def _step(self) -> None:
        if self._is_over:
            return
        identity: IdentifyReply | None = None
        try:
            if self._asked is None:
                self._begun(self._site)
                self._asked = self._client.ask(Identify(), IdentifyReply)
            reply = self._asked.poll()
            if reply is PENDING:
                return
            identity = reply
        except (Unreachable, FabricError, zenoh.ZError) as error:
            log.debug("site %s does not say who it is: %s", self._site, error)
        except Exception as error:  # noqa: BLE001 whatever it is, the site may be met when it appears again
            FAILURES.note(NAME, error)
        self._is_over = True
        self._ended(self._site, identity)

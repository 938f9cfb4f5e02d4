"""RemoteSource: the members that a site sees; `RemoteQueue.members` makes a MemberStream of it.

It says which state of the site's list it knows, and the site replies when there is another one. If the site does not
reply for two seconds, none of its members can be seen from here: they have left, as `unreachable`, and join again when
the site is back. The connection decides how long that goes on (`patience`, `on_loss`). Calls wait at the site for two
seconds at a time, less than others do: observers are few, and so it is known when a site fell silent.
"""

import time
from typing import TYPE_CHECKING

from headrace.queue.members import Look
from headrace.remote.client.connection import Connection, within_s
from headrace.remote.client.pending import PendingReply
from headrace.remote.client.waiting import AWAITING, BLOCKING, Wait, finish
from headrace.remote.protocol.member_calls import MemberChanges, WatchMembers

if TYPE_CHECKING:
    from headrace.remote.client.queue import RemoteQueue

UNREACHABLE_S = 2.0
TURN_S = 2.0
_REPLY_S = 3.0  # beyond the time that a call waits on purpose


class RemoteSource:
    """A Source for one stream; one thread looks at a time."""

    def __init__(self, queue: "RemoteQueue", connection: Connection) -> None:
        self._queue = queue  # which closes the connection when it is collected
        self._connection = connection
        self._list_id, self._state = "", 0
        self._begun: float | None = None  # the first call without a reply
        self._attempts = 0  # without a reply
        self._is_unreachable = self._stopped = False
        self._pending: PendingReply | None = None

    def look(self, deadline: float | None) -> Look | None:
        return finish(self._look(BLOCKING, deadline))

    async def look_async(self, deadline: float | None) -> Look | None:
        return await self._look(AWAITING, deadline)

    async def _look(self, wait: Wait, deadline: float | None) -> Look | None:
        """One call; SiteUnreachableError if the site is silent at the deadline, or for longer than patience allows."""
        begun = time.monotonic()
        left_s = TURN_S if deadline is None else max(0.0, deadline - begun)
        wait_s = 0.0 if self._is_unreachable else min(left_s, TURN_S)
        last_s = within_s(self._connection.silence.ends_at(0.0, deadline))
        limit_s = wait_s + _REPLY_S if last_s is None else min(wait_s + _REPLY_S, last_s)
        call = WatchMembers(self._list_id, self._state, wait_s)
        pending = self._pending = await self._connection.start_by(wait, call, wait_s=wait_s, limit_s=limit_s)
        if pending is not None and self._stopped:  # before there was anything to cancel
            pending.cancel()
        raw = None if pending is None else await wait.take(pending)
        if self._stopped:
            return None
        came = self._connection.read(raw, MemberChanges, pending)
        return await self._miss(wait, deadline, begun) if came is None else self._take(came[0])

    def _take(self, changes: MemberChanges) -> Look:
        self._list_id, self._state = changes.list_id, changes.state
        self._begun, self._attempts, self._is_unreachable = None, 0, False
        return Look(changes.members, changes.ends, changes.is_whole)

    async def _miss(self, wait: Wait, deadline: float | None, begun: float) -> Look | None:
        self._begun = self._begun or begun
        await self._connection.pause_by(wait, self._attempts, deadline)
        self._attempts += 1
        now = time.monotonic()
        if (deadline is not None and now >= deadline) or not self._connection.silence.has_patience:
            raise self._connection.silence.error(self._begun)
        if now - (self._connection.silence.since or now) < UNREACHABLE_S or self._is_unreachable:
            return None
        self._is_unreachable, self._state = True, 0
        return Look((), otherwise="unreachable")

    def stop(self) -> None:
        self._stopped = True
        pending = self._pending
        if pending is not None:
            pending.cancel()

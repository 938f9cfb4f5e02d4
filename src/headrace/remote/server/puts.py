"""BlockedPuts: puts that wait for a blocking station, apart from all other calls.

A put is tried at once. If a station is full and the client has time left, the put waits in a thread of its own. There
are a few such threads, and each waits a few seconds at most: the client then hears that nothing was stored yet, and
calls again. So a client that has disconnected leaves no put behind that is stored hours later.
"""

import logging
import threading
from collections.abc import Callable

from headrace.errors import BlockedError, HeadraceError
from headrace.remote.protocol.replies import Again, Reply, failure_of
from headrace.remote.server.pending_call import PendingCall

BLOCKED_MAX = 32  # at the same time
_WAIT_S = 5.0

Store = Callable[[float], Reply]  # store within so many seconds

log = logging.getLogger("headrace.remote.server")


class BlockedPuts:
    """`store` may be called by any thread."""

    def __init__(self) -> None:
        self._room = threading.BoundedSemaphore(BLOCKED_MAX)

    def store(self, pending: PendingCall, store: Store, timeout_s: float | None) -> None:
        """Finish the call when the products are stored or refused; errors other than BlockedError are raised."""
        try:
            reply = store(0.0)
        except BlockedError:
            if timeout_s == 0:
                raise
            if self._room.acquire(blocking=False):
                threading.Thread(target=self._wait, args=(pending, store, timeout_s), daemon=True).start()
            else:
                pending.finish(Again())
            return
        pending.finish(reply)

    def _wait(self, pending: PendingCall, store: Store, timeout_s: float | None) -> None:
        is_last = timeout_s is not None and timeout_s <= _WAIT_S
        try:
            reply = store(_WAIT_S if timeout_s is None else min(timeout_s, _WAIT_S))
        except HeadraceError as error:
            reply = Again() if isinstance(error, BlockedError) and not is_last else failure_of(error)
        except Exception as error:
            log.exception("a put failed")
            reply = failure_of(error)
        finally:
            self._room.release()
        pending.finish(reply)

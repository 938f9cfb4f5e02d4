"""BlockedPuts: puts that a blocking station holds up, out of the way of everybody else.

A put is tried at once. If a station is full and the caller has time, it waits in a thread of its own; there are a
few, and not for longer than some seconds: the caller is told that nothing was stored yet, and calls again. So a caller
who has gone leaves no put behind that is stored hours later.
"""

import logging
import threading
from collections.abc import Callable

from headrace.errors import BlockedError, HeadraceError
from headrace.remote.protocol.replies import Again, Reply, failure_of
from headrace.remote.server.pending_call import PendingCall

BLOCKED_MAX = 32  # at the same time
_SLICE_S = 5.0

Store = Callable[[float], Reply]  # within so many seconds

log = logging.getLogger("headrace.attending")


class BlockedPuts:
    """`store` by any thread."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(BLOCKED_MAX)

    def store(self, errand: PendingCall, store: Store, timeout_s: float | None) -> None:
        """Finish the errand when it is stored, or cannot be; errors but that of a full capacity are the caller's."""
        try:
            answer = store(0.0)
        except BlockedError:
            if timeout_s == 0:
                raise
            if self._places.acquire(blocking=False):
                threading.Thread(target=self._wait, args=(errand, store, timeout_s), daemon=True).start()
            else:
                errand.finish(Again())
            return
        errand.finish(answer)

    def _wait(self, errand: PendingCall, store: Store, timeout_s: float | None) -> None:
        is_last = timeout_s is not None and timeout_s <= _SLICE_S
        try:
            answer = store(_SLICE_S if timeout_s is None else min(timeout_s, _SLICE_S))
        except HeadraceError as error:
            answer = Again() if isinstance(error, BlockedError) and not is_last else failure_of(error)
        except Exception as error:  # the caller is told
            log.exception("a put failed")
            answer = failure_of(error)
        finally:
            self._places.release()
        errand.finish(answer)

"""FunctionScans: scan the log for stations that select by functions of users, in threads of their own.

A function may be slow, or never return. So no thread that serves several clients calls one: a get of a remote consumer
takes what is there, and asks here for more (`request`). Each chain with such a station has a thread at a time, which
scans until there is nothing to scan and ends. At the limit a request is dropped; the get is tried again soon, and asks
again.
"""

import logging
import threading

from headrace.guard import FAILURES, OnceThread
from headrace.station import Consumer
from headrace.station.served import origin_of, scan_by_functions, waits_for_functions

SCANS_MAX = 32  # at the same time

log = logging.getLogger("headrace.remote.server")


class FunctionScans:
    """One for a site. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[object] = set()  # chains
        self._stopped = False

    def request(self, consumer: Consumer) -> None:
        """Scan for the station of this consumer, if functions decide for its chain and no thread does so yet."""
        if not waits_for_functions(consumer):
            return
        chain = origin_of(consumer)[0]
        with self._lock:
            if self._stopped or chain in self._running or len(self._running) >= SCANS_MAX:
                return
            self._running.add(chain)
        try:
            OnceThread(self._scan, "headrace-scan", args=(consumer, chain)).start()
        except RuntimeError:  # no more threads: the get asks again
            self._end(chain)

    def _scan(self, consumer: Consumer, chain: object) -> None:
        try:
            while not self._stopped and scan_by_functions(consumer):
                pass
        except Exception as error:  # noqa: BLE001 a get of the station meets the same error, and its client hears it
            FAILURES.note("headrace-scan", error)
        finally:
            self._end(chain)

    def _end(self, chain: object) -> None:
        with self._lock:
            self._running.discard(chain)

    def close(self) -> None:
        """Start no more; those that run end with the function that they call."""
        self._stopped = True

"""Declarations: a session's subscribers, queryables and tokens, declared again when a router joins.

Routers forward to each other what their sessions declare. A router that joins while another is leaving may drop a
declaration, because it does not yet know the route by which it came, and never receives it again (Zenoh's issue 1886).
So everything is declared again shortly after a router has joined. What is sent in between is found missing and read
from the log, like anything else that was lost on its way.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

import zenoh

from headrace.guard import GuardedThread, counted, guarded

_AFTER_S = (1.0, 4.0)  # soon, and once more when the routers should be quiet

log = logging.getLogger("headrace.fabric")


class Declared:
    """One declaration; `undeclare` it when it is no longer needed."""

    def __init__(self, owner: "Declarations", declare: Callable[[], Any]) -> None:
        self._owner, self._declare = owner, declare
        self._handle: Any = declare()

    def renew(self) -> None:
        self._end()
        self._handle = self._declare()

    def undeclare(self) -> None:
        """Idempotent."""
        if self._owner.forget(self):
            self._end()

    def _end(self) -> None:
        handle, self._handle = self._handle, None  # none also if the last renewal failed
        if handle is not None:
            handle.undeclare()


class Declarations:
    """All declarations of one session; `close` before the session."""

    def __init__(self, session: zenoh.Session) -> None:
        self._lock = threading.RLock()
        self._all: list[Declared] = []
        self._due = threading.Event()
        self._stopped = threading.Event()
        self._listener: Any = session.info.declare_transport_events_listener(guarded(self._see))
        self._thread = GuardedThread(self._run, "headrace-declare", until=self._stopped.is_set)
        self._thread.start()

    def add(self, declare: Callable[[], Any]) -> Declared:
        """Declare now, and again whenever it is necessary."""
        with self._lock:
            declared = Declared(self, declare)
            self._all.append(declared)
            return declared

    def forget(self, declared: Declared) -> bool:
        """Do not declare it again. True if it was known until now."""
        with self._lock:
            known = declared in self._all
            if known:
                self._all.remove(declared)
            return known

    def _see(self, event: zenoh.TransportEvent) -> None:
        """Runs on Zenoh's thread."""
        if event.kind == zenoh.SampleKind.PUT and event.transport.whatami == zenoh.WhatAmI.ROUTER:
            self._due.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._due.wait()
            self._due.clear()
            for pause_s in _AFTER_S:
                if not self._stopped.wait(pause_s):
                    self.renew()

    def renew(self) -> None:
        with self._lock:
            for declared in self._all:
                with counted("headrace-declare"):  # the others must be declared
                    try:
                        declared.renew()
                    except zenoh.ZError as error:
                        log.error("a declaration was not renewed: %s", error)

    def close(self) -> None:
        self._stopped.set()
        self._due.set()
        self._thread.join()
        self._listener.undeclare()

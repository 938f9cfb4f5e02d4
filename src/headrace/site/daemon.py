"""Daemon: a site as a program: configuration file, signals, start, reload and stop.

    SIGTERM, SIGINT   stop: what was received is in the queue, the progress of the requests is saved
    SIGHUP            reload the configuration; if it is invalid, log that and go on as before

A signal handler only writes a byte into a pipe, in whatever thread it runs. The main thread reads the bytes one by one,
so that nothing happens between two lines of code and no signal is lost while another is handled. (Blocking the signals
and waiting for them does not work: threads that libraries started at import do not block them, and a signal delivered
there ends the process.)
"""

import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import zenoh

from headrace.errors import HeadraceError
from headrace.link.presence import close_in_turn
from headrace.link.session import SessionTerms, locators, open_session
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.relay.receive.counts import Tally
from headrace.site.channel_terms import open_channels
from headrace.site.config import SiteConfig
from headrace.site.loading import check_warnings, load_config, load_functions_of
from headrace.site.logs import begin_logs
from headrace.site.site import Site
from headrace.site.terms import (
    clock_terms,
    next_start_ns,
    open_queue,
    principal_of,
    requests_of,
    rules_of,
    session_terms,
)

_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_START_S_MAX = 10.0  # the clock may be corrected while a request waits for its start time
_RECOVERABLE = (HeadraceError, OSError, zenoh.ZError)

log = logging.getLogger("headrace.site")
Ready = Callable[[Site, list[str]], None]


class Running:
    """A session and the site on it, by one configuration. `close` ends both and is idempotent."""

    def __init__(self, config: SiteConfig, terms: SessionTerms, queue: Queue, tally: Tally) -> None:
        self.config, self.terms = config, terms
        with ExitStack() as parts:
            self.session = open_session(terms)
            parts.callback(close_in_turn, self.session)
            self.site = _start(config, self.session, terms, queue, tally)
            parts.callback(self.site.close)
            self._parts = parts.pop_all()

    def close(self) -> None:
        self._parts.close()


class Daemon:
    """Runs a site until a signal stops it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._config = load_config(file)
        self._tally = Tally()  # counts stay when a reload opens a new session

    def run(self, ready: Ready) -> None:
        """Serve until SIGTERM or SIGINT; `ready` is called once the site takes part in the fabric."""
        noted = _note_signals()
        _begin_logs(self._config)
        for warning in check_warnings(self._file):
            log.warning("%s; %s", warning, warning.hint)
        with open_queue(self._config, load_functions_of(self._file)) as queue:
            open_channels(self._config.channel, queue)
            self._running = Running(self._config, session_terms(self._config), queue, self._tally)
            name = self._running.site.name
            try:
                where = locators(self._running.session)
                log.info("site %s is ready at %s", name, ", ".join(where) or "no endpoint")
                ready(self._running.site, where)
                notify(f"READY=1\nSTATUS=site {name}")
                self._serve(noted, queue)
            finally:
                notify("STOPPING=1")
                self._running.close()
                log.info("site %s has stopped", name)

    def _serve(self, noted: int, queue: Queue) -> None:
        while self._next_signal(noted, queue) == signal.SIGHUP:
            notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            self._reload(queue)
            notify("READY=1")

    def _next_signal(self, noted: int, queue: Queue) -> int:
        """Wait for a signal; meanwhile, requests become active at their start time."""
        while True:
            config, now_ns = self._running.config, log_of(queue).now_ns()
            active = requests_of(config, now_ns)
            if active != self._running.site.requests:
                self._running.site.change_requests(active)
                log.info("requests have become active at their start time")
            start_ns = next_start_ns(config, now_ns)
            wait_s = None if start_ns is None else min(_START_S_MAX, (start_ns - now_ns) / 1e9)
            if select.select([noted], [], [], wait_s)[0]:
                return os.read(noted, 1)[0]

    def _reload(self, queue: Queue) -> None:
        """Put the new configuration into force, or keep the old one; an error only if neither works any more."""
        try:
            config = load_config(self._file)
            terms = session_terms(config)
        except _RECOVERABLE as error:
            log.error("%s is not loaded: %s", self._file, error)
            return
        try:
            open_channels(config.channel, queue)
        except HeadraceError as error:
            log.error("%s is not loaded: %s", self._file, error)
            return
        before = self._running
        if (config.site.queue, config.queue) != (before.config.site.queue, before.config.queue):
            log.error("a change of the queue needs a restart; the queue stays as it is")
        if config.functions != before.config.functions:
            log.error("a change of [functions] needs a restart; the functions stay as they are")
        try:
            self._change(config, terms, queue)
            _begin_logs(config)
        except _RECOVERABLE as error:
            log.error("%s is not loaded: %s", self._file, error)
            self._running.close()
            self._running = Running(before.config, before.terms, queue, self._tally)
            return
        self._running.config = config
        log.info("%s is loaded", self._file)

    def _change(self, config: SiteConfig, terms: SessionTerms, queue: Queue) -> None:
        """Restart as little as the change needs: the requests, the clock, or the session and everything on it."""
        running = self._running
        if terms != running.terms or config.site.beat_s != running.config.site.beat_s:
            running.close()
            self._running = Running(config, terms, queue, self._tally)
            return
        if config.request != running.config.request:
            running.site.change_requests(requests_of(config, log_of(queue).now_ns()))
        if config.clock != running.config.clock:
            running.site.change_clock(clock_terms(config))


def _note_signals() -> int:
    """The read end of the pipe that signals are written to, for the life of the process."""
    noted, into = os.pipe()
    os.set_blocking(into, False)
    signal.set_wakeup_fd(into)
    for number in _SIGNALS:
        signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)  # our parent may have blocked them
    return noted


def _start(config: SiteConfig, session: zenoh.Session, terms: SessionTerms, queue: Queue, tally: Tally) -> Site:
    return Site(
        session, queue, requests_of(config, log_of(queue).now_ns()), beat_s=config.site.beat_s, rules=rules_of(config),
        principal=principal_of(config), terms=terms, tally=tally, clock=clock_terms(config),
    )  # fmt: skip


def _begin_logs(config: SiteConfig) -> None:
    begin_logs(config.log.level, config.log.file, config.log.per_second)


def notify(state: str) -> None:
    """Send `state` to systemd, as sd_notify(3) does: READY=1, RELOADING=1, STOPPING=1, STATUS=…

    A datagram to the socket that NOTIFY_SOCKET names; nothing happens if it is not set.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as target:
        try:
            target.sendto(state.encode(), address)
        except OSError:
            return  # the service manager is gone; the site runs on

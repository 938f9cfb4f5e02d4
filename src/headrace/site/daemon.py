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
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import zenoh

from headrace.errors import HeadraceError
from headrace.link.audit import Audit
from headrace.link.audit_files import audit_folder
from headrace.link.door import Door
from headrace.link.endpoint import LOCAL
from headrace.link.fair import take_short_turns
from headrace.link.local import admit, prepare_socket, socket_key
from headrace.link.presence import close_in_turn
from headrace.link.quotas import QuotaTable
from headrace.link.session import SessionTerms, locators, open_session
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.relay.receive.counts import Tally
from headrace.relay.signing.terms import SigningTerms
from headrace.site.channel_terms import open_channels
from headrace.site.config import LAYOUT, SiteConfig
from headrace.site.credential_files import changed_files, digests_of, rehearse
from headrace.site.loading import check_warnings, load_config, load_functions_of
from headrace.site.logs import begin_logs, log_stray_errors
from headrace.site.site import Site
from headrace.site.terms import (
    clock_terms,
    next_start_ns,
    open_queue,
    principal_of,
    quotas_of,
    requests_of,
    rules_of,
    session_terms,
    signing_of,
)

_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_START_S_MAX = 10.0  # the clock may be corrected while a request waits for its start time
_RECOVERABLE = (HeadraceError, OSError, zenoh.ZError)

log = logging.getLogger("headrace.site")
Ready = Callable[[Site, list[str]], None]


@dataclass(frozen=True, slots=True)
class Lasting:
    """What stays when a reload opens a new session."""

    queue: Queue
    tally: Tally
    quotas: QuotaTable
    audit: Audit


class Running:
    """A session and the site on it, by one configuration. `close` ends both and is idempotent."""

    def __init__(self, config: SiteConfig, terms: SessionTerms, signing: SigningTerms, lasting: Lasting) -> None:
        self.config, self.terms, self.files, self.signing = config, terms, digests_of(terms), signing
        with ExitStack() as parts:
            self.session = _open_session(config, terms)
            parts.callback(close_in_turn, self.session)
            door = _door(self.session, terms, lasting.audit)
            if door is not None:
                parts.callback(door.close)
            self.site = _start(config, self.session, terms, signing, lasting, door)
            parts.callback(self.site.close)
            self._parts = parts.pop_all()

    def close(self) -> None:
        self._parts.close()


class Daemon:
    """Runs a site until a signal stops it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._config = load_config(file)

    def run(self, ready: Ready) -> None:
        """Serve until SIGTERM or SIGINT; `ready` is called once the site takes part in the fabric."""
        noted = _note_signals()
        take_short_turns()
        _begin_logs(self._config)
        log_stray_errors()
        for warning in check_warnings(self._file):
            log.warning("%s; %s", warning, warning.hint)
        with open_queue(self._config, load_functions_of(self._file)) as queue:
            open_channels(self._config.channel, queue)
            with closing(Audit(audit_folder(queue.path))) as audit:
                self._lasting = Lasting(queue, Tally(), quotas_of(self._config), audit)
                self._run(noted, ready)

    def _run(self, noted: int, ready: Ready) -> None:
        self._running = Running(self._config, session_terms(self._config), signing_of(self._config), self._lasting)
        name, audit = self._running.site.name, self._lasting.audit
        try:
            where = locators(self._running.session)
            log.info("site %s is ready at %s", name, ", ".join(where) or "no endpoint")
            audit.note_site("start", name, ", ".join(where))
            ready(self._running.site, where)
            notify(f"READY=1\nSTATUS=site {name}")
            self._serve(noted)
        finally:
            notify("STOPPING=1")
            self._running.close()
            audit.note_site("stop", name)
            log.info("site %s has stopped", name)

    def _serve(self, noted: int) -> None:
        while self._next_signal(noted) == signal.SIGHUP:
            notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            self._reload()
            notify("READY=1")

    def _next_signal(self, noted: int) -> int:
        """Wait for a signal; meanwhile, requests become active at their start time."""
        while True:
            config, now_ns = self._running.config, self._now_ns()
            active = requests_of(config, now_ns)
            if active != self._running.site.requests:
                self._running.site.change_requests(active)
                log.info("requests have become active at their start time")
            start_ns = next_start_ns(config, now_ns)
            wait_s = None if start_ns is None else min(_START_S_MAX, (start_ns - now_ns) / 1e9)
            if select.select([noted], [], [], wait_s)[0]:
                return os.read(noted, 1)[0]

    def _now_ns(self) -> int:
        return log_of(self._lasting.queue).now_ns()

    def _reload(self) -> None:
        """Put the new configuration into force, or keep the old one; an error only if neither works any more."""
        before = self._running
        try:
            config = load_config(self._file)
            terms, signing = session_terms(config), signing_of(config)
            open_channels(config.channel, self._lasting.queue)
            files = changed_files(before.files, digests_of(terms))
            reopens = (
                bool(files)
                or terms != before.terms
                or signing != before.signing
                or config.site.beat_s != before.config.site.beat_s
            )
            if reopens:
                rehearse(terms)
        except _RECOVERABLE as error:
            self._refuse(error)
            return
        if (config.site.queue, config.queue) != (before.config.site.queue, before.config.queue):
            log.error("a change of the queue needs a restart; the queue stays as it is")
        if config.functions != before.config.functions:
            log.error("a change of [functions] needs a restart; the functions stay as they are")
        try:
            self._change(config, terms, signing, reopens=reopens)
            _begin_logs(config)
        except _RECOVERABLE as error:
            self._refuse(error)
            self._running.close()
            self._running = Running(before.config, before.terms, before.signing, self._lasting)
            return
        self._running.config = config
        self._lasting.quotas.change(quotas_of(config))
        log.info("%s is loaded", self._file)
        changed = ", ".join([*changes(before.config, config), *files]) or "nothing has changed"
        self._lasting.audit.note_site("reload", str(self._file), changed)

    def _refuse(self, error: Exception) -> None:
        log.error("%s is not loaded: %s", self._file, error)
        self._lasting.audit.note_site("reload", str(self._file), str(error), outcome="refused")

    def _change(self, config: SiteConfig, terms: SessionTerms, signing: SigningTerms, *, reopens: bool) -> None:
        """Restart as little as the change needs: the requests, the clock, or the session and everything on it."""
        running = self._running
        if reopens:
            running.close()
            self._running = Running(config, terms, signing, self._lasting)
            return
        if config.request != running.config.request:
            running.site.change_requests(requests_of(config, self._now_ns()))
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


def _open_session(config: SiteConfig, terms: SessionTerms) -> zenoh.Session:
    """The session of the site; programs on this machine may use the socket in the queue's directory."""
    if LOCAL not in config.site.listen:
        return open_session(terms)
    prepare_socket(config.site.queue)
    session = open_session(replace(terms, socket_key=socket_key(config.site.queue, config.site.name)))
    admit(config.site.queue)
    return session


def _door(session: zenoh.Session, terms: SessionTerms, audit: Audit) -> Door | None:
    """Locks out who guesses passwords; None if there are no passwords."""
    if terms.users_file is None:
        return None
    return Door(
        session, locators(session), lambda network, why: audit.refuse("login", principal=None, peer=network, why=why)
    )


def _start(
    config: SiteConfig,
    session: zenoh.Session,
    terms: SessionTerms,
    signing: SigningTerms,
    lasting: Lasting,
    door: Door | None,
) -> Site:
    queue = lasting.queue
    return Site(
        session, queue, requests_of(config, log_of(queue).now_ns()), beat_s=config.site.beat_s, rules=rules_of(config),
        principal=principal_of(config), terms=terms, tally=lasting.tally, clock=clock_terms(config),
        quotas=lasting.quotas, audit=lasting.audit, door=door, signing=signing,
    )  # fmt: skip


def changes(before: SiteConfig, after: SiteConfig) -> list[str]:
    """The tables of the file that have changed, as they are written there."""
    return [LAYOUT.bracketed(name) for name in LAYOUT.tables if getattr(before, name) != getattr(after, name)]


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

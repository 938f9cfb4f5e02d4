"""Daemon: a site as a program. Its configuration file, its signals, its first and its last word.

    SIGTERM, SIGINT   stop: what was taken is in the queue, the progress of the requests is saved
    SIGHUP            read the configuration again; if it is wrong, say so and go on as before

A signal is only noted, whichever thread gets it, as a byte in a pipe. The main thread reads them one by one, so that
nothing happens between two lines of code, and none is lost that comes while another is seen to. (To block them and wait
would not do: threads that libraries have started when they were imported do not block them, and die with the process.)
"""

import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import zenoh

from headrace.errors import HeadraceError
from headrace.link.access import Rule
from headrace.link.credentials import TlsTerms, UserTerms
from headrace.link.session import SessionTerms, locators, open_session
from headrace.queue import Queue
from headrace.relay.receive.receiver import Request
from headrace.site.config import SiteConfig
from headrace.site.loading import load_config
from headrace.site.logs import begin_logs
from headrace.site.notify import notify
from headrace.site.site import Site

_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_TROUBLES = (HeadraceError, OSError, zenoh.ZError)

log = logging.getLogger("headrace.site")
Ready = Callable[[Site, list[str]], None]


class Running:
    """A session and the site on it, by one configuration. `close` ends both, and may be said twice."""

    def __init__(self, config: SiteConfig, terms: SessionTerms, queue: Queue) -> None:
        self.config, self.terms = config, terms
        with ExitStack() as parts:
            self.session = open_session(terms)
            parts.callback(self.session.close)
            self.site = _start(config, self.session, queue)
            parts.callback(self.site.close)
            self._parts = parts.pop_all()

    def close(self) -> None:
        self._parts.close()


class Daemon:
    """`run` returns when it was told to stop."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._config = load_config(file)

    def run(self, ready: Ready) -> None:
        """`ready` is called once the site takes part in the fabric."""
        noted = _note_signals()
        _begin_logs(self._config)
        with open_queue(self._config) as queue:
            self._running = Running(self._config, session_terms(self._config), queue)
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
        while os.read(noted, 1)[0] == signal.SIGHUP:
            notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            self._reload(queue)
            notify("READY=1")

    def _reload(self, queue: Queue) -> None:
        """The new configuration, or what was in force before; an error only if neither can be any more."""
        try:
            config = load_config(self._file)
            terms = session_terms(config)
        except _TROUBLES as error:
            log.error("%s was not loaded: %s", self._file, error)
            return
        before = self._running
        if (config.site.queue, config.queue) != (before.config.site.queue, before.config.queue):
            log.error("changes of the queue need a restart; it stays as it is")
        try:
            self._change(config, terms, queue)
            _begin_logs(config)
        except _TROUBLES as error:
            log.error("%s was not loaded: %s", self._file, error)
            self._running.close()
            self._running = Running(before.config, before.terms, queue)
            return
        self._running.config = config
        log.info("%s was loaded", self._file)

    def _change(self, config: SiteConfig, terms: SessionTerms, queue: Queue) -> None:
        """As little as the changes ask for: requests anew, or the session and all on it."""
        running = self._running
        if terms != running.terms or config.site.beat_s != running.config.site.beat_s:
            running.close()
            self._running = Running(config, terms, queue)
        elif config.request != running.config.request:
            running.site.change_requests(requests_of(config))


def _note_signals() -> int:
    """The end of the pipe to read from; for as long as the process lives."""
    noted, into = os.pipe()
    os.set_blocking(into, False)
    signal.set_wakeup_fd(into)
    for number in _SIGNALS:
        signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)  # who has started us may have held them back
    return noted


def _start(config: SiteConfig, session: zenoh.Session, queue: Queue) -> Site:
    return Site(
        session, queue, requests_of(config), beat_s=config.site.beat_s, rules=rules_of(config),
        principal=principal_of(config),
    )  # fmt: skip


def _begin_logs(config: SiteConfig) -> None:
    begin_logs(config.log.level, config.log.file, config.log.per_second)


def open_queue(config: SiteConfig) -> Queue:
    """The site's queue, made by the terms of [queue] if it is not there."""
    path, terms = config.site.queue, config.queue
    if (path / "queue.json").exists():
        return Queue.open(path)
    return Queue.create(
        path, size=terms.size, age=terms.age_s, durability=terms.durability, dedup=terms.dedup, origin=config.site.name
    )


def requests_of(config: SiteConfig) -> list[Request]:
    return [
        Request(request.name, request.selection, request.begin_at, request.sites, request.redundancy)
        for request in config.request
    ]


def session_terms(config: SiteConfig) -> SessionTerms:
    """How [site], [tls], [users] and [[allow]] take part in the fabric."""
    site, tls, users = config.site, config.tls, config.users
    user = None
    if users is not None and users.name is not None and users.password_file is not None:
        user = UserTerms(users.name, users.password_file.read_text().strip())
    return SessionTerms(
        site.mode, site.listen if site.mode != "client" else (), site.connect, site.scouting, site.gossip,
        mesh=site.gossip,
        compression=site.compression,
        shared_memory=site.shared_memory,
        tls=None if tls is None or tls.authority is None else TlsTerms(
            tls.authority, tls.certificate, tls.key, tls.mutual
        ),
        user=user,
        users_file=None if users is None else users.dictionary_file,
        rules=rules_of(config),
    )  # fmt: skip


def rules_of(config: SiteConfig) -> tuple[Rule, ...]:
    """Those of the configuration; and if there are any, whoever comes with the site's own papers may read here, such as
    `headrace sites` by its file."""
    rules = [Rule(allow.who, allow.receive, allow.publish, allow.relay) for allow in config.allow]
    return (*rules, Rule((principal_of(config),), ("**",))) if rules else ()


def principal_of(config: SiteConfig) -> str:
    """The name that others know the site by."""
    users = config.users
    return users.name if users is not None and users.name else config.site.name

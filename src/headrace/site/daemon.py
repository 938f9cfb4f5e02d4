"""Daemon: a site as a program. Its configuration file, its signals, its first and its last word.

    SIGTERM, SIGINT   stop: what was taken is in the queue, the progress of the requests is saved
    SIGHUP            read the configuration again; if it is wrong, say so and go on as before

Signals are blocked in all threads and waited for by the main one, so that nothing happens between two lines of code.
"""

import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path

import zenoh

from headrace.errors import HeadraceError
from headrace.fabric.access import Rule
from headrace.fabric.credentials import TlsTerms, UserTerms
from headrace.fabric.receiver import Request
from headrace.fabric.session import SessionTerms, locators, open_session
from headrace.queue import Queue
from headrace.site.config import SiteConfig
from headrace.site.loading import load_config
from headrace.site.logs import begin_logs
from headrace.site.notify import notify
from headrace.site.site import Site

_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}

log = logging.getLogger("headrace.site")
Ready = Callable[[Site, list[str]], None]


class Daemon:
    """`run` returns when it was told to stop."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._config = load_config(file)

    def run(self, ready: Ready) -> None:
        """`ready` is called once the site takes part in the fabric."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        begin_logs(self._config.log.level, self._config.log.file, self._config.log.per_second)
        with open_queue(self._config) as queue:
            session = open_session(session_terms(self._config))
            site = self._start(session, queue)
            try:
                where = locators(session)
                log.info("site %s is ready at %s", site.name, ", ".join(where) or "no endpoint")
                ready(site, where)
                notify(f"READY=1\nSTATUS=site {site.name}")
                session, site = self._serve(session, site, queue)
            finally:
                notify("STOPPING=1")
                site.close()
                session.close()  # type: ignore[no-untyped-call]
                log.info("site %s has stopped", site.name)

    def _start(self, session: zenoh.Session, queue: Queue) -> Site:
        users = self._config.users
        principal = users.name if users is not None and users.name else self._config.site.name
        return Site(
            session, queue, requests_of(self._config), beat_s=self._config.site.beat_s, rules=rules_of(self._config),
            principal=principal,
        )  # fmt: skip

    def _serve(self, session: zenoh.Session, site: Site, queue: Queue) -> tuple[zenoh.Session, Site]:
        while True:
            received = signal.sigwaitinfo(_SIGNALS)  # sigtimedwait may make one up after a SIGCONT
            if received.si_signo != signal.SIGHUP:
                return session, site
            notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            session, site = self._reload(session, site, queue)
            notify("READY=1")

    def _reload(self, session: zenoh.Session, site: Site, queue: Queue) -> tuple[zenoh.Session, Site]:
        """As little as the changes ask for: requests anew, or the session and all on it."""
        try:
            config = load_config(self._file)
        except HeadraceError as error:
            log.error("%s was not loaded: %s", self._file, error)
            return session, site
        before, self._config = self._config, config
        if (config.site.queue, config.queue) != (before.site.queue, before.queue):
            log.error("changes of the queue need a restart; it stays as it is")
        begin_logs(config.log.level, config.log.file, config.log.per_second)
        if session_terms(config) != session_terms(before) or config.site.beat_s != before.site.beat_s:
            site.close()
            session.close()  # type: ignore[no-untyped-call]
            session = open_session(session_terms(config))
            site = self._start(session, queue)
        elif config.request != before.request:
            site.change_requests(requests_of(config))
        log.info("%s was loaded", self._file)
        return session, site


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
    return tuple(Rule(allow.who, allow.receive, allow.publish, allow.relay) for allow in config.allow)

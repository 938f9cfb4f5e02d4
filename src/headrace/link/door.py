"""Door: slows down who guesses passwords, by locking out the network of an address after some failed logins.

    connections of our port (connections.py) ──┐
                                               ├──► failed logins ──► lockout.py ──► syn_filter.py: SYNs are dropped
    links that Zenoh has made (its events) ────┘                └──► log, audit, problems of the site

Zenoh says nothing about a login that failed. But the kernel shows each connection, for a minute after we closed it, and
Zenoh shows each that became a link: those that ended without having been one have failed. A connection that the other
side closes first leaves no trace; those are seen while they are open, four times a second, and who guesses at full
speed always has one open. So the count is a lower bound.

Products do not pass here: nothing is between Zenoh and its sockets. Not covered: quic and udp, which have no
connections in the kernel; a site with users and such an endpoint logs that. Unix sockets are guarded by their folder.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import zenoh

from headrace.guard import GuardedThread, guarded
from headrace.link.connections import Remote, connections, remote_of
from headrace.link.endpoint import DATAGRAMS, UNIX, parse_endpoint
from headrace.link.lockout import Lockout, Record
from headrace.link.syn_filter import Network, apply_filter, listening_sockets, network_of, text_of
from headrace.units import format_count

_LOOK_S = 0.25
_COST_MAX = 0.01  # of the processor, for looking
_TOLD_MAX = 5  # networks of one look in the log

log = logging.getLogger("headrace.link")


@dataclass(frozen=True, slots=True)
class Guesser:
    """A network of which many logins have failed, the latest a short while ago. `left_s`: it may not connect."""

    network: str
    failures: int
    left_s: float


class Door:
    """Watches the TCP ports of one session until `close`. `refused` is called for each network with failed logins."""

    def __init__(
        self, session: zenoh.Session, endpoints: Sequence[str], refused: Callable[[str, str], None] | None = None
    ) -> None:
        """`endpoints` are those on which the session listens, with their ports."""
        parsed = [parse_endpoint(text) for text in endpoints]
        self._ports = {each.port for each in parsed if each.protocol not in (UNIX, *DATAGRAMS)}
        self._sockets = listening_sockets(self._ports)
        self._refused = refused or (lambda network, why: None)
        self._lock, self._lockout = threading.Lock(), Lockout()
        self._linked: dict[Remote, bool] = {}  # whether it still is, by remote end
        self._seen: set[Remote] = set()  # connections that are open, or are judged
        self._judged: set[Remote] = set()
        self._locked: frozenset[Network] = frozenset()
        self._stopped = threading.Event()
        self.failure = ""  # why nobody is locked out
        self._listener: Any = session.info.declare_link_events_listener(
            zenoh.handlers.Callback(guarded(self._note_link), indirect=False)
        )
        for link in session.info.links():
            self._link(link.dst)
        for text in (str(each) for each in parsed if each.protocol in DATAGRAMS):
            log.warning("failed logins at %s are not noticed: use tls/ instead", text)
        with suppress(OSError):  # what failed before is counted already, or was not ours
            self._judged = {remote for port in self._ports for remote, closed in connections(port).items() if closed}
        self._thread = GuardedThread(self._run, "headrace-door", until=self._stopped.is_set, daemon=True)
        if self._ports:
            self._thread.start()

    @property
    def failures(self) -> int:
        """Failed logins since the session was opened."""
        with self._lock:
            return self._lockout.failures

    def guessers(self) -> list[Guesser]:
        now = time.monotonic()
        with self._lock:
            found = self._lockout.guessers(now)
            return [
                Guesser(text_of(network), each.failures, max(0.0, each.until - now)) for network, each in found.items()
            ]

    def close(self) -> None:
        """Idempotent; call it before the session is closed."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        with suppress(zenoh.ZError):
            self._listener.undeclare()
        for each in self._sockets:
            each.close()
        self._sockets = []

    # --- links ------------------------------------------------------------------------------------

    def _note_link(self, event: zenoh.LinkEvent) -> None:
        """On Zenoh's thread."""
        if event.kind == zenoh.SampleKind.PUT:
            self._link(event.link.dst)
        elif (remote := remote_of(event.link.dst)) is not None:
            with self._lock:
                if remote in self._linked:
                    self._linked[remote] = False

    def _link(self, endpoint: str) -> None:
        if (remote := remote_of(endpoint)) is not None:
            with self._lock:
                self._linked[remote] = True
                self._lockout.link(network_of(remote.address))

    # --- looking ----------------------------------------------------------------------------------

    def _run(self) -> None:
        wait_s = _LOOK_S
        while not self._stopped.wait(wait_s):
            begun = time.perf_counter()
            try:
                self._look(time.monotonic())
                self.failure = ""
            except OSError as error:  # the kernel refuses, perhaps not next time
                if not self.failure:
                    log.error("failed logins are not noticed, and nobody is locked out: %s", error)
                self.failure = str(error)
            wait_s = max(_LOOK_S, (time.perf_counter() - begun) / _COST_MAX)

    def _look(self, now: float) -> None:
        found: dict[Remote, bool] = {}
        for port in self._ports:
            found |= connections(port)
        with self._lock:
            failed = self._judge(found, now)
            locked = frozenset(self._lockout.locked(now))
        self._tell(failed)
        if locked != self._locked:
            apply_filter(self._sockets, locked)
            self._locked = locked

    def _judge(self, found: dict[Remote, bool], now: float) -> dict[Network, tuple[int, Record]]:
        """Count what has failed since the last look: how often, and the record, by network."""
        closed: dict[Network, int] = {}
        told: dict[Network, tuple[int, Record]] = {}
        for remote, is_closed in found.items():
            if is_closed and remote not in self._linked and remote not in self._judged:
                self._judged.add(remote)
                network = network_of(remote.address)
                closed[network] = closed.get(network, 0) + 1
        for network, count in closed.items():
            told[network] = (count, self._lockout.fail(network, count, now))
        for remote in self._seen - found.keys() - self._judged - self._linked.keys():
            network = network_of(remote.address)
            if (record := self._lockout.question(network, now)) is not None:
                told[network] = (told.get(network, (0, record))[0] + 1, record)
        self._judged &= found.keys()
        self._seen = set(found)
        for remote in [each for each, is_linked in self._linked.items() if not is_linked and each not in found]:
            del self._linked[remote]
        return told

    def _tell(self, failed: dict[Network, tuple[int, Record]]) -> None:
        for place, (network, (count, record)) in enumerate(failed.items()):
            now = time.monotonic()
            logins = format_count(count, "failed login")
            why = f"{logins} from {text_of(network)}, {record.failures:,} in all"
            if record.until > now:
                why += f"; it is locked out for {max(1, round(record.until - now))} s"
            self._refused(text_of(network), why)
            if place < _TOLD_MAX:
                log.warning("%s", why)
        if len(failed) > _TOLD_MAX:
            log.warning("failed logins from %d more networks", len(failed) - _TOLD_MAX)

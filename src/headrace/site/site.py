"""Site: a running node. Its queue, its place in the fabric, its requests.

Nothing here knows of files and signals (site/daemon.py does), so that several sites can run in one process.
"""

import fcntl
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import zenoh

from headrace.errors import FabricError, QueueBusyError
from headrace.link.access import Rule
from headrace.link.declarations import Declarations
from headrace.link.keys import site_key
from headrace.queue import Queue
from headrace.relay.flows import FlowStatistics
from headrace.relay.messages.beat import INTERVAL_S
from headrace.relay.messages.description import Description
from headrace.relay.quench import Quench
from headrace.relay.receive.progress import RequestProgress
from headrace.relay.receive.receiver import Arrivals, Receiver, Request
from headrace.relay.receive.upstream import UpstreamStatistics
from headrace.relay.send import Streams
from headrace.relay.serve import Server
from headrace.remote.server.attendant import Attendant, AttendantStatistics
from headrace.site.describing import describe

_LOOK_S = 2.0
_PID_BYTES = 20

log = logging.getLogger("headrace.site")


class UpstreamState(msgspec.Struct, frozen=True):
    """One site that serves one request."""

    request: str
    site: str
    base: int
    counts: UpstreamStatistics


class SiteStatistics(msgspec.Struct, frozen=True):
    """A site at one moment."""

    name: str
    upstreams: list[UpstreamState]
    arrivals: dict[str, Arrivals]
    streams: dict[str, int]  # products sent, by stream
    flows: list[FlowStatistics]
    answered: int
    refused: int
    attendant: AttendantStatistics


class Site:
    """Runs from the moment it is made until `close`. The queue and the session are the caller's.

    A queue has one site at a time: QueueBusyError if it has one. What fails to start leaves nothing running.
    """

    def __init__(
        self, session: zenoh.Session, queue: Queue, requests: list[Request], *, beat_s: float = INTERVAL_S,
        progress: Path | None = None, rules: Sequence[Rule] = (), principal: str | None = None,
    ) -> None:  # fmt: skip
        """`rules` say what others may have of the log and do with the queue; the session has its own.

        `principal` is the name by which other sites know this one, where they have rules.
        """
        self.name = queue.config.origin
        self._session, self._queue, self._principal = session, queue, principal
        with ExitStack() as parts:
            parts.enter_context(_held(queue.path))
            self._check_name(session)
            self._start(parts, requests, beat_s, progress or queue.path / "site" / "progress.json", rules)
            self._parts = parts.pop_all()

    def _start(
        self, parts: ExitStack, requests: list[Request], beat_s: float, progress: Path, rules: Sequence[Rule]
    ) -> None:
        """Each part is closed before those that it needs."""
        session, queue = self._session, self._queue
        self._declarations = Declarations(session)
        parts.callback(self._declarations.close)
        self._streams = Streams(session, queue, self.name, beat_s)
        parts.callback(self._streams.close)
        self._progress = RequestProgress(progress)
        self._receiver = self._receive(requests)
        parts.callback(lambda: self._receiver.close())  # the one of then
        self._attendant = Attendant(session, self._declarations, queue, self.name, rules)
        parts.callback(self._attendant.close)
        self._quench = Quench(session, self._streams, queue, self.name, self._attendant.readers.patterns)
        parts.callback(self._quench.close)
        self._server = Server(
            session, self._declarations, queue, self.name, self._streams.listen, self._describe, rules
        )
        parts.callback(self._server.close)
        key = site_key(self.name, str(session.zid()))
        parts.callback(self._declarations.add(lambda: session.liveliness().declare_token(key)).undeclare)

    def _check_name(self, session: zenoh.Session) -> None:
        """Two sites of one name would be taken for one by everybody else."""
        mine = site_key(self.name, str(session.zid()))
        for reply in session.liveliness().get(site_key(self.name, "*"), timeout=_LOOK_S):
            if reply.ok is not None and str(reply.ok.key_expr) != mine:
                raise FabricError(
                    f"there is a site called {self.name!r} already", "stop it, or give this one another name"
                )

    def statistics(self) -> SiteStatistics:
        return SiteStatistics(
            self.name,
            [UpstreamState(request, upstream.site, upstream.track.base, upstream.statistics)
             for request, upstream in self._receiver.upstreams()],
            self._receiver.arrivals,
            {stream.name: stream.products for stream in self._streams.all()},
            self._receiver.flows.statistics(),
            self._server.answered,
            self._server.refused,
            self._attendant.statistics(),
        )  # fmt: skip

    def describe(self) -> Description:
        """Everything about this site that others may ask for."""
        return self._describe(self._server)

    def _describe(self, server: Server) -> Description:
        return describe(
            self._session, self._queue, server, self._streams, self._receiver, self._attendant, self._quench
        )

    def _receive(self, requests: list[Request]) -> Receiver:
        return Receiver(
            self._session, self._declarations, self._queue, self.name, requests, self._progress, self._principal
        )

    def change_requests(self, requests: list[Request]) -> None:
        """Other requests from now on; those that stay go on where they are."""
        self._receiver.close()
        self._receiver = self._receive(requests)

    def hop(self, sequence: int) -> str | None:
        """The site through which a product of the queue has come; None if it was put here."""
        return self._receiver.hops.site_of(sequence)

    def close(self) -> None:
        """May be said twice."""
        self._parts.close()


@contextmanager
def _held(queue: Path) -> Iterator[None]:
    """Two sites at one queue would overwrite each other's progress.

    The lock is the kernel's, and ends with the process that holds it, however that ends.
    """
    path = queue / "site" / "lock"
    path.parent.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _lock(descriptor, queue)
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked may have the descriptor, too
        os.close(descriptor)


def _lock(descriptor: int, queue: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, _PID_BYTES, 0).decode(errors="replace").strip()
        raise QueueBusyError(
            f"{queue} has a site that runs already" + (f", process {holder}" if holder else ""),
            "stop that one first, or give this one a queue of its own",
        ) from None
    with suppress(OSError):  # it is only there to be told, and the disk may be full
        os.pwrite(descriptor, f"{os.getpid()}".ljust(_PID_BYTES).encode(), 0)

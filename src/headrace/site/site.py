"""Site: a running node: its queue, its session in the fabric, its requests, and what it serves to others.

Configuration files and signals are elsewhere (daemon.py), so that several sites can run in one process.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import zenoh

from headrace.errors import FabricError, QueueBusyError, QueueMovedError
from headrace.files import make_folder
from headrace.link.audit import Audit
from headrace.link.declarations import Declarations
from headrace.link.door import Door
from headrace.link.keys import site_key
from headrace.link.presence import sites_present
from headrace.link.quotas import QuotaTable
from headrace.link.rights import EVERY_FEED, Feeds, Rule
from headrace.link.session import SessionTerms
from headrace.log.locks import FileLockedError, locked
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.queue.request_files import RequestFiles, check_requests
from headrace.queue.request_lags import LagFile
from headrace.relay.examine import TooLarge
from headrace.relay.flows import FlowStatistics
from headrace.relay.messages.beat import INTERVAL_S
from headrace.relay.messages.description import Description, Problem
from headrace.relay.messages.page import PAGE_BYTES_MAX
from headrace.relay.quench import Quench
from headrace.relay.receive.counts import Arrivals, Tally, UpstreamStatistics
from headrace.relay.receive.progress import RequestProgress
from headrace.relay.receive.receiver import Receiver, Request
from headrace.relay.send import Streams
from headrace.relay.serve import Server
from headrace.relay.signing.terms import SigningTerms
from headrace.remote.server.server import RemoteServer, RemoteServerStatistics
from headrace.site.audit_problems import audit_problems
from headrace.site.clock_problems import clock_problems
from headrace.site.describe import describe, request_lags
from headrace.site.door_problems import door_problems
from headrace.site.joins import note_joins
from headrace.site.problems import site_problems, thread_problems
from headrace.site.quota_problems import quota_problems
from headrace.site.watch import Watch
from headrace.timing.clock.keeper import Keeper
from headrace.timing.clock.terms import ClockTerms

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
    remote: RemoteServerStatistics


class Site:
    """Runs from its construction until `close`. The queue and the session belong to the caller.

    A queue has one site at a time: QueueBusyError if it has one. A site that fails to start leaves nothing running.
    """

    def __init__(
        self, session: zenoh.Session, queue: Queue, requests: list[Request], *, beat_s: float = INTERVAL_S,
        rules: Sequence[Rule] = (), principal: str | None = None, terms: SessionTerms | None = None,
        tally: Tally | None = None, clock: ClockTerms | None = None, quotas: QuotaTable | None = None,
        audit: Audit | None = None, door: Door | None = None, signing: SigningTerms | None = None,
    ) -> None:  # fmt: skip
        """`rules` say what others may read from the log and do with the queue; the session has its own copy.

        `principal` is the name by which other sites know this one, for their rules. `terms` are those of the session:
        endpoints that it does not reach are problems of the site. `tally` has the counts of an earlier session.
        `clock` says where its time comes from; without it, nobody keeps the clock. `quotas` are what each principal may
        use, and may change while the site runs. `audit` notes who did what, and belongs to the caller.
        `door` knows who guesses passwords. `signing` says whether its products are signed, and which signatures of
        others are verified.
        """
        self.name = queue.config.origin
        self._session, self._queue, self._principal, self._terms = session, queue, principal, terms
        self._tally, self._too_large, self._rules = tally or Tally(), TooLarge(), rules
        self._quotas, self._audit = quotas or QuotaTable(), audit or Audit(None)
        signing = signing or SigningTerms()
        self._pack, self._verifier = signing.pack(self.name), signing.verifier(queue)
        self._keeper: Keeper | None = None
        self._door = door
        with ExitStack() as parts:
            parts.enter_context(_only_site(queue.path))
            self._check_name(session)
            self.change_clock(clock)
            parts.callback(lambda: self.change_clock(None))
            self._start(parts, requests, beat_s, rules)
            self._parts = parts.pop_all()

    def _start(self, parts: ExitStack, requests: list[Request], beat_s: float, rules: Sequence[Rule]) -> None:
        """Each part is closed before those that it needs."""
        session, queue, started_ns = self._session, self._queue, log_of(self._queue).now_ns()
        self._declarations = Declarations(session)
        parts.callback(self._declarations.close)
        parts.callback(note_joins(session, self._audit).undeclare)
        self._streams = Streams(session, queue, self.name, beat_s, started_ns=started_ns, too_large=self._too_large,
                                quotas=self._quotas if rules else None, pack=self._pack)  # fmt: skip
        parts.callback(self._streams.close)
        check_requests(log_of(queue).kernel, queue.path)
        self._progress = RequestProgress(queue.path / RequestFiles.file)
        self._receiver = self._receive(requests)
        parts.callback(lambda: self._receiver.close())  # `change_requests` may have replaced it
        self._remote = RemoteServer(
            session,
            self._declarations,
            queue,
            self.name,
            rules,
            self._principal,
            quotas=self._quotas,
            audit=self._audit,
            verifier=self._verifier,
        )
        parts.callback(self._remote.close)
        lags = LagFile(queue.path)
        parts.callback(self._in_place, lags.remove)
        self._watch = Watch(
            session, self.name, self._terms, self._problems,
            lambda: self._in_place(lambda: lags.save(request_lags(self._receiver))),
        )  # fmt: skip
        parts.callback(self._watch.close)
        self._quench = Quench(session, self._streams, queue, self.name, self._remote.recent_reads.patterns)
        parts.callback(self._quench.close)
        self._server = Server(
            session, self._declarations, queue, self.name, self._streams.listen, self._describe, rules,
            started_ns=started_ns, beat_s=beat_s, too_large=self._too_large,
            narrow=lambda first, last: self._receiver.hops.without_received(first, last),
            find_sources=lambda first, last: self._receiver.hops.sources(first, last), pack=self._pack,
        )  # fmt: skip
        parts.callback(self._server.close)
        key = site_key(self.name, str(session.zid()))
        parts.callback(self._declarations.add(lambda: session.liveliness().declare_token(key)).undeclare)
        parts.callback(self._remote.leave)  # before that token goes

    def _check_name(self, session: zenoh.Session) -> None:
        """Two sites of one name would look like one to all others."""
        if set(sites_present(session, self.name)) - {str(session.zid())}:
            raise FabricError(
                f"a site called {self.name!r} is running already", "stop it, or give this one another name"
            )

    def statistics(self) -> SiteStatistics:
        return SiteStatistics(
            self.name,
            [UpstreamState(request, upstream.site, upstream.base, upstream.statistics)
             for request, upstream in self._receiver.upstreams()],
            self._receiver.arrivals,
            {stream.name: stream.products for stream in self._streams.all()},
            self._receiver.flows.statistics(),
            self._server.answered,
            self._server.refused,
            self._remote.statistics(),
        )  # fmt: skip

    def describe(self) -> Description:
        """Everything about this site that others may query."""
        return self._describe(self._server, EVERY_FEED)

    def _describe(self, server: Server, feeds: Feeds) -> Description:
        return describe(
            self._session, self._queue, server, self._streams, self._receiver, self._remote, self._quench,
            self.problems(), self._keeper.state if self._keeper is not None else None, feeds,
        )  # fmt: skip

    def problems(self) -> tuple[Problem, ...]:
        """What an operator should look at now."""
        return self._problems(self._watch.links)

    def _problems(self, links: Sequence[Problem]) -> tuple[Problem, ...]:
        now = time.monotonic()
        quotas = quota_problems(self._remote.refusals(), now)
        doors = door_problems(self._door)
        audit = audit_problems(self._audit)
        others = (*links, *clock_problems(self._keeper), *quotas, *doors, *audit, *thread_problems(now))
        return site_problems(
            self._queue, self._streams, self._receiver, self._too_large, others, now, self._rules,
        )  # fmt: skip

    def _in_place(self, act: Callable[[], None]) -> None:
        """Do something in the directory of the queue, unless that has been moved: then it is one of the problems."""
        with suppress(QueueMovedError):
            log_of(self._queue).check_open()
            act()

    def _receive(self, requests: list[Request]) -> Receiver:
        return Receiver(
            self._session, self._declarations, self._queue, self.name, requests, self._progress, self._principal,
            self._tally, self._rules,
            record_bytes=PAGE_BYTES_MAX if self._terms is None else self._terms.record_bytes_max,
            audit=self._audit, verifier=self._verifier,
        )  # fmt: skip

    @property
    def requests(self) -> list[Request]:
        """Those that are in force."""
        return self._receiver.requests

    def change_requests(self, requests: list[Request]) -> None:
        """Replace the requests; those that stay continue at their position."""
        self._receiver.close()
        self._receiver = self._receive(requests)

    def change_clock(self, terms: ClockTerms | None) -> None:
        """Keep the clock by other terms; None: no longer. It continues from what it shows."""
        if self._keeper is not None:
            self._keeper.close()
        self._keeper = None if terms is None else Keeper(self._queue.path, log_of(self._queue), terms)

    def hop(self, sequence: int) -> str | None:
        """The site through which a product of the queue has come; None if it was put here."""
        return self._receiver.hops.site_of(sequence)

    def close(self) -> None:
        """Stop everything; idempotent."""
        self._parts.close()


@contextmanager
def _only_site(queue: Path) -> Iterator[None]:
    """Hold the lock of the queue's site: two sites at one queue would overwrite each other's progress."""
    path = queue / "site" / "lock"
    make_folder(path.parent)
    with ExitStack() as held:
        try:
            held.enter_context(locked(path, wait=False))
        except FileLockedError as error:
            raise QueueBusyError(
                f"{queue} has a running site already" + (f", process {error.holder}" if error.holder else ""),
                "stop that one first, or give this one a queue of its own",
            ) from None
        yield

"""Receiver: all requests of a site, and the upstreams that serve them.

Sites are known by their liveliness tokens, which come and go with their sessions. For each request and each site that
may serve it there is an upstream. It stays when the site goes, and continues when the site comes back. What arrives
goes into the site's queue (intake.py). How far each upstream is, is saved by what it asks for (progress.py) and shown
by the request's name.
"""

import logging
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial

import zenoh

from headrace.errors import HeadraceError
from headrace.guard import GuardedThread, guarded
from headrace.link.audit import Audit
from headrace.link.declarations import Declarations
from headrace.link.keys import site_key, site_of
from headrace.link.rights import Rule
from headrace.log.records import rows_of
from headrace.product.put import is_origin
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.queue.request_files import note_requests
from headrace.relay.islands import Circles
from headrace.relay.messages.description import Description
from headrace.relay.messages.page import PAGE_BYTES_MAX, Keep, Page, queue_id
from headrace.relay.messages.query import Describe, IdentifyReply
from headrace.relay.receive.admission import Admission, Gate, nobody_vouches
from headrace.relay.receive.arrived import arrived_since, still_missing
from headrace.relay.receive.counts import Arrivals, Tally
from headrace.relay.receive.driver import Driver
from headrace.relay.receive.failover_thread import FailoverThread
from headrace.relay.receive.intake import Intake
from headrace.relay.receive.live_buffer import LiveBudget
from headrace.relay.receive.losses import LossFile
from headrace.relay.receive.meeting import Meeting
from headrace.relay.receive.places import Places
from headrace.relay.receive.pool import Pool
from headrace.relay.receive.progress import RequestProgress, asked_text
from headrace.relay.receive.standby import Standby
from headrace.relay.receive.track import Known, everything_of
from headrace.relay.receive.upstream import Upstream
from headrace.relay.signing.verify import Verifier
from headrace.relay.site_client import SiteClient
from headrace.selection import Selection

SITES_MAX = 4096  # present at a time; any client can declare the token of a site
_SAVE_S = 1.0
_DESCRIBE_S = 2.0

log = logging.getLogger("headrace.fabric")


@dataclass(frozen=True, slots=True)
class Request:
    """What a site wants from others. Without `sites`, it comes from the site at which it was put."""

    name: str
    selection: Selection
    begin_at: str = "next"
    sites: tuple[str, ...] = ()
    redundancy: str = "all"  # of `sites`; or "failover": from one of them at a time
    compress: str = ""  # pages for the link: "zstd"

    @property
    def asked(self) -> str:
        """The key of its progress: the selection, and nothing that can change while the selection stays the same."""
        return asked_text(self.selection, relayed=bool(self.sites))

    @property
    def has_failover(self) -> bool:
        return self.redundancy == "failover" and len(self.sites) > 1

    def may_come_from(self, site: str) -> bool:
        return site in self.sites if self.sites else self.selection.wants_origin(site)


class Receiver:
    """Receives from the moment it is made until `close`."""

    def __init__(
        self, session: zenoh.Session, declarations: Declarations, queue: Queue, site: str, requests: list[Request],
        progress: RequestProgress, principal: str | None = None, tally: Tally | None = None,
        rules: Sequence[Rule] = (), record_bytes: int = PAGE_BYTES_MAX, audit: Audit | None = None,
        verifier: Verifier | None = None,
    ) -> None:  # fmt: skip
        """`rules` say what each site may bring; `audit` notes what it may not.

        `verifier` holds products against the signatures of their origins.
        """
        self._session, self._declarations = session, declarations
        self._queue, self._site, self._progress, self._principal = queue, site, progress, principal
        self.requests, self.tally, self._record_bytes = requests, tally or Tally(), record_bytes
        self.unsaved = ""  # why progress could not be saved
        self._pool = Pool()
        self._upstreams: dict[tuple[str, str], Driver] = {}
        self._places, self._budget = Places(), LiveBudget()
        self._verifier, vouch = verifier, nobody_vouches if verifier is None else verifier.vouched_in
        self._admission = Admission(rules, vouch, audit=audit)
        self._present: set[str] = set()
        self._meeting: set[str] = set()  # sites that are being asked for their identity
        self._intake = Intake(
            queue, site, self.tally, remembers=any(request.has_failover for request in requests), verifier=verifier
        )
        self.flows, self.hops = self._intake.flows, self._intake.hops
        self._losses = LossFile(queue.path)
        self._losses.restore(self.tally)
        self._lock, self._saving = threading.Lock(), threading.Lock()
        self._stopped = threading.Event()
        self._arrived = self._begin_progress()
        self._circles = Circles(
            site, lambda name: SiteClient(session, name, principal).query(Describe(), Description, _DESCRIBE_S)
        )
        self._failovers = {request.name: self._add_failover(request) for request in requests if request.has_failover}
        try:
            self._tokens = declarations.add(
                lambda: session.liveliness().declare_subscriber(site_key("*", "*"), guarded(self._see), history=True)
            )
        except BaseException:
            self._pool.close()
            raise
        self._saver = GuardedThread(self._save_regularly, "headrace-progress", until=self._stopped.is_set)
        self._saver.start()
        for failover in self._failovers.values():
            failover.start()
        for request in requests:
            for name in () if request.has_failover else request.sites:
                self._add(request, name)

    def _begin_progress(self) -> dict[str, dict[str, int]]:
        """Return what has arrived since progress was last saved, by origin and feed.

        That is known only if a single request can have brought it; otherwise it is empty.
        """
        asking = [request.asked for request in self.requests]
        since = self._progress.since(asking)
        for request in self.requests:
            if request.begin_at != "oldest":
                self._progress.adopt(request.asked, request.may_come_from)
        self._progress.begin(asking, since or self._queue.next)
        self._write()
        return arrived_since(self._queue, since) if since and len(asking) == 1 else {}

    # --- which upstreams there are ------------------------------------------------------------------

    def _see(self, sample: zenoh.Sample) -> None:
        """Runs on Zenoh's thread: a site has appeared or disappeared."""
        key = str(sample.key_expr)
        name = site_of(key)
        if name == self._site:
            if key != site_key(name, str(self._session.zid())):
                log.error("another site has the name %s: rename one of the two", name)
        elif sample.kind == zenoh.SampleKind.DELETE:
            self._present.discard(name)
        elif not self._stopped.is_set() and is_origin(name):
            if len(self._present) >= SITES_MAX and name not in self._present and not self._admission.names(name):
                with self._lock:
                    self._places.turn_away(("", name))
                return
            self._present.add(name)
            if name not in self._meeting:
                self._meeting.add(name)
                Meeting(
                    self._pool, self._session, name, self._principal, begun=self._add_origin, ended=self._met
                ).start()

    def _met(self, name: str, identity: IdentifyReply | None) -> None:
        """Request from a site that appeared what it holds of origins that are away; it is asked for its own already."""
        self._meeting.discard(name)
        if identity is None or self._stopped.is_set():
            return
        for _, upstream in self.upstreams():
            if upstream.site == name:
                upstream.site_appeared()
        with self._lock:
            self._places.begin_list(name)
        for origin in identity.origins:
            if origin != self._site and origin not in self._present:
                self._add_origin(origin, name)

    def _add_origin(self, name: str, listed_by: str = "") -> None:
        """Request from an origin; one that is away, from a site that lists it and may bring what others put."""
        for request in self.requests:
            if request.sites or not request.selection.wants_origin(name):
                continue
            if not listed_by or self._admission.may_bring_foreign(listed_by, request.selection.feed or "**"):
                self._add(request, name, listed_by)

    def _add(self, request: Request, name: str, listed_by: str = "") -> None:
        key = (request.name, name)
        with self._lock:
            if not listed_by:
                self._places.confirm(key)
            if key in self._upstreams or self._stopped.is_set():
                return
            if not self._places.is_free(key, listed_by, self._upstreams, is_named=self._admission.names(name)):
                log.debug("request %s: there is no place for site %s", *key)
                return
            upstream = self._open(request, name)
            self._upstreams[key] = upstream
            upstream.start()  # under the lock: nobody must find it and stop it before it is started

    def _open(self, request: Request, name: str) -> Driver:
        """An upstream that is not started yet, from where the request is at this site.

        What was put at a site has the same sequence here as there, so our queue says how far a feed is. That holds as
        long as only that site serves the request: its products of a feed come in order, relayed ones among them.
        """
        known, relayed = self._progress.known(request.asked, name), bool(request.sites)
        if not known:
            log.info("request %s is new to site %s: it begins at its `from`", request.name, name)
        upstream = Upstream(
            name, request.selection, request.begin_at, time.monotonic, relayed=relayed,
            others=partial(self._others, request, name) if len(request.sites) > 1 else None, known=known,
            ahead=self._arrived.get(name) if known and len(request.sites) < 2 else None,
            statistics=self.tally.upstream(request.name, name), compresses=bool(request.compress),
        )  # fmt: skip
        return self._drive(request, upstream)

    def _drive(self, request: Request, machine: Upstream | Standby) -> Driver:
        name, gate = machine.site, self._admission.gate(machine.selection)
        feeds = machine.selection.feed or "**"
        upstream = Driver(
            machine, self._pool, self._session, self._declarations, principal=self._principal,
            store=lambda page, keep: self._put(request, upstream, gate, page, keep),
            admit=lambda page: self._intake.admitted(request.name, gate, page),
            find_missing=lambda first, last, since: still_missing(self._queue, name, first, last, since),
            recognise=self._intake.recognise,
            holders=lambda: self._admission.holders(self._present.copy() - {name}, feeds),
            save_progress=self._save, budget=self._budget, now_ns=log_of(self._queue).now_ns,
            compress=request.compress, record_bytes=self._record_bytes,
        )  # fmt: skip
        return upstream

    def _put(
        self, request: Request, upstream: Driver, gate: Gate, page: Page, keep: Keep | None
    ) -> Generator[float, None, None]:
        """A live page of a fail-over is new, unless the queue recognises nothing: only pages from a log may repeat."""
        rows_of(page.batch).lend(upstream.dictionaries(page.head.site))
        is_new = upstream.statistics.state == "live" and self._intake.has_signatures
        return self._intake.put(request.name, gate, page, keep, may_repeat=request.has_failover and not is_new)

    def _add_failover(self, request: Request) -> FailoverThread:
        return FailoverThread(
            request.name, request.selection, request.begin_at, request.sites,
            drive=lambda machine: self._drive(request, machine),
            saved=lambda name: self._progress.known(request.asked, name),
            statistics=lambda name: self.tally.upstream(request.name, name),
            is_present=lambda name: name in self._present,
            takes_from_us=lambda name: self._circles.takes_from_us(name, request.selection.feed or "**"),
            ours=self._site, our_queue=queue_id(self._queue),
        )  # fmt: skip

    def _others(self, request: Request, site: str) -> dict[str, Known]:
        """How far a request is at its other sites; what our own queue has ever held has arrived."""
        with self._lock:
            known = {name: upstream.known for (of, name), upstream in self._upstreams.items()
                     if of == request.name and name != site}  # fmt: skip
        return {**known, self._site: everything_of(queue_id(self._queue))}

    @property
    def arrivals(self) -> dict[str, Arrivals]:
        """By the name of the request."""
        return {request.name: self.tally.arrivals(request.name) for request in self.requests}

    @property
    def turned_away(self) -> dict[str, int]:
        """How many upstreams found no place, by the site that listed their origins; empty: they are present."""
        with self._lock:
            return self._places.turned_away

    def upstreams(self) -> list[tuple[str, Driver]]:
        """Each upstream, with the name of its request; the standbys of fail-over requests too."""
        with self._lock:
            found = [(request, upstream) for (request, _), upstream in self._upstreams.items()]
        return found + [(name, upstream) for name, each in self._failovers.items() for upstream in each.upstreams]

    # --- progress -----------------------------------------------------------------------------------

    def _save_regularly(self) -> None:
        while not self._stopped.wait(_SAVE_S):
            self._save()

    def _save(self, *, is_last: bool = False) -> int:
        """Save how far all upstreams are; the sequence that our next product had before that."""
        with self._saving:
            next_sequence = self._queue.next  # before the bases: what arrives in between is found again from here
            self._progress.note(next_sequence, self._positions())
            if is_last:
                self._progress.end()
            self._write()
        return next_sequence

    def _write(self) -> None:
        """Write progress, hops and losses. If the disk refuses, the next save tries again."""
        try:
            log_of(self._queue).check_open()  # where a moved queue was, nothing is created
            self._progress.save(self._flush)
            if self._progress.has_positions:
                note_requests(log_of(self._queue).kernel)
            self.hops.save(self._queue.oldest)
            if self._verifier is not None:
                self._verifier.replays.save()
            self._losses.save(self.tally)
            self.unsaved = ""
        except (HeadraceError, OSError) as error:
            self.unsaved = str(error)
            log.log(logging.ERROR if self._stopped.is_set() else logging.DEBUG, "progress is not saved: %s", error)

    def _positions(self) -> list[tuple[str, str, Known]]:
        """What is asked of which site, and how far it is there; sites that have never replied are left out."""
        asked = {request.name: request.asked for request in self.requests}
        known = [(asked[request], upstream.site, upstream.known) for request, upstream in self.upstreams()]
        return [each for each in known if each[2].queue]

    def _flush(self) -> None:
        """What has arrived survives a power failure before progress says that it has arrived."""
        if self._queue.config.durability != "memory":  # there progress does not survive a power failure either
            self._queue.flush()

    def close(self) -> None:
        """Stop. Nothing that was taken is lost: each upstream ends between two pages."""
        self._stopped.set()
        self._tokens.undeclare()
        for failover in self._failovers.values():
            failover.stop()
        for _, upstream in self.upstreams():
            upstream.end()
        for _, upstream in self.upstreams():
            upstream.stop()
        self._pool.close()
        self._saver.join()
        self._save(is_last=True)

"""FailoverThread: runs one fail-over request: a thread that compares the sites, and an upstream or standby for each.

The thread calls `Failover.look` twice a second and never waits for a site that is dead: what is left behind ends by
itself, and is replaced by a standby when it has ended.
"""

import threading
import time
from collections.abc import Callable
from functools import partial

from headrace.guard import GuardedThread
from headrace.relay.receive.counts import UpstreamStatistics
from headrace.relay.receive.driver import Driver
from headrace.relay.receive.failover import LOOK_S, Failover, Running
from headrace.relay.receive.standby import Served, Standby
from headrace.relay.receive.track import Known, everything_of
from headrace.relay.receive.upstream import Upstream
from headrace.selection import Selection

_CIRCLE_LOOKS = 10  # between two searches for a circle

Drive = Callable[[Upstream | Standby], Driver]
Question = Callable[[str], bool]  # about a site


class FailoverThread:
    """Runs from `start` to `stop`.

    `drive` makes the thread of a machine, `saved` returns where the request was at a site when we last ended, and
    `statistics` its counts there, which continue; `ours` is our own site, whose products are never missing.
    """

    def __init__(
        self, name: str, selection: Selection, begin_at: str, sites: tuple[str, ...], *, drive: Drive,
        saved: Callable[[str], Known | None], statistics: Callable[[str], UpstreamStatistics], is_present: Question,
        takes_from_us: Question, ours: str, our_queue: bytes,
    ) -> None:  # fmt: skip
        self._selection, self._begin_at, self._ours = selection, begin_at, ours
        self._our_queue = our_queue
        self._drive, self._saved, self._statistics = drive, saved, statistics
        self._upstreams: dict[str, Driver] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = GuardedThread(self._run, f"headrace-failover-{name}", until=self._stopped.is_set)
        self._make: Callable[[], Failover] = partial(
            Failover, name, sites, time.monotonic, serve=self._serve, stand_by=self._stand_by, is_present=is_present,
            takes_from_us=takes_from_us,
        )  # fmt: skip
        self._failover: Failover | None = None

    @property
    def upstreams(self) -> list[Driver]:
        """At all sites; those that stand by say so in their state."""
        with self._lock:
            return list(self._upstreams.values())

    def start(self) -> None:
        self._failover = self._make()
        self._thread.start()

    def stop(self) -> None:
        """Return when everything has ended, between two pages."""
        self._stopped.set()
        self._thread.join()
        for upstream in self.upstreams:
            upstream.end()
        for upstream in self.upstreams:
            upstream.stop()

    def _run(self) -> None:
        looks = 0
        while not self._stopped.wait(LOOK_S):
            looks += 1
            if self._failover is not None:
                if looks % _CIRCLE_LOOKS == 0 and self._served_by():
                    self._failover.look_for_circle()
                self._failover.look()

    def _serve(self, site: str, before: Running | None, from_oldest: bool) -> Driver:
        """Take the request from this site, from where `before` ended."""
        begin_at = "oldest" if from_oldest else self._begin_at
        machine = Upstream(
            site, self._selection, begin_at, time.monotonic, relayed=True,
            others=partial(self._others, site), known=self._known(site, before), statistics=self._statistics(site),
        )  # fmt: skip
        return self._begin(machine)

    def _stand_by(self, site: str, before: Running | None) -> Driver:
        machine = Standby(
            site, self._selection, self._begin_at, time.monotonic, self._served_by, partial(self._others, site),
            known=self._known(site, before), ours=self._ours, statistics=self._statistics(site),
        )  # fmt: skip
        return self._begin(machine)

    def _known(self, site: str, before: Running | None) -> Known | None:
        known = self._saved(site) if before is None else before.known
        return known if known is not None and known.queue else None

    def _others(self, site: str) -> dict[str, Known]:
        """How far the request is at the other sites; what our own queue has ever held has arrived."""
        known = {upstream.site: upstream.known for upstream in self.upstreams if upstream.site != site}
        return {**known, self._ours: everything_of(self._our_queue)}

    def _served_by(self) -> Served | None:
        """The active site and the position there, if it is live."""
        active = self._failover.active if self._failover is not None else None
        if active is None or active.statistics.state != "live":
            return None
        return active.site, taken_from(active.known, active.statistics.refused_upto)

    def _begin(self, machine: Upstream | Standby) -> Driver:
        upstream = self._drive(machine)
        with self._lock:
            self._upstreams[machine.site] = upstream
            upstream.start()
        return upstream


def taken_from(known: Known, refused_upto: int) -> Known:
    """The position at a site, as if the request had begun behind what was refused: that has not arrived from there."""
    return known._replace(began=max(known.began, refused_upto + 1)) if refused_upto else known

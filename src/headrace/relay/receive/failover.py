"""Failover: a request that is served by one of several sites at a time, the best of them.

The sites are listed in order of preference. The active site is left if it has brought nothing and has not been live for
a few seconds, or has needed repair again and again, while another one is ready. A preferred site becomes active again
after it has been ready for half a minute.

How far the request is at each site is known at any time, in sequences of that site's queue: the upstream of the active
site knows it, and a standby (standby.py) of every other one. A switch continues at the position of the new site, which
reads everything behind it; what has come from elsewhere is recognised. No clock takes part in that: seconds decide only
when to switch. A site whose position is not known yet is read from its oldest product if the request has been served
before, by whichever site. A site that takes the request from us, directly or not, is not chosen (relay/islands.py).

No thread and no clock here: `look` is called about twice a second.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from headrace.relay.receive.counts import UpstreamStatistics
from headrace.relay.receive.track import Known

LOOK_S = 0.5
_SILENT_S = 3.0  # neither live nor bringing anything for so long: switch
_BACK_S = 30.0  # a preferred site must have been ready for so long
_END_S = 3.0  # longer than a put waits for room
_REPAIRS_MAX = 10  # within _WINDOW_S
_WINDOW_S = 20.0

log = logging.getLogger("headrace.fabric")


class Running(Protocol):
    """What serves the request at one site, or stands by: a machine and its driver, which is running."""

    @property
    def site(self) -> str: ...
    @property
    def known(self) -> Known: ...
    @property
    def statistics(self) -> UpstreamStatistics: ...
    def end(self) -> None:
        """Ask it to end between two pages; it may take as long as a query that is on its way."""

    def has_ended(self, within_s: float = 0.0) -> bool: ...


Serve = Callable[[str, Running | None, bool], Running]  # take the request from a site, see `Failover`
StandBy = Callable[[str, Running | None], Running]
Question = Callable[[str], bool]  # about a site


class Failover:
    """Serves one request."""

    def __init__(
        self, request: str, order: tuple[str, ...], now: Callable[[], float], *, serve: Serve, stand_by: StandBy,
        is_present: Question, takes_from_us: Question,
    ) -> None:  # fmt: skip
        """`serve(site, before, from_oldest)` begins to take the request from a site, where `before` ended.

        If that does not know where, at the site's oldest product or at the request's `from`. `stand_by(site, before)`
        begins to compare. `takes_from_us`: the site is served by us, directly or not, so that it cannot serve us.
        """
        self._request, self._order, self._now = request, order, now
        self._serve, self._stand_by = serve, stand_by
        self._is_present, self._takes_from_us = is_present, takes_from_us
        self._since = dict.fromkeys(order, 0.0)  # since when a site is ready; 0 if it is not
        self._alive = now()  # when the active site was last live, brought something, or began
        self._brought = (0, 0)
        self._repairs: list[tuple[float, int]] = []
        self._ending: list[Running] = []
        self.switches = 0
        self.is_circular = False  # the active site has everything from us
        self.active = serve(order[0], None, False)
        self.standbys = {site: stand_by(site, None) for site in order[1:]}

    def look(self) -> None:
        """Compare the sites, and switch if another one is better."""
        now = self._now()
        self._stand_by_where_ended()
        for site in self._order:
            self._since[site] = (self._since[site] or now) if self._is_ready(site) else 0.0
        statistics, known = self.active.statistics, self.active.known
        if statistics.state == "live" or (statistics.products, known.base) != self._brought:
            self._alive, self._brought = now, (statistics.products, known.base)
        for site in self._candidates(now):
            if not self._takes_from_us(site) and self._switch(site):
                return

    def look_for_circle(self) -> None:
        """Find out whether the active site takes the request from us, and so has nothing new."""
        is_circular = self._takes_from_us(self.active.site)
        if is_circular and not self.is_circular:
            log.warning("request %s: site %s serves it and takes it from this site: neither gets anything new; "
                        "let one of the two prefer another site", self._request, self.active.site)  # fmt: skip
        self.is_circular = is_circular

    def _stand_by_where_ended(self) -> None:
        for ended in [each for each in self._ending if each.has_ended()]:
            self._ending.remove(ended)
            self.standbys[ended.site] = self._stand_by(ended.site, ended)

    def _is_ready(self, site: str) -> bool:
        standby = self.standbys.get(site)
        return standby is not None and self._is_present(site) and standby.statistics.state == "standby"

    def _candidates(self, now: float) -> list[str]:
        """The sites to switch to, the best first; empty if the active one stays."""
        ready = [site for site in self._order if self._since[site]]
        if now - self._alive > _SILENT_S:
            return ready
        if self.is_circular or self._is_bad(now):
            return [site for site in ready if site != self.active.site]
        preferred = self._order[: self._order.index(self.active.site)]
        return [site for site in ready if site in preferred and now - self._since[site] > _BACK_S]

    def _is_bad(self, now: float) -> bool:
        """Whether the active site has needed repair again and again."""
        self._repairs = [(when, count) for when, count in self._repairs if now - when < _WINDOW_S]
        self._repairs.append((now, self.active.statistics.repairs))
        return self._repairs[-1][1] - self._repairs[0][1] > _REPAIRS_MAX

    def _switch(self, site: str) -> bool:
        """Switch to this site; False if its standby does not end, because the site does not reply."""
        log.warning("request %s: switching from site %s to %s", self._request, self.active.site, site)
        standby, left = self.standbys.pop(site), self.active
        standby.end()
        if not standby.has_ended(within_s=_END_S):
            self._ending.append(standby)
            return False
        left.end()  # it may wait for a site that is dead; the new one does not wait for that
        self._ending.append(left)
        was_served = bool(left.known.queue) or any(each.known.queue for each in self.standbys.values())
        self.active = self._serve(site, standby, was_served)
        self._alive, self._repairs, self._brought = self._now(), [], (0, 0)
        self.is_circular = False
        self.switches += 1
        return True

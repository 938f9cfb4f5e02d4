"""Failover: a request that is served by one of several sites at a time, the best of them.

The sites are listed in order of preference. The active site is left if it has not been live for a few seconds, or has
needed repair again and again, while another one is present. A preferred site becomes active again after it has been
present for half a minute. The new site is asked for everything since well before the request was last known to be
complete, by that site's own clock and sequences; the queue recognises what has come already by its signature. So a
switch repeats and never skips, also over a restart.
"""

import logging
import threading
import time
from collections.abc import Callable

from headrace.relay.receive.upstream_thread import UpstreamThread

_LOOK_S = 0.5
_SILENT_S = 3.0  # not live for so long: switch
_BACK_S = 30.0  # a preferred site must have been present for so long
_MARGIN_S = 600.0  # read again after a switch
_REPAIRS_MAX = 10  # within _WINDOW_S
_WINDOW_S = 20.0

log = logging.getLogger("headrace.fabric")

Open = Callable[[str, str | None], UpstreamThread]  # a site, and where to begin; None: where the request says


class Failover:
    """Serves one request; compares the sites twice a second from the moment it is made until `close`."""

    def __init__(self, request: str, sites: tuple[str, ...], is_present: Callable[[str], bool], open_one: Open) -> None:
        self._request, self._sites, self._is_present, self._open = request, sites, is_present, open_one
        self._since = dict.fromkeys(sites, 0.0)  # since when a site is present; 0 if it is not
        self._complete = 0.0  # when the request was last known to be complete
        self._begun = time.monotonic()
        self._repairs: list[tuple[float, int]] = []
        self._stopped = threading.Event()
        self.switches = 0
        self.active = self._open(sites[0], None)
        self.active.start()
        self._thread = threading.Thread(target=self._run, name=f"headrace-failover-{request}")
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self._look(time.monotonic())

    def _look(self, now: float) -> None:
        for site in self._sites:
            self._since[site] = (self._since[site] or now) if self._is_present(site) else 0.0
        if self.active.statistics.state == "live":
            self._complete = now
        better = self._better(now)
        if better is not None:
            self._switch(better, now)

    def _better(self, now: float) -> str | None:
        """The site to switch to, if it is time to switch."""
        mine = self._sites.index(self.active.site)
        ready = [site for site in self._sites if site != self.active.site and self._since[site]]
        silent = now - max(self._complete, self._begun) > _SILENT_S
        if (silent or self._is_bad(now)) and ready:
            return ready[0]
        back = [site for site in ready if self._sites.index(site) < mine and now - self._since[site] > _BACK_S]
        return back[0] if back and not self._is_bad(now) else None

    def _is_bad(self, now: float) -> bool:
        """Whether the active site has needed repair again and again."""
        self._repairs = [(when, count) for when, count in self._repairs if now - when < _WINDOW_S]
        self._repairs.append((now, self.active.statistics.repairs))
        return self._repairs[-1][1] - self._repairs[0][1] > _REPAIRS_MAX

    def _switch(self, site: str, now: float) -> None:
        log.warning("request %s: switching from site %s to %s", self._request, self.active.site, site)
        self.active.stop()
        begin_at = f"{now - self._complete + _MARGIN_S:.0f}s" if self._complete else None
        self.active = self._open(site, begin_at)
        self.active.start()
        self._begun, self._repairs = now, []
        self.switches += 1

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        self.active.stop()

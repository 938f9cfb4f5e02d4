"""Timeline: how many products of each origin each site has had, and when.

A thread looks at all queues some fifty times a second. From what it saw follows, for any moment, which site was behind:
it lacked something that had been put somewhere more than GRACE_S before.
"""

import bisect
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from headrace import Queue
from headrace.queue import Follower

GRACE_S = 1.0  # a beat that reveals a lost product comes twice a second
_LOOK_S = 0.02


@dataclass(slots=True)
class _History:
    """Of one origin at one site: counts, each with the moment at which it was seen first."""

    moments: list[float] = field(default_factory=lambda: [0.0])
    counts: list[int] = field(default_factory=lambda: [0])

    def add(self, moment: float, count: int) -> None:
        self.moments.append(moment)
        self.counts.append(self.counts[-1] + count)

    def at(self, moment: float) -> int:
        return self.counts[bisect.bisect_right(self.moments, moment) - 1]


class Timeline:
    """`attach` a site's queue when it runs; `detach` it before its process is killed, so that nobody else has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, Queue] = {}
        self._followers: dict[str, Follower] = {}
        self._positions: dict[str, int] = {}
        self._histories: dict[tuple[str, str], _History] = {}
        self._looks: list[float] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="timeline", daemon=True)
        self._thread.start()

    def attach(self, site: str, path: Path) -> None:
        with self._lock:
            queue = Queue.open(path)
            self._queues[site] = queue
            self._followers[site] = queue.follow(self._positions.get(site, 1), limit=5000)

    def detach(self, site: str) -> None:
        with self._lock:
            follower = self._followers.pop(site, None)
            if follower is not None:
                self._positions[site] = follower.position
                self._queues.pop(site).close()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        for site in list(self._queues):
            self.detach(site)

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            with self._lock:
                for site, follower in self._followers.items():
                    self._look(site, follower)
                self._looks.append(time.monotonic())

    def _look(self, site: str, follower: Follower) -> None:
        origins: Counter[str] = Counter()
        while (batch := follower.next_nowait()) is not None:
            origins.update(batch.origins)
        for origin, count in origins.items():
            self._histories.setdefault((site, origin), _History()).add(time.monotonic(), count)

    def count(self, site: str, origin: str, moment: float | None = None) -> int:
        """What the site had of the origin; None: now."""
        with self._lock:
            history = self._histories.get((site, origin))
            return 0 if history is None else history.at(time.monotonic() if moment is None else moment)

    def is_level(self, sites: Iterable[str], origins: Iterable[str]) -> bool:
        """Has every site what every origin has put until now?"""
        origins = list(origins)
        return all(self.count(site, origin) >= self.count(origin, origin) for site in sites for origin in origins)

    def behind(self, site: str, origin: str, since: float) -> list[tuple[float, float]]:
        """When the site lacked something of the origin for more than GRACE_S: from, until, in seconds after `since`."""
        with self._lock:
            got, put = (self._histories.get((place, origin), _History()) for place in (site, origin))
            looks = self._looks[bisect.bisect_left(self._looks, since) :]
            spans: list[tuple[float, float]] = []
            for before, moment in itertools.pairwise(looks):
                if got.at(moment) >= put.at(moment - GRACE_S):
                    continue
                begun = spans.pop()[0] if spans and spans[-1][1] == before - since else moment - since
                spans.append((begun, moment - since))
            return spans

    def behind_until(self, sites: Iterable[str], origins: Iterable[str], since: float) -> float:
        """How long after `since` the last of the sites was still behind; 0 if none ever was."""
        return max((until for _, until in self._spans(sites, origins, since)), default=0.0)

    def level_within(self, sites: Iterable[str], origins: Iterable[str], since: float, until: float) -> float | None:
        """How long after `since` none of the sites was behind any more; None if one still was at `until`."""
        spans = [span for span in self._spans(sites, origins, since) if span[0] < until - since]
        level_s = max((end for _, end in spans), default=0.0)
        return level_s if level_s < until - since else None

    def _spans(self, sites: Iterable[str], origins: Iterable[str], since: float) -> list[tuple[float, float]]:
        origins = list(origins)
        return [span for site in sites for origin in origins for span in self.behind(site, origin, since)]

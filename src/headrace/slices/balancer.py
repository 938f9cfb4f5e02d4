"""Balancer: moves slices between the nodes of a group, so that all of them have about the same to do.

    with Balancer("wx.queue", "radar"):          in a thread
        ...
    Balancer("tcp/site:7447", "radar").run()     in this thread, until `stop`
    balancer.step(now_s)                         one step, without a thread: for tests and simulations

There may be several for one group, on any machines: one leads, and the others stand by.

A group needs a balancer for its first slices, for nodes that join and leave, and for the slices of dead nodes. It is
not in the data path: without one, nodes go on with the slices that they have. An error of the queue or of the network
does not end it; it tries again, and meanwhile its standby takes over, because its lease ends.

Not here: what one step does (balancing.py), and what to move (algorithms.py).
"""

import os
import threading
from datetime import timedelta
from types import TracebackType
from typing import Self

from headrace.errors import HeadraceError, OptionError, QueueClosedError
from headrace.guard import GuardedThread
from headrace.queue.interface import AnyQueue
from headrace.remote import connect
from headrace.slices.algorithms import load_algorithm
from headrace.slices.balanced import Balanced, BalancerStatistics, Patience
from headrace.slices.balancing import Balancing
from headrace.slices.release import Bounds, Release
from headrace.slices.snapshot import Algorithm
from headrace.units import parse_age

_RETRY_S = 1.0
_STOP_S = 10.0


class Balancer:
    """The balancer of one group, or its standby. Several threads may use it."""

    def __init__(
        self, queue: AnyQueue | Balanced | str | os.PathLike[str], stream: str = "", *, group: str = "main",
        algorithm: Algorithm | str = "fewest-moves", release: Bounds | None = None, name: str = "balancer",
        patience: float | str | timedelta = "10s", lease: float | str | timedelta = "2s",
        every: float | str | timedelta = "1s",
    ) -> None:  # fmt: skip
        """`queue` is a queue, its directory or endpoint, or a group of it that is open already.

        `algorithm` is `fewest-moves`, `thresholds`, `module:name`, or an object. With `release`, nodes that are not
        needed drain. `patience` is how long a giver may hold a slice that is to move; `lease`, how long after the end
        of a balancer its standby takes over; `every`, how often loads are compared.
        """
        chosen = load_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
        if not isinstance(chosen, Algorithm):
            raise OptionError(
                "the algorithm has no method decide", "write one: decide(snapshot) returns a list of Move"
            )
        times = {"session_s": patience, "lease_s": lease, "decide_s": every}
        limits = Patience(**{what: _positive(value, what) for what, value in times.items()})
        self._opened: AnyQueue | None = None
        self._share = self._open(queue, stream, group)
        self._balancing = Balancing(self._share, chosen, Release(release) if release else None, limits, name)
        self._ending, self._lock = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def _open(self, queue: AnyQueue | Balanced | str | os.PathLike[str], stream: str, group: str) -> Balanced:
        if isinstance(queue, str | os.PathLike):
            queue = self._opened = connect(queue)
        if isinstance(queue, Balanced):
            return queue
        if not stream:
            raise OptionError("a balancer needs the name of a stream", "name a channel that has slices")
        return queue.share(stream, group)

    # --- run ----------------------------------------------------------------------------------------

    def step(self, now_s: float | None = None) -> float:
        """One step; in how many seconds the next one should come. `now_s` is a time that only grows."""
        with self._lock:
            return self._balancing.step(now_s)

    def run(self) -> None:
        """Balance until `stop` is called, or the queue is closed."""
        while not self._ending.is_set():
            try:
                pause_s = self.step()
            except QueueClosedError:
                return
            except Exception as error:  # noqa: BLE001  a group must not stay without a balancer
                self._balancing.errors.add(f"balancer {self._balancing.name}: trying again", error)
                pause_s = _RETRY_S
            self._ending.wait(pause_s)

    def start(self) -> Self:
        """Balance in a thread."""
        if self._thread is None:
            self._thread = GuardedThread(self.run, "headrace-balancer", until=self._ending.is_set, daemon=True)
            self._thread.start()
        return self

    def stop(self, *, resigns: bool = True) -> None:
        """End; a standby leads at once, unless it does not resign. Sessions that run end without a balancer."""
        self._ending.set()
        if resigns:
            self._resign()
        if self._opened is not None:
            self._opened.close()

    def _resign(self) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_STOP_S)
        try:
            if self._lock.acquire(timeout=_STOP_S):
                try:
                    self._balancing.resign()
                finally:
                    self._lock.release()
        except HeadraceError:  # the lease ends by itself
            pass

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- look ---------------------------------------------------------------------------------------

    def stand_by(self, rank: int) -> Self:
        """Lead only while no balancer wants to that was not told so; how nodes do it, with their seats as ranks.

        In a large group, standbys of rank 8 and higher try to lead more and more rarely.
        """
        self._balancing.rank, self._balancing.yields = rank, True
        return self

    @property
    def is_leader(self) -> bool:
        return self._balancing.statistics().is_leader

    def statistics(self) -> BalancerStatistics:
        """What it has done, and how even the loads are."""
        return self._balancing.statistics()

    def __repr__(self) -> str:
        return f"<Balancer {self._balancing.name!r} of {self._share.terms.group!r}>"


def _positive(value: float | str | timedelta, what: str) -> float:
    seconds = parse_age(value, what)
    if not 0.01 <= seconds <= 3600:
        raise OptionError(f"{what.removesuffix('_s')} {value!r} is out of range", "use 0.01 s to an hour")
    return seconds

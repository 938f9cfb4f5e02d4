"""Confirming: how a node tells its group what is done, and learns which slices it has.

    results ──► sink: results and positions ──► group: positions

Everything goes by one exchange (share/interface.py): confirmations, slices that are let go, the load, and as the reply
what the node holds. With a sink, nothing is confirmed that is not stored; the sink also knows best where a slice
begins. A site or a sink that is away delays confirmations and loses nothing. A node that was away for so long that its
slices went to others discards what is not confirmed, and joins again.

Not here: when to exchange besides what is due (node.py), and what the positions are (conductor.py).
"""

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from headrace.channel.worker import ErrorLog
from headrace.errors import (
    ChannelMissingError,
    HeadraceError,
    SeatLostError,
    ShareError,
    ShareMissingError,
    SinkFencedError,
    SinkRefusedError,
    SinkUnavailableError,
    SiteUnreachableError,
)
from headrace.share.interface import NO_MARKS, AnySeat, AnyShare, Holding, Marks, Progress, Work
from headrace.slices.conductor import Conductor, Failure
from headrace.slices.load import LoadMeter
from headrace.slices.sinks.interface import Sink
from headrace.slices.tasks import Task, nothing_done

CONFIRM_S, STORE_S = 0.02, 0.5  # between two confirmations, while work goes on: without and with a sink
RESULTS_MAX = 65_536  # that wait for their sink
RETRY_S = 0.5  # after an error of the queue or the sink
_NAME_S = 0.1  # between two attempts to join under a name that is taken
_BEAT_S = 0.2  # a node that is heard of so much later than before is alive
_REMOVED = (ShareMissingError, ChannelMissingError)  # the group, or its stream, was deleted

log = logging.getLogger("headrace.slices")


class Confirming:
    """The account of one node with its group. One thread uses it, and another one reads."""

    def __init__(
        self, share: AnyShare, name: str, conductor: Conductor, sink: Sink | None, meter: LoadMeter,
        confirm_s: float | None, retry_s: float, stopping: threading.Event,
    ) -> None:  # fmt: skip
        self._share, self._name, self._conductor, self._sink = share, name, conductor, sink
        self._meter, self._retry_s, self._stopping = meter, retry_s, stopping
        self.seat: AnySeat | None = None
        self.seen = 0  # the version of the holding that is known
        self._unsent: Work | None = None
        self._beat_s = self._confirm_s = self._look_s = 0.0  # when to do it again
        self.beats_s = min(0.5, share.terms.dead_after_s / 6)
        often_s = CONFIRM_S if sink is None else STORE_S
        self._confirms_s = often_s if confirm_s is None else confirm_s
        self.is_dirty = False  # there may be something to confirm
        self.is_draining = False  # the group asks the node to leave
        self.is_stuck = False  # the last attempt to store or to confirm has failed
        self.is_away = False  # the site did not reply to a node that stops
        self._is_seated = False
        self._has_announced = False  # a product of a careful slice
        self.has_news = False  # of its slices: the next exchange comes at once
        self.in_sink_s: float | None = None  # since when the loop waits for its sink
        self.parked = self.refused = self.rejoined = 0
        self.errors = ErrorLog(log)

    @property
    def name(self) -> str:
        """The name of the node in its group; as it was given before it has joined."""
        return self.seat.name if self.seat is not None else self._name

    @property
    def due_s(self) -> float:
        """When the next exchange is due at the latest."""
        return min(self._beat_s, self._confirm_s) if self.is_dirty else self._beat_s

    # --- the seat ---------------------------------------------------------------------------------

    def join(self) -> None:
        self.seat = self._share.join(self._name)
        self.seen, self._is_seated, self._has_announced, self._beat_s = 0, True, False, 0.0
        log.info("node %s joined group %s of %s", self.seat.name, self._share.terms.group, self._share.terms.stream)

    def join_first(self) -> None:
        """Join. If the name is that of a node that has fallen silent, wait until that one counts as dead."""
        end_s = time.monotonic() + self._share.terms.dead_after_s + self.beats_s
        heard_s: float | None = None
        while True:
            try:
                self.join()
            except ShareError as error:
                now_s = time.monotonic()
                if type(error) is not ShareError or now_s >= end_s or self._stopping.is_set():
                    raise
                last_s = now_s - self._age_s()
                if heard_s is None:
                    heard_s = last_s
                    log.info("node %s waits until the earlier one of its name counts as dead: %s", self._name, error)
                elif last_s > heard_s + _BEAT_S:  # it is alive
                    raise
                self._stopping.wait(_NAME_S)
            else:
                return

    def _age_s(self) -> float:
        """How long ago another node of this name was heard of."""
        return min((each.age_s for each in self._share.state().nodes if each.name == self._name), default=math.inf)

    def _rejoin(self, error: SeatLostError) -> None:
        log.warning("node %s discards what it has not confirmed, and joins again: %s", self.name, error)
        self._conductor.drop_all()
        self.rejoined += 1
        self._is_seated, self._look_s = False, 0.0

    def _join_again(self, now_s: float) -> bool:
        if now_s < self._look_s or self._stopping.is_set():
            return False
        try:
            self.join()
        except _REMOVED:
            raise
        except HeadraceError as error:
            self.is_away = isinstance(error, SiteUnreachableError) and self._stopping.is_set()
            self.errors.add(f"node {self.name} joins again later", error)
            self._look_s = now_s + RETRY_S
        return self._is_seated

    def leave(self) -> None:
        """Give the seat back, unless the site is away: the group notices."""
        if self.seat is not None and not self.is_away:
            try:
                self.seat.leave()
            except HeadraceError as error:
                log.info("node %s: %s", self.name, error)

    # --- exchange ---------------------------------------------------------------------------------

    def exchange(self) -> None:
        """Store, confirm, let go and report, if it is time."""
        now_s = time.monotonic()
        if not self._is_seated and not self._join_again(now_s):
            return
        seat = self.seat
        assert seat is not None
        is_due = now_s >= self._beat_s
        confirm, release = self._progress(now_s)
        is_changed = seat.version != self.seen and now_s >= self._look_s
        if not (is_due or is_changed or self.has_news or confirm or release):
            return
        if confirm or release:
            confirm, release = self._store(confirm, release)
        self._unsent, self.has_news = self._unsent or self._conductor.report(), False
        load = self._meter.read(self._conductor.waiting, len(self._conductor.tasks)) if is_due else None
        try:
            exchanged = seat.exchange(Progress(self.seen, confirm, release, load, self._unsent))
        except SeatLostError as error:
            self._rejoin(error)
            return
        except _REMOVED:  # nobody needs this work any more
            raise
        except HeadraceError as error:
            self.is_away = isinstance(error, SiteUnreachableError) and self._stopping.is_set()
            self.errors.add(f"node {self.name} confirms later", error)
            self._confirm_s = self._beat_s = now_s + RETRY_S
            self.is_stuck = True
            return
        self._unsent, self.is_away = None, False
        if confirm or release:
            pause_s = max(self._confirms_s, exchanged.pause_s)
            self._confirm_s, self.is_dirty, self.is_stuck = now_s + pause_s, False, False
        if is_due:
            self._beat_s = now_s + self.beats_s
        self._conductor.confirmed(confirm, release, exchanged.refused)
        self.refused += len(exchanged.refused)
        for failure in self._conductor.to_park():
            self._park(failure)
        if exchanged.holding is not None:
            self._hold(exchanged.holding, exchanged.version)

    def _progress(self, now_s: float) -> tuple[Marks, Marks]:
        """What to confirm now, and what to let go."""
        is_time = self.is_dirty and now_s >= self._confirm_s
        if not is_time and not self._conductor.leaving.any():
            return NO_MARKS, NO_MARKS
        confirm, release = self._conductor.progress()
        self.is_dirty &= not is_time or bool(confirm or release)
        return (confirm, release) if is_time or release else (NO_MARKS, NO_MARKS)

    def _hold(self, holding: Holding, version: int) -> None:
        self.is_draining |= holding.draining
        try:
            self._conductor.hold(holding, self._claim)
        except SinkUnavailableError as error:
            self.errors.add(f"node {self.name} begins with its slices later", error)
            self._look_s = time.monotonic() + RETRY_S
            return
        self.seen, self.is_dirty = version, True
        self.has_news = True  # say so: then the session is over

    # --- attempts ---------------------------------------------------------------------------------

    def may_begin(self, task: Task) -> bool:
        """Announce a product of a careful slice; park one that has ended its nodes too often."""
        is_careful = len(task) == 1 and bool(self._conductor.careful[task.slices[0]])
        if not is_careful and not self._has_announced:
            return True
        place, sequence, epoch = int(task.slices[0]), int(task.sequences[0]), int(task.epochs[0])
        seat = self.seat
        assert seat is not None
        try:
            if not is_careful:  # whatever happens now, the product that was announced is not to blame
                seat.begin(place, epoch, 0)
                self._has_announced = False
                return True
            if self._conductor.is_given_up(task):
                why = "the node ended whenever it worked on this product"
                self._conductor.finish(task, nothing_done(task), time.monotonic(), 0.0)
                self._give_up(Failure(place, epoch, sequence, why))
                return False
            self._has_announced = True
            if seat.begin(place, epoch, sequence):
                return True
        except HeadraceError as error:
            self.errors.add(f"node {self.name} begins product {sequence} later", error)
        self._conductor.finish(task, nothing_done(task), time.monotonic(), RETRY_S)
        return False

    def fail(self, failure: Failure) -> None:
        """Count a failed attempt; after too many, the product is given up."""
        log.warning("node %s: product %d of slice %d: %s", self.name, failure.sequence, failure.slice, failure.error)
        assert self.seat is not None
        try:
            tries = self.seat.fail(failure.slice, failure.epoch, failure.sequence)
            if tries >= self._share.terms.tries_max:
                self._give_up(failure)
        except HeadraceError as error:  # tried again; a lost seat is found by the next exchange
            self.errors.add(f"node {self.name} counts a failure of product {failure.sequence} later", error)

    def _give_up(self, failure: Failure) -> None:
        """Park a product, as soon as everything before it in its slice is stored and confirmed."""
        self._conductor.give_up(failure)
        self.is_dirty, self._confirm_s = True, 0.0

    def _park(self, failure: Failure) -> None:
        assert self.seat is not None
        try:
            parked = self.seat.park(failure.slice, failure.epoch, failure.sequence, failure.error)
        except HeadraceError as error:  # tried again after the next exchange
            self.errors.add(f"node {self.name} parks product {failure.sequence} later", error)
            return
        self._conductor.park(failure, parked)
        self.is_dirty = True
        if parked:
            self.parked += 1
            log.error("node %s parked product %d: %s", self.name, failure.sequence, failure.error)

    # --- the sink ---------------------------------------------------------------------------------

    def has_room_for_results(self, now_s: float) -> bool:
        """Whether more products may be begun; if not, store what there is."""
        if self._sink is None or len(self._conductor.results) < RESULTS_MAX:
            return True
        if not self.is_stuck:
            self._confirm_s = min(self._confirm_s, now_s)
        return False

    def _claim(self, added: Marks) -> Marks:
        """Where to begin: the sink knows best."""
        if self._sink is None:
            return added
        while added:
            try:
                with self._waiting_for_sink():
                    return added._replace(positions=self._sink.claim(self._share.terms.id, added))
            except SinkFencedError as error:  # the next exchange says who owns them
                added = added.where(~np.isin(added.slices, np.array(error.slices, np.uint32)))
        return added

    def _store(self, confirm: Marks, release: Marks) -> tuple[Marks, Marks]:
        """Store the results with the positions that pass them; what may be confirmed now."""
        if self._sink is None:
            self._conductor.results.clear()
        if self._sink is None or not (confirm or release):
            return confirm, release
        both = confirm.joined(release)
        passed = dict(zip(both.slices.tolist(), both.positions.tolist(), strict=True))
        ready = [each for each in self._conductor.results if each.sequence < passed.get(each.slice, 0)]
        try:
            with self._waiting_for_sink():
                self._sink.store(self._share.terms.id, ready, both)
        except SinkFencedError as error:
            return self._store(*self._without(error, confirm, release))
        except SinkRefusedError as error:
            self._refuse(error)
            return NO_MARKS, NO_MARKS
        except SinkUnavailableError as error:
            self.errors.add(f"node {self.name} stores later", error)
            self._confirm_s, self.is_stuck = time.monotonic() + RETRY_S, True
            return NO_MARKS, NO_MARKS
        gone = set(map(id, ready))
        self._conductor.results = [each for each in self._conductor.results if id(each) not in gone]
        return confirm, release

    @contextmanager
    def _waiting_for_sink(self) -> Iterator[None]:
        self.in_sink_s = time.monotonic()
        try:
            yield
        finally:
            self.in_sink_s = None

    def _without(self, error: SinkFencedError, *of: Marks) -> Iterator[Marks]:
        """Forget slices that a later owner has claimed; the others."""
        log.warning("node %s: %s", self.name, error)
        fenced = np.array(error.slices, np.uint32)
        self._conductor.forget(fenced)
        return (each.where(~np.isin(each.slices, fenced)) for each in of)

    def _refuse(self, error: SinkRefusedError) -> None:
        """The result of one product can never be stored: that is a failed attempt of its work."""
        failure = Failure(error.slice, self._conductor.epoch(error.slice), error.sequence, error.problem)
        self._conductor.go_back(failure, time.monotonic() + self._retry_s)
        self.is_dirty, self._confirm_s = True, 0.0  # the others are stored at once
        self.fail(failure)

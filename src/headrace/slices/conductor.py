"""Conductor: which slices a node has, how far each has come, and what may be begun next. No thread, no clock.

Of each slice it knows the epoch, up to where it was read, and what is in the backlog or in work; so the position to
confirm is always the first product that is not done. Rows are accepted only once, in order, and only of slices that the
node owns; results of work on a slice that has gone meanwhile are discarded.

A slice whose product takes long, or is tried again and again, must not hold up the others. If its later products fill
the backlog, and nothing else may begin, they are set aside: forgotten here, and read again, as those of a slice that
has come later, when the slice has nothing left in the backlog.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from headrace.product.batch import Lost
from headrace.share.interface import NO_MARKS, Flags, Holding, Marks, Positions, Slices, Work
from headrace.slices.backlog import FOREVER, Backlog, Portion
from headrace.slices.intake import Intaken
from headrace.slices.pace import Pace
from headrace.slices.sinks.interface import Result
from headrace.slices.tasks import Outcome, Task


class Failure(NamedTuple):
    """One attempt that failed."""

    slice: int
    epoch: int
    sequence: int
    error: str


class Conductor:
    """The state of one node."""

    def __init__(
        self, slices: int, tries_max: int, change_intake: Callable[[Marks, Slices], int], *, batches: bool = False
    ) -> None:
        self._change_intake, self._tries_max, self._batches = change_intake, tries_max, batches
        self.backlog = Backlog()
        self.tasks: set[Task] = set()
        self.owned = np.zeros(slices, np.bool_)
        self.leaving = np.zeros(slices, np.bool_)
        self.careful = np.zeros(slices, np.bool_)
        self._epochs = np.zeros(slices, np.uint32)
        self._read_to = np.zeros(slices, np.uint64)  # where reading will go on
        self._taken = np.zeros(slices, np.uint64)  # rows before this were accepted
        self._since = np.zeros(slices, np.int64)  # the change of the intake with which it came
        self._retry_s = np.zeros(slices, np.float64)  # not before
        self._tries = np.zeros(slices, np.uint8)
        self._suspects = np.zeros(slices, np.uint64)
        self._confirmed = np.zeros(slices, np.uint64)
        self._careful_to = np.zeros(slices, np.uint64)
        self._has_moved = np.zeros(slices, np.bool_)  # a product of it was done since it came
        self._given_up: dict[int, Failure] = {}  # by slice: products to be parked, once all before them is confirmed
        self._in_work = np.zeros(slices, np.bool_)
        self._aside = np.zeros(slices, np.bool_)  # what comes next is not read for now
        self._pace = Pace(batches)
        self._singly = 0  # products to be tried one at a time
        self._report = 0
        self.results: list[Result] = []
        self._forget_work()
        self.done = self.failed = self.lost_all = 0
        self._lost: Lost | None = None

    # --- slices -----------------------------------------------------------------------------------

    def hold(self, holding: Holding, claim: Callable[[Marks], Marks]) -> None:
        """Take over what the group says. `claim` returns where to begin with slices that are new."""
        epochs = np.zeros_like(self._epochs)
        epochs[holding.slices] = holding.epochs
        gone = self.owned & (epochs != self._epochs)
        is_new = holding.epochs != self._epochs[holding.slices]
        new = Marks(holding.slices, holding.epochs, holding.positions).where(is_new)
        added = claim(new) if new else new  # if that fails, nothing has changed yet
        self._drop(gone)
        self._epochs = epochs
        self.owned[:] = epochs != 0
        self.leaving[:] = False
        self.leaving[holding.slices] = holding.leaving
        for mine, theirs in ((self.careful, holding.careful != 0), (self._careful_to, holding.careful),
                             (self._tries, holding.tries), (self._suspects, holding.suspects)):  # fmt: skip
            mine[new.slices] = theirs[is_new]
        for mine in (self._read_to, self._taken, self._confirmed):
            mine[new.slices] = new.positions  # also of those that are not read, because the sink has a later owner
        self._has_moved[new.slices], self._retry_s[new.slices] = False, 0.0
        self._aside &= self.owned & ~gone
        if added or gone.any():
            self._read_to[added.slices] = self._taken[added.slices] = added.positions
            self._confirmed[added.slices] = np.minimum(self._confirmed[added.slices], added.positions)
            self._since[added.slices] = self._change_intake(added, _numbers(gone))

    def drop_all(self) -> None:
        """The seat is lost: nothing here counts any more."""
        self.forget(_numbers(self.owned))

    def forget(self, slices: Slices) -> None:
        """These belong to others now."""
        gone = np.zeros_like(self.owned)
        gone[slices] = True
        self._drop(gone)
        self.owned[gone] = self.leaving[gone] = False
        self._epochs[gone] = 0
        self._change_intake(NO_MARKS, slices)

    def _drop(self, gone: Flags) -> None:
        self.backlog.drop(gone)
        self.results = [each for each in self.results if not gone[each.slice]]
        self._given_up = {number: each for number, each in self._given_up.items() if not gone[number]}

    def go_back(self, failure: Failure, until_s: float) -> None:
        """The result of a product was refused: work on its slice again, from this product on, after a pause."""
        number, sequence = failure.slice, failure.sequence
        this = np.array([number], np.uint32)
        self.backlog.drop(np.isin(np.arange(len(self.owned)), this))
        self.results = [each for each in self.results if each.slice != number or each.sequence < sequence]
        for task in self.tasks:
            task.epochs[task.slices == number] = 0  # what becomes of it counts for nothing
        again = Marks(this, self._epochs[this], np.array([sequence], np.uint64))
        self._read_to[this] = self._taken[this] = again.positions
        self._retry_s[this] = until_s
        self._since[this] = self._change_intake(again, this)

    # --- products ---------------------------------------------------------------------------------

    def accept(self, read: Intaken) -> None:
        """Add what was read to the backlog."""
        mine = read.slices & self.owned & (self._since <= read.change)
        if read.batch is not None:
            if read.batch.lost is not None:
                self._note_lost(read.batch.lost)
            slices = read.batch.columns["slice"].astype(np.uint32)
            sequences = read.batch.sequences
            wanted = mine[slices] & (sequences >= self._taken[slices])
            if wanted.any():
                places = np.flatnonzero(wanted).astype(np.uint32)
                self.backlog.add(Portion(read.batch, places, slices[wanted], sequences[wanted].astype(np.uint64)))
                np.maximum.at(self._taken, slices[wanted], sequences[wanted] + np.uint64(1))
        self._read_to[mine] = np.maximum(self._read_to[mine], np.uint64(read.next))

    def set_aside(self) -> None:
        """The backlog is full, and nothing of it may begin: make room for slices that may go on."""
        if (self.careful & self.owned).any():  # one product at a time, on purpose
            return
        number = max(1, int(np.count_nonzero(self.backlog.slices(len(self.owned)))))
        first = self.backlog.cut(max(1, self.backlog.products // (4 * number)), len(self.owned))
        slices = _numbers(first != FOREVER)
        if len(slices):
            self._aside[slices] = True
            self._read_to[slices] = self._taken[slices] = first[slices]
            self._since[slices] = self._change_intake(NO_MARKS, slices)

    def take_back(self) -> None:
        """Read on with slices that were set aside and have nothing left here."""
        if not self._aside.any():
            return
        slices = _numbers(self._aside & ~self.leaving & ~self.backlog.slices(len(self.owned)))
        if len(slices):
            self._aside[slices] = False
            self._since[slices] = self._change_intake(
                Marks(slices, self._epochs[slices], self._read_to[slices]), slices
            )

    def _note_lost(self, lost: Lost) -> None:
        self.lost_all += lost.products
        before = self._lost or lost
        self._lost = Lost(min(before.first, lost.first), max(before.last, lost.last))

    def next_task(self, now_s: float) -> Task | None:
        """What a worker may begin now; None if there is nothing."""
        blocked = self._in_work | self.leaving | (self._retry_s > now_s)
        if self._is_careful_now(blocked):  # one product at a time, and no other in work that might end the node
            return None if self.tasks else self._begun(self.backlog.take(1, blocked | ~self.careful, self._stops()))
        blocked |= self.careful
        taken = self.backlog.take(1 if self._singly else self._pace.count, blocked, self._stops())
        return self._begun(taken) if taken else None

    def _is_careful_now(self, blocked: Flags) -> bool:
        if not (self.careful & self.owned).any():
            return False
        in_work = any(bool(self.careful[task.slices].any()) for task in self.tasks)
        return in_work or self.backlog.has(blocked | ~self.careful, self._stops())

    def _stops(self) -> Positions | None:
        """Products that were given up are not begun, nor anything behind them."""
        if not self._given_up:
            return None
        stops = np.full(len(self.owned), np.iinfo(np.uint64).max, np.uint64)
        for each in self._given_up.values():
            stops[each.slice] = each.sequence
        return stops

    def _begun(self, portions: list[Portion]) -> Task:
        task = Task(portions, self._epochs)
        self._in_work[task.slices] = True
        self.tasks.add(task)
        return task

    def is_given_up(self, task: Task) -> bool:
        """Whether the task is a product that was tried too often before it came here."""
        place = int(task.slices[0])
        suspect = int(self._suspects[place])
        return len(task) == 1 and suspect == int(task.sequences[0]) and self._tries[place] >= self._tries_max

    def take_rest(self, task: Task, place: int, so_far: Outcome | None, now_s: float, pause_s: float) -> list[Failure]:
        """Leave a worker alone with the product at this place: take in those before it, and take back the others.

        Without an outcome so far, those before it stay with the worker.
        """
        rest = self.owned[task.slices] & (self._epochs[task.slices] == task.epochs)
        rest[: place + 1] = False
        self._return(task, rest)
        self._in_work[task.slices] = False
        before = Task(task.between(0, place), self._epochs) if place and so_far is not None else None
        if before is not None:
            before.epochs, before.told_ns = task.epochs[:place], task.told_ns[:place]
        task.narrow(0 if so_far is None else place, place + 1)
        for each in self.tasks:
            self._in_work[each.slices] = True
        if before is None or so_far is None:
            return []
        return self.finish(before, so_far.part(0, place), now_s, pause_s)

    def note_in_work(self, task: Task, place: int, spent_ns: int) -> None:
        """Count the time of a product, or a batch, that is still in work; it is subtracted at its end."""
        place -= task.begin
        if not 0 <= place < len(task):
            return
        chosen = task.together(place, self._batches)
        told = task.told_ns[chosen]
        further = np.maximum(np.uint64(spent_ns // len(told)), told) - told
        np.add.at(self._busy_ns, task.slices[chosen], further)
        told += further

    def finish(self, task: Task, outcome: Outcome, now_s: float, pause_s: float) -> list[Failure]:
        """Take in what became of a task; the attempts that failed. Their slices wait for `pause_s`."""
        if len(outcome.done) != len(task):  # the others were taken back
            outcome = outcome.part(task.begin, len(task))
        self.tasks.discard(task)
        self._in_work[task.slices] = False
        for other in self.tasks:
            self._in_work[other.slices] = True
        counts = self.owned[task.slices] & (self._epochs[task.slices] == task.epochs)
        done = outcome.done & counts
        self._note_work(task, outcome, done)
        self.results += [
            Result(int(task.slices[place]), int(task.sequences[place]), value)
            for place, value in outcome.results
            if counts[place]
        ]
        self._has_moved[task.slices[done]] = True
        self._be_careless(task.slices[done], task.sequences[done] + np.uint64(1))
        self._singly = max(0, self._singly - len(task))
        failures = [self._failure(task, place, why) for place, why in outcome.failures if counts[place]]
        if self._batches and len(task) > 1 and failures:  # which product of the batch was it? Try them one at a time
            self._singly, failures = len(task), []
        for failure in failures:
            self._retry_s[failure.slice] = now_s + pause_s
        self.failed += len(failures)
        self._return(task, counts & ~outcome.done)
        return failures

    def _note_work(self, task: Task, outcome: Outcome, done: Flags) -> None:
        spent = outcome.busy_ns
        if not self._singly:
            self._pace.note(int(np.count_nonzero(done)), len(task.portions), float(spent[done].sum()) / 1e9)
        np.add.at(self._products, task.slices[done], np.uint64(1))
        np.add.at(self._busy_ns, task.slices, np.maximum(spent, task.told_ns) - task.told_ns)
        self.done += int(np.count_nonzero(done))

    def _return(self, task: Task, undone: Flags) -> None:
        """Put products that were not done back where they stood."""
        begin = len(task)
        for portion in reversed(task.portions):
            begin -= len(portion)
            left = undone[begin : begin + len(portion)]
            if left.any():
                self.backlog.put_back(portion.where(left))

    def _failure(self, task: Task, place: int, why: str) -> Failure:
        return Failure(int(task.slices[place]), int(task.epochs[place]), int(task.sequences[place]), why)

    def give_up(self, failure: Failure) -> None:
        """Begin this product no more; what is behind it in its slice waits until it is parked."""
        self._given_up[failure.slice] = failure
        self._retry_s[failure.slice] = 0.0

    def to_park(self) -> list[Failure]:
        """Products to be parked now: all that stands before them in their slices is confirmed."""
        return [each for each in self._given_up.values() if self._confirmed[each.slice] >= each.sequence]

    def park(self, failure: Failure, parked: bool) -> None:
        """A product was parked: go on behind it. Or the slice is another's."""
        del self._given_up[failure.slice]
        if parked:
            self.backlog.discard(failure.slice, failure.sequence)
            behind = np.array([failure.sequence + 1], np.uint64)
            this = np.array([failure.slice], np.uint32)
            np.maximum.at(self._taken, this, behind)
            np.maximum.at(self._read_to, this, behind)  # which is confirmed next: a sink has to hear of it, too

    # --- positions --------------------------------------------------------------------------------

    def progress(self) -> tuple[Marks, Marks]:
        """What to confirm: slices that go on, and slices to let go, of which nothing is in work."""
        positions = self._read_to.copy()
        self.backlog.lower(positions)
        for task in self.tasks:
            np.minimum.at(positions, task.slices, task.sequences)
        release = self.owned & self.leaving & ~self._in_work
        # to pass what is not of the slice is no proof that its first product is harmless
        is_suspect = self.careful & ~self._has_moved & (positions < self._read_to)
        is_suspect[list(self._given_up)] = False
        further = self.owned & ~release & (positions > self._confirmed) & ~is_suspect
        return self._marks(further, positions), self._marks(release, positions)

    def confirmed(self, confirm: Marks, release: Marks, refused: Slices) -> None:
        """The group has taken these in, except for those it refused."""
        kept = confirm.where(~np.isin(confirm.slices, refused))
        self._confirmed[kept.slices] = kept.positions
        self._settle(kept.slices)
        if release:
            self.forget(release.slices)

    def _settle(self, slices: Slices) -> None:
        """These have gone on, and what was suspected of the products before is over."""
        self._be_careless(slices, self._confirmed[slices])
        self._tries[slices[self._suspects[slices] < self._confirmed[slices]]] = 0

    def _be_careless(self, slices: Slices, positions: Positions) -> None:
        self.careful[slices[positions >= self._careful_to[slices]]] = False

    def _marks(self, chosen: Flags, positions: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> Marks:
        slices = _numbers(chosen)
        return Marks(slices, self._epochs[slices], positions[slices])

    @property
    def waiting(self) -> int:
        """Products that were read and are not done."""
        return len(self.backlog) + sum(map(len, self.tasks))

    def epoch(self, number: int) -> int:
        """The epoch in which the node owns this slice; 0 if it does not."""
        return int(self._epochs[number])

    # --- report -----------------------------------------------------------------------------------

    def report(self) -> Work | None:
        """What was done since the last report; None if nothing was."""
        slices = _numbers((self._products != 0) | (self._busy_ns != 0))
        if not len(slices) and self._lost is None:
            return None
        self._report += 1
        work = Work(self._report, slices, self._products[slices], self._busy_ns[slices], self._lost, 0)
        self._forget_work()
        self._lost = None
        return work

    def _forget_work(self) -> None:
        self._products = np.zeros(len(self.owned), np.uint64)
        self._busy_ns = np.zeros(len(self.owned), np.uint64)


def _numbers(chosen: Flags) -> Slices:
    return np.flatnonzero(chosen).astype(np.uint32)

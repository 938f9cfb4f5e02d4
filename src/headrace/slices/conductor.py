"""Conductor: which slices a node has, how far each has come, and what may be begun next. No thread, no clock.

Of each slice it knows the epoch, up to where it was read, and what is in the backlog or in work; so the position to
confirm is always the first product that is not done. Rows are accepted only once, in order, and only of slices that the
node owns; results of work on a slice that has gone meanwhile are discarded.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from headrace.share.interface import NO_MARKS, Flags, Holding, Marks, Slices, Work
from headrace.slices.backlog import Backlog, Portion
from headrace.slices.intake import Intaken
from headrace.slices.sinks.interface import Result
from headrace.slices.tasks import PRODUCTS_MAX, TASK_S, Outcome, Task

_NEW_S = 0.001  # what a product is assumed to take before any was measured


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
        self._in_work = np.zeros(slices, np.bool_)
        self._product_s = _NEW_S
        self._singly = 0  # products to be tried one at a time
        self._report = 0
        self.results: list[Result] = []
        self._forget_work()
        self.done = self.failed = self.lost_all = self._lost = 0

    # --- slices -----------------------------------------------------------------------------------

    def hold(self, holding: Holding, claim: Callable[[Marks], Marks]) -> None:
        """Take over what the group says. `claim` returns where to begin with slices that are new."""
        epochs = np.zeros_like(self._epochs)
        epochs[holding.slices] = holding.epochs
        gone = self.owned & (epochs != self._epochs)
        is_new = holding.epochs != self._epochs[holding.slices]
        added = Marks(holding.slices, holding.epochs, holding.positions).where(is_new)
        if added:
            added = claim(added)  # if that fails, nothing has changed yet
        self._drop(gone)
        self._epochs = epochs
        self.owned[:] = epochs != 0
        self.leaving[:] = False
        self.leaving[holding.slices] = holding.leaving
        for mine, theirs in ((self.careful, holding.careful), (self._tries, holding.tries),
                             (self._suspects, holding.suspects)):  # fmt: skip
            mine[holding.slices[is_new]] = theirs[is_new]
        if added or gone.any():
            self._read_to[added.slices] = self._taken[added.slices] = self._confirmed[added.slices] = added.positions
            self._retry_s[added.slices] = 0.0
            self._since[added.slices] = self._change_intake(added, _numbers(gone))

    def drop_all(self) -> None:
        """The seat is lost: nothing here counts any more."""
        owned = self.owned.copy()
        self._drop(owned)
        self.owned[:] = self.leaving[:] = False
        self._epochs[:] = 0
        self._change_intake(NO_MARKS, _numbers(owned))

    def _drop(self, gone: Flags) -> None:
        self.backlog.drop(gone)
        self.results = [each for each in self.results if not gone[each.slice]]

    def begin_again(self) -> None:
        """What was done since the last confirmation was not stored: read it again."""
        owned = _numbers(self.owned)
        again = Marks(owned, self._epochs[owned], self._confirmed[owned])
        self._drop(self.owned)
        self._epochs_of_tasks_are_over()
        self._read_to[owned] = self._taken[owned] = again.positions
        self._since[owned] = self._change_intake(again, owned)

    def _epochs_of_tasks_are_over(self) -> None:
        for task in self.tasks:
            task.epochs = np.zeros_like(task.epochs)

    # --- products ---------------------------------------------------------------------------------

    def accept(self, read: Intaken) -> None:
        """Add what was read to the backlog."""
        mine = read.slices & self.owned & (self._since <= read.change)
        if read.batch is not None:
            if read.batch.lost is not None:
                self._lost += read.batch.lost.products
                self.lost_all += read.batch.lost.products
            slices = read.batch.columns["slice"].astype(np.uint32)
            sequences = read.batch.sequences
            wanted = mine[slices] & (sequences >= self._taken[slices])
            if wanted.any():
                places = np.flatnonzero(wanted).astype(np.uint32)
                self.backlog.add(Portion(read.batch, places, slices[wanted], sequences[wanted].astype(np.uint64)))
                np.maximum.at(self._taken, slices[wanted], sequences[wanted] + np.uint64(1))
        self._read_to[mine] = np.maximum(self._read_to[mine], np.uint64(read.next))

    def next_task(self, now_s: float) -> Task | None:
        """What a worker may begin now; None if there is nothing."""
        blocked = self._in_work | self.leaving | (self._retry_s > now_s)
        if self._is_careful_now(blocked):  # one product at a time, and no other in work that might end the node
            return None if self.tasks else self._begun(self.backlog.take(1, blocked | ~self.careful))
        blocked |= self.careful
        count = 1 if self._singly else max(1, min(PRODUCTS_MAX, int(TASK_S / self._product_s)))
        taken = self.backlog.take(count, blocked)
        return self._begun(taken) if taken else None

    def _is_careful_now(self, blocked: Flags) -> bool:
        if not (self.careful & self.owned).any():
            return False
        in_work = any(bool(self.careful[task.slices].any()) for task in self.tasks)
        return in_work or self.backlog.has(self.careful & ~blocked)

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

    def finish(self, task: Task, outcome: Outcome, now_s: float, pause_s: float) -> list[Failure]:
        """Take in what became of a task; the attempts that failed. Their slices wait for `pause_s`."""
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
        if done.any():
            each_s = float(spent[done].mean()) / 1e9
            self._product_s += (
                0.2 * (each_s - self._product_s) if each_s < self._product_s else each_s - self._product_s
            )
            self._product_s = max(self._product_s, 1e-7)
        np.add.at(self._products, task.slices[done], np.uint64(1))
        np.add.at(self._busy_ns, task.slices, spent)
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

    def park(self, failure: Failure) -> None:
        """A product was given up: go on behind it."""
        self.backlog.discard(failure.slice, failure.sequence)
        self._retry_s[failure.slice] = 0.0
        self._settle(np.array([failure.slice], np.uint32))

    # --- positions --------------------------------------------------------------------------------

    def progress(self) -> tuple[Marks, Marks]:
        """What to confirm: slices that go on, and slices to let go, of which nothing is in work."""
        positions = self._read_to.copy()
        self.backlog.lower(positions)
        for task in self.tasks:
            np.minimum.at(positions, task.slices, task.sequences)
        release = self.owned & self.leaving & ~self._in_work
        further = self.owned & ~release & (positions > self._confirmed)
        return self._marks(further, positions), self._marks(release, positions)

    def confirmed(self, confirm: Marks, release: Marks, refused: Slices) -> None:
        """The group has taken these in, except for those it refused."""
        kept = confirm.where(~np.isin(confirm.slices, refused))
        self._confirmed[kept.slices] = kept.positions
        self._settle(kept.slices)
        if release:
            gone = np.zeros_like(self.owned)
            gone[release.slices] = True
            self._drop(gone)
            self.owned[gone] = self.leaving[gone] = False
            self._epochs[gone] = 0
            self._change_intake(NO_MARKS, release.slices)

    def _settle(self, slices: Slices) -> None:
        """These have gone on: whatever was suspected of them is over."""
        self.careful[slices] = False
        self._tries[slices] = 0

    def _marks(self, chosen: Flags, positions: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> Marks:
        slices = _numbers(chosen)
        return Marks(slices, self._epochs[slices], positions[slices])

    def epoch(self, number: int) -> int:
        """The epoch in which the node owns this slice; 0 if it does not."""
        return int(self._epochs[number])

    # --- report -----------------------------------------------------------------------------------

    def report(self) -> Work | None:
        """What was done since the last report; None if nothing was."""
        slices = _numbers((self._products != 0) | (self._busy_ns != 0))
        if not len(slices) and not self._lost:
            return None
        self._report += 1
        work = Work(self._report, slices, self._products[slices], self._busy_ns[slices], self._lost, 0)
        self._forget_work()
        self._lost = 0
        return work

    def _forget_work(self) -> None:
        self._products = np.zeros(len(self.owned), np.uint64)
        self._busy_ns = np.zeros(len(self.owned), np.uint64)


def _numbers(chosen: Flags) -> Slices:
    return np.flatnonzero(chosen).astype(np.uint32)

"""Tasks: what a worker does at a time, and what became of it.

A task takes about a fiftieth of a second, or consists of one product if that takes longer. So a node looks up often
enough to let a slice go. If the products take longer than expected, the worker ends its task after a tenth of a second
and returns the rest undone. If one product of a task takes much longer than the others, the node takes those back that
its worker has not begun (`Pulse.keep_rest`) and takes in what is done. So a slow product holds up no slice but its own.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.product.batch import Batch
from headrace.product.product import Product
from headrace.share.interface import Epochs, Positions, Slices
from headrace.slices.backlog import Portion

TASK_S = 0.02
TASK_NS_MAX = 100_000_000  # after that, a worker begins no other product of its task
PRODUCTS_MAX = 4096
ERROR_CHARACTERS = 300

Work = Callable[[Any], Any]  # of a product, or of a batch


class Task:
    """Products for one worker, in the order of each slice."""

    __slots__ = ("begin", "epochs", "portions", "sequences", "slices", "told_ns")

    def __init__(self, portions: Sequence[Portion], epochs: Epochs) -> None:
        """`epochs` has those of all slices, as they are now."""
        self.portions = portions
        self.begin = 0  # place of the first product, as the worker counts
        self.slices: Slices = np.concatenate([each.slices for each in portions])
        self.sequences: Positions = np.concatenate([each.sequences for each in portions])
        self.epochs: Epochs = epochs[self.slices]
        self.told_ns = np.zeros(len(self.slices), np.uint64)  # time in work that was reported before its end

    def __len__(self) -> int:
        return len(self.slices)

    def between(self, begin: int, end: int) -> list[Portion]:
        """The products from one place to another."""
        found, first = list[Portion](), 0
        for portion in self.portions:
            places = np.arange(first, first + len(portion))
            first += len(portion)
            chosen = (places >= begin) & (places < end)
            found += [portion.where(chosen)] if chosen.any() else []
        return found

    def narrow(self, begin: int, end: int) -> None:
        """Keep these products alone; the worker goes on counting from the first."""
        self.portions, self.begin = self.between(begin, end), begin
        chosen = slice(begin, end)
        self.slices, self.sequences, self.epochs = self.slices[chosen], self.sequences[chosen], self.epochs[chosen]
        self.told_ns = self.told_ns[chosen]

    def together(self, place: int, batches: bool) -> slice:
        """The products that are in work with the one at this place."""
        end = place + 1
        if batches:
            end = next(each for each in np.cumsum([len(each) for each in self.portions]).tolist() if each > place)
        return slice(place, end)

    def products(self) -> Iterable[Product]:
        for portion in self.portions:
            yield from portion.products()

    def batches(self) -> list[Batch]:
        return [each.batch if len(each) == len(each.batch) else each.batch.take(each.places) for each in self.portions]


class Outcome(NamedTuple):
    """What became of each product of a task."""

    done: npt.NDArray[np.bool_]
    busy_ns: npt.NDArray[np.uint64]
    results: list[tuple[int, Any]]  # place in the task, and what the work returned
    failures: list[tuple[int, str]]  # place, and why; later products of that slice were not begun
    ended: str = ""  # why the worker itself ended

    def part(self, begin: int, count: int) -> "Outcome":
        """What became of some of the products; a copy, while the worker goes on."""
        end = begin + count
        results = [(place - begin, value) for place, value in self.results if begin <= place < end]
        failures = [(place - begin, why) for place, why in self.failures if begin <= place < end]
        return Outcome(self.done[begin:end].copy(), self.busy_ns[begin:end].copy(), results, failures, self.ended)


class Pulse:
    """Where a worker is, for the watch over products that hang. Others may read it at any time.

    The worker sets `place`, then looks at `stop`, and begins the product only if it comes before that. The node sets
    `stop`, then looks at `place`. So each product is the worker's or the node's, and never both.
    """

    __slots__ = ("is_given_up", "outcome", "place", "since_s", "stop")

    def __init__(self) -> None:
        self.place, self.since_s, self.stop, self.is_given_up = -1, 0.0, PRODUCTS_MAX, False
        self.outcome: Outcome | None = None  # of the products before `place`

    def keep_rest(self) -> tuple[int, Outcome] | None:
        """Keep the worker from what it has not begun of its task; the product in work, and what became of others."""
        while (place := self.place) >= 0 and self.outcome is not None:
            self.stop = place + 1
            if self.place == place:
                return place, self.outcome
        return None


def work_through(products: Iterable[Product], slices: Sequence[int], work: Work, pulse: Pulse) -> Outcome:
    """Call the work with one product after another. After a failure, skip the rest of that slice."""
    count = len(slices)
    done, spent = np.ones(count, np.bool_), np.zeros(count, np.uint64)
    results: list[tuple[int, Any]] = []
    failures: list[tuple[int, str]] = []
    failed: set[int] = set()
    outcome = pulse.outcome = Outcome(done, spent, results, failures)
    clock = time.perf_counter_ns
    before = clock()
    end = before + TASK_NS_MAX
    for place, product in enumerate(products):
        if before > end:
            done[place:] = False
            break
        if failed and slices[place] in failed:
            done[place] = False
            continue
        pulse.since_s, pulse.place = before / 1e9, place
        if place >= pulse.stop:
            done[place:] = False
            break
        try:
            value = work(product)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it ends neither the thread nor the process
            failures.append((place, error_text(error)))
            failed.add(slices[place])
            done[place] = False
        else:
            if value is not None:
                results.append((place, value))
        now = clock()
        spent[place] = now - before
        before = now
    pulse.place = -1
    return outcome


def work_on_batches(batches: Sequence[Batch], work: Work, pulse: Pulse) -> Outcome:
    """Call the work with one batch after another. A failure counts for its batch, and ends the task."""
    count = sum(map(len, batches))
    done, spent = np.zeros(count, np.bool_), np.zeros(count, np.uint64)
    results: list[tuple[int, Any]] = []
    failures: list[tuple[int, str]] = []
    end = 0
    last = time.perf_counter_ns() + TASK_NS_MAX
    for batch in batches:
        begin, end = end, end + len(batch)
        before = time.perf_counter_ns()
        if before > last:
            break
        pulse.since_s, pulse.place = before / 1e9, begin
        try:
            results += results_of(batch, work(batch), begin)
        except BaseException as error:  # noqa: BLE001 - as above
            failures = [(place, error_text(error)) for place in range(begin, end)]
            break
        done[begin:end] = True
        spent[begin:end] = (time.perf_counter_ns() - before) // max(1, len(batch))
    pulse.place = -1
    return Outcome(done, spent, results, failures)


def results_of(batch: Batch, values: Any, begin: int) -> list[tuple[int, Any]]:
    """What the work on a batch returned: nothing, or a value for each product, None for those without."""
    if values is None:
        return []
    if not isinstance(values, list | tuple) or len(values) != len(batch):
        raise TypeError(f"the work on a batch must return None, or a list of {len(batch)} values, one for each product")
    return [(begin + place, value) for place, value in enumerate(values) if value is not None]


def given_up(count: int, place: int, why: str) -> Outcome:
    """A worker that hung or died at one product: nothing counts but that this attempt failed."""
    failures = [(place, why)] if 0 <= place < count else []
    return Outcome(np.zeros(count, np.bool_), np.zeros(count, np.uint64), [], failures, why)


def without(outcome: Outcome, failures: list[tuple[int, str]], slices: Sequence[int]) -> Outcome:
    """The outcome if these places had failed: they and what follows in their slices is not done."""
    first: dict[int, int] = {}
    for place, _ in failures:
        first[slices[place]] = min(place, first.get(slices[place], place))
    failed = [(place, why) for place, why in failures if first[slices[place]] == place]
    undone = np.array([place >= first.get(number, len(slices)) for place, number in enumerate(slices)], np.bool_)
    earlier = [(place, why) for place, why in outcome.failures if not undone[place]]
    return outcome._replace(
        done=outcome.done & ~undone, failures=earlier + failed,
        results=[(place, value) for place, value in outcome.results if not undone[place]],
    )  # fmt: skip


def nothing_done(task: Task) -> Outcome:
    """A task that was not begun after all."""
    return Outcome(np.zeros(len(task), np.bool_), np.zeros(len(task), np.uint64), [], [])


def error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]

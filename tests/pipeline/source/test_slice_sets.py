"""Slices in sets of about the same load, for tasks; and that a task reads its own slices only. Without Spark."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import Queue, Selection, connect
from headrace.errors import OptionError, ShareMissingError
from headrace.log.weights import NO
from headrace.pipeline.source.options import read_options
from headrace.pipeline.source.slice_sets import GroupName, slice_sets
from headrace.pipeline.source.spans import Span, read_span, spans_of
from headrace.share.interface import Progress, Work
from support.fleet import Fabric

Make = Callable[..., Queue]
ZIPF, KEYS, SLICES = 1.2, 10_000, 256


def zipf_slices(count: int, seed: int = 7) -> list[int]:
    """The slices of products whose keys are chosen by Zipf's law."""
    chance = np.random.default_rng(seed)
    shares = np.arange(1, KEYS + 1, dtype=np.float64) ** -ZIPF
    return chance.integers(0, SLICES, KEYS)[chance.choice(KEYS, count, p=shares / shares.sum())].tolist()


def loads(sets: list[tuple[int, ...]], by_slice: dict[int, float]) -> list[float]:
    return [sum(by_slice[number] for number in numbers) for numbers in sets]


@pytest.mark.parametrize("tasks", [1, 2, 3, 4, 8, 64, 1000])
def test_a_skewed_stream_fills_all_tasks_as_far_as_its_slices_permit(tasks: int) -> None:
    numbers, counts = np.unique(zipf_slices(100_000), return_counts=True)
    weights = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    sets = slice_sets(weights, tasks)
    assert sorted(number for numbers in sets for number in numbers) == sorted(weights)
    assert len(sets) == min(tasks, len(weights))
    mean, heaviest = sum(weights.values()) / len(sets), max(weights.values())
    assert max(loads(sets, weights)) <= max(1.01 * mean, heaviest), "a slice is not divided"
    assert slice_sets(dict(reversed(weights.items())), tasks) == sets, "the order of the slices does not matter"


class Counting:
    """A queue that counts the products that tasks read."""

    def __init__(self, queue: Queue) -> None:
        self._queue, self.products = queue, 0

    def read_batch(self, *arguments: Any, **options: Any) -> Any:
        batch = self._queue.read_batch(*arguments, **options)
        self.products += len(batch)
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def read(queue: Any, spans: list[Span], select: str = "") -> list[list[tuple[int, int | None]]]:
    selection = Selection.parse(select) if select else Selection()
    rows = []
    for span in spans:
        batches = read_span(queue, span, selection, ("sequence", "slice"), fail=True)
        rows.append([(row["sequence"], row["slice"]) for batch in batches for row in batch.to_pylist()])
    return rows


def test_tasks_read_every_product_once_and_nothing_else(make_queue: Make) -> None:
    queue = make_queue(size="16MiB", dedup="none")
    slices = zipf_slices(20_000)
    queue.put_many([b"x"] * len(slices), feed="x", slice=slices)
    counting: Any = Counting(queue)
    spans = spans_of(counting, Selection(), 1, queue.next, 4, True)
    rows = read(counting, spans)
    assert sorted(each for part in rows for each in part) == list(enumerate(slices, 1))
    assert all(part == sorted(part) for part in rows), "in the order of the queue"
    assert counting.products == len(slices)
    assert sorted(number for span in spans for number in span.slices or ()) == sorted(set(slices))


def test_products_without_a_slice_are_in_one_task(make_queue: Make) -> None:
    queue = make_queue(dedup="none")
    queue.put_many([b"x"] * 90, feed="x", slice=[None if n % 3 == 0 else n % 7 for n in range(90)])
    spans = spans_of(queue, Selection(), 1, queue.next, 3, True)
    rows = read(queue, spans)
    assert sorted(number for part in rows for number, _ in part) == list(range(1, 91))
    assert [any(slice_ is None for _, slice_ in part) for part in rows].count(True) == 1
    assert sum(NO in (span.slices or ()) for span in spans) == 1


def test_slices_that_a_selection_has_chosen_stay_chosen(make_queue: Make) -> None:
    queue = make_queue(dedup="none")
    queue.put_many([b"x"] * 100, feed="x", slice=[n % 10 for n in range(100)])
    spans = spans_of(queue, Selection.parse("x slice 2-5"), 1, queue.next, 2, True)
    rows = read(queue, spans, "x slice 2-5")
    assert {slice_ for part in rows for _, slice_ in part} == {2, 3, 4, 5}
    assert sum(map(len, rows)) == 40


def test_very_many_slices_are_read_too(make_queue: Make) -> None:
    queue = make_queue(size="16MiB", dedup="none")
    slices = [(n * 7) % 65_535 for n in range(20_000)]
    queue.put_many([b"x"] * len(slices), feed="x", slice=slices)
    rows = read(queue, spans_of(queue, Selection(), 1, queue.next, 3, True))
    assert sorted(each for part in rows for each in part) == list(enumerate(slices, 1))


def measured(queue: Queue, costs_ns: list[int]) -> None:
    """A group whose nodes have worked on ten products of each slice."""
    queue.channel("s", "x", slices=len(costs_ns), assign="given")
    share = queue.share("s", "slow")
    seat = share.join("node")
    numbers, tens = np.arange(len(costs_ns), dtype=np.uint32), np.full(len(costs_ns), 10, np.uint64)
    share.give(0, seat.number, numbers, "hand")
    seat.exchange(Progress(work=Work(1, numbers, tens, tens * np.array(costs_ns, np.uint64))))
    seat.leave()


def test_the_costs_that_a_group_has_measured_count_instead_of_bytes(make_queue: Make) -> None:
    queue = make_queue(dedup="none")
    measured(queue, [50, 1, 1, 1, 1, 1])
    queue.put_many([bytes(10)] * 60, feed="x", slice=[n % 6 for n in range(60)])
    by_bytes = spans_of(queue, Selection(), 1, queue.next, 2, True)
    by_cost = spans_of(queue, Selection(), 1, queue.next, 2, True, None, GroupName("s", "slow"))
    assert [span.slices for span in by_bytes] == [(0, 2, 4), (1, 3, 5)]
    assert [span.slices for span in by_cost] == [(0,), (1, 2, 3, 4, 5)]


def test_a_group_that_has_measured_nothing_leaves_it_to_bytes(make_queue: Make) -> None:
    queue = make_queue(dedup="none")
    queue.channel("s", "x", slices=2, assign="given")
    queue.share("s")
    queue.put_many([bytes(10)] * 4, feed="x", slice=[0, 1, 0, 1])
    spans = spans_of(queue, Selection(), 1, queue.next, 2, True, None, GroupName("s", "main"))
    assert [span.slices for span in spans] == [(0,), (1,)]
    with pytest.raises(ShareMissingError, match="no group 'none'"):
        spans_of(queue, Selection(), 1, queue.next, 2, True, None, GroupName("s", "none"))


def test_a_group_at_another_site_is_asked(fabric: Fabric) -> None:
    queue = fabric.add("far", dedup="none")
    measured(queue, [50, 1, 1])
    queue.put_many([bytes(10)] * 30, feed="x", slice=[n % 3 for n in range(30)])
    with connect(fabric._endpoints["far"]) as far:
        spans = spans_of(far, Selection(), 1, queue.next, 2, True, None, GroupName("s", "slow"))
        assert [span.slices for span in spans] == [(0,), (1, 2)]
        assert [len(part) for part in read(far, spans)] == [10, 20]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"group": "main"}, "option group requires a stream"),
        ({"stream": "radar"}, "option stream has no effect without slices.*partitionBy"),
        ({"stream": "radar", "partitionBy": "bytes"}, "option stream has no effect without slices"),
        ({"stream": " ", "partitionBy": "slice"}, "option stream is empty"),
    ],
)
def test_options_without_effect_are_errors(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        read_options({"queue": "q", **given})
    options = read_options({"queue": "q", "partitionBy": "slice", "stream": "radar"})
    assert options.measured_by == GroupName("radar", "main")

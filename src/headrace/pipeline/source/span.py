"""Spans: a range of sequences shared out among Spark's tasks.

Each span is one task's: a stretch of the range, or all of it for some slices. Spans have about the same weight in
bytes, by the index rows of the queue (`Queue.weigh`). A range that is small stays whole, because a task costs more than
it saves.
"""

import itertools
import os
from dataclasses import dataclass

from headrace.log.weights import Weights
from headrace.queue import Queue
from headrace.selection import Selection

SMALL = 20_000  # sequences that one task reads, whatever they weigh
SPAN_BYTES = 64 << 20  # a span should not weigh more


@dataclass(frozen=True, slots=True)
class Span:
    """Sequences from `first` up to `end`, which is not included; of these slices, or of all if None."""

    first: int
    end: int
    slices: tuple[int, ...] | None = None


def spans_of(
    queue: Queue, selection: Selection, first: int, end: int, at_least: int | None, by_slice: bool
) -> list[Span]:
    """The range from `first` up to `end` in spans; none if it is empty."""
    if first >= end:
        return []
    if at_least is None and end - first <= SMALL and not by_slice:
        return [Span(first, end)]
    weights = queue.weigh(first, end, selection)
    count = max(at_least or os.cpu_count() or 1, -(-weights.total // SPAN_BYTES))
    if count == 1:
        return [Span(first, end)]
    return _by_slice(weights, first, end, count) if by_slice else _by_bytes(weights, first, end, count)


def end_within(queue: Queue, selection: Selection, first: int, end: int, bytes_max: int) -> int:
    """How far to go from `first` so that no more than `bytes_max` are read; at least one stretch."""
    weights = queue.weigh(first, end, selection)
    for stretch_end, reached in zip(weights.ends, itertools.accumulate(weights.sizes), strict=True):
        if reached >= bytes_max:
            return stretch_end
    return end


def _by_bytes(weights: Weights, first: int, end: int, count: int) -> list[Span]:
    share, reached, spans = weights.total / count, 0, list[Span]()
    for stretch_end, size in zip(weights.ends, weights.sizes, strict=True):
        reached += size
        if reached >= share * (len(spans) + 1) and first < stretch_end < end:
            spans.append(Span(first, stretch_end))
            first = stretch_end
    return [*spans, Span(first, end)]


def _by_slice(weights: Weights, first: int, end: int, count: int) -> list[Span]:
    """Heaviest slices first, each to the lightest span; products without a slice are one more slice."""
    bins: list[tuple[int, list[int]]] = [(0, []) for _ in range(min(count, len(weights.slices)) or 1)]
    for number, size in sorted(weights.slices.items(), key=lambda slice_: (-slice_[1], slice_[0])):
        place = min(range(len(bins)), key=lambda place: bins[place][0])
        bins[place] = (bins[place][0] + size, [*bins[place][1], number])
    return [Span(first, end, tuple(sorted(numbers))) for _, numbers in bins if numbers or len(bins) == 1]

"""Spans: a range of sequences shared among Spark's tasks, and how a task reads its span.

Each span is the work of one task: a stretch of the range, or all of it for some slices (slice_sets.py). Spans have
about the same weight in bytes, by the index rows of the queue (`Queue.weigh`). A small range stays one span, because a
task costs more than it saves.

A task reads its span exactly. Products that were evicted or are damaged are data loss: an error that names the range,
or a warning if the user allows loss. Products that were deleted or have expired are not lost; they do not exist.
"""

import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.errors import DataLossError, ProductDamagedError
from headrace.log.weights import NO, Weights
from headrace.pipeline.source.columns import FRAGMENT, arrow_of
from headrace.pipeline.source.slice_sets import GroupName, loads_of, slice_sets
from headrace.product.batch import Batch
from headrace.product.product import NO_SLICE
from headrace.queue import AnyQueue
from headrace.selection import Selection
from headrace.selection.parsing import TEXT_MAX
from headrace.units import format_count

SMALL = 20_000  # sequences that one task reads, whatever their weight
SPAN_BYTES = 512 << 20  # the weight that a span should not exceed: what a task that fails repeats
_FIRST_PRODUCTS, _PRODUCTS = 256, 16_384  # in the first Arrow batch, and at most
_FIRST_BYTES, _BYTES = 1 << 20, 16 << 20
_GROWTH = 4

log = logging.getLogger("headrace.pipeline")


@dataclass(frozen=True, slots=True)
class Span:
    """Sequences from `first` up to `end`, which is not included; of these slices, or of all if None."""

    first: int
    end: int
    slices: tuple[int, ...] | None = None


# --- planning, on the driver ------------------------------------------------------------------------


def spans_of(
    queue: AnyQueue, selection: Selection, first: int, end: int, at_least: int | None, by_slice: bool,
    bytes_max: int | None = None, group: GroupName | None = None,
) -> list[Span]:  # fmt: skip
    """The range from `first` up to `end` in spans, each of about `bytes_max` at most; none if it is empty.

    With `by_slice`, each span has all products of its slices. They are chosen by weight, or by what they cost a group.
    """
    if first >= end:
        return []
    is_small = at_least is None and end - first <= SMALL and not by_slice
    if is_small and bytes_max is None:
        return [Span(first, end)]
    weights = queue.weigh(first, end, selection)
    count = 1 if is_small else _count(weights.total, at_least)
    if bytes_max is not None:
        count = max(count, -(-weights.total // bytes_max))
    if count == 1:
        return [Span(first, end)]
    if not by_slice:
        return _by_bytes(weights, first, end, count)
    sets = slice_sets(loads_of(queue, weights, group), count)
    return [Span(first, end, numbers) for numbers in sets] or [Span(first, end)]


def _count(weight: int, at_least: int | None) -> int:
    """How many tasks: one for each core, or the same number more than once if they would be too heavy. A task more than
    that costs some hundredths of a second, and leaves cores idle in the last round."""
    cores = at_least or len(os.sched_getaffinity(0))
    return cores * max(1, -(-weight // (cores * SPAN_BYTES)))


def end_within(
    queue: AnyQueue, selection: Selection, first: int, end: int, products_max: int | None, bytes_max: int | None
) -> int:
    """The end of a range from `first` with at most so many products that the selection matches, and at most about
    `bytes_max`; it has at least one stretch."""
    if products_max is None and bytes_max is None:
        return end
    weights = queue.weigh(first, end, selection, products_max)
    for stretch_end, reached in zip(weights.ends, itertools.accumulate(weights.sizes), strict=True):
        if bytes_max is not None and reached >= bytes_max:
            return stretch_end
    return weights.ends[-1]


def _by_bytes(weights: Weights, first: int, end: int, count: int) -> list[Span]:
    share, reached, spans = weights.total / count, 0, list[Span]()
    for stretch_end, size in zip(weights.ends, weights.sizes, strict=True):
        reached += size
        if reached >= share * (len(spans) + 1) and first < stretch_end < end:
            spans.append(Span(first, stretch_end))
            first = stretch_end
    return [*spans, Span(first, end)]


# --- reading, in a task -----------------------------------------------------------------------------


def read_span(
    queue: AnyQueue, span: Span, selection: Selection, columns: Sequence[str], *, fail: bool
) -> Iterator[pa.RecordBatch]:
    """All products of the span that the selection matches, in order. DataLossError if some are lost and `fail`.

    Fragments of something larger are left out, with a warning that counts them, unless the columns have their mark.

    The first batches are small: `limit` and `show` need few rows, and Spark closes the connection when it has them.
    """
    position, products, bytes_ = span.first, _FIRST_PRODUCTS, _FIRST_BYTES
    selection, left_over = _narrowed(selection, span.slices)
    fragments = 0
    while position < span.end:
        try:
            batch = queue.read_batch(position, selection, limit=products, bytes_limit=bytes_, stop=span.end)
        except ProductDamagedError as error:
            report_loss(queue, error.sequence, error.next - 1, "damaged", fail=fail)
            position = error.next
            continue
        if batch.lost and batch.lost.first < span.end:
            report_loss(queue, batch.lost.first, min(batch.lost.last, span.end - 1), "evicted", fail=fail)
        position = max(batch.next, position + 1)
        products, bytes_ = min(_GROWTH * products, _PRODUCTS), min(_GROWTH * bytes_, _BYTES)
        if len(batch):
            kept = np.ones(len(batch), np.bool_) if left_over is None else _of_slices(batch, left_over)
            if FRAGMENT not in columns and (parts := list(batch.fragments())):
                fragments += int(kept[parts].sum())
                kept[parts] = False
            if kept.any():
                yield arrow_of(batch if kept.all() else batch.take(np.flatnonzero(kept)), columns)
    if fragments:
        log.warning(
            "%s of large products in %s, between %d and %d, left out: read this feed with a program that joins "
            '(headrace.joined), put smaller products, or give option("fragments", "true") for rows of parts',
            format_count(fragments, "fragment"), queue.path, span.first, span.end - 1,
        )  # fmt: skip


def _narrowed(selection: Selection, slices: tuple[int, ...] | None) -> tuple[Selection, tuple[int, ...] | None]:
    """The selection of a span; and the slices to keep of what it finds, where a selection cannot name them.

    No selection can ask for products without a slice, and its text may not be too long for a call to a site.
    """
    if slices is None:
        return selection, None
    if NO in slices:
        return selection, slices
    narrow = selection.replace(slices=slices)
    return (narrow, None) if len(str(narrow)) <= TEXT_MAX else (selection, slices)


def _of_slices(batch: Batch, slices: tuple[int, ...]) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    numbers = batch.columns["slice"].astype(np.int64)
    return np.isin(np.where(numbers == NO_SLICE, NO, numbers), slices)


def report_loss(queue: AnyQueue, first: int, last: int, why: str, *, fail: bool) -> None:
    """Raise DataLossError for a range of sequences, or log a warning."""
    lost = f"products {first}-{last} of {queue.path} are lost ({why})"
    if fail:
        raise DataLossError(lost, 'to continue without them: on_loss = "count", or option("failOnDataLoss", "false")')
    log.warning("%s; they are skipped", lost)

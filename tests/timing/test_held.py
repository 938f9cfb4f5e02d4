"""Batches of several queues as one, and what a release buffer passes on of its sources."""

import time
from collections.abc import Callable

import numpy as np
import pytest
from sampling import Sample, facts

from headrace import ProductDamagedError, Queue, ReleaseBuffer
from headrace.kernel import _kernel as kernel
from headrace.log.records import rows_of
from headrace.timing.held import Held
from headrace.timing.release import NS, Criteria, Releasing
from support.damage import flip_bit

NOTHING = np.empty(0, np.uint32)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


def test_rows_are_joined_in_any_order_and_outlive_their_parts(sample: Sample) -> None:
    rows = [rows_of(batch) for batch in sample.apart]
    tables = [np.arange(5000, dtype=np.uint32)] * 3
    joined = kernel.join_rows(rows, numbers(2, 0, 2), numbers(3, 1, 3), ["?"] * 5000, tables, tables)
    expected = [bytes(sample.apart[part].payload(place)) for part, place in ((2, 3), (0, 1), (2, 3))]
    del rows
    assert [bytes(joined.view(place)) for place in range(3)] == expected
    assert (len(joined), joined.bytes) == (3, sum(map(len, expected)))
    assert len(kernel.join_rows([], NOTHING, NOTHING)) == 0


def test_rows_that_do_not_exist_are_an_error(sample: Sample) -> None:
    rows = [rows_of(sample.whole)]
    for which, places in ((numbers(1), numbers(0)), (numbers(0), numbers(100_000))):
        with pytest.raises(IndexError):
            kernel.join_rows(rows, which, places)
    with pytest.raises(IndexError):  # a name without a number
        kernel.join_rows(rows, numbers(0), numbers(0), [], [NOTHING], [NOTHING])
    with pytest.raises(ValueError, match="places"):
        kernel.join_rows(rows, numbers(0), NOTHING)


def test_batches_of_several_queues_have_names_arrow_and_products_as_any_batch(sample: Sample) -> None:
    held = Held(3)
    for source, batch in enumerate(sample.apart):
        held.add(batch, source, 0)
    assert held.sort_in() is None
    batch = held.take(len(held))
    assert facts(batch) == sorted(fact for each in sample.apart for fact in facts(each))
    table = batch.to_arrow().to_pydict()
    assert (table["feed"], table["ident"]) == (batch.feeds, [product.ident for product in batch])
    assert (len(held), held.bytes) == (0, 0)
    assert batch.of_source(1).origins == ["a"] * 24


def test_a_clock_that_is_an_hour_ahead_makes_no_other_product_late(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    buffer = Releasing(1, Criteria.of("100ms", 100, "1MiB", 1.0, "drop"))
    found = []
    for now_ns in range(0, 3 * NS, NS):
        first = queue.next
        queue.put(b"right", feed="a")
        queue.put(b"ahead", feed="a", created=time.time_ns() + 3600 * NS)
        buffer.add(queue.read_batch(first), 0, now_ns)
        batch = buffer.poll(now_ns + NS // 10)
        assert batch is not None
        found += [bytes(product.payload) for product in batch]
    assert (found, buffer.counts.dropped_late) == ([b"right", b"ahead"] * 3, 0)


def test_a_range_that_was_evicted_is_reported_at_once(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="1MiB")
    follower = queue.follow(1, timeout=0)
    for _ in range(30):
        queue.put(bytes(100_000), feed="a")
    with ReleaseBuffer(follower, hold="1h") as buffer:
        batches = list(buffer)
    lost = [batch.lost for batch in batches if batch.lost is not None]
    assert [(each.first, each.last) for each in lost] == [(1, queue.oldest - 1)]
    assert sum(map(len, batches)) == queue.next - queue.oldest


def test_a_damaged_product_is_an_error_after_which_the_loop_goes_on(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    for ident in ("one", "two", "three"):
        queue.put(f"payload {ident}".encode(), feed="a", ident=ident)
    flip_bit(queue.path, b"payload two")
    (queue.path / "spoilt").touch()
    follower, found = queue.follow("oldest", timeout=0), []
    with ReleaseBuffer(follower, hold="1h") as buffer:
        while True:
            try:
                found += [product.ident for batch in buffer for product in batch]
                break
            except ProductDamagedError as error:
                follower.position = error.next
    assert found == ["one", "three"]

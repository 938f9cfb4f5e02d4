"""Weights: how bytes are spread over a range, and reads that end at a given sequence."""

from collections.abc import Callable

from headrace import Queue, Selection
from headrace.log.weights import NO, PRODUCT_BYTES, STRETCH_BYTES

Make = Callable[..., Queue]


def fill(queue: Queue) -> None:
    """Put a large product between small ones, in two feeds, some with slices."""
    queue.put_many([b"%d" % n for n in range(100)], feed="small", slice=[n % 3 for n in range(100)])
    queue.put(bytes(3 * STRETCH_BYTES), feed="large")
    queue.put_many([b"%d" % n for n in range(100, 200)], feed="small")


def test_stretches_cover_the_range_and_add_up_to_its_weight(make_queue: Make) -> None:
    queue = make_queue(size="64MiB")
    fill(queue)
    weights = queue.weigh(1, queue.next)
    payloads = sum(len(product.payload) for product in queue.read_batch("oldest"))
    assert weights.total == payloads + 201 * PRODUCT_BYTES
    assert weights.ends == [102, 202]
    assert weights.slices.keys() == {0, 1, 2, NO}
    assert sum(weights.slices.values()) == weights.total
    assert weights.slice_products == {0: 34, 1: 33, 2: 33, NO: 101}


def test_a_weight_covers_only_the_given_range_and_feeds(make_queue: Make) -> None:
    queue = make_queue(size="64MiB")
    fill(queue)
    assert queue.weigh(1, 101).total < STRETCH_BYTES
    assert queue.weigh(1, 101).ends == [101]
    assert queue.weigh(1, queue.next, "large").total == 3 * STRETCH_BYTES + PRODUCT_BYTES
    assert queue.weigh(1, queue.next, Selection("nothing")).total == 0
    assert queue.weigh(50, 50).total == 0


def test_many_products_are_split_into_bounded_stretches(make_queue: Make) -> None:
    queue = make_queue(size="256MiB", dedup="none")
    for _ in range(150):
        queue.put_many([b"x" * 100] * 1000, feed="x")
    weights = queue.weigh(1, queue.next)
    assert weights.total == 150_000 * (100 + PRODUCT_BYTES)
    assert weights.ends == sorted(set(weights.ends))
    assert weights.ends[-1] == 150_001
    assert max(weights.sizes) < STRETCH_BYTES + 1000


def test_a_limit_ends_the_range_after_so_many_products(make_queue: Make) -> None:
    queue = make_queue(size="64MiB")
    fill(queue)
    weights = queue.weigh(1, queue.next, "small", 150)
    assert (weights.count, weights.ends[-1]) == (150, 152), "one product between them is not small"
    assert (queue.weigh(1, queue.next, "small").count, queue.weigh(1, queue.next).count) == (200, 201)
    assert queue.weigh(1, queue.next, "small", 500).ends[-1] == queue.next


def test_idents_decide_if_the_selection_has_a_condition_on_them(make_queue: Make) -> None:
    queue = make_queue(size="64MiB")
    queue.put_many([b"%d" % n for n in range(100)], feed="x", ident=[f"i{n % 10}" for n in range(100)], slice=4)
    weights = queue.weigh(1, queue.next, 'x ident ~ "7"')
    assert (weights.count, weights.total) == (10, 10 * PRODUCT_BYTES + 19)
    assert weights.slices == {4: weights.total}
    assert weights.slice_products == {4: 10}
    assert queue.weigh(1, queue.next, 'x ident ~ "7"', 3).ends == [29]


def test_evicted_products_weigh_nothing(make_queue: Make) -> None:
    queue = make_queue(size="4MiB")
    for number in range(60):
        queue.put(number.to_bytes(2, "big") * 100_000, feed="x")
    assert queue.weigh(1, queue.oldest).total == 0
    assert queue.weigh(1, queue.next).total == (queue.next - queue.oldest) * (200_000 + PRODUCT_BYTES)


def test_a_read_ends_at_its_stop(make_queue: Make) -> None:
    queue = make_queue(size="64MiB")
    fill(queue)
    for selection in (None, "small", 'small ident !~ "x"'):
        batch = queue.read_batch(90, selection, stop=100)
        assert (batch.sequences.tolist(), batch.next) == (list(range(90, 100)), 100)
    batch = queue.read_batch(95, "large", stop=100)
    assert (len(batch), batch.next) == (0, 100)

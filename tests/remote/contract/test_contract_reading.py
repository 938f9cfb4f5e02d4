"""`read` goes on to the end, and reports what it misses: the same tests on a local and on a remote queue."""

from collections.abc import Callable

import pytest

from headrace import Selection
from headrace.errors import OptionError, ProductDamagedError, ProductsLostError
from headrace.queue import AnyQueue
from support.serving import Served, put

MANY = 25_000  # more than two batches


@pytest.fixture(params=["local", "remote"])
def small(request: pytest.FixtureRequest, make_served: Callable[..., Served]) -> tuple[Served, AnyQueue]:
    served = make_served(size="1MiB", dedup="none")
    return served, served.queue if request.param == "local" else served.connect()


def test_iterating_reads_to_the_end_however_much_there_is(queue: AnyQueue) -> None:
    queue.put_many([b"%d" % number for number in range(MANY)], feed="a")
    assert [int(bytes(product.payload)) for product in queue.read("oldest")] == list(range(MANY))
    assert sum(1 for _ in queue.read(MANY - 9)) == 10
    assert sum(len(batch) for batch in queue.read().batches()) == MANY


def test_a_limit_is_something_you_ask_for(queue: AnyQueue) -> None:
    queue.put_many([b"%d" % number for number in range(MANY)], feed="a")
    assert sum(1 for _ in queue.read(limit=12_345)) == 12_345
    sizes = [len(batch) for batch in queue.read(limit=10).batches(4)]
    assert sizes == [4, 4, 2]
    assert [product.sequence for product in queue.read(5, stop=8)] == [5, 6, 7]
    for limit in (0, -1, True, "many"):
        with pytest.raises(OptionError, match="limit"):
            queue.read(limit=limit)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="limit"):
            queue.read().batches(limit)  # type: ignore[arg-type]


def test_a_reading_ends_where_the_queue_ended_at_the_call(queue: AnyQueue) -> None:
    put(queue, "1", "2")
    found = []
    for product in queue.read():
        found.append(product.ident)
        put(queue, f"after {product.ident}")
    assert found == ["1", "2"]


def test_a_reading_can_be_iterated_again(queue: AnyQueue) -> None:
    put(queue, "1", "2")
    reading = queue.read()
    assert [product.ident for product in reading] == [product.ident for product in reading] == ["1", "2"]


def test_every_counts_across_batches_and_limits(queue: AnyQueue) -> None:
    queue.put_many([b"%d" % number for number in range(100)], feed="a")
    every_7th = list(range(7, 101, 7))
    read = queue.read("oldest", Selection(every=7))
    assert [product.sequence for batch in read.batches(2) for product in batch] == every_7th
    limited = queue.read("oldest", Selection(every=7), limit=5)
    assert [product.sequence for batch in limited.batches(2) for product in batch] == every_7th[:5]


def test_products_evicted_while_they_are_read_are_named(small: tuple[Served, AnyQueue]) -> None:
    served, queue = small
    served.queue.put_many([b"x" * 10] * 200, feed="a")
    reading = queue.read("oldest")
    batches = reading.batches(100)
    assert len(next(batches)) == 100
    while served.queue.oldest <= 200:
        served.queue.put_many([b"x" * 1000] * 100, feed="a")
    lost = next(batches).lost
    assert lost is not None
    assert (lost.first, lost.last) == (101, 200)
    assert list(batches) == []
    with pytest.raises(ProductsLostError, match=r"1-200 .*evicted.*read on at 201") as told:
        list(reading)
    assert (told.value.first, told.value.last, told.value.next) == (1, 200, 201)


def test_products_that_were_gone_at_the_call_are_named_too(small: tuple[Served, AnyQueue]) -> None:
    served, queue = small
    while served.queue.oldest == 1:
        served.queue.put_many([b"x" * 1000] * 100, feed="a")
    oldest = served.queue.oldest
    with pytest.raises(ProductsLostError, match="evicted") as told:
        list(queue.read(1))
    assert told.value.next == oldest
    assert next(iter(queue.read(told.value.next))).sequence == oldest
    assert next(iter(queue.read("oldest"))).sequence == oldest


def test_a_damaged_product_ends_the_iteration_with_an_error(served: Served, queue: AnyQueue) -> None:
    put(queue, "one", "spoilt", "three")
    served.spoil(b"spoilt")
    found = []
    with pytest.raises(ProductDamagedError) as told:
        for product in queue.read():
            found.append(product.ident)
    found.extend(product.ident for product in queue.read(told.value.next))
    assert found == ["one", "three"]


def test_a_cursor_reads_to_the_end_and_commits_batches(queue: AnyQueue) -> None:
    queue.put_many([b"%d" % number for number in range(MANY)], feed="a")
    cursor = queue.cursor("reader")
    assert sum(1 for _ in cursor.read()) == MANY
    assert cursor.position == 1
    for batch in cursor.read().batches():
        cursor.commit(batch)
    assert cursor.position == MANY + 1
    assert list(cursor.read()) == []

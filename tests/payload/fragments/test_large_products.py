"""Products that are too large for their queue become fragments by themselves, and are joined again."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headrace
from headrace import Duplicate, Queue
from headrace.errors import FragmentError, PayloadTooLargeError
from headrace.payload.fragments.join import Joiner
from headrace.queue import AnyQueue
from payload.fragments.transfers import FRAGMENT_BYTES, make_file, send
from support.serving import Served

LARGE = os.urandom(400_000)  # a queue of 1 MiB takes 256 KiB


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    return make_quick(size="1MiB", origin="here")


@pytest.fixture(params=["local", "remote"])
def either(request: pytest.FixtureRequest, shared_memory: Path) -> Iterator[AnyQueue]:
    if request.param == "local":
        with Queue.create(shared_memory / "q", size="1MiB", durability="memory") as local:
            yield local
        return
    served = Served(shared_memory, size="1MiB")
    yield served.connect()
    served.close()


def test_a_product_that_is_too_large_is_joined_from_its_fragments(either: AnyQueue) -> None:
    either.put(b"before", feed="a", ident="small")
    sequence = either.put(LARGE, feed="a", ident="large", priority=6, properties={"run": 3})
    either.put(b"behind", feed="a", ident="last")
    small, large, last = headrace.joined(either.read().batches())
    assert (small.ident, last.ident, bytes(large.payload)) == ("small", "last", LARGE)
    assert (large.feed, large.ident, large.priority, dict(large.properties)) == ("a", "large", 6, {"run": 3})
    assert large.sequence == sequence


def test_a_fragment_is_marked_and_does_not_pass_for_a_product(queue: Queue) -> None:
    queue.put(LARGE, feed="a", ident="large")
    manifest, first, *_ = queue.read()
    assert first.options.fragment is not None
    assert (first.options.fragment.number, first.ident, first.size) == (0, "large", FRAGMENT_BYTES)
    with pytest.raises(FragmentError, match=r"is fragment 1 of 7 of something larger: 'large'; join fragments"):
        first.payload
    with pytest.raises(FragmentError, match="is the manifest of"):
        manifest.payload
    assert bytes(first.part) == LARGE[:FRAGMENT_BYTES]
    assert first.copy() == first
    assert "large" in repr(first)


def test_the_same_product_is_a_duplicate_and_another_one_is_not(queue: Queue) -> None:
    first = queue.put(LARGE, feed="a", ident="large")
    assert queue.put(LARGE, feed="a", ident="large") == Duplicate(int(first))
    assert not isinstance(queue.put(LARGE[:300_000], feed="a", ident="large"), Duplicate)


def test_beyond_half_of_the_queue_a_put_is_refused(queue: Queue) -> None:
    with pytest.raises(PayloadTooLargeError, match=r"at most half of it, in fragments: .* or use headrace send"):
        queue.put(bytes(600_000), feed="a")
    with pytest.raises(PayloadTooLargeError):
        queue.put(LARGE, feed="a", signature=bytes(16))
    assert queue.next == 1


def test_a_joiner_knows_from_where_to_go_on_and_what_it_left_out(queue: Queue, tmp_path: Path) -> None:
    send(queue, make_file(tmp_path / "file", 100_000), receivers=0)
    queue.put(b"small", feed="a")
    begin = queue.put(LARGE[:300_000], feed="a", ident="large")
    joiner = Joiner()
    batch = queue.read_batch(stop=int(begin) + 3)
    assert [product.size for product in joiner.join(batch)] == [5]
    assert joiner.safe == begin
    assert joiner.statistics.files == 2
    rest = list(joiner.join(queue.read_batch(batch.next)))
    assert [product.size for product in rest] == [300_000]
    assert joiner.safe == queue.next
    assert joiner.statistics.joined == 1


def test_what_is_incomplete_is_bounded_and_counted(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="4MiB")
    joiner = Joiner(bytes_max=2_500_000)
    for number in range(2):
        begin = queue.put(os.urandom(1_500_000), feed="a", ident=str(number))
        assert list(joiner.join(queue.read_batch(int(begin), limit=3))) == []
    assert joiner.statistics.dropped == 1


def test_a_fragment_that_is_damaged_is_not_joined(queue: Queue) -> None:
    queue.put(LARGE, feed="a", ident="large")
    manifest, *parts = queue.read()
    other = queue.put_many  # the same fragments, one with another byte, as a hostile site would send them
    contents = [bytes(part.part) for part in parts]
    contents[3] = b"x" + contents[3][1:]
    begin = queue.next
    other([bytes(manifest.part), *contents], feed="b", options=[manifest.options, *(part.options for part in parts)])
    joiner = Joiner()
    assert list(joiner.join(queue.read_batch(begin))) == []
    assert joiner.statistics.damaged == 1


def test_a_joiner_is_not_beyond_fragments_that_came_before_their_manifest(make_quick: Callable[..., Queue]) -> None:
    source = make_quick("source", size="1MiB")
    source.put(LARGE[:200_000], feed="a", ident="before")
    begin = source.put(LARGE, feed="a", ident="large")
    manifest, *parts = source.read(int(begin))
    there = make_quick("there", size="4MiB")  # a site that got them in another order
    for each in [*parts[:3], manifest, *parts[3:]]:
        there.put(bytes(each.part), feed="a", ident=each.ident, options=each.options)
    killed = Joiner()
    assert list(killed.join(there.read_batch(limit=2))) == []
    assert killed.safe == 1
    assert list(killed.join(there.read_batch(killed._next, limit=3))) == []
    assert killed.safe == 1, "also when the manifest has come"
    (whole,) = Joiner().join(there.read_batch(killed.safe))
    assert bytes(whole.payload) == LARGE


def test_early_fragments_are_copies_and_bounded(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="1MiB")
    begin = queue.put(LARGE, feed="a", ident="large")
    joiner = Joiner(bytes_max=3 * FRAGMENT_BYTES)
    batch = queue.read_batch(int(begin) + 1)
    assert list(joiner.join(batch)) == []
    assert (joiner.statistics.early, joiner.statistics.early_dropped) == (7, 4)
    assert joiner.safe == int(begin) + 5
    del batch
    for number in range(40):  # all segments are used again, and what is kept does not change
        queue.put(bytes(60_000), feed="b", ident=str(number))
    assert [bytes(each.part) for each in joiner._early.values()] == [
        LARGE[place:][:FRAGMENT_BYTES] for place in range(4 * FRAGMENT_BYTES, len(LARGE), FRAGMENT_BYTES)
    ]


def test_fragments_of_what_was_dropped_do_not_hold_up_what_is_safe(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="4MiB")
    joiner = Joiner(bytes_max=1_500_000)
    first = queue.put(os.urandom(1_400_000), feed="a", ident="first")
    second = queue.put(os.urandom(1_400_000), feed="a", ident="second")
    assert list(joiner.join(queue.read_batch(int(first), limit=2))) == []
    assert list(joiner.join(queue.read_batch(int(second), limit=2))) == []  # the first is dropped
    assert list(joiner.join(queue.read_batch(int(first) + 2, stop=int(second)))) == []
    assert (joiner.statistics.dropped, joiner.statistics.early) == (1, 0)
    assert joiner.safe == int(second)

"""The slices that a channel assigns: as the page defines them, evenly, to every product, and counted if it cannot."""

import errno
import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from headrace import Queue
from headrace.channel.assigner import counters_path
from headrace.errors import DiskFullError, FunctionMissingError, OptionError, RejectedError
from headrace.log.append import Duplicate
from headrace.product.product import Product
from headrace.queue.queue import log_of
from support.seeds import random_seed
from support.slice_oracle import slice_of
from support.waiting import is_asleep, until

MakeQueue = Callable[..., Queue]
BY_PRODUCT = ("ident", "property:n", "modulo:n", "grid:lat,lon,8x32", "grid:lat,lon,90x180")


def slices(queue: Queue, start: Any = "oldest") -> list[int | None]:
    return [product.slice for product in queue.read(start)]


def any_properties(dice: random.Random) -> dict[str, Any]:
    """Often valid for every function, often not."""
    n = dice.choice([dice.randrange(-(2**63), 2**63), dice.randrange(-9, 9), 1.5, "text", "ü" * 200, True, None])
    lat = dice.choice([dice.uniform(-90, 90), -90, 90, 90.0, 0, 91.0, float("nan"), "north", None])
    lon = dice.choice([dice.uniform(-180, 360), -180, 180.0, 360, 359.99999999999994, 361.0, float("inf"), True, None])
    found = {"n": n, "lat": lat, "lon": lon, "a": "before", "z": 3}
    return {name: value for name, value in found.items() if value is not None}


# --- by the page ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 256, 65535])
@pytest.mark.parametrize("assign", BY_PRODUCT)
def test_the_kernel_assigns_what_the_page_says(make_quick: MakeQueue, assign: str, count: int) -> None:
    """For products that lack what the function needs, round robin."""
    if assign.startswith("grid") and count > 256:
        count = 16
    dice = random.Random(random_seed())
    queue = make_quick(dedup="none")
    channel = queue.channel("c", "a", slices=count, assign=assign)
    idents = [dice.choice(["", "x", "k" * dice.randrange(1, 300), f"ü{dice.random()}"]) for _ in range(300)]
    properties = [any_properties(dice) for _ in idents]
    queue.put_many([b""] * 300, feed="a/b", ident=idents, properties=properties)
    spread = 0
    for found, ident, said in zip(slices(queue), idents, properties, strict=True):
        expected = slice_of(assign, count, ident, said)
        if expected is None:
            expected, spread = spread % count, spread + 1
        assert found == expected, (ident, said)
    assert channel.statistics().spread == spread


def test_round_robin_counts_over_all_openings(make_quick: MakeQueue) -> None:
    queue = make_quick()
    queue.channel("c", "a", slices=3, assign="round_robin")
    with Queue.open(queue.path) as other:
        for place in range(6):
            (queue, other)[place % 2].put(b"", feed="a")
        other.put_many([b""] * 4, feed="a")
    assert slices(queue) == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


def test_a_property_is_hashed_by_its_bytes_so_types_differ(make_quick: MakeQueue) -> None:
    queue = make_quick()
    queue.channel("c", "a", slices=65535, assign="property:n")
    for value in (1, 1.0, True, "1"):
        queue.put(b"", feed="a", properties={"n": value})
    assert len(set(slices(queue))) == 4


# --- evenly ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("assign", ["ident", "property:station", "random", "round_robin"])
def test_keys_are_spread_evenly(make_quick: MakeQueue, assign: str) -> None:
    """Chi-square of 100,000 keys in 256 slices: 255 degrees of freedom, five standard deviations."""
    queue = make_quick(size="64MiB", dedup="none")
    queue.channel("c", "a", slices=256, assign=assign)
    for first in range(0, 100_000, 10_000):
        names = [f"station-{number}" for number in range(first, first + 10_000)]
        queue.put_many([b""] * 10_000, feed="a", ident=names, properties=[{"station": name} for name in names])
    found = np.bincount([number for number in slices(queue) if number is not None], minlength=256)
    assert found.sum() == 100_000
    expected = 100_000 / 256
    chi_square = float(((found - expected) ** 2 / expected).sum())
    assert chi_square < 255 + 5 * (2 * 255) ** 0.5, chi_square
    if assign == "round_robin":
        assert found.max() - found.min() <= 1


# --- slices that producers give ---------------------------------------------------------------------


@pytest.mark.parametrize("assign", ["ident", "round_robin", "random", "function:by_length"])
def test_a_slice_that_a_producer_gives_is_refused(make_quick: MakeQueue, assign: str) -> None:
    queue = make_quick(functions={"by_length": lambda products: [len(each.ident) for each in products]})
    queue.channel("c", "a", slices=8, assign=assign)
    refused = f"channel 'c' assigns slices by {assign}, and .* came with one; nothing was stored; leave out slice"
    puts: list[Callable[[], Any]] = [
        lambda: queue.put(b"", feed="a", slice=3),
        lambda: queue.put(b"", feed="a", slice=3, priority=7, properties={"n": 1}),
        lambda: queue.put_many([b""], feed="a", slice=3),
        lambda: queue.put_many([b"", b""], feed="a", slice=[None, 3]),
        lambda: queue.put_many([b"", b""], feed=["b", "a"], slice=[2, 3]),
        lambda: queue.channel("c").supplier().push(b"", slice=3),
    ]
    for put in puts:
        with pytest.raises(OptionError, match=refused):
            put()
    assert slices(queue) == []
    queue.put(b"", feed="b", slice=3)
    queue.put_many([b"", b""], feed="b", slice=[None, 7])
    assert slices(queue) == [3, None, 7]


def test_with_given_a_slice_is_required_and_below_the_number_of_slices(make_quick: MakeQueue) -> None:
    queue = make_quick()
    queue.channel("c", "a", slices=8, assign="given")
    for put in (
        lambda: queue.put(b"", feed="a"),
        lambda: queue.put(b"", feed="a", slice=8),
        lambda: queue.put_many([b"", b""], feed="a", slice=[7, 8]),
        lambda: queue.put_many([b"", b""], feed="a"),
    ):
        with pytest.raises(OptionError, match=r"has 8 slices, given by the producer, .* give a slice from 0 to 7"):
            put()
    queue.put(b"", feed="a", slice=7)
    queue.put_many([b"", b""], feed="a", slice=[0, 1])
    assert slices(queue) == [7, 0, 1]


@pytest.mark.parametrize(
    ("assign", "kept"),
    [("round_robin", True), ("random", True), ("given", True), ("ident", False), ("modulo:n", False)],
)
def test_products_of_another_queue_keep_a_slice_unless_the_product_decides(
    make_quick: MakeQueue, assign: str, kept: bool
) -> None:
    source, target = make_quick("source", origin="there"), make_quick("target")
    channel = target.channel("c", "a", slices=8, assign=assign)
    source.put_many([b"1", b"2"], feed="a", ident=["x", "y"], slice=[5, 6], properties={"n": 3})
    target.put_batch(source.read_batch())
    computed = [slice_of(assign, 8, ident, {"n": 3}) for ident in "xy"] if not kept else []
    assert slices(target) == ([5, 6] if kept else computed)
    source.put_many([b"3", b"4"], feed="a", ident=["v", "w"], slice=[None, 8])
    end = target.next
    assert target.put_batch(source.read_batch(end)).stored == 2
    assert all(number is not None and number < 8 for number in slices(target, end))
    expected_spread = {"given": 2, "modulo:n": 2}.get(assign, 0)
    assert channel.statistics().spread == expected_spread


def test_a_product_that_was_spread_elsewhere_keeps_its_slice(make_quick: MakeQueue) -> None:
    """So two sites with the same terms agree about it, too; each counts it."""
    source, target = make_quick("source", origin="there"), make_quick("target")
    channels = [queue.channel("c", "a", slices=8, assign="modulo:n") for queue in (source, target)]
    target.put(b"0", feed="a")  # it had its own turn before
    source.put_many([b"1", b"2", b"3"], feed="a", properties=[{}, {"n": 7}, {}])
    target.put_batch(source.read_batch())
    assert slices(source) == slices(target, 2) == [0, 7, 1]
    assert [channel.statistics().spread for channel in channels] == [2, 3]


def test_a_product_that_names_its_origin_is_no_product_of_this_producer(make_quick: MakeQueue) -> None:
    """An archive gives back the products of this very site, with the slices that they had."""
    queue = make_quick()
    queue.channel("c", "a", slices=8, assign="round_robin")
    queue.put(b"1", feed="a", origin="here", slice=5)
    queue.put_many([b"2"], feed="a", origin="there", origin_sequence=[9], slice=[6])
    assert slices(queue) == [5, 6]


# --- functions of users -----------------------------------------------------------------------------


def by_length(products: Sequence[Product]) -> list[int | None]:
    return [len(product.ident) or None for product in products]


def test_a_function_of_a_user_sees_all_products_of_a_put(make_quick: MakeQueue) -> None:
    seen: list[Any] = []

    def look(products: Sequence[Product]) -> list[int]:
        seen.append([
            (each.feed, each.ident, bytes(each.payload), dict(each.properties), each.priority, each.slice)
            for each in products
        ])  # fmt: skip
        return [1] * len(products)

    source, queue = make_quick("source", origin="there"), make_quick(functions={"look": look})
    queue.channel("c", "a", slices=8, assign="function:look")
    queue.put(b"1", feed="a")
    queue.put(b"2", feed="a", ident="i", properties={"n": 1}, priority=0)
    queue.put_many([b"3", b"4"], feed="a")
    queue.put_many([b"5", b"6"], feed=["a", "b"], ident=["v", "w"], properties=[{"m": 2}, {}], priority=[1, 2])
    source.put(b"7", feed="a/x", slice=3)
    queue.put_batch(source.read_batch())
    assert seen == [
        [("a", "", b"1", {}, 4, None)],
        [("a", "i", b"2", {"n": 1}, 0, None)],
        [("a", "", b"3", {}, 4, None), ("a", "", b"4", {}, 4, None)],
        [("a", "v", b"5", {"m": 2}, 1, None)],
        [("a/x", "", b"7", {}, 4, 3)],
    ]
    assert slices(queue) == [1, 1, 1, 1, 1, None, 1]


def test_what_a_function_does_not_assign_is_spread_and_counted(make_quick: MakeQueue) -> None:
    queue = make_quick(functions={"by_length": by_length})
    channel = queue.channel("c", "a", slices=4, assign="function:by_length")
    queue.put_many([b""] * 5, feed="a", ident=["xxx", "", "xxxx", "xx", "x"])
    assert slices(queue) == [3, 0, 1, 2, 1]
    assert channel.statistics().spread == 2


@pytest.mark.parametrize(
    "broken", [lambda _: 1 / 0, lambda _: None, lambda _: [1], lambda _: ["a", "b"], lambda _: [0.5, 1.5]]
)
def test_a_function_that_fails_stops_nobody(
    make_quick: MakeQueue, caplog: pytest.LogCaptureFixture, broken: Callable[[Any], Any]
) -> None:
    queue = make_quick(functions={"broken": broken})
    channel = queue.channel("c", "a", slices=4, assign="function:broken")
    with caplog.at_level(logging.ERROR, "headrace.channel"):
        queue.put_many([b"", b""], feed="a")
        queue.put_many([b"", b""], feed="a")
    assert (slices(queue), channel.statistics().spread) == ([0, 1, 2, 3], 4)
    assert [record.getMessage() for record in caplog.records] == [
        "the function 'broken', which assigns slices, failed; its products are spread"
    ]


def test_a_process_without_the_function_is_told_its_name(make_quick: MakeQueue) -> None:
    queue = make_quick(functions={"by_length": by_length})
    queue.channel("c", "a", slices=4, assign="function:by_length")
    missing = r"channel 'c' assigns slices by the function 'by_length', and there is no function 'by_length' here"
    with Queue.open(queue.path) as other:
        for put in (
            lambda: other.put(b"", feed="a"),
            lambda: other.put_many([b""], feed="a"),
            lambda: other.put_batch(queue.read_batch()),
        ):
            queue.put(b"", feed="a", ident="x")
            with pytest.raises(FunctionMissingError, match=f"{missing}.*nothing was stored.*functions="):
                put()
        other.put(b"", feed="b")


# --- in force -------------------------------------------------------------------------------------


def test_a_channel_is_in_force_for_every_opening_at_once(make_quick: MakeQueue) -> None:
    queue = make_quick()
    with Queue.open(queue.path) as other:
        other.put(b"1", feed="a", ident="i")
        channel = queue.channel("c", "a", slices=8)
        other.put(b"2", feed="a", ident="i")
        other.put_many([b"3"], feed="a", ident="i")
        channel.remove()
        other.put(b"4", feed="a", ident="i")
        other.put(b"5", feed="a", ident="i", slice=9)
        queue.channel("c", "a", slices=8)
        other.put(b"6", feed="a/new", ident="i")
    number = slice_of("ident", 8, "i", {})
    assert slices(queue) == [None, number, number, None, 9, number]


def test_only_feeds_of_the_channel_get_slices(make_quick: MakeQueue) -> None:
    queue = make_quick()
    queue.channel("c", "a/b", slices=8)
    feeds = ["a", "a/b", "a/bc", "a/b/c", "b"]
    queue.put_many([b""] * 5, feed=feeds, ident="i")
    assert [number is not None for number in slices(queue)] == [False, True, False, True, False]


def test_threads_put_while_channels_come_and_go(make_quick: MakeQueue) -> None:
    """Every product that begins after a channel is there has a slice; after its end, none has."""
    queue = make_quick(size="16MiB", dedup="none")
    done = threading.Event()

    def put() -> None:
        while not done.is_set():
            queue.put(b"", feed="a", ident="i")
            queue.put_many([b"", b""], feed="a", ident=["i", "j"])

    def check(sliced: bool) -> None:
        begin = queue.next
        until(lambda: queue.next >= begin + 50, "products arrive")
        assert {(product.slice is not None) for product in queue.read(begin, stop=begin + 50)} == {sliced}

    threads = [threading.Thread(target=put) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            channel = queue.channel("c", "a", slices=8)
            check(True)
            channel.remove()
            check(False)
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_put_that_waits_for_the_lock_is_assigned_again_if_another_thread_has_learnt_of_a_channel(
    make_quick: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread has looked for channels and found none; when it gets the lock, this process knows of one."""
    queue = make_quick()
    queue.put(b"1", feed="a", ident="i")
    monkeypatch.setattr("headrace.channel.channel.put_in_force", lambda *_: None)
    queue.channel("c", "a", slices=8)
    log = log_of(queue)
    assigner: Any = log.assigner
    putting = threading.Thread(target=lambda: queue.put(b"2", feed="a", ident="i"))
    with log.locked():
        putting.start()
        until(lambda: putting.native_id is not None and is_asleep(putting.native_id), "it waits for the lock")
        log.kernel.set_state(slicings=1)
        assigner._refresh()
    putting.join()
    assert slices(queue) == [None, slice_of("ident", 8, "i", {})]


def test_a_function_during_which_channels_change_is_called_again(make_quick: MakeQueue) -> None:
    calls: list[int] = []

    def change(products: Sequence[Product]) -> list[int]:
        calls.append(len(products))
        if len(calls) == 1:
            queue.channel("other", "b", slices=8)
            queue.channel("c").remove()
            queue.channel("c", "a", slices=2, assign="function:change")
        return [5] * len(products)

    queue = make_quick(functions={"change": change})
    queue.channel("c", "a", slices=8, assign="function:change")
    queue.put_many([b"", b""], feed="a")
    assert (calls, slices(queue)) == ([2, 2], [0, 1])  # 5 is no slice any more: spread
    assert queue.channel("c").statistics().spread == 2


@pytest.mark.parametrize("open_it", [lambda queue: queue.channel("c"), lambda queue: queue.share("c")])
def test_a_channel_whose_creator_died_is_in_force_once_it_is_opened(
    make_quick: MakeQueue, monkeypatch: pytest.MonkeyPatch, open_it: Callable[[Queue], Any]
) -> None:
    queue = make_quick()
    with monkeypatch.context() as dying:
        dying.setattr("headrace.channel.channel.put_in_force", lambda *_: None)
        queue.channel("c", "a", slices=8)
    queue.put(b"1", feed="a", ident="i")
    open_it(queue)
    queue.put(b"2", feed="a", ident="i")
    assert slices(queue) == [None, slice_of("ident", 8, "i", {})]


def test_slices_are_assigned_after_a_restart_and_after_a_lost_control_file(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.channel("c", "a", slices=8)
    queue.close()
    with Queue.open(queue.path) as again:
        again.put(b"1", feed="a", ident="i")
        again.put(b"2", feed="a")
    (queue.path / "control").unlink()
    assert Queue.repair(queue.path)
    with Queue.open(queue.path) as again:
        again.put(b"3", feed="a", ident="i")
        number = slice_of("ident", 8, "i", {})
        assert slices(again) == [number, 0, number]
        assert again.channel("c").statistics().spread == 1


def test_the_counters_of_a_channel_end_with_it(make_quick: MakeQueue) -> None:
    queue = make_quick()
    channel = queue.channel("c", "a", slices=8)
    queue.put(b"", feed="a")
    file = counters_path(queue.path, channel.definition)
    assert (file.stat().st_size, channel.statistics().spread) == (64, 1)
    channel.remove()
    assert not file.exists()
    assert queue.channel("c", "a", slices=8).statistics().spread == 0


def test_duplicates_and_refused_products_are_not_counted_as_spread(make_quick: MakeQueue) -> None:
    queue = make_quick(dedup="payload")
    channel = queue.channel("c", "a", slices=8, max_queue=3)
    channel.station("s")
    queue.put(b"1", feed="a")
    assert isinstance(queue.put(b"1", feed="a"), Duplicate)
    queue.put_many([b"1", b"2"], feed="a")
    queue.put(b"3", feed="a")
    with pytest.raises(RejectedError, match="max_queue"):
        queue.put(b"4", feed="a")
    assert channel.statistics().spread == 3


def test_a_full_disk_refuses_the_put_until_there_is_room_for_the_counters(
    make_quick: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_quick()
    queue.channel("c", "a", slices=8)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as crowded:
        crowded.setattr("os.posix_fallocate", full)
        with pytest.raises(DiskFullError, match="nothing was stored"):
            queue.put(b"", feed="a", ident="i")
    queue.put(b"", feed="a", ident="i")
    assert slices(queue) == [slice_of("ident", 8, "i", {})]


def test_a_truncated_file_of_counters_does_not_end_the_process(make_quick: MakeQueue) -> None:
    queue = make_quick()
    channel = queue.channel("c", "a", slices=8)
    queue.put(b"", feed="a")
    counters_path(queue.path, channel.definition).write_bytes(b"")
    queue.put(b"", feed="a")
    assert all(number is not None for number in slices(queue))


def test_many_new_feeds_cost_no_new_table(make_quick: MakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = make_quick(dedup="none")
    queue.channel("c", "a", slices=8)
    queue.put(b"", feed="a", ident="i")
    made: list[int] = []
    assigner: Any = log_of(queue).assigner
    monkeypatch.setattr(assigner, "_refresh", lambda: made.append(1))
    for number in range(2000):
        queue.put(b"", feed=f"a/{number}", ident="i")
    assert not made
    assert set(slices(queue)) == {slice_of("ident", 8, "i", {})}

"""Suppliers push under the terms of their channel."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

from headrace import Duplicate, Queue
from headrace.errors import (
    BlockedError,
    ChannelEndedError,
    ChannelError,
    FeedError,
    InvalidError,
    RejectedError,
    SuppliersFullError,
)
from headrace.testing import MockClock

NOW_NS = 1_800_000_000 * 10**9
SECOND_NS = 10**9


@pytest.fixture
def clock() -> MockClock:
    return MockClock(NOW_NS)


def test_a_push_is_a_put_into_the_subtree(queue: Queue) -> None:
    with queue.channel("radar", "wx/radar").supplier() as supplier:
        assert supplier.push(b"1", ident="at the root", priority=6) == 1
        assert supplier.push(b"2", feed="wx/radar/KFTG", ident="below") == 2
        assert supplier.push(b"2", feed="wx/radar/KFTG", ident="below") == Duplicate(2)
        feeds, idents = ["wx/radar/a", "wx/radar/b", "wx/radar"], ["", "", "at the root"]
        receipt = supplier.push_many([b"3", b"4", b"1"], feed=feeds, ident=idents)
    assert (receipt.stored, receipt.products) == (2, 3)
    assert [(p.feed, p.priority) for p in queue.read_batch()][:2] == [("wx/radar", 6), ("wx/radar/KFTG", 4)]
    told = queue.channel("radar").statistics()
    assert (told.pushed, told.duplicates, told.suppliers) == (4, 2, 0)


@pytest.mark.parametrize("feed", ["wx/text", "wx/radars", "wx", "", 7])
def test_a_feed_outside_the_subtree_is_refused(queue: Queue, feed: Any) -> None:
    with queue.channel("radar", "wx/radar").supplier() as supplier:
        with pytest.raises(FeedError, match=r"is not in the channel's wx/radar/\*\*"):
            supplier.push(b"x", feed=feed)
        with pytest.raises(InvalidError, match=r"is not in the channel's|is 7, not text"):
            supplier.push_many([b"x", b"y"], feed=["wx/radar", feed])
    assert queue.next == 1


def test_a_push_to_a_channel_of_all_feeds_requires_a_feed(queue: Queue) -> None:
    with queue.channel("all", "**").supplier() as supplier:
        with pytest.raises(FeedError, match="the push names none"):
            supplier.push(b"x")
        assert supplier.push(b"x", feed="any/thing") == 1


# --- times ----------------------------------------------------------------------------------------


def test_a_timeout_gives_products_an_expiry(make_queue: Callable[..., Queue], clock: MockClock) -> None:
    queue = make_queue(clock=clock)
    with queue.channel("c", "a", timeout="10s").supplier() as supplier:
        supplier.push(b"1")
        supplier.push(b"2", expiry="3s")
        supplier.push(b"3", expiry="1h")
        supplier.push_many([b"4", b"5"])
        supplier.push_many([b"6", b"7", b"8"], expiry=np.array([0, NOW_NS + SECOND_NS, NOW_NS + 99 * SECOND_NS]))
    seconds = [((product.expiry_ns or 0) - NOW_NS) / SECOND_NS for product in queue.read_batch()]
    assert seconds == [10, 3, 10, 10, 10, 10, 1, 10]
    clock.advance(5)
    assert len(queue.read_batch()) == 6
    clock.advance(5)
    assert len(queue.read_batch()) == 0


def test_without_a_timeout_products_keep_their_own_expiry(make_queue: Callable[..., Queue], clock: MockClock) -> None:
    queue = make_queue(clock=clock)
    with queue.channel("c", "a").supplier() as supplier:
        supplier.push(b"1")
        supplier.push(b"2", expiry="3s")
    assert [product.expiry_ns for product in queue.read_batch()] == [None, NOW_NS + 3 * SECOND_NS]


def test_a_channel_accepts_nothing_after_its_stop_time(make_queue: Callable[..., Queue], clock: MockClock) -> None:
    queue = make_queue(clock=clock)
    channel = queue.channel("c", "a", stop_time=NOW_NS + 10 * SECOND_NS)
    with channel.supplier() as supplier:
        supplier.push(b"1")
        clock.advance(10)
        with pytest.raises(ChannelEndedError, match=r"channel 'c' ended at its stop_time 20.*nothing was stored"):
            supplier.push(b"2")
        with pytest.raises(ChannelEndedError):
            supplier.push_many([b"2"])
        channel.change(stop_time=None)
        assert supplier.push(b"2") == 2


def test_before_its_start_time_a_channel_stores_and_does_not_deliver(
    make_queue: Callable[..., Queue], clock: MockClock
) -> None:
    queue = make_queue(clock=clock)
    channel = queue.channel("c", "a", start_time=NOW_NS + 10 * SECOND_NS)
    station = channel.station("s", batch_max=10)
    with channel.supplier() as supplier, station.attach() as consumer:
        supplier.push(b"1")
        assert len(consumer.get(10, timeout=0)) == 0
        clock.advance(10)
        assert len(consumer.get(10, timeout=0)) == 1


def test_a_supplier_uses_the_current_terms(make_queue: Callable[..., Queue], clock: MockClock) -> None:
    queue = make_queue(clock=clock)
    with queue.channel("c", "a").supplier() as supplier:
        supplier.push(b"1")
        with Queue.open(queue.path) as other:
            other.channel("c").change(timeout="7s")
        supplier.push(b"2")
    assert [product.expiry_ns for product in queue.read_batch()] == [None, NOW_NS + 7 * SECOND_NS]


# --- limits ---------------------------------------------------------------------------------------


def test_pushes_beyond_max_queue_are_rejected_and_counted(queue: Queue) -> None:
    channel = queue.channel("c", "a", max_queue=2)
    station = channel.station("s", "a/**")
    with channel.supplier() as supplier:
        supplier.push_many([b"1", b"2"])
        with pytest.raises(RejectedError, match="nothing was stored"):
            supplier.push(b"3")
        with pytest.raises(RejectedError):
            supplier.push_many([b"3", b"4"])
        assert channel.statistics().rejected == 3
        with station.attach() as consumer:
            consumer.ack(consumer.get(2, timeout=0))
        supplier.push(b"3")
    assert queue.next == 4


def test_a_persistent_channel_makes_suppliers_wait(queue: Queue) -> None:
    channel = queue.channel("c", "a", reliability="persistent", max_per_consumer=2)
    channel.station("s", "a/**")
    with channel.supplier() as supplier:
        supplier.push_many([b"1", b"2"])
        with pytest.raises(BlockedError):
            supplier.push(b"3", timeout=0)
    assert channel.statistics().rejected == 0


def test_suppliers_beyond_suppliers_max_are_refused(queue: Queue) -> None:
    channel = queue.channel("c", "a", suppliers_max=2)
    first, second = channel.supplier(), channel.supplier()
    with pytest.raises(SuppliersFullError, match="channel 'c' has 2 suppliers"):
        channel.supplier()
    first.close()
    channel.supplier().close()
    channel.change(suppliers_max=1)
    with pytest.raises(SuppliersFullError):
        channel.supplier()
    second.close()
    channel.supplier().close()


SUPPLY = """
import sys
from headrace import Queue
with Queue.open(sys.argv[1]) as queue, queue.channel("c").supplier() as supplier:
    supplier.push(b"hello")
    print("there", flush=True)
    sys.stdin.read()
"""


def test_a_killed_supplier_frees_its_slot_at_once(queue: Queue) -> None:
    channel = queue.channel("c", "a", suppliers_max=1)
    words = [sys.executable, "-c", SUPPLY, str(queue.path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        with pytest.raises(SuppliersFullError):
            channel.supplier()
        process.send_signal(signal.SIGKILL)
        process.wait()
        with channel.supplier() as supplier:
            supplier.push(b"mine")
        assert channel.statistics().pushed == 2
    finally:
        process.kill()
        process.communicate()


def _push_in_child(supplier: Any) -> None:
    try:
        supplier.push(b"from the child")
        os._exit(0)
    except SuppliersFullError:
        os._exit(7)


@pytest.mark.parametrize(("admitted", "code"), [(2, 0), (1, 7)])
def test_a_forked_child_counts_as_a_supplier_of_its_own(queue: Queue, admitted: int, code: int) -> None:
    channel = queue.channel("c", "a", suppliers_max=admitted)
    with channel.supplier() as supplier:
        child = get_context("fork").Process(target=_push_in_child, args=(supplier,))
        child.start()
        child.join()
        assert child.exitcode == code
        supplier.push(b"from the parent")
        assert channel.statistics().suppliers == 1
        assert channel.statistics().pushed == admitted


def test_a_closed_supplier_raises_an_error(queue: Queue) -> None:
    supplier = queue.channel("c", "a").supplier()
    supplier.close()
    supplier.close()
    with pytest.raises(ChannelError, match="this supplier is closed"):
        supplier.push(b"x")
    assert queue.next == 1

"""Every exit from the kernel releases locks and leaves consistent state: bad arguments, errors, failed allocations."""

import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace import Queue
from headrace.errors import HeadraceError
from headrace.kernel import _kernel as kernel
from headrace.log.records import rows_of

MakeQueue = Callable[..., Queue]
PASSES_MAX = 200  # more allocations than any of these calls makes


def chain_of(queue: Queue, number: int = 1) -> kernel.Chain:
    return queue._stations.chain(number).kernel


def holders(queue: Queue) -> list[int]:
    """For the two locks of the log and the lock of chain 1: 1 if this thread holds it, by glibc's note in the file."""
    control = (queue.path / "control").read_bytes()[:1024]
    chain = queue.path / "stations" / "1.chain"
    owners = [struct.unpack_from("<i", control, at + 8)[0] for at in (192, 256)]
    owners += [struct.unpack_from("<i", chain.read_bytes(), 64 + 8)[0]] if chain.exists() else []
    return [int(owner == threading.get_native_id()) for owner in owners]


@pytest.fixture
def queue(make_queue: MakeQueue) -> Queue:
    return make_queue(size="1MiB", dedup="none")


@pytest.fixture(autouse=True)
def no_failure_is_left_over() -> Iterator[None]:
    yield
    kernel.fail_allocation(0)


def test_the_holder_of_a_lock_is_where_these_tests_look(queue: Queue) -> None:
    assert holders(queue) == [0, 0]
    with queue._log.kernel.held():
        assert holders(queue) == [1, 0]
    with queue._log.kernel.held_for_sync():
        assert holders(queue) == [0, 1]
    queue.station("a", "wx/**")
    assert holders(queue) == [0, 0, 0]


# --- invalid arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "filters"),
    [([0], [object()]), ([0], []), (["a"], [None]), ([-1], [None]), ([64], [None]), ([0] * 65, [None] * 65)],
)
def test_refused_terms_leave_the_chain_unlocked(queue: Queue, members: list, filters: list) -> None:
    queue.station("a", "wx/**")
    chain = chain_of(queue)
    with pytest.raises((TypeError, ValueError, IndexError, OverflowError)):
        chain.use_terms(chain.terms_number, members, filters, 1 << 60, True)
    assert holders(queue) == [0, 0, 0]
    queue.put(b"x", feed="wx/a")
    assert queue.station("a").statistics().waiting == 1


def test_a_member_with_incomplete_terms_is_not_changed(queue: Queue) -> None:
    queue.station("a", "wx/**", capacity=7)
    chain, before = chain_of(queue), chain_of(queue).member(0)
    with pytest.raises(KeyError):
        chain.set_member(0, {"stage": 99, "grouped": 0})
    with pytest.raises(IndexError):
        chain.set_member(kernel.MEMBERS_MAX, {})
    assert chain.member(0) == before
    assert holders(queue) == [0, 0, 0]


@pytest.mark.parametrize("number", [kernel.CONSUMERS_MAX, 2**32 - 1])
def test_a_consumer_number_out_of_range_is_refused(queue: Queue, number: int) -> None:
    queue.station("a", "wx/**")
    chain = chain_of(queue)
    for call in (
        lambda: chain.attach(number, 0, 1), lambda: chain.detach(number, 1, False), lambda: chain.heartbeat(number, 1),
        lambda: chain.hung(number), lambda: chain.recover(number, 1),
        lambda: chain.get(number, 1, 1, 0, 0, 0, chain.terms_number),
    ):  # fmt: skip
        with pytest.raises(IndexError):
            call()
    assert holders(queue) == [0, 0, 0]


def test_refused_gates_leave_the_old_gates_in_force(queue: Queue) -> None:
    station = queue.station("a", "wx/**", blocking=True, capacity=1)
    queue.put(b"x", feed="wx/a")
    log, before = queue._log.kernel, queue._log.kernel.gates_number
    for gates in ([(chain_of(queue), 99, None)], [(chain_of(queue), 0)], [(None, 0, None)], [(object(), 0, None)]):
        with pytest.raises((TypeError, ValueError, IndexError, AttributeError)):
            kernel.set_gates(log, 12345, gates)  # type: ignore[arg-type]
        assert (log.gates_number, holders(queue)) == (before, [0, 0, 0])
    with pytest.raises(HeadraceError):
        queue.put(b"y", feed="wx/a", timeout=0)
    assert station.statistics().waiting == 1


def test_a_chain_that_was_never_opened_closes_no_descriptor(queue: Queue) -> None:
    before = os.fstat(0)
    with pytest.raises(TypeError):
        kernel.Chain("not a log", 5, 1)  # type: ignore[arg-type]
    assert os.fstat(0).st_ino == before.st_ino


# --- errors in the middle -------------------------------------------------------------------------


def test_a_damaged_name_does_not_lose_products(queue: Queue) -> None:
    station = queue.station("a", "**")
    with Queue.open(queue.path) as other:
        other.put(b"x", feed="wx/new")
        checksum_at = kernel.ORIGINS_MAX * kernel.NAME_BYTES + 4
        with (queue.path / "names").open("r+b") as names:
            checksum = os.pread(names.fileno(), 4, checksum_at)
            os.pwrite(names.fileno(), bytes(4), checksum_at)
        consumer = station.attach()
        chain = chain_of(queue)
        epoch = chain.consumers()[0][2]
        with pytest.raises(kernel.KernelError):
            for _ in range(10):  # the first calls may ask for something else to be done
                outcome, _ = chain.get(0, epoch, 5, 0, 0, 1 << 60, chain.terms_number)
                if outcome == kernel.CODES["terms"]:
                    chain.use_terms(chain.terms_number, [0], [None], 1 << 60, True)
        member = chain.member(0)
        assert member is not None
        assert (member["waiting"], member["leased"], holders(queue)) == (1, 0, [0, 0, 0])
        with (queue.path / "names").open("r+b") as names:
            os.pwrite(names.fileno(), checksum, checksum_at)
        assert len(consumer.get(5, 10)) == 1
        consumer.detach()


# --- failed allocations ---------------------------------------------------------------------------


def fail_each_allocation(queue: Queue, act: Callable[[], object]) -> int:
    """Make each allocation of `act` fail in turn, and check locks and lists each time; the number of allocations."""
    for passes in range(1, PASSES_MAX):
        kernel.fail_allocation(passes)
        try:
            act()
        except (MemoryError, HeadraceError, kernel.KernelError):
            pass
        finally:
            spared = kernel.fail_allocation(0)
        assert holders(queue) == [0] * len(holders(queue))
        assert queue.check() == []
        if spared:
            return passes - 1
    raise AssertionError("the call allocates more than PASSES_MAX times")


def test_a_put_survives_failed_allocations(queue: Queue) -> None:
    payload = bytes(8000)
    assert fail_each_allocation(queue, lambda: queue.put(payload, feed="wx/a")) == 2  # the first segment is mapped
    count = fail_each_allocation(queue, lambda: queue.put_many([payload] * 20, feed="wx/a"))
    assert count > 1
    assert len(queue.read_batch("oldest", limit=5)) == 5


def test_a_put_with_an_unknown_feed_releases_the_lock(queue: Queue) -> None:
    log = queue._log.kernel
    with pytest.raises(KeyError):
        log.put_many(
            [b"x"],
            "wx/unknown",
            "",
            None,
            np.array([4], np.uint8),
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            0,
            0,
        )
    assert holders(queue) == [0, 0]


def test_a_read_survives_failed_allocations(make_queue: MakeQueue, queue: Queue) -> None:
    for _ in range(60):
        queue.put(bytes(8000), feed="wx/a", properties={"a": 1.5, "b": "text"})
    with Queue.open(queue.path) as other:

        def read() -> None:
            batch = other.read_batch("oldest", limit=60)
            assert len(batch) == 60
            batch.to_arrow()

        assert fail_each_allocation(other, read) > 5
        read()
    pins = [struct.unpack_from("<I", file.read_bytes(), 128)[0] for file in (queue.path / "segments").glob("*.segment")]
    assert set(pins) == {0}


def test_records_survive_failed_allocations(queue: Queue, tmp_path: Path) -> None:
    for number in range(20):
        queue.put(b"%d" % number, feed="wx/a")
    records = rows_of(queue.read_batch("oldest", limit=20)).gather_records()
    feeds, origins, names = dict[str, int](), dict[str, int](), list[str]()

    def act() -> None:
        rows = kernel.read_records(records, feeds, origins, names, lambda name: None, lambda name: None)
        queue._log.kernel.put_records(rows, None, 0, 0)

    assert fail_each_allocation(queue, act) > 2


def test_consumers_survive_failed_allocations(queue: Queue) -> None:
    station = queue.station("a", "wx/**", restore="output", deliveries_max=0)  # of a dead consumer, up to 100 go on
    queue.station("b", "wx/**", after="a")
    queue.put_many([b"x"] * 2000, feed="wx/a")

    def act() -> None:
        with station.attach() as consumer:
            batch = consumer.get(100, 10)
            consumer.ack([batch[place] for place in range(min(len(batch), 3))])

    assert fail_each_allocation(queue, act) > 2
    with station.attach() as consumer:
        assert len(consumer.get(5, 10)) > 0


def test_a_seek_and_new_terms_survive_failed_allocations(queue: Queue) -> None:
    station = queue.station("a", "wx/**", capacity=100)
    queue.put_many([b"x"] * 50, feed="wx/a", priority=[number % 8 for number in range(50)])
    assert station.statistics().waiting == 50
    assert fail_each_allocation(queue, lambda: chain_of(queue).seek(1)) == 1
    assert station.statistics().waiting == 50

    def reorder() -> None:
        station.change(order="fifo" if station.terms.order == "deadline" else "deadline")

    assert fail_each_allocation(queue, reorder) > 0
    assert station.statistics().waiting == 50

"""Nodes that wait for a change, locks that are held for long, and what is flushed."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from headrace import Queue
from headrace.errors import ShareError, ShareMissingError
from headrace.kernel import _kernel as kernel
from headrace.log.seams import Disk
from headrace.share import file as files
from headrace.share.interface import Load, Progress, marks
from headrace.share.share import Share
from support.waiting import until

ALL = np.arange(4, dtype=np.uint32)


@pytest.fixture
def share(tmp_path: Path) -> Share:
    queue = Queue.create(tmp_path / "q", size="1MiB")
    queue.channel("radar", "wx/**", slices=4)
    return queue.share("radar", dead_after="1h")


def test_a_node_is_woken_by_a_change_of_another_process(share: Share) -> None:
    seat = share.join("one")
    seen = seat.version
    program = f"from headrace import Queue; Queue.open({str(share.log.path)!r}).share('radar').drain({seat.number})"
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        assert seat.wait(seen, 240) > seen
        assert child.wait(240) == 0


def test_no_change_is_slept_through(share: Share) -> None:
    """Each change comes at any moment before, between or after the looks of the waiter."""
    seat, found = share.join("one"), list[int]()

    def follow() -> None:
        version = 0
        while version < 300:
            version = seat.wait(version, 240)
            found.append(version)

    waiter = threading.Thread(target=follow)
    waiter.start()
    while seat.version < 300:
        share.drain(seat.number)
    waiter.join(240)
    assert not waiter.is_alive()
    assert found[-1] >= 300


def test_a_word_of_a_mapped_file_wakes_who_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_bytes(bytes(16))
    descriptor = os.open(path, os.O_RDWR)
    mapped = kernel.Mapped(descriptor, 16)
    os.close(descriptor)
    assert mapped.wait(8, 1, 10.0) == 0  # it is another number already
    assert mapped.wait(8, 0, 0.01) == 0
    waiter = threading.Thread(target=mapped.wait, args=(8, 0, 240.0))
    waiter.start()
    mapped.wake(8)
    waiter.join(240)
    assert not waiter.is_alive()
    assert path.read_bytes() == bytes(8) + b"\1" + bytes(7)
    for offset in (-4, 2, 13, 16):
        with pytest.raises(IndexError, match=f"no word at {offset} of 16 bytes"):
            mapped.wake(offset)
        with pytest.raises(IndexError):
            mapped.wait(offset, 0, 0.1)


def test_the_lock_of_a_stopped_process_is_an_error_that_names_it(share: Share, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LOCK_S", 0.05)
    seat = share.join("one")
    with (share.log.path / "shares" / "1.share").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ShareError, match=rf"1.share is locked for 0.05 s, held by process {os.getpid()}"):
            seat.exchange(Progress())
    seat.exchange(Progress())


def test_a_group_that_was_removed_is_missing_for_those_that_have_it_open(share: Share) -> None:
    with Queue.open(share.log.path) as other:
        other.share("radar").remove()
    assert not share.is_there
    with pytest.raises(ShareMissingError, match="was removed"):
        share.state()
    with pytest.raises(ShareMissingError):
        share.join("one")


def test_a_process_opens_and_forgets_many_groups_without_keeping_files_open(share: Share) -> None:
    queue_path, before = share.log.path, len(os.listdir("/proc/self/fd"))
    with Queue.open(queue_path) as queue:
        for _ in range(50):
            queue.share("radar").state()
    assert len(os.listdir("/proc/self/fd")) < before + 10


def test_on_a_disk_confirmations_are_flushed_and_heartbeats_are_not(tmp_path: Path) -> None:
    flushed: list[str] = []

    class Watching(Disk):
        def sync_file(self, path: Path) -> None:
            flushed.append(path.name)
            super().sync_file(path)

    Queue.create(tmp_path / "q", size="1MiB", durability="disk").close()
    with Queue.open(tmp_path / "q", storage=Watching()) as queue:
        queue.channel("radar", "wx/**", slices=4)
        share = queue.share("radar")

        def flushes() -> int:
            count = flushed.count("1.share")
            flushed.clear()
            return count

        seat = share.join("one")
        assert flushes() == 1
        assert (share.lead("b", 60), share.lead("b", 60), flushes()) == (1, 1, 1)
        share.give(1, seat.number, ALL, "join")
        assert flushes() == 1
        seat.exchange(Progress(load=Load(waiting=3)))
        share.state()
        share.parked()
        share.history()
        assert flushes() == 0
        seat.exchange(Progress(confirm=marks(ALL, [1] * 4, [1] * 4)))
        assert flushes() == 1
        seat.exchange(Progress(release=marks(ALL, [1] * 4, [1] * 4)))
        assert flushes() == 1


def test_threads_that_use_a_group_for_the_first_time_at_once_exclude_each_other(share: Share) -> None:
    seat = share.join("one")
    for _ in range(30):
        opened, ready = Queue.open(share.log.path).share("radar"), threading.Barrier(4)

        def use(opened: Share = opened, ready: threading.Barrier = ready) -> None:
            ready.wait()
            opened.seat(seat.number, seat.instance).exchange(Progress())

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        share.state()  # nobody holds the lock any more
        opened.log.close()


def test_one_flush_serves_all_threads_that_asked_before_it_began(tmp_path: Path) -> None:
    """Each call returns after a flush that began when its position was stored."""
    flushed, began = list[int](), list[int]()  # the sum of all positions when a flush began; calls

    class Slow(Disk):
        def sync_file(self, path: Path) -> None:
            positions = int(share.table.positions.sum()) if began else 0
            super().sync_file(path)
            if began:
                until(lambda: len(began) == 8, "all of them have begun")
                flushed.append(positions)

    Queue.create(tmp_path / "q", size="1MiB", durability="disk").close()
    with Queue.open(tmp_path / "q", storage=Slow()) as queue:
        queue.channel("radar", "wx/**", slices=8)
        for number in range(10):
            queue.put(b"x", feed="wx/a", ident=str(number))
        share, seen = queue.share("radar"), list[int]()
        seat = share.join("one")
        slices = np.arange(8, dtype=np.uint32)
        share.give(0, seat.number, slices, "join")

        def confirm(slice_: int) -> None:
            began.append(slice_)
            seat.exchange(Progress(confirm=marks([slice_], [1], [9])))
            seen.append(slice_)

        threads = [threading.Thread(target=confirm, args=(slice_,)) for slice_ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        assert len(seen) == 8
        assert flushed[-1] == 8 * 9
        assert len(flushed) < 8

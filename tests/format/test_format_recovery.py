"""What recovery and repair leave in the files, as the page says."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import reader
from side_by_side import assert_same
from spoiler import Spoiler, write_word

from headrace import Queue
from headrace.errors import QueueDamagedError
from headrace.testing import faults

MakeQueue = Callable[..., Queue]
READY, RECOVERING = 1, 2


@pytest.fixture
def closed(make_queue: MakeQueue) -> Path:
    """Two segments, the second one a jumbo, and five products."""
    queue = make_queue()
    queue.put_many([b"one", b"two"], feed="wx/a")
    queue.put(b"\x03" * 100_000, feed="wx/a")
    queue.put_many([b"four", b"five"], feed="wx/b")
    queue.close()
    assert reader.read_control(queue.path)["segment_newest"] == 2
    return queue.path


def records(directory: Path) -> list[tuple[int, bytes]]:
    return [(product["sequence"], product["record"]) for product in reader.read_queue(directory)]


def rows_of(directory: Path, segment: int) -> list[reader.Fields]:
    control = reader.read_control(directory)
    data = reader.read_segment(directory, reader.entry_of(control, segment), control["uuid"])
    return [reader.read_row(data, place) for place in range(10)]


@pytest.mark.parametrize("point", ["append:row-written", "append:before-commit"])
def test_rows_of_a_batch_that_was_rolled_back_are_invalid(make_queue: MakeQueue, point: str) -> None:
    queue = make_queue()
    queue.put(b"one", feed="wx/a")
    child = os.fork()
    if child == 0:
        faults.arm(point, 3 if point == "append:row-written" else 1)
        queue.put_many([b"two", b"three", b"four"], feed="wx/a")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    left = rows_of(queue.path, 1)
    assert [(row["sequence"], row["whole"]) for row in left[:4]] == [(n, True) for n in range(1, 5)]
    assert reader.read_control(queue.path)["tail"] == 2
    with queue._log.locked():
        pass  # the next holder of the lock rolls back
    control, rows = reader.read_control(queue.path), rows_of(queue.path, 1)
    assert (control["tail"], control["recoveries"], control["held_products"]) == (2, 1, 1)
    assert rows[0] == left[0]
    for row, before, sequence in zip(rows[1:4], left[1:4], range(2, 5), strict=True):
        assert row == before | {"sequence": sequence ^ 0xFFFFFFFF, "whole": False}
    assert rows[4]["sequence"] == 0
    assert queue.put(b"two again", feed="wx/a") == 2
    assert [p["sequence"] for p in assert_same(queue)] == [1, 2]


def test_a_queue_is_rebuilt_from_its_segments_if_a_process_died_during_recovery(closed: Path) -> None:
    before = records(closed)
    for word, value in (("tail", 3), ("head", 3), ("state", RECOVERING)):
        write_word(closed, word, value)
    with Queue.open(closed) as again:
        control = reader.read_control(closed)
        assert (control["state"], control["tail"], control["held_products"]) == (READY, 6, 5)
        assert records(closed) == before
        assert_same(again)


def test_an_unfinished_batch_is_rolled_back_after_a_restart(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put(b"one", feed="wx/a")
    queue.put_many([b"two", b"three", b"four"], feed="wx/a")
    queue.close()
    file = reader.segment_path(queue.path, 1)
    with Spoiler(file) as spoiler:  # the last row has not reached the disk
        spoiler.write(file.stat().st_size - 4 * reader.ROW_BYTES, bytes(reader.ROW_BYTES))
    write_word(queue.path, "boot", bytes(16))
    write_word(queue.path, "synced", 2)
    with Queue.open(queue.path) as again:
        assert [p["sequence"] for p in assert_same(again)] == [1]
        assert [row["whole"] for row in rows_of(queue.path, 1)[:4]] == [True, False, False, False]


def test_a_restart_that_may_have_lost_products_leaves_a_gap(closed: Path) -> None:
    before = records(closed)
    write_word(closed, "boot", bytes(16))
    write_word(closed, "clean", 0)
    with Queue.open(closed) as again:
        assert again.put(b"next", feed="wx/a") == 6 + (1 << 32)
        control = reader.read_control(closed)
        assert (reader.entry_of(control, 2)["end"], reader.entry_of(control, 3)["first"]) == (6, 6 + (1 << 32))
        assert records(closed)[:5] == before
        assert rows_of(closed, 3)[0]["sequence"] == 6
        assert_same(again)


@pytest.mark.parametrize(("word", "value"), [("boot", bytes(16)), ("state", RECOVERING)])
def test_a_doubtful_segment_file_is_never_deleted(closed: Path, word: str, value: int | bytes) -> None:
    before = records(closed)
    strange = reader.segment_path(closed, 0x99)
    strange.write_bytes(b"not a segment" * 1000)
    empty = reader.segment_path(closed, 0x98)
    empty.write_bytes(bytes(1 << 16))
    write_word(closed, word, value)
    with pytest.raises(QueueDamagedError, match=r"0000000000000099\.segment"):
        Queue.open(closed)
    assert strange.read_bytes() == b"not a segment" * 1000
    assert any("damaged" in line for line in Queue.repair(closed))
    assert (closed / "damaged" / strange.name).read_bytes() == b"not a segment" * 1000
    assert not strange.exists()
    assert not empty.exists()
    with Queue.open(closed) as again:
        assert records(closed) == before
        assert_same(again)


def test_an_empty_segment_file_left_by_a_power_failure_is_removed(closed: Path) -> None:
    before = records(closed)
    empty = reader.segment_path(closed, 0x98)
    empty.write_bytes(bytes(1 << 16))
    write_word(closed, "boot", bytes(16))
    with Queue.open(closed) as again:
        assert not empty.exists()
        assert records(closed) == before
        assert_same(again)


def test_swapped_segment_files_get_their_names_back(closed: Path) -> None:
    before = records(closed)
    first, second = (reader.segment_path(closed, file) for file in (1, 2))
    first.rename(closed / "aside")
    second.rename(first)
    (closed / "aside").rename(second)
    with pytest.raises(reader.Damaged):
        reader.read_queue(closed)
    with pytest.raises(QueueDamagedError):
        Queue.open(closed)
    assert sum("its name back" in line for line in Queue.repair(closed)) == 2
    assert records(closed) == before
    assert {file.suffix for file in (closed / "segments").iterdir()} == {".segment"}


def test_a_repair_writes_the_control_file_in_place(closed: Path) -> None:
    before, inode = records(closed), (closed / "control").stat().st_ino
    write_word(closed, "version", 0)
    assert any("control" in line for line in Queue.repair(closed))
    assert (closed / "control").stat().st_ino == inode
    control = reader.read_control(closed)
    assert (control["version"], control["state"], control["tail"]) == (3, READY, 6 + (1 << 32))
    assert records(closed) == before


def test_the_last_product_of_a_feed_is_one_that_was_created_here(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put(b"one", feed="wx/a")
    queue.put(b"passed on", feed="wx/a", origin="there", origin_sequence=9)
    queue.put(b"came back", feed="wx/a", origin="here", origin_sequence=77)
    queue.put(b"passed on", feed="wx/b", signature=b"another content!", origin="there", origin_sequence=10)
    queue.close()
    for _ in range(2):  # as it was recorded, and as recovery counts it from the segments
        names = reader.read_names(queue.path).values()
        totals = {n["text"]: (n["last"], n["products"]) for n in names if n["kind"] == reader.FEED}
        assert totals == {"wx/a": (1, 3), "wx/b": (0, 1)}
        write_word(queue.path, "boot", bytes(16))
        Queue.open(queue.path).close()

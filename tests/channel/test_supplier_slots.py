"""The slots of a channel's suppliers: limited across processes, and free at once when a process ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from headrace.channel.slots import Pushed, SupplierSlot, connected_suppliers
from headrace.errors import QueueDamagedError, QueueVersionError, SuppliersFullError

HOLD = """
import sys
from pathlib import Path
from headrace.channel.slots import SupplierSlot
slots = [SupplierSlot(Path(sys.argv[1]), "radar", None) for _ in range(int(sys.argv[2]))]
for slot in slots:
    slot.count(products=1)
print("there", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "channels" / "1.suppliers"


@pytest.fixture
def other(path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that holds two slots."""
    words = [sys.executable, "-c", HOLD, str(path), "2"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"there\n"
    yield process
    process.kill()
    process.communicate()


def test_a_slot_is_taken_and_released(path: Path) -> None:
    assert connected_suppliers(path) == ([], Pushed())
    first, second = SupplierSlot(path, "radar", 2), SupplierSlot(path, "radar", 2)
    assert [there.slot for there in connected_suppliers(path)[0]] == [first.number, second.number] == [1, 2]
    assert {there.pid for there in connected_suppliers(path)[0]} == {os.getpid()}
    first.release()
    first.release()
    assert [there.slot for there in connected_suppliers(path)[0]] == [2]
    assert SupplierSlot(path, "radar", 2).number == 1


def test_a_slot_that_was_dropped_is_free(path: Path) -> None:
    for _ in range(3):
        assert SupplierSlot(path, "radar", 1).number == 1
    assert connected_suppliers(path)[0] == []


def test_a_file_that_claims_too_many_slots_is_read_up_to_the_limit(path: Path) -> None:
    SupplierSlot(path, "radar", None).release()
    with path.open("r+b") as file:
        file.seek(16)
        file.write((1 << 62).to_bytes(8, "little"))
    assert SupplierSlot(path, "radar", None).number == 1


def test_no_supplier_is_admitted_above_the_limit(path: Path) -> None:
    held = [SupplierSlot(path, "radar", 2) for _ in range(2)]
    with pytest.raises(SuppliersFullError, match="channel 'radar' has 2 suppliers, its suppliers_max"):
        SupplierSlot(path, "radar", 2)
    held.append(SupplierSlot(path, "radar", 3))
    assert len(connected_suppliers(path)[0]) == 3


def test_a_lower_limit_counts_the_suppliers_that_are_connected(path: Path) -> None:
    held = [SupplierSlot(path, "radar", None) for _ in range(3)]
    held[0].release()
    with pytest.raises(SuppliersFullError):
        SupplierSlot(path, "radar", 2)
    assert SupplierSlot(path, "radar", 3).number == 1


def test_the_limit_counts_across_processes(path: Path, other: "subprocess.Popen[bytes]") -> None:
    with pytest.raises(SuppliersFullError):
        SupplierSlot(path, "radar", 2)
    assert [there.pid for there in connected_suppliers(path)[0]] == [other.pid] * 2


def test_a_killed_process_frees_its_slots_at_once(path: Path, other: "subprocess.Popen[bytes]") -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert connected_suppliers(path)[0] == []
    assert SupplierSlot(path, "radar", 1).number == 1


def test_the_pushes_of_a_dead_supplier_stay_counted(path: Path, other: "subprocess.Popen[bytes]") -> None:
    other.kill()
    other.wait()
    slot = SupplierSlot(path, "radar", 1)
    slot.count(products=5, duplicates=2, rejected=1)
    assert connected_suppliers(path)[1] == Pushed(products=7, duplicates=2, rejected=1)


def _child(slot: SupplierSlot, path: Path) -> None:
    assert not slot.is_held
    os._exit(len(connected_suppliers(path)[0]))


def test_a_forked_child_does_not_hold_its_parents_slot(path: Path) -> None:
    slot = SupplierSlot(path, "radar", 1)
    child = get_context("fork").Process(target=_child, args=(slot, path))
    child.start()
    child.join()
    assert child.exitcode == 1  # it saw its parent there
    slot.release()
    assert connected_suppliers(path)[0] == []


def test_a_file_that_is_not_a_suppliers_file_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"x")
    with pytest.raises(QueueDamagedError, match="has a size of 1 bytes instead of"):
        SupplierSlot(path, "radar", None)
    path.unlink()
    SupplierSlot(path, "radar", None).release()
    spoilt = bytearray(path.read_bytes())
    spoilt[8] = 99
    path.write_bytes(spoilt)
    with pytest.raises(QueueVersionError, match="format 99"):
        connected_suppliers(path)
    spoilt[0] = 0
    path.write_bytes(spoilt)
    with pytest.raises(QueueDamagedError, match="is not a suppliers file"):
        connected_suppliers(path)

"""A file has its name only after it was synced, however many are synced together and whatever fails then."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from headrace.payload.fragments.partial import Partial
from payload.fragments.transfers import Receiving, make_file, send

FILES = 1100  # more than may be on their way at once


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    return make_quick(size="16MiB")


def test_small_files_are_synced_together_and_named_afterwards(
    queue: Queue, shared_memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, root = tmp_path / "many", shared_memory / "in"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}").write_bytes(b"%d" % number)
    send(queue, folder, receivers=0)
    synced: list[str] = []
    fsync, rename = os.fsync, os.rename
    is_named_unsynced = []

    def note_sync(file: int) -> None:
        fsync(file)
        synced.append(os.readlink(f"/proc/self/fd/{file}"))

    def note_name(source: Any, target: Any, **more: Any) -> None:
        is_named_unsynced.append(str(source) not in synced)
        rename(source, target, **more)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "rename", note_name)
    with Receiving(queue, root, once=True) as receiving:
        receiving.join()
    assert receiving.error is None
    assert [each.state for each in receiving.received if each.state != "done"] == []
    assert is_named_unsynced == [False] * FILES
    folders = [each for each in synced if not each.endswith(".part")]
    assert len(folders) < FILES / 10, "the folder is synced once for many files"
    assert all((root / "many" / f"{number}").read_bytes() == b"%d" % number for number in range(FILES))


def test_a_file_whose_sync_failed_is_received_again(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, sync, failures = make_file(tmp_path / "big.bin", 3_000_000), Partial.sync, [errno.ENOSPC]
    monkeypatch.setattr("headrace.payload.fragments.receiver._FULL_S", 0.01)

    def fail_once(partial: Partial) -> None:
        if failures:
            path = next((tmp_path / "in" / ".headrace-receive").glob("*.part"))
            os.truncate(path, 0)  # as a disk does that has no space for what the system still had to write
            raise OSError(failures.pop(), "No space left on device")
        sync(partial)

    monkeypatch.setattr(Partial, "sync", fail_once)
    with Receiving(queue, tmp_path / "in"):
        _, sent = send(queue, file)
    assert not failures
    assert [each.state for each in sent] == ["done"]
    assert (tmp_path / "in" / "big.bin").read_bytes() == file.read_bytes()


def test_a_folder_that_cannot_be_synced_at_first_does_not_cost_the_files(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [make_file(tmp_path / name, 1000, seed) for seed, name in enumerate(("a", "b", "c"))]
    fsync, failed = os.fsync, threading.Event()
    monkeypatch.setattr("headrace.payload.fragments.receiver._FULL_S", 0.01)

    def fail_once(file: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{file}")) == tmp_path / "in" and not failed.is_set():
            failed.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    monkeypatch.setattr(os, "fsync", fail_once)
    with Receiving(queue, tmp_path / "in"):
        _, sent = send(queue, *files)
    assert failed.is_set()
    assert [each.state for each in sent] == ["done"] * 3
    assert all((tmp_path / "in" / file.name).read_bytes() == file.read_bytes() for file in files)

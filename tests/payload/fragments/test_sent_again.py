"""Files that are sent again: what a receiver remembers of earlier transfers, and when it does not rely on that."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import Queue
from headrace.payload.fragments import partial
from headrace.payload.fragments.names import STATE_FOLDER
from headrace.payload.fragments.receiver import FileReceiver, Received
from headrace.payload.fragments.sender import SenderStatistics
from payload.fragments.transfers import FEED, Receiving, make_file, send
from support.waiting import until

SIZE = 3_000_000


class _Break(Exception):  # noqa: N818
    pass


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    return make_quick(size="1MiB", origin="here")


def test_an_earlier_content_that_comes_back_is_received_again(queue: Queue, tmp_path: Path) -> None:
    file, earlier = make_file(tmp_path / "a.bin", 200_000, 1), tmp_path / "earlier"
    shutil.copy2(file, earlier)
    with Receiving(queue, tmp_path / "in", existing="replace"):
        send(queue, file)
        make_file(file, 200_000, 2)
        send(queue, file)
        shutil.copy2(earlier, file)  # size and time as at first
        told, sent = send(queue, file)
    assert sent[0].state == "done"
    assert told.sent_bytes >= 200_000
    assert (tmp_path / "in" / "a.bin").read_bytes() == earlier.read_bytes()


def test_a_copy_that_was_altered_is_received_again(queue: Queue, tmp_path: Path) -> None:
    file, copy = make_file(tmp_path / "a.bin", 200_000), tmp_path / "in" / "a.bin"
    with Receiving(queue, tmp_path / "in", existing="replace"):
        send(queue, file)
        with copy.open("ab") as altered:
            altered.write(b"more")
        send(queue, file)
    assert copy.read_bytes() == file.read_bytes()
    with Receiving(queue, tmp_path / "in"):
        copy.write_bytes(b"mine")
        _, sent = send(queue, file)
    assert sent[0].state == "refused"
    assert copy.read_bytes() == b"mine"


def test_a_numbered_copy_is_not_received_twice(queue: Queue, tmp_path: Path) -> None:
    file = make_file(tmp_path / "a.bin", 200_000)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(b"mine")
    with Receiving(queue, tmp_path / "in", existing="number"):
        send(queue, file)
        send(queue, file)
        assert not (tmp_path / "in" / "a.2.bin").exists()
        (tmp_path / "in" / "a.1.bin").unlink()
        send(queue, file)
    assert (tmp_path / "in" / "a.1.bin").read_bytes() == file.read_bytes()


def test_a_receiver_that_was_killed_before_it_recorded_a_name_finds_its_file(queue: Queue, tmp_path: Path) -> None:
    file, state = make_file(tmp_path / "a.bin", 200_000), tmp_path / "in" / STATE_FOLDER
    send(queue, file, receivers=0)
    first = FileReceiver(queue, tmp_path / "in", FEED, once=True, on_received=_break)
    with pytest.raises(_Break):
        first.run()
    (state / "done.log").unlink()
    with Receiving(queue, tmp_path / "in"):
        _, sent = send(queue, file)
    assert [each.state for each in sent] == ["done"]


def _break(received: Received) -> None:
    raise _Break


def test_what_is_read_again_after_a_kill_is_not_asked_for_again(queue: Queue, tmp_path: Path) -> None:
    """The position is saved later than a file is named, and a program may have taken the file away since."""
    send(queue, make_file(tmp_path / "a.bin", 200_000), receivers=0)
    state = tmp_path / "in" / STATE_FOLDER / "receiver.json"
    assert FileReceiver(queue, tmp_path / "in", FEED, once=True).run().finished == 1
    (tmp_path / "in" / "a.bin").unlink()
    state.unlink()
    told = FileReceiver(queue, tmp_path / "in", FEED, once=True).run()
    assert (told.finished, told.open) == (0, 0)


def test_a_newer_version_supersedes_what_has_come_of_an_older_one(queue: Queue, tmp_path: Path) -> None:
    file, state = make_file(tmp_path / "big.bin", SIZE), tmp_path / "in" / STATE_FOLDER

    def break_at_half(told: SenderStatistics) -> None:
        if told.sent_bytes >= SIZE // 2:
            raise _Break

    with Receiving(queue, tmp_path / "in") as receiving:
        with pytest.raises(_Break):  # as after kill -9
            send(queue, file, on_progress=break_at_half)
        until(lambda: receiving.statistics.bytes > 0, "some fragments")
        make_file(file, SIZE + 1, 2)
        send(queue, file)
    assert [each.state for each in receiving.received] == ["superseded", "done"]
    assert receiving.statistics.superseded == 1
    assert (tmp_path / "in" / "big.bin").read_bytes() == file.read_bytes()
    assert not [*state.glob("*.part"), *state.glob("*.journal")]
    FileReceiver(queue, tmp_path / "in", FEED, once=True, timeout_s=0.1).run()


def test_a_numbered_copy_is_known_again_after_a_kill(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_file(tmp_path / "a.bin", 200_000)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(b"mine")
    send(queue, file, receivers=0)
    monkeypatch.setattr(partial, "forget", lambda state, transfer: None)  # killed before that
    FileReceiver(queue, tmp_path / "in", FEED, once=True, existing="number").run()
    monkeypatch.undo()
    with Receiving(queue, tmp_path / "in", existing="number"):
        _, sent = send(queue, file)
    assert [each.state for each in sent] == ["done"]
    assert not (tmp_path / "in" / "a.2.bin").exists()

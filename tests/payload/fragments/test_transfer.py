"""Files through a queue: sender and receiver in one process, real files, faults in between."""

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from headrace.errors import TransferError, TransferIncompleteError
from headrace.payload.fragments.names import STATE_FOLDER
from headrace.payload.fragments.receiver import FileReceiver, ReceiverStatistics
from headrace.payload.fragments.sender import SenderStatistics
from headrace.payload.fragments.source import list_sources
from payload.fragments.transfers import FEED, FRAGMENT_BYTES, Altered, Receiving, make_file, send
from support.waiting import until

SIZE = 3_000_000  # 49 fragments of 60 KiB, three times what the queue holds


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    return make_quick(size="1MiB", origin="here")


def test_a_file_that_is_larger_than_the_queue_arrives(queue: Queue, tmp_path: Path) -> None:
    file = make_file(tmp_path / "big.bin", SIZE)
    os.chmod(file, 0o640)
    with Receiving(queue, tmp_path / "in") as receiving:
        told, sent = send(queue, file)
    copy = tmp_path / "in" / "big.bin"
    assert copy.read_bytes() == file.read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o640
    assert copy.stat().st_mtime_ns == file.stat().st_mtime_ns
    assert (told.sent_bytes, told.again_bytes) == (SIZE, 0)
    assert [each.state for each in sent] == ["done"] == [each.state for each in receiving.received]
    assert not list((tmp_path / "in" / STATE_FOLDER).glob("*.part"))


def test_a_directory_arrives_with_everything_in_it_and_links_are_left_out(queue: Queue, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "none").mkdir()
    for number in range(20):
        make_file(folder / "a" / "b" / f"{number}.bin", number * 1000, number)
    (folder / "a" / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    _, left_out = list_sources([folder])
    assert sorted(each.path.name for each in left_out) == ["link", "pipe"]
    with Receiving(queue, tmp_path / "in"):
        told, _ = send(queue, folder)
    assert told.finished == told.files == 24
    for file in (folder / "a" / "b").iterdir():
        assert (tmp_path / "in" / "run" / "a" / "b" / file.name).read_bytes() == file.read_bytes()
    assert (tmp_path / "in" / "run" / "none").is_dir()
    assert not (tmp_path / "in" / "run" / "a" / "link").exists()


def test_a_sparse_file_of_five_gigabytes_stays_sparse(make_quick: Callable[..., Queue], tmp_path: Path) -> None:
    queue = make_quick(size="16MiB")
    file = tmp_path / "sparse"
    with file.open("wb") as content:
        content.truncate(5 << 30)
        for place in (0, 1 << 30, (5 << 30) - 4096):
            content.seek(place)
            content.write(b"data %d" % place)
    with Receiving(queue, tmp_path / "in"):
        told, _ = send(queue, file)
    copy = tmp_path / "in" / "sparse"
    assert copy.stat().st_size == 5 << 30
    assert copy.stat().st_blocks * 512 < 10 << 20
    assert told.sent_bytes < 10 << 20
    assert told.held_bytes == 0
    assert told.sent_bytes + told.hole_bytes == 5 << 30
    with copy.open("rb") as content:
        content.seek(1 << 30)
        assert content.read(16) == b"data 1073741824\0"


class _Break(Exception):  # noqa: N818
    pass


def test_a_sender_that_was_ended_at_half_sends_only_the_rest(queue: Queue, tmp_path: Path) -> None:
    file = make_file(tmp_path / "big.bin", SIZE)
    first: list[SenderStatistics] = []

    def break_at_half(told: SenderStatistics) -> None:
        if told.sent_bytes >= SIZE // 2:
            first.append(told)
            raise _Break

    with Receiving(queue, tmp_path / "in"):
        with pytest.raises(_Break):
            send(queue, file, on_progress=break_at_half)
        told, _ = send(queue, file)
    assert (tmp_path / "in" / "big.bin").read_bytes() == file.read_bytes()
    assert first[0].sent_bytes + told.sent_bytes <= SIZE * 1.05


def test_a_receiver_that_was_ended_at_half_continues(queue: Queue, tmp_path: Path) -> None:
    file = make_file(tmp_path / "big.bin", SIZE)

    def stop_at_half(told: ReceiverStatistics) -> None:
        if told.bytes >= SIZE // 2:
            first.receiver.stop()

    first = Receiving(queue, tmp_path / "in", on_progress=stop_at_half)
    outcome: list[Any] = []
    sending = threading.Thread(target=lambda: outcome.append(send(queue, file)))
    with first:
        sending.start()
        first.join()
    assert first.statistics.finished == 0
    with Receiving(queue, tmp_path / "in") as second:
        sending.join(60)
    told, _ = outcome[0]
    assert (tmp_path / "in" / "big.bin").read_bytes() == file.read_bytes()
    assert told.sent_bytes <= SIZE * 1.05
    assert first.statistics.bytes + second.statistics.bytes == SIZE


def test_a_damaged_fragment_is_refused_and_sent_again(queue: Queue, tmp_path: Path) -> None:
    file, damaged = make_file(tmp_path / "big.bin", SIZE), []

    def alter(payloads: list[Any], facts: dict[str, Any]) -> list[Any]:
        if "big.bin 11/49" in facts["ident"] and not damaged:
            damaged.append(facts["ident"].index("big.bin 11/49"))
            payloads[damaged[0]] = bytes([payloads[damaged[0]][0] ^ 1]) + bytes(payloads[damaged[0]][1:])
        return payloads

    with Receiving(queue, tmp_path / "in") as receiving:
        told, _ = send(Altered(queue, alter), file)
    assert damaged
    assert receiving.statistics.bad == 1
    assert told.again_bytes == FRAGMENT_BYTES
    assert (tmp_path / "in" / "big.bin").read_bytes() == file.read_bytes()


def test_fragments_that_others_evict_are_asked_for_and_sent_again(queue: Queue, tmp_path: Path) -> None:
    file, crowded = make_file(tmp_path / "big.bin", SIZE), []

    def crowd(payloads: list[Any], facts: dict[str, Any]) -> list[Any]:
        if "big.bin 20/49" in facts["ident"] and not crowded:
            crowded.append(True)
            until(lambda: receiving.statistics.bytes > 0, "the receiver")
            receiving.receiver.stop()
        return payloads

    receiving = Receiving(queue, tmp_path / "in")
    outcome: list[Any] = []
    sending = threading.Thread(target=lambda: outcome.append(send(Altered(queue, crowd), file)))
    with receiving:
        sending.start()
        until(lambda: bool(crowded), "some fragments")
    for number in range(40):  # whatever else the queue is used for
        queue.put(bytes(60_000) + b"%d" % number, feed="other", ident=str(number))
    with Receiving(queue, tmp_path / "in") as second:
        sending.join(60)
    assert (tmp_path / "in" / "big.bin").read_bytes() == file.read_bytes()
    assert second.statistics.lost > 0
    assert outcome[0][0].again_bytes > 0


def test_a_receiver_that_comes_too_late_says_what_is_missing(queue: Queue, tmp_path: Path) -> None:
    send(queue, make_file(tmp_path / "some.bin", 300_000), receivers=0)
    while queue.oldest < 4:  # the first manifest and two fragments are gone
        queue.put(os.urandom(10_000), feed="other")
    receiver = FileReceiver(queue, tmp_path / "in", FEED, once=True, timeout_s=0.1)
    with pytest.raises(TransferIncompleteError, match=r"of 5 fragments of some\.bin: not sent yet, still on the way"):
        receiver.run()
    assert receiver.statistics.asked or receiver.statistics.bytes == 300_000 - 2 * FRAGMENT_BYTES


def test_many_small_files_are_refused_before_the_first_is_evicted(queue: Queue, tmp_path: Path) -> None:
    names = [tmp_path / f"a small file {number}" for number in range(2_000)]
    for path in names:
        path.touch()
    with pytest.raises(TransferError, match=r"2,000 files of 0 B need .* of the queue, and it keeps 512\.0 KiB"):
        send(queue, *names, receivers=0)
    assert queue.next == 1
    fitting = names[: queue.config.size // 2 // 1200]
    send(queue, *fitting, receivers=0)
    with Receiving(queue, tmp_path / "in", once=True) as receiving:
        receiving.join()
    assert receiving.statistics.finished == len(fitting)


def test_a_file_that_the_queue_is_too_small_for_is_refused_with_the_limit(queue: Queue, tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as content:
        content.truncate(5 << 30)
    with pytest.raises(TransferError, match="use a larger queue"):
        send(queue, tmp_path / "sparse")


def test_files_beyond_half_of_the_queue_need_a_receiver(queue: Queue, tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="leave out --no-wait"):
        send(queue, make_file(tmp_path / "big.bin", SIZE), receivers=0)
    with pytest.raises(TransferIncompleteError, match="no receiver of feed lab/files"):
        send(queue, tmp_path / "big.bin", timeout_s=0.1)


def test_a_full_disk_stops_the_transfer_until_there_is_space(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, full = make_file(tmp_path / "big.bin", SIZE), threading.Event()
    pwrite, waits = os.pwrite, set()

    def limited(descriptor: int, content: Any, place: int) -> int:
        if full.is_set() and place >= SIZE // 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, content, place)

    def progress(told: SenderStatistics) -> None:
        waits.add(told.waits_for)
        if "is full" in told.waits_for:
            full.clear()

    monkeypatch.setattr(os, "pwrite", limited)
    monkeypatch.setattr("headrace.payload.fragments.receiver._FULL_S", 0.01)
    full.set()
    with Receiving(queue, tmp_path / "in") as receiving:
        told, _ = send(queue, file, on_progress=progress)
    assert any("the disk of" in each and "is full" in each for each in waits)
    assert (tmp_path / "in" / "big.bin").read_bytes() == file.read_bytes()
    assert receiving.statistics.bytes == told.sent_bytes == SIZE


def test_two_receivers_get_the_file_and_the_slower_one_sets_the_pace(queue: Queue, tmp_path: Path) -> None:
    file = make_file(tmp_path / "big.bin", SIZE)
    with Receiving(queue, tmp_path / "one"), Receiving(queue, tmp_path / "two"):
        told, sent = send(queue, file, receivers=2)
    assert len(sent[0].receivers) == 2
    assert told.again_bytes == 0
    for root in ("one", "two"):
        assert (tmp_path / root / "big.bin").read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("existing", "state", "content"),
    [("refuse", "refused", {"a.txt": b"old"}), ("replace", "done", {"a.txt": b"new"}),
     ("number", "done", {"a.txt": b"old", "a.1.txt": b"new"})],
)  # fmt: skip
def test_what_happens_to_a_file_that_exists_has_a_name(
    queue: Queue, tmp_path: Path, existing: str, state: str, content: dict[str, bytes]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"old")
    (tmp_path / "a.txt").write_bytes(b"new")
    with Receiving(queue, tmp_path / "in", existing=existing):
        told, sent = send(queue, tmp_path / "a.txt")
    assert sent[0].state == state
    assert told.held_bytes == 0
    assert {each.name: each.read_bytes() for each in (tmp_path / "in").iterdir() if each.is_file()} == content


def test_a_file_that_changes_while_it_is_sent_is_withdrawn(queue: Queue, tmp_path: Path) -> None:
    file = make_file(tmp_path / "big.bin", SIZE)

    def change(told: SenderStatistics) -> None:
        if told.sent_bytes > SIZE // 2 and file.stat().st_size == SIZE:
            os.truncate(file, SIZE - 5)

    with Receiving(queue, tmp_path / "in") as receiving:
        told, sent = send(queue, file, on_progress=change)
        until(lambda: bool(receiving.received), "the news")
    assert told.failed == 1
    assert sent[0].state == "withdrawn"
    assert "changed while it was sent" in sent[0].problem
    assert receiving.received[0].state == "withdrawn"
    assert [each.name for each in (tmp_path / "in").iterdir()] == [STATE_FOLDER]


def test_a_file_that_was_received_is_sent_again_only_if_it_was_removed(queue: Queue, tmp_path: Path) -> None:
    file = make_file(tmp_path / "a.bin", 200_000)
    with Receiving(queue, tmp_path / "in"):
        send(queue, file)
        again, _ = send(queue, file)
        assert again.finished == 1
        assert (again.sent_bytes, again.held_bytes) == (0, 200_000)
        (tmp_path / "in" / "a.bin").unlink()
        once_more, _ = send(queue, file)
    assert once_more.finished == 1
    assert (tmp_path / "in" / "a.bin").read_bytes() == file.read_bytes()


def test_a_file_of_before_1970_arrives_with_its_time(queue: Queue, tmp_path: Path) -> None:
    file = make_file(tmp_path / "old.bin", 200_000)
    os.utime(file, ns=(-86_400_000_000_001, -86_400_000_000_001))
    with Receiving(queue, tmp_path / "in"):
        _, sent = send(queue, file)
    assert [each.state for each in sent] == ["done"]
    assert (tmp_path / "in" / "old.bin").stat().st_mtime_ns == file.stat().st_mtime_ns


def test_a_file_that_changes_is_withdrawn_before_more_of_it_is_sent(queue: Queue, tmp_path: Path) -> None:
    file, sent_bytes = make_file(tmp_path / "big.bin", SIZE), []

    def change(told: SenderStatistics) -> None:
        if told.sent_bytes and not sent_bytes:
            os.utime(file, ns=(1, 1))
            sent_bytes.append(told.sent_bytes)

    with Receiving(queue, tmp_path / "in"):
        told, sent = send(queue, file, on_progress=change)
    assert sent[0].state == "withdrawn"
    assert told.sent_bytes == sent_bytes[0] < SIZE


@pytest.mark.parametrize("size", [10_000, 200_000])
def test_a_file_beyond_the_size_limit_of_the_receiver_is_refused_with_the_remedy(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    truncate = os.ftruncate

    def limited(descriptor: int, length: int) -> None:
        if length == size:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        truncate(descriptor, length)

    monkeypatch.setattr(os, "ftruncate", limited)
    with Receiving(queue, tmp_path / "in"):
        _, sent = send(queue, make_file(tmp_path / "big.bin", size), make_file(tmp_path / "small.bin", 100))
    problems = {each.name: each.problem for each in sent}
    assert "'big.bin' has" in problems["big.bin"]
    assert "raise its limit (ulimit -f)" in problems["big.bin"]
    assert not problems["small.bin"]
    assert not list((tmp_path / "in" / STATE_FOLDER).glob("*.part"))


def test_the_root_directory_is_not_sent() -> None:
    with pytest.raises(TransferError, match="/ has no name to be sent under"):
        list_sources([Path("/")])


def test_one_directory_has_one_receiver(queue: Queue, tmp_path: Path) -> None:
    with Receiving(queue, tmp_path / "in"), pytest.raises(TransferError, match="another receiver uses"):
        FileReceiver(queue, tmp_path / "in", FEED)


def test_a_journal_of_an_earlier_boot_is_verified_against_the_disk(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a power failure: the journal survived, and some of what it names did not."""
    file, state = make_file(tmp_path / "big.bin", SIZE), tmp_path / "in" / STATE_FOLDER

    def stop_at_half(told: ReceiverStatistics) -> None:
        if told.bytes >= SIZE // 2:
            first.receiver.stop()

    first = Receiving(queue, tmp_path / "in", on_progress=stop_at_half)
    outcome: list[Any] = []
    sending = threading.Thread(target=lambda: outcome.append(send(queue, file)))
    with first:
        sending.start()
        first.join()
    (part,) = state.glob("*.part")
    with part.open("r+b") as content:
        content.seek(3 * FRAGMENT_BYTES)
        content.write(bytes(FRAGMENT_BYTES))
    monkeypatch.setattr("headrace.payload.fragments.journal.boot_id", lambda: "another boot")
    with Receiving(queue, tmp_path / "in"):
        sending.join(60)
    assert (tmp_path / "in" / "big.bin").read_bytes() == file.read_bytes()
    assert outcome[0][0].again_bytes == FRAGMENT_BYTES


def test_a_large_product_on_the_same_feed_is_no_file(queue: Queue, tmp_path: Path) -> None:
    queue.put(os.urandom(300_000), feed=FEED, ident="a large product")
    queue.put_many([b"no manifest"], feed=FEED)
    send(queue, make_file(tmp_path / "a.bin", 70_000), receivers=0)
    receiver = FileReceiver(queue, tmp_path / "in", FEED, once=True, timeout_s=20)
    assert receiver.run().finished == 1

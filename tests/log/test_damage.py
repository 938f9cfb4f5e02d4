"""Files that are missing, truncated, altered, swapped, foreign or newer: a clear error, and no further harm."""

import errno
import os
import random
import shutil
import struct
from pathlib import Path

import pytest
from arena import FORK, parse, payload

from headrace import Queue
from headrace.errors import (
    DiskFullError,
    HeadraceError,
    NotAQueueError,
    ProductDamagedError,
    QueueAccessError,
    QueueBusyError,
    QueueDamagedError,
    QueueError,
    QueueExistsError,
    QueueMissingError,
    QueueVersionError,
)

COUNT = 3000


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A closed queue of some thousand products in many segments, to be damaged by the test."""
    path = tmp_path / "full"
    with Queue.create(path, size="4MiB", origin="here") as queue:
        for start in range(0, COUNT, 500):
            queue.put_many(
                [payload(0, start + i) for i in range(500)], feed=[f"f/{i % 5}" for i in range(500)], ident="x"
            )
        queue.cursor("reader").save(77)
        assert queue.oldest == 1
    return path


def segments(path: Path) -> list[Path]:
    return sorted((path / "segments").glob("*.segment"))


def readable(path: Path) -> list[int]:
    """Numbers of all readable products, damaged ones skipped; every payload must be correct."""
    numbers = []
    with Queue.open(path) as queue:
        position = queue.oldest
        while position < queue.next:
            try:
                batch = queue.read_batch(position, limit=1000)
            except ProductDamagedError as error:
                assert str(path) in str(error)
                assert "repair" in error.hint
                position = error.next
                continue
            for product in batch:
                writer, number = parse(bytes(product.payload))
                assert (writer, product.sequence) == (0, number + 1)
                numbers.append(number)
            position = batch.next
    return numbers


def alter(file: Path, place: int, value: bytes | None = None) -> None:
    with file.open("r+b") as handle:
        handle.seek(place)
        old = handle.read(len(value) if value else 1)
        handle.seek(place)
        handle.write(value if value is not None else bytes([old[0] ^ 0x10]))


def test_a_missing_queue_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(QueueMissingError, match="headrace queue create"):
        Queue.open(tmp_path / "nothing")


def test_a_file_or_a_foreign_directory_is_not_a_queue(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("hello")
    with pytest.raises(NotAQueueError, match="is a file"):
        Queue.open(file)
    with pytest.raises(QueueExistsError, match="is a file"):
        Queue.create(file)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "letter").write_text("dear")
    with pytest.raises(NotAQueueError, match=r"queue\.json"):
        Queue.open(tmp_path / "folder")
    with pytest.raises(QueueExistsError, match="not empty"):
        Queue.create(tmp_path / "folder")
    assert file.read_text() == "hello"
    assert (tmp_path / "folder" / "letter").read_text() == "dear"


def test_an_existing_queue_of_the_same_terms_is_opened_on_request(queue: Queue) -> None:
    queue.put(b"1", feed="x")
    with Queue.create(queue.path, size="64MiB", exist_ok=True) as again:
        assert (again.next, again.config.size) == (2, queue.config.size)
    with pytest.raises(QueueExistsError, match=r"dedup identity, not none; origin here, not there"):
        Queue.create(queue.path, dedup="none", origin="there", exist_ok=True)
    with pytest.raises(QueueExistsError, match="exists and is not empty"):
        Queue.create(queue.path / "segments", exist_ok=True)


def test_an_existing_queue_is_not_overwritten(queue: Queue) -> None:
    queue.put(b"x", feed="a")
    with pytest.raises(QueueExistsError, match="already"):
        Queue.create(queue.path)
    assert len(queue.read_batch()) == 1


def test_of_simultaneous_creates_one_succeeds_and_the_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "q"

    def create(results: Path) -> None:
        try:
            Queue.create(path, size="1MiB").close()
            results.write_text("created")
        except QueueExistsError:
            results.write_text("refused")

    for round_number in range(5):
        workers = [FORK.Process(target=create, args=(tmp_path / f"{round_number}-{i}",)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        outcomes = sorted((tmp_path / f"{round_number}-{i}").read_text() for i in range(4))
        assert outcomes == ["created", "refused", "refused", "refused"]
        with Queue.open(path) as queue:
            assert queue.check() == []
        Queue.remove(path)
        assert [file.name for file in tmp_path.glob(".q*")] == []


def test_an_unwritable_directory_is_named_in_the_error(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        target = Path("/proc/headrace")  # not even root may write there
    else:
        tmp_path.chmod(0o500)
        target = tmp_path / "q"
    with pytest.raises(QueueError, match=str(target.parent)):
        Queue.create(target)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_queue_without_write_access_is_an_access_error(full: Path) -> None:
    (full / "control").chmod(0o400)
    with pytest.raises(QueueAccessError, match="write access"):
        Queue.open(full)


def test_durability_memory_requires_a_directory_in_memory(tmp_path: Path) -> None:
    if os.stat(tmp_path).st_dev == os.stat("/dev/shm").st_dev:
        pytest.skip("the temporary directory is in memory")
    with pytest.raises(HeadraceError, match="/dev/shm"):
        Queue.create(tmp_path / "q", durability="memory")


def test_a_newer_format_is_refused_and_not_changed(full: Path) -> None:
    alter(full / "control", 8, struct.pack("<I", 4))
    before = (full / "control").read_bytes()
    with pytest.raises(QueueVersionError, match="upgrade"):
        Queue.open(full)
    assert (full / "control").read_bytes() == before
    with pytest.raises(QueueVersionError, match="upgrade"):
        Queue.repair(full)
    alter(full / "control", 8, struct.pack("<I", 3))
    text = (full / "queue.json").read_text()
    (full / "queue.json").write_text(text.replace('"format": 2', '"format": 99'))
    with pytest.raises(QueueVersionError, match="format 99"):
        Queue.open(full)


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise", "foreign"])
@pytest.mark.parametrize("name", ["control", "names", "cursors", "queue.json"])
def test_a_damaged_file_is_named_and_repaired(full: Path, tmp_path: Path, name: str, damage: str) -> None:
    file = full / name
    if damage == "missing":
        file.unlink()
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "cut":
        os.truncate(file, file.stat().st_size // 2 + (1 if name != "names" else -400_000))
    elif damage == "noise":
        file.write_bytes(random.Random(1).randbytes(file.stat().st_size))
    else:
        with Queue.create(tmp_path / "other", size="4MiB", origin="elsewhere") as other:
            other.put(b"x", feed="strange")
        shutil.copy(tmp_path / "other" / name, file)
    if name == "queue.json":
        with pytest.raises((QueueDamagedError, NotAQueueError)):
            Queue.open(full)
        return
    try:
        Queue.open(full).close()
    except QueueDamagedError as error:
        assert str(file) in str(error)
        assert "headrace queue repair" in error.hint
    else:
        assert (name, damage) in {("cursors", "noise"), ("cursors", "foreign"), ("names", "foreign")}
    Queue.repair(full)
    assert readable(full) == list(range(COUNT))
    with Queue.open(full) as queue:
        assert queue.check() == []
        assert queue.put(payload(0, COUNT), feed="f/0") >= COUNT + 1  # type: ignore[operator]
        assert len(queue.read_batch("oldest", "f/3")) == COUNT // 5
        if name != "cursors":
            assert queue.cursor("reader").position == 77


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "header", "foreign", "swapped"])
@pytest.mark.parametrize("which", [0, 5, -1])
def test_a_damaged_segment_loses_at_most_its_own_products(full: Path, tmp_path: Path, which: int, damage: str) -> None:
    victim = segments(full)[which]
    with Queue.open(full) as queue:
        total = queue.next - 1
        counts = [
            ((e := queue._log.kernel.entry(n))["end"] or queue.next) - e["first"]
            for n in range(1, len(segments(full)) + 1)
        ]
    if damage == "missing":
        victim.unlink()
    elif damage == "empty":
        victim.write_bytes(b"")
    elif damage == "cut":
        os.truncate(victim, victim.stat().st_size * 2 // 3)
    elif damage == "header":
        alter(victim, 40)
    elif damage == "foreign":
        with Queue.create(tmp_path / "other", size="4MiB") as other:
            other.put(b"x", feed="strange")
        shutil.copy(segments(tmp_path / "other")[0], victim)
    else:
        other_one = segments(full)[2]
        shutil.copy(victim, tmp_path / "keep")
        shutil.copy(other_one, victim)
        shutil.copy(tmp_path / "keep", other_one)
    try:
        before = readable(full)  # a queue with a damaged newest segment may fail to open
        with Queue.open(full) as queue:
            found = queue.check()
            assert found or damage == "header"
    except QueueDamagedError as error:
        assert ".segment" in str(error)
        before = []
    Queue.repair(full)
    after = readable(full)
    assert set(before) <= set(after) <= set(range(COUNT))
    share = {"header": 0.0, "swapped": 0.0, "cut": 0.4}.get(damage, 1.0)  # of the victim's products
    assert len(after) >= COUNT - share * counts[which]
    with Queue.open(full) as queue:
        assert queue.check() == []
        sequence = queue.put(b"next", feed="a")
        assert sequence >= total + 1, "a sequence was reused"  # type: ignore[operator]


def test_a_flipped_bit_in_a_payload_is_found_reported_and_repaired(full: Path) -> None:
    file = segments(full)[1]
    data = file.read_bytes()
    place = data.index(b":" + b"0:", 5000) + 400
    alter(file, place)
    with Queue.open(full) as queue:
        (finding,) = queue.check()
        assert finding.file == str(file)
        damaged = finding.sequence
        assert damaged is not None
        batch = queue.read_batch("oldest", limit=10**6)
        assert batch.next == damaged
        assert len(batch) == damaged - 1
        with pytest.raises(ProductDamagedError) as caught:
            queue.read_batch(damaged)
        assert (caught.value.sequence, caught.value.next) == (damaged, damaged + 1)
        assert len(queue.read_batch(damaged + 1, limit=10**6)) == COUNT - damaged
        with pytest.raises(QueueBusyError, match="stop them"):
            Queue.repair(full)
    assert any("damaged" in line or "lost" in line for line in Queue.repair(full))
    with Queue.open(full) as queue:
        assert queue.check() == []
        batch = queue.read_batch("oldest", limit=10**6)
        assert (len(batch), batch.damaged) == (COUNT - 1, 1)
        again = queue.put(payload(0, damaged - 1), feed=f"f/{(damaged - 1) % 5}", ident="x")
        assert isinstance(again, int)  # the lost product may be put again


def test_flipped_bits_never_give_a_wrong_payload_or_crash_the_interpreter(full: Path, tmp_path: Path) -> None:
    """Each round runs in a process of its own, so that a crash is visible."""
    seed = random.SystemRandom().randrange(2**31)
    print(f"seed {seed}")
    chance = random.Random(seed)

    def round_of(path: Path) -> None:
        for use in (look, grow, lambda path: Queue.repair(path), look, grow):
            try:
                use(path)
            except HeadraceError as error:
                assert error.hint

    def look(path: Path) -> None:
        readable(path)
        with Queue.open(path) as queue:
            queue.check()
            queue.statistics()

    def grow(path: Path) -> None:
        with Queue.open(path) as queue:
            start = queue.next - 1
            queue.put(payload(0, start), feed="f/1")
            queue.put_many([payload(0, start + 1 + i) for i in range(100)], feed="g")

    for round_number in range(30):
        path = tmp_path / f"round{round_number}"
        shutil.copytree(full, path)
        files = [*segments(path), path / "names", path / "cursors"]
        for _ in range(chance.choice([1, 3, 20])):
            file = chance.choice(files)
            alter(file, chance.randrange(file.stat().st_size))
        worker = FORK.Process(target=round_of, args=(path,))
        worker.start()
        worker.join()
        assert worker.exitcode == 0, f"round {round_number}: exit code {worker.exitcode}"
        shutil.rmtree(path)


def test_a_segment_truncated_while_it_is_mapped_does_not_crash_the_interpreter(full: Path) -> None:
    def use() -> None:
        queue = Queue.open(full)
        batch = queue.read_batch("oldest", limit=10)
        for file in segments(full):
            os.truncate(file, 4096)
        for act in (lambda: queue.read_batch(500), lambda: queue.put(b"x" * 1000, feed="f/1"), lambda: queue.check()):
            try:
                act()
            except HeadraceError:
                continue
        bytes(batch[9].payload)
        os._exit(0)

    worker = FORK.Process(target=use)
    worker.start()
    worker.join()
    assert worker.exitcode == 0


def test_a_full_disk_is_reported_and_puts_succeed_once_it_has_space(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size=3M tmpfs {mount} 2>/dev/null") != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        queue = Queue.create(mount / "q", size="8MiB", origin="here")
        number = 0
        with pytest.raises(DiskFullError, match="nothing was stored"):
            while True:
                queue.put_many([payload(0, number + i) for i in range(50)], feed="a")
                number += 50
        assert queue.next == number + 1
        assert len(queue.read_batch(limit=10**6)) == number
        assert queue.check() == []
        with pytest.raises(DiskFullError):
            queue.put(b"y" * 100_000, feed="a")
        with pytest.raises(DiskFullError):
            Queue.create(mount / "another", size="8MiB")
        os.system(f"mount -o remount,size=16M {mount}")
        queue.put_many([payload(0, number + i) for i in range(50)], feed="a")
        assert [parse(bytes(p.payload))[1] for p in queue.read_batch(limit=10**6)] == list(range(number + 50))
        assert queue.check() == []
        queue.close()
    finally:
        assert os.system(f"umount --lazy {mount}") == 0  # mapped files keep it busy for a while


def test_an_operating_system_error_about_the_disk_is_explained() -> None:
    from headrace.log.explain import explain_os_error

    for code, kind in ((errno.ENOSPC, DiskFullError), (errno.EDQUOT, DiskFullError), (errno.EROFS, QueueAccessError)):
        error = explain_os_error(OSError(code, os.strerror(code)), Path("q"))
        assert isinstance(error, kind)
        assert error.hint


def test_a_missing_duplicate_table_is_rebuilt(full: Path) -> None:
    (table,) = full.glob("signatures-*")
    table.unlink()
    with Queue.open(full) as queue:
        assert not queue.put(payload(0, 5), feed="f/0", ident="x")
        assert queue.check() == []


def test_repair_does_nothing_on_an_intact_queue(full: Path) -> None:
    assert Queue.repair(full) == []
    assert readable(full) == list(range(COUNT))

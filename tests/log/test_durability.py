"""What a power failure loses under each durability, on a simulated disk that keeps only what was synced."""

import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from arena import FORK, parse, payload

from headrace import Duplicate, Queue
from headrace.errors import QueueError
from headrace.log import flush as flusher
from headrace.testing import PowerCut
from support.waiting import until


def powered(tmp_path: Path, durability: str, **terms: object) -> tuple[Queue, PowerCut]:
    """A queue on a disk that will lose power."""
    path = tmp_path / "q"
    Queue.create(path, size="2MiB", durability=durability, origin="here", **terms).close()  # type: ignore[arg-type]
    power = PowerCut(path, tmp_path / "safe")
    power.prime()
    return Queue.open(path, storage=power), power


def found_after(power: PowerCut, tmp_path: Path, seed: int) -> list[int]:
    """The numbers of the products that a restarted machine finds, checked to be whole and in order."""
    image = tmp_path / f"image-{seed}"
    power.image(image, seed)
    with Queue.open(image) as queue:
        assert queue.check() == []
        numbers = [parse(bytes(product.payload))[1] for product in queue.read_batch(limit=10**6)]
        assert numbers == sorted(numbers)
        assert queue.put(payload(9, 1), feed="after") == queue.next - 1
    return numbers


def test_under_disk_acknowledged_products_survive_any_power_failure(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**31)
    print(f"seed {seed}")
    chance = random.Random(seed)
    queue, power = powered(tmp_path, "disk")
    number = 0
    for round_number in range(12):
        count = chance.choice([1, 3, 30])
        if count == 1:
            assert queue.put(payload(0, number), feed="a") == number + 1
        else:
            queue.put_many([payload(0, number + i) for i in range(count)], feed=f"f/{round_number}")
        number += count
        found = found_after(power, tmp_path, seed + round_number)
        assert found[-1] == number - 1
        assert found == list(range(queue.oldest - 1, number))
    queue.close()


def test_under_disk_readers_see_only_durable_products(tmp_path: Path) -> None:
    seen: list[int] = []

    class Watching(PowerCut):
        def sync_file(self, path: Path) -> None:
            if path.suffix == ".segment":
                seen.append(len(queue.read_batch("oldest")))
            super().sync_file(path)

    path = tmp_path / "q"
    Queue.create(path, size="2MiB", durability="disk").close()
    with Queue.open(path, storage=Watching(path, tmp_path / "safe")) as queue:
        for number in range(5):
            queue.put(payload(0, number), feed="a")
        assert seen == [0, 1, 2, 3, 4]
        assert len(queue.read_batch()) == 5


def test_under_disk_a_duplicate_is_reported_only_after_the_first_copy_is_durable(tmp_path: Path) -> None:
    flushing, may_end = threading.Event(), threading.Event()

    class Slow(PowerCut):
        """Its flush of a segment takes until the test lets it end."""

        def sync_file(self, path: Path) -> None:
            if path.suffix == ".segment":
                flushing.set()
                assert may_end.wait(240)
            super().sync_file(path)

    path = tmp_path / "q"
    Queue.create(path, size="2MiB", durability="disk").close()
    with Queue.open(path, storage=Slow(path, tmp_path / "safe")) as queue, ThreadPoolExecutor(2) as pool:
        first = pool.submit(queue.put, b"once", feed="a", ident="i")
        assert flushing.wait(240)
        again = pool.submit(queue.put, b"once", feed="a", ident="i")
        until(lambda: queue.statistics().duplicates == 1, "the copy is recognised")
        assert not again.done()
        may_end.set()
        assert (first.result(240), again.result(240)) == (1, Duplicate(of=1))
        assert queue.statistics().undurable == 0


def test_many_writers_share_a_flush(tmp_path: Path) -> None:
    path = tmp_path / "q"
    Queue.create(path, size="2MiB", durability="disk").close()
    syncs: list[Path] = []

    class Slow(PowerCut):
        """Its first flush of a segment takes until all writers have put a product."""

        def sync_file(self, path: Path) -> None:
            if path.suffix == ".segment":
                syncs.append(path)
                if len(syncs) == 1:
                    until(lambda: queue.statistics().undurable == 80, "all puts are stored during the flush")

        def sync_directory(self, path: Path) -> None:
            pass

    queue = Queue.open(path, storage=Slow(path, tmp_path / "safe"))
    threads = [threading.Thread(target=lambda w=w: queue.put(payload(w, 0), feed="a")) for w in range(80)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queue.next == 81
    assert len(syncs) <= 3, f"{len(syncs)} flushes for 80 puts"
    queue.close()


def test_under_process_flushed_products_survive_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "FLUSH_INTERVAL_S", 0.05)
    queue, power = powered(tmp_path, "process")
    queue.put_many([payload(0, number) for number in range(50)], feed="a")
    until(lambda: queue.statistics().undurable == 0, "the flush")
    found = found_after(power, tmp_path, 1)
    assert found == list(range(50))
    queue.close()


def test_under_process_unflushed_products_may_be_lost_but_no_sequence_is_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "FLUSH_INTERVAL_S", 3600)  # no flush in between, however slow the machine is
    queue, power = powered(tmp_path, "process")
    for number in range(200):
        queue.put(payload(0, number), feed="a", ident=str(number))
    lost_something = False
    for seed in range(6):
        image = tmp_path / f"image-{seed}"
        power.image(image, seed)
        with Queue.open(image) as again:
            assert again.check() == []
            batch = again.read_batch("oldest", limit=10**6)
            numbers = [parse(bytes(product.payload))[1] for product in batch]
            assert [int(n) + 1 for n in numbers] == batch.sequences.tolist()
            lost_something |= len(numbers) < 200
            sequence = again.put(payload(1, 1), feed="a")
            assert isinstance(sequence, int)
            assert sequence > 200, "a sequence was reused"
            gap = again.read_batch(150) if again.read_batch(150).lost else again.read_batch(again.read_batch(150).next)
            assert gap.lost is not None
            assert gap.lost.last == sequence - 1
            assert again.check() == []
    assert lost_something, "the simulated disk lost nothing"
    queue.close()


def test_a_cleanly_closed_queue_continues_without_a_gap_after_a_restart(tmp_path: Path) -> None:
    queue, power = powered(tmp_path, "process")
    queue.put_many([payload(0, number) for number in range(20)], feed="a")
    queue.close()
    image = tmp_path / "image"
    power.image(image, 1)
    with Queue.open(image) as again:
        assert len(again.read_batch()) == 20
        assert again.put(payload(0, 20), feed="a") == 21


def test_a_batch_survives_a_power_failure_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        queue, power = powered(folder, "process")
        for batch in range(6):
            queue.put_many([payload(0, batch * 40 + i) for i in range(40)], feed="a")
        image = folder / "image"
        power.image(image, seed)
        with Queue.open(image) as again:
            sequences = [s for s in again.read_batch("oldest", limit=10**6).sequences.tolist() if s <= 240]
            last = max(sequences, default=0)
            assert last % 40 == 0, f"seed {seed}: {last} is in the middle of a batch"
        queue.close()


def test_a_kill_loses_nothing_under_any_durability(tmp_path: Path, shared_memory: Path) -> None:
    for durability, folder in (("memory", shared_memory), ("process", tmp_path), ("disk", tmp_path)):
        path = folder / durability
        Queue.create(path, size="2MiB", durability=durability).close()

        def put_and_die(path: Path = path) -> None:
            queue = Queue.open(path)
            for number in range(100):
                queue.put(payload(0, number), feed="a")
            os.kill(os.getpid(), signal.SIGKILL)

        worker = FORK.Process(target=put_and_die)
        worker.start()
        worker.join()
        assert worker.exitcode == -signal.SIGKILL
        with Queue.open(path) as queue:
            assert [parse(bytes(p.payload))[1] for p in queue.read_batch()] == list(range(100))
            assert queue.put(payload(0, 100), feed="a") == 101


def test_after_a_failed_flush_no_put_is_acknowledged(tmp_path: Path) -> None:
    class Refusing(PowerCut):
        broken = False

        def sync_file(self, path: Path) -> None:
            if self.broken and path.suffix == ".segment":
                raise OSError(5, "Input/output error")

    path = tmp_path / "q"
    Queue.create(path, size="2MiB", durability="disk").close()
    storage = Refusing(path, tmp_path / "safe")
    queue = Queue.open(path, storage=storage)
    queue.put(b"fine", feed="a")
    storage.broken = True
    with pytest.raises(QueueError, match="Input/output error"):
        queue.put(b"not durable", feed="a")
    storage.broken = False
    with pytest.raises(QueueError, match="earlier flush failed"):
        queue.put(b"refused", feed="a")
    assert [bytes(p.payload) for p in queue.read_batch()] == [b"fine"]
    with pytest.raises(QueueError, match="earlier flush failed"):
        queue.close()
    with Queue.open(path) as again:
        assert isinstance(again.put(b"after reopening", feed="a"), int)
        assert again.check() == []


def test_memory_is_never_flushed(shared_memory: Path) -> None:
    class Never(PowerCut):
        def sync_file(self, path: Path) -> None:
            raise AssertionError(path)

    path = shared_memory / "q"
    Queue.create(path, size="2MiB", durability="memory").close()
    queue = Queue.open(path, storage=Never(path, shared_memory / "safe"))
    queue.put(b"x", feed="a")
    queue.close()

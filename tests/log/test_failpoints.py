"""A process is killed inside every step of a put, an eviction, a segment change, a growth and a cursor save."""

import os
import signal
import time
from pathlib import Path

import pytest
from arena import FORK, parse, payload

from headrace import Queue
from headrace.errors import OptionError
from headrace.testing import faults


def work_until_killed(path: Path, ledger: Path, point: str, passes: int) -> None:
    """Do everything that a queue can do, over and over; the failpoint ends it."""
    out = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    queue = Queue.open(path)
    faults.arm(point, passes)
    held = None
    step = 37_000 if point == "dedup:grown" else 1  # such numbers make the smallest payloads
    for number in range(20_000):
        sizes = 40 if number % 7 else 1
        first = queue.put_many(
            [payload(0, (number * 100 + i) * step) for i in range(sizes)],
            feed=f"feed/{number % 50}/{number // 200}",
            ident=str(number),
        ).first
        os.write(out, f"{first} {first + sizes - 1} {number * 100} {step}\n".encode())
        if number % 50 == 0:
            held = queue.read_batch(limit=1)  # pins the oldest segment, so that it is unlinked rather than reused
        cursor = queue.cursor(f"cursor {number % 5}")
        cursor.save(queue.next)
        if number % 5 == 4:
            cursor.remove()
            boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            queue._log.kernel.set_clock(boot_ns, queue._log.kernel.now_ns() + 1000, 0, 0, 0, 1_000_000, 15_000, 1, 0)
    assert held is None, "the failpoint was never reached"


@pytest.mark.parametrize("passes", [1, 2, 23])
@pytest.mark.parametrize("point", [point for point in faults.POINTS if not point.startswith("chain:")])
def test_a_process_killed_at_a_failpoint_harms_nothing(shared_memory: Path, point: str, passes: int) -> None:
    path, ledger = shared_memory / "q", shared_memory / "ledger"
    witness = Queue.create(path, size="1MiB", durability="memory", hash="xxh3", origin="here")
    witness.put(payload(1, 1), feed="before")
    worker = FORK.Process(target=work_until_killed, args=(path, ledger, point, 1 if point == "dedup:grown" else passes))
    worker.start()
    worker.join(240)
    assert worker.exitcode == -signal.SIGKILL, f"{point} was not reached"

    # a process that was attached all the time continues
    sequence = witness.put(payload(1, 2), feed="after")
    assert isinstance(sequence, int)
    judge_ledger(witness, ledger)
    assert witness.check() == []
    for name in witness.cursors():
        assert 1 <= witness.cursor(name).position <= witness.next
    for number in range(100, 3100, 100):
        witness.put_many([payload(1, number + i) for i in range(100)], feed="after")
    assert witness.check() == []
    witness.close()

    # and so does a process that opens the queue later
    with Queue.open(path) as queue:
        assert queue.check() == []
        judge_ledger(queue, ledger)
        segments = len(list((path / "segments").iterdir()))
        assert segments <= 16, "files were left behind"


def judge_ledger(queue: Queue, ledger: Path) -> None:
    """Every acknowledged product that was not evicted is in its place, and no product is stored twice."""
    found = {product.sequence: parse(bytes(product.payload)) for product in queue.read_batch(limit=10**6)}
    assert sorted(found) == list(range(queue.oldest, queue.next))
    assert len(set(found.values())) == len(found)
    for line in ledger.read_text().splitlines() if ledger.exists() else ():
        first, last, number, step = map(int, line.split())
        for sequence in range(max(first, queue.oldest), last + 1):
            assert found[sequence] == (0, (number + sequence - first) * step)


def test_a_writer_killed_between_commit_and_wake_up_leaves_no_reader_asleep(shared_memory: Path) -> None:
    path = shared_memory / "q"
    queue = Queue.create(path, size="1MiB", durability="memory", origin="here")

    def put_and_die() -> None:
        other = Queue.open(path)
        faults.arm("append:after-commit")
        other.put(b"last words", feed="a")

    worker = FORK.Process(target=put_and_die)
    worker.start()
    batch = next(queue.follow("oldest", timeout=60))
    worker.join()
    assert bytes(batch[0].payload) == b"last words"
    queue.close()


def test_an_unknown_failpoint_is_refused() -> None:
    with pytest.raises(OptionError, match="append:record-written"):
        faults.arm("nowhere")

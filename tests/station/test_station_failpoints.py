"""A kill at every step of admission, lease, acknowledgement and restore, while the chain's lock is held."""

import os
import signal
from multiprocessing import get_context
from pathlib import Path

import pytest

from headrace import Consumer, Queue
from headrace.testing import faults

FORK = get_context("fork")
POINTS = [point for point in faults.POINTS if point.startswith("chain:") and point != "chain:rebuilt"]


def abandon(consumer: Consumer) -> None:
    """Make a consumer look dead: its lock is free, and its leases stay."""
    os.close(consumer._lock_fd)
    consumer._lock_fd = os.open("/dev/null", os.O_RDONLY)


def work_until_death(path: Path, ledger: Path, point: str, passes: int) -> None:
    """Put, get, revise, give back, and restore the leases of a dead consumer, over and over; the failpoint kills it."""
    out = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    queue = Queue.open(path)
    faults.arm(point, passes)
    first, second = queue.station("first"), queue.station("second")
    mine, behind, failing = first.attach(), second.attach(), queue.station("failing").attach()
    colleagues = []
    for number in range(5000):
        receipt = queue.put_many(
            [b"x%d" % (number * 10 + i) for i in range(10)], feed="a/b", priority=[0, 1, 2, 3, 4, 5, 6, 7, 4, 4]
        )
        os.write(out, f"sent {receipt.first} {receipt.first + 9}\n".encode())
        colleague = first.attach()
        colleague.get(2, 0.0)
        abandon(colleague)
        colleagues.append(colleague)
        first.statistics()  # finds the dead consumer
        batch = mine.get(7, 0.0)
        back = 1 if len(batch) > 1 else 0
        mine.nack(list(batch)[:back])
        mine.ack(list(batch)[back:], payloads=[b"revised" if i % 3 == 0 else None for i in range(back, len(batch))])
        failing.nack(failing.get(2, 0.0), failed=True)  # parks them
        batch = behind.get(20, 0.0)
        for what in ("trying", "done"):
            os.write(out, f"{what} {' '.join(map(str, batch.sequences))}\n".encode())
            if what == "trying":
                behind.ack(batch)


def judge(path: Path, ledger: Path) -> None:
    """Continue where the dead process stopped: the last station delivers every product exactly once."""
    sent, done, trying = set(), [], set()
    for line in ledger.read_text().splitlines():
        what, *numbers = line.split()
        if what == "sent":
            sent |= set(range(int(numbers[0]), int(numbers[1]) + 1))
        elif what == "done":
            done += map(int, numbers)
            trying = set()
        else:
            trying = set(map(int, numbers))
    with Queue.open(path) as queue:
        assert queue.check() == []
        rest: list[int] = []
        with queue.station("first").attach() as mine, queue.station("second").attach() as behind:
            queue.station("first").statistics()
            while len(batch := mine.get(100, 0.0)):
                mine.ack(batch)
            while len(batch := behind.get(100, 0.0)):
                rest += map(int, batch.sequences)
                behind.ack(batch)
        assert len(done) == len(set(done))
        assert not set(done) & set(rest)
        assert len(rest) == len(set(rest))
        everything = {int(s) for batch in [queue.read_batch("oldest", limit=1_000_000)] for s in batch.sequences}
        assert sent <= everything, "a put that had returned was lost"
        assert everything - set(done) - set(rest) <= trying, "lost"
        assert queue.station("second").statistics().acknowledged == len(everything)
        assert sorted(parked_or_waiting(queue)) == sorted(everything)
        assert queue.check() == []


def parked_or_waiting(queue: Queue) -> list[int]:
    """The products of the station where all fail."""
    station = queue.station("failing")
    found = [parked.sequence for parked in station.parked()]
    with station.attach() as consumer:
        while len(batch := consumer.get(1000, 0.0)):
            found += map(int, batch.sequences)
            consumer.ack(batch)
    return found


def kill_at(path: Path, ledger: Path, point: str, passes: int) -> None:
    worker = FORK.Process(target=work_until_death, args=(path, ledger, point, passes))
    worker.start()
    worker.join(240)
    assert worker.exitcode == -signal.SIGKILL, f"{point} was not reached"


@pytest.fixture
def place(shared_memory: Path) -> Path:
    with Queue.create(shared_memory / "q", size="16MiB", durability="memory", dedup="none", origin="here") as queue:
        queue.station("first", None, deliveries_max=0)
        queue.station("second", None, after="first", deliveries_max=0)
        queue.station("failing", None, deliveries_max=1)
    return shared_memory


@pytest.mark.parametrize("passes", [1, 2, 23, 104])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_this_step_loses_and_repeats_nothing(place: Path, point: str, passes: int) -> None:
    with Queue.open(
        place / "q"
    ):  # the queue stays open, so that the next opening is not the first one, which recovers everything
        kill_at(place / "q", place / "ledger", point, passes)
        judge(place / "q", place / "ledger")


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_of_the_only_process_at_this_step_loses_and_repeats_nothing(place: Path, point: str) -> None:
    kill_at(place / "q", place / "ledger", point, 11)
    judge(place / "q", place / "ledger")


def test_a_kill_during_recovery_is_recovered_by_the_next_process(place: Path) -> None:
    with Queue.open(place / "q"):
        kill_at(place / "q", place / "ledger", "chain:slot-marked", 30)
        kill_at(place / "q", place / "ledger2", "chain:rebuilt", 1)
        judge(place / "q", place / "ledger")

"""Writers and readers in real processes, to be killed at any moment.

A payload names its writer and its number, so that a reader recognises a wrong one. A writer appends one line to its own
ledger after each put has returned: (first sequence, last sequence, first number, longest wait so far in ms). These
products are acknowledged; `judge` compares the queue with them.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from headrace import Queue

FORK = get_context("fork")


def payload(writer: int, number: int) -> bytes:
    """Different for every writer and number, of varying size, and recognisable as a whole."""
    head = f"{writer}:{number}:".encode()
    return head + head * (number % 37) + bytes([number % 251]) * (number % 1000)


def parse(data: bytes) -> tuple[int, int]:
    """Writer and number; ValueError if the payload differs from what that writer put."""
    writer, number = (int(part) for part in data.split(b":", 2)[:2])
    if data != payload(writer, number):
        raise ValueError(f"wrong payload of {len(data)} bytes: {data[:40]!r}")
    return writer, number


def write(path: Path, writer: int, ledger: Path, seed: int, pause_s: float) -> None:
    """Put singly and in batches, forever."""
    chance = random.Random(seed)
    out = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    number = seed * 10_000_000
    longest_ms = 0.0
    queue = Queue.open(path)
    while True:
        count = chance.choice([1, 1, 1, 2, 10, 40])
        payloads = [payload(writer, number + i) for i in range(count)]
        begun = time.monotonic()
        if count == 1:
            first = queue.put(payloads[0], feed=f"w/{writer}", ident=str(number))
            assert isinstance(first, int)
        else:
            first = queue.put_many(payloads, feed=f"w/{writer}", ident=[str(number + i) for i in range(count)]).first
        longest_ms = max(longest_ms, (time.monotonic() - begun) * 1000)
        os.write(out, f"{first} {first + count - 1} {number} {longest_ms:.1f}\n".encode())
        number += count
        if pause_s:
            time.sleep(pause_s * chance.random())


def read(path: Path, reader: int, ledger: Path, seed: int, pause_s: float) -> None:
    """Follow under a cursor of its own, holding some batches for a while; an error goes to the ledger."""
    chance = random.Random(seed)
    held: list[Any] = []
    try:
        queue = Queue.open(path)
        cursor = queue.cursor(f"reader {reader}")
        for batch in cursor.follow(limit=chance.choice([10, 500])):
            last = 0
            for product in batch:
                parse(bytes(product.payload))
                assert product.sequence > last
                last = product.sequence
            held.append((batch, [bytes(p.payload) for p in batch]))
            if len(held) > 5:
                old, copies = held.pop(chance.randrange(5))
                assert [bytes(p.payload) for p in old] == copies
            cursor.commit(batch)
    except BaseException as error:
        ledger.write_text(f"{type(error).__name__}: {error}")
        raise


class Arena:
    """Some writers and readers on one queue; a killed process is replaced."""

    def __init__(self, path: Path, folder: Path, seed: int, writers: int = 4, readers: int = 4, pause_s: float = 0.004):
        self.path, self.folder, self.pause_s = path, folder, pause_s
        self.chance = random.Random(seed)
        self.started = 0
        self.roles: list[Callable[..., None]] = [write] * writers + [read] * readers
        self.processes: list[BaseProcess] = [self._start(place) for place in range(len(self.roles))]

    def _start(self, place: int) -> BaseProcess:
        self.started += 1
        role = self.roles[place]
        ledger = self.folder / f"{role.__name__}-{place}-{self.started}"
        process = FORK.Process(target=role, args=(self.path, place, ledger, self.started, self.pause_s), daemon=True)
        process.start()
        return process

    def kill_one(self) -> None:
        """Kill a process at random and start another in its place."""
        place = self.chance.randrange(len(self.processes))
        process = self.processes[place]
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        self.processes[place] = self._start(place)

    def kill_all(self) -> None:
        for process in self.processes:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
        for process in self.processes:
            process.join()

    def complaints(self) -> list[str]:
        """The errors of readers."""
        return [f"{file.name}: {file.read_text()}" for file in self.folder.glob("read-*")]

    def acknowledged(self) -> Iterator[tuple[int, int, int]]:
        """(sequence, writer, number) of every acknowledged product."""
        for file in self.folder.glob("write-*"):
            writer = int(file.name.split("-")[1])
            for line in file.read_text().splitlines():
                first, last, number, _ = line.split()
                for i in range(int(last) - int(first) + 1):
                    yield int(first) + i, writer, int(number) + i

    def longest_wait_ms(self) -> float:
        """The longest that any put took."""
        waits = [
            float(line.split()[3])
            for file in self.folder.glob("write-*")
            for line in file.read_text().splitlines()[-1:]
        ]
        return max(waits, default=0.0)


def judge(queue: Queue, arena: Arena) -> int:
    """Check that each acknowledged product that was not evicted is in its place, once; the number acknowledged."""
    found: dict[int, tuple[int, int]] = {}
    position = queue.oldest
    while position < queue.next:
        batch = queue.read_batch(position, limit=50_000)
        assert batch.lost is None
        for product in batch:
            found[product.sequence] = parse(bytes(product.payload))
        position = batch.next
    assert sorted(found) == list(range(queue.oldest, queue.next))
    assert len(set(found.values())) == len(found), "stored twice"
    count = 0
    for sequence, writer, number in arena.acknowledged():
        count += 1
        assert sequence < queue.next, f"acknowledged {sequence} is beyond the end"
        if sequence >= queue.oldest:
            assert found[sequence] == (writer, number), f"{sequence} is {found[sequence]}, not {(writer, number)}"
    numbers: dict[int, list[int]] = {}
    for sequence in sorted(found):
        numbers.setdefault(found[sequence][0], []).append(found[sequence][1])
    for per_writer in numbers.values():
        assert per_writer == sorted(per_writer), "out of order"
    return count

"""Consumers that rebalance by stopping the world, as Kafka's eager protocol does: to compare with sessions.

    stop       every member ends the batch that it has in work, at most 500 items, as Kafka's poll returns
    commit     it sends its position to the coordinator: that is its request to join again
    assign     when the last member has joined, the coordinator sends everybody the new assignment
    start      everybody reads again, from the committed positions

It is a best case. Members hear of a rebalance at once, not with their next heartbeat or poll; nobody fetches anything
again that it had fetched; there is no broker, and no message takes longer than a pipe. Reading is that of a queue, with
one follower for all slices of a member. Not here: commits between rebalances, and members that come and go.
"""

import queue as queues
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.bench.processes import Pool
from headrace.bench.slices_nodes import STREAM, Records
from headrace.log.follow import AnyFollower
from headrace.queue import Queue
from headrace.selection import Selection

POLL_ITEMS = 500
_WAIT_S = 60.0

Owners = npt.NDArray[np.int64]


class Members:
    """The coordinator of a group."""

    def __init__(self, pipes: list[Connection]) -> None:
        self._pipes = pipes
        self._owners: Owners = np.zeros(0, np.int64)
        self._positions: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def assign(self, owners: Owners, position: int) -> None:
        """The first assignment: every slice from this position on."""
        self._owners, self._positions = owners.copy(), np.full(len(owners), position)
        self._tell()

    def rebalance(self, number: int) -> bool:
        """Move one slice to the next member; everybody stops for it."""
        self._stop()
        moved = number * 37 % len(self._owners)
        self._owners[moved] = (self._owners[moved] + 1) % len(self._pipes)
        self._tell()
        return True

    def _stop(self) -> None:
        for pipe in self._pipes:
            pipe.send("stop")
        for member, pipe in enumerate(self._pipes):
            mine = self._owners == member
            self._positions[mine] = np.maximum(self._positions[mine], pipe.recv())

    def _tell(self) -> None:
        for member, pipe in enumerate(self._pipes):
            pipe.send((np.flatnonzero(self._owners == member), self._positions))

    def end(self, until: int) -> list[Records]:
        """Wait until all is read; what the members have noted."""
        deadline_s = time.monotonic() + _WAIT_S
        while (self._positions < until).any() and time.monotonic() < deadline_s:
            time.sleep(0.05)
            self._stop()
            self._tell()
        self._stop()
        for pipe in self._pipes:
            pipe.send(None)
        return [pipe.recv() for pipe in self._pipes]


@contextmanager
def members(pool: Pool, path: Path, count: int) -> Iterator[Members]:
    with pool.run(_be_member, [(path,)] * count) as pipes:
        yield Members(pipes)


def _be_member(parent: Connection, path: Path) -> None:
    """A process: one member, from one assignment to the next."""
    noted, messages = array("q"), queues.SimpleQueue[object]()
    with Queue.open(path) as queue:
        parent.send("ready")
        while (assigned := parent.recv()) is not None:
            owned, positions = assigned
            follower = queue.follow(
                int(positions[owned].min()), Selection(feed=STREAM, slices=owned.tolist()), limit=POLL_ITEMS
            )
            listener = threading.Thread(target=_listen, args=(parent, messages, follower))
            listener.start()
            _work_on(follower, positions, messages, noted)
            listener.join()
            messages.get()
            parent.send(follower.position)
        parent.send(np.array(noted, np.int64).reshape(-1, 3).T)


def _listen(parent: Connection, messages: "queues.SimpleQueue[object]", follower: AnyFollower) -> None:
    """Wait for a message, and wake the member."""
    messages.put(parent.recv())
    follower.stop()


def _work_on(
    follower: AnyFollower, positions: npt.NDArray[np.int64], messages: "queues.SimpleQueue[object]", noted: "array[int]"
) -> None:
    """Read and work until there is a message."""
    first, clock, note = positions.tolist(), time.monotonic_ns, noted.extend
    while messages.empty():
        batch = follower.next_nowait()
        if not batch:
            follower.wait(1.0)
            continue
        for product in batch:
            place = product.slice
            if place is not None and product.sequence >= first[place]:
                note((product.sequence, place, clock()))

"""The workers of a demonstration: consumers that share a station's products.

A worker notes each product that it has *put*, with its sequence, since that is what the station promises: put exactly
once, by one of them. The order is that of the queue, in which the workers' notes are merged in the end.

The stage tells one of them to take its time. It notes what it has put so far, takes a full batch more, says so, and
works on that for ever; so it is known to have products in hand when it is killed.
"""

import time
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import numpy as np

from headrace.demo.actors import REPORT_S, Report, acting, save_notes, sighting_of
from headrace.demo.plan import STATION, Plan
from headrace.product import Batch
from headrace.queue import Queue
from headrace.station import Consumer
from headrace.testing.verdict import Sighting

TAKE_YOUR_TIME, END = "take your time", "end"
_BATCH = 20
_WORK_S = 0.004  # stands for the work on a batch
_LOOK_UP_S = 0.25  # how long a worker waits for products before it looks for word from the stage
_TAKE_S = 3.0  # for those who have to wait for so many products
_FOR_EVER_S = 60.0

Noted = tuple[int, Sighting]


def run_worker(plan: Plan, name: str, pipe: Connection) -> None:
    """Get, work, put, until the stage says that it is over."""
    with acting(pipe), Queue.open(plan.second) as queue, queue.station(STATION).attach() as consumer:
        worker = _Worker(consumer, pipe)
        pipe.send(Report())
        word = ""
        while word != END:
            worker.work()
            if pipe.poll():
                word = pipe.recv()
            if word == TAKE_YOUR_TIME:
                save_notes(plan.notes_of(name), worker.put)
                worker.take_your_time()
        save_notes(plan.notes_of(name), worker.put)
        pipe.send(worker.report(done=True))


class _Worker:
    """What one worker has done so far."""

    def __init__(self, consumer: Consumer, pipe: Connection) -> None:
        self._consumer, self._pipe = consumer, pipe
        self.put: list[Noted] = []
        self._bytes = self._again = 0
        self._told_s = time.monotonic()

    def work(self) -> None:
        batch = self._consumer.get(_BATCH, _LOOK_UP_S)
        if len(batch):
            again = int(np.count_nonzero(batch.deliveries > 1))
            noted = _note(batch)
            time.sleep(_WORK_S)
            self._consumer.ack(batch)
            self.put += noted
            self._bytes += batch.payload_bytes
            self._again += again
            if again:
                self._tell()
        if time.monotonic() - self._told_s >= REPORT_S:
            self._tell()

    def take_your_time(self) -> None:
        """Take a batch of products and never put them."""
        held = 0
        until_s = time.monotonic() + _TAKE_S
        while held < _BATCH and time.monotonic() < until_s:
            held += len(self._consumer.get(_BATCH - held, _LOOK_UP_S))
        self._pipe.send(self.report(held=held))
        time.sleep(_FOR_EVER_S)

    def report(self, held: int = 0, done: bool = False) -> Report:
        return Report(len(self.put), self._bytes, held=held, again=self._again, done=done)

    def _tell(self) -> None:
        self._pipe.send(self.report())
        self._told_s = time.monotonic()


def _note(batch: Batch) -> list[Noted]:
    return [(product.sequence, sighting_of(product.feed, product.ident, product.payload)) for product in batch]


def load_noted(path: Path) -> list[Noted]:
    """What a worker has put."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[Noted])

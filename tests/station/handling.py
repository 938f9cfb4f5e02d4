"""Helpers for tests of stations: put products that are named by their ident, and list which consumer got which."""

import itertools
import os
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from headrace import Batch, Queue
from headrace.station import Consumer, Station
from headrace.station.heartbeat import heartbeat

FORK = get_context("fork")
EPOCH_NS = 10**18  # where mock clocks begin


def series(queue: Queue, *names: str, **terms: object) -> list[Station]:
    """Create stations in series, each of which selects everything."""
    made = [queue.station(names[0], "**", **terms)]
    for ahead, name in itertools.pairwise(names):
        made.append(queue.station(name, "**", after=ahead, **terms))
    return made


def put(queue: Queue, *idents: str, feed: str = "a", **more: Any) -> None:
    """Put a product for each ident, which is its payload as well."""
    for ident in idents:
        queue.put(ident.encode(), feed=feed, ident=ident, **more)


def put_together(queue: Queue, *idents: str, feed: str = "a", **more: Any) -> None:
    """Put all products as one batch, which a blocking station accepts as a whole."""
    queue.put_many([ident.encode() for ident in idents], feed=feed, ident=list(idents), **more)


def idents(batch: Batch) -> list[str]:
    return [product.ident for product in batch]


def payloads(batch: Batch) -> list[bytes]:
    return [bytes(product.payload) for product in batch]


def work(consumer: Consumer, n: int = 1000) -> list[str]:
    """Get the waiting products, acknowledge them, and return their idents."""
    batch = consumer.get_nowait(n)
    consumer.ack(batch)
    return idents(batch)


def drain(station: Station) -> list[str]:
    """Attach a consumer, acknowledge the products that it gets without waiting, and return their idents."""
    with station.attach() as consumer:
        return work(consumer)


def vanish(consumer: Consumer) -> None:
    """Leave a consumer as the death of its process does: its lock is free, and its heartbeat has stopped."""
    heartbeat.remove(consumer)
    os.close(consumer._lock_fd)
    consumer._detached = consumer._foreign = True


def in_child(act: Callable[[], Any], seconds: float = 60) -> str:
    """Run `act` in a forked child; return its result or its exception, as text."""
    receive, send = FORK.Pipe(duplex=False)

    def run() -> None:
        try:
            answer = repr(act())
        except Exception as error:  # noqa: BLE001  the parent judges
            answer = f"{type(error).__name__}: {error}"
        send.send(answer)

    worker = FORK.Process(target=run)
    worker.start()
    answer = receive.recv() if receive.poll(seconds) else "the child hung"
    worker.kill()
    worker.join()
    return str(answer)

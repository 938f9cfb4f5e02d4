"""What tests of stations do all the time: put products that are named by their ident, and see who got which."""

import os
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from headrace import Batch, Queue
from headrace.station import Consumer, Station
from headrace.station.heartbeat import heartbeat

FORK = get_context("fork")
EPOCH_NS = 10**18  # where mock clocks begin


def put(queue: Queue, *idents: str, feed: str = "a", **more: Any) -> None:
    """One product for each ident, with the ident for a payload."""
    for ident in idents:
        queue.put(ident.encode(), feed=feed, ident=ident, **more)


def put_together(queue: Queue, *idents: str, feed: str = "a", **more: Any) -> None:
    """As one batch, which a blocking station takes as a whole."""
    queue.put_many([ident.encode() for ident in idents], feed=feed, ident=list(idents), **more)


def idents(batch: Batch) -> list[str]:
    return [product.ident for product in batch]


def payloads(batch: Batch) -> list[bytes]:
    return [bytes(product.payload) for product in batch]


def work(consumer: Consumer, n: int = 1000) -> list[str]:
    """Get what is there and put it; the idents."""
    batch = consumer.get_nowait(n)
    consumer.ack(batch)
    return idents(batch)


def drain(station: Station) -> list[str]:
    """What a consumer that attaches now gets, and puts, before it has to wait."""
    with station.attach() as consumer:
        return work(consumer)


def vanish(consumer: Consumer) -> None:
    """What the death of its process leaves of a consumer: a place whose lock is free, and no beats."""
    heartbeat.remove(consumer)
    os.close(consumer._lock_fd)
    consumer._detached = consumer._foreign = True


def in_child(act: Callable[[], Any], seconds: float = 20) -> str:
    """What a forked child makes of `act`: its answer, or its exception, in words."""
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

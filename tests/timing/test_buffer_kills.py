"""A program with a release buffer or a pacer is killed: nothing is lost, and nothing that it acknowledged comes again."""

import os
import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from headrace import Pacer, Queue, ReleaseBuffer
from support.waiting import until

SPAWN = get_context("spawn")
PRODUCTS = 30


def run(path: Path, kind: str, pipe: Connection) -> None:
    """Acknowledge one batch and hold the rest, until the end."""
    with Queue.open(path) as queue, queue.station("s", create=False).attach() as consumer:
        stream: ReleaseBuffer | Pacer = (
            ReleaseBuffer(consumer, hold="1h", products_max=PRODUCTS) if kind == "buffer" else Pacer(consumer)
        )
        batch = next(stream)
        stream.ack(batch)
        in_hand = next(stream) if kind == "pacer" else batch
        pipe.send([product.ident for product in batch])
        pipe.recv()
        del in_hand


@pytest.mark.parametrize("kind", ["buffer", "pacer"])
def test_a_killed_program_loses_nothing(make_queue: Callable[..., Queue], kind: str) -> None:
    queue = make_queue()
    station = queue.station("s", "**")
    idents = [f"{number:02}" for number in range(PRODUCTS)]
    now_ns = 1_700_000_000_000_000_000
    created = [now_ns + (7 * number % PRODUCTS) * 100_000_000 for number in range(PRODUCTS)]  # 3 s
    queue.put_many([b"x"] * PRODUCTS, feed="a", ident=idents, created=created)
    pipe, other = SPAWN.Pipe()
    child = SPAWN.Process(target=run, args=(queue.path, kind, other))
    child.start()
    assert pipe.poll(120)
    acknowledged = pipe.recv()
    assert station.statistics().leased == PRODUCTS - len(acknowledged)
    os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    with station.attach() as consumer:
        again: list[str] = []
        while len(again) + len(acknowledged) < PRODUCTS:
            batch = consumer.get(PRODUCTS, timeout=60)
            again += [product.ident for product in batch]
            consumer.ack(batch)
    assert sorted(again + acknowledged) == idents
    until(lambda: station.statistics().leased == 0, "the end of all leases")

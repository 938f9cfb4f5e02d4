"""Processing nodes and their balancer, on a real queue: nodes that join, leave, and end alone."""

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from headrace import Queue
from headrace.product import Product
from headrace.share.interface import NOBODY
from headrace.slices.balancer import Balancer
from headrace.slices.node import ProcessingNode
from support.waiting import until

SLICES = 16
LIMIT_S = 240.0  # a safety net


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    made = make_quick()
    made.channel("radar", "wx/**", slices=SLICES, assign="round_robin")
    return made


def owners(queue: Queue) -> list[int]:
    return queue.share("radar").state().owners.tolist()


def test_the_last_node_that_stops_gets_nothing_back(queue: Queue) -> None:
    """It lets its slices go while one product is still in work; the balancer must not give them to it again."""
    begun, goes_on = threading.Event(), threading.Event()

    def work(product: Product) -> None:
        begun.set()
        goes_on.wait(LIMIT_S)

    node = ProcessingNode(queue, "radar", work, balance=False)
    balancer = Balancer(queue, "radar")
    node.start()
    until(lambda: bool(queue.share("radar").state().nodes))
    balancer.step()
    queue.put(b"x", feed="wx/a", ident="1")
    assert begun.wait(LIMIT_S)
    stopping = threading.Thread(target=node.stop)
    stopping.start()
    until(lambda: owners(queue).count(NOBODY) == SLICES - 1)
    for _ in range(5):
        balancer.step()
        time.sleep(0.02)
    assert owners(queue).count(NOBODY) == SLICES - 1
    goes_on.set()
    stopping.join(LIMIT_S)
    assert owners(queue).count(NOBODY) == SLICES
    balancer.stop()


def test_two_slices_that_take_long_part(queue: Queue) -> None:
    """They have one node when they begin to take long; what the nodes measure moves one of them."""
    heavy: set[int] = set()

    def work(product: Product) -> None:
        time.sleep(0.002 if product.slice in heavy else 0.0)

    def puts() -> list[int]:
        queue.put_many([b"x"] * 64, feed="wx/a")
        return owners(queue)

    nodes = [ProcessingNode(queue, "radar", work, name=name) for name in "ab"]
    with nodes[0], nodes[1]:
        until(lambda: set(owners(queue)) == {0, 1})
        heavy.update(np.flatnonzero(np.array(owners(queue)) == 0)[:2].tolist())
        first, second = sorted(heavy)
        until(lambda: len({(found := puts())[first], found[second]}) == 2)
    state = queue.share("radar").state()
    assert "load" in {session.reason for session in state.sessions}
    assert state.counters["refused"] == 0

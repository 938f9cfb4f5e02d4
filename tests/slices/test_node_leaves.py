"""How a node leaves: alone, it lets go at once, and others begin where it ended."""

import threading
from collections.abc import Callable

import pytest

from headrace import Queue
from headrace.errors import SiteUnreachableError
from headrace.share.interface import NOBODY
from headrace.slices import ProcessingNode
from support.waiting import until

ITEMS = 400
LIMIT_S = 240.0  # a safety net, not a promise


@pytest.fixture(autouse=True)
def _patient_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No node leaves because it has waited long enough for others."""
    monkeypatch.setattr("headrace.slices.node._LEAVE_S", 10 * LIMIT_S)


def test_a_node_that_stops_alone_ends_what_is_in_work_and_begins_nothing_more(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    queue.channel("radar", "wx/**", slices=4, assign="round_robin")
    for _ in range(ITEMS):
        queue.put(b"x", feed="wx/a")
    worked, begun, may_end = list[int](), threading.Event(), threading.Event()

    def work(product: object) -> None:
        begun.set()
        may_end.wait(LIMIT_S)
        worked.append(product.sequence)  # type: ignore[attr-defined]

    node = ProcessingNode(queue, "radar", work).start()
    assert begun.wait(LIMIT_S)
    stopping = threading.Thread(target=node.stop)
    stopping.start()
    until(lambda: (queue.share("radar").state().owners == NOBODY).sum() == 3)  # all but the one in work
    may_end.set()
    stopping.join(LIMIT_S)
    assert not stopping.is_alive()
    assert worked == [1]  # the task in work, and not the rest of its slice
    with ProcessingNode(queue, "radar", lambda product: worked.append(product.sequence)) as other:
        until(lambda: len(worked) == ITEMS)
        assert other.statistics().refused == 0
    assert sorted(worked) == sorted(set(worked))
    assert len(worked) == ITEMS
    queue.check()


def test_nodes_that_stop_together_do_not_wait_for_each_other(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    queue.channel("radar", "wx/**", slices=8)
    nodes = [ProcessingNode(queue, "radar", print).start() for _ in range(3)]
    until(lambda: all(node.statistics().slices for node in nodes))
    threads = [threading.Thread(target=node.stop) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert not queue.share("radar").state().nodes


def test_a_node_that_stops_while_its_site_is_away_waits_for_one_call(
    make_quick: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_quick()
    queue.channel("radar", "wx/**", slices=8)
    node = ProcessingNode(queue, "radar", print).start()
    until(lambda: node.statistics().slices)
    calls: list[str] = []

    def replace(name: str) -> None:
        def call(*_: object, **__: object) -> None:
            if threading.current_thread().name == "headrace-node" and node._stopping.is_set():
                calls.append(name)
            raise SiteUnreachableError("the site does not reply")

        monkeypatch.setattr(f"headrace.share.share.{name}", call)

    for name in ("Seat.exchange", "Seat.leave", "Share.state", "Share.drain", "Share.lead"):
        replace(name)
    stopping = threading.Thread(target=node.stop)
    stopping.start()
    stopping.join(LIMIT_S)
    assert not stopping.is_alive()
    assert len(calls) <= 1

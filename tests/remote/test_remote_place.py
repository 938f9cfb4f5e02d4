"""Clients of a site whose queue is moved away get the error, also those that wait."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import QueueMovedError
from headrace.remote.client.queue import RemoteQueue
from support.serving import Served, put
from support.waiting import until


@pytest.fixture
def remote(served: Served) -> RemoteQueue:
    remote = served.connect()
    remote.station("s", "**", start="oldest")
    put(remote, "1")
    return remote


@pytest.fixture
def move(served: Served) -> Iterator[Callable[[], None]]:
    """Move the directory of the queue; it is moved back after the test."""
    home = served.queue.path
    away: list[Path] = []
    yield lambda: away.append(home.rename(home.with_name("elsewhere")))
    for folder in away:
        folder.rename(home)


def refused(act: Callable[[], Any]) -> str:
    found: list[str] = []

    def is_refused() -> bool:
        try:
            act()
        except QueueMovedError as error:
            found.append(str(error))
        return bool(found)

    until(is_refused, "the refusal")
    return found[0]


def test_every_call_is_refused_with_what_happened(remote: RemoteQueue, move: Callable[[], None]) -> None:
    cursor = remote.cursor("c")
    with remote.station("s").attach() as consumer:
        move()
        for act in (
            lambda: put(remote, "2"),
            lambda: remote.put_many([b"2", b"3"], feed="a"),
            lambda: list(remote.read()),
            lambda: cursor.save(2),
            lambda: remote.station("s").statistics(),
            lambda: remote.stations(),
            lambda: consumer.get(1, timeout=1),
        ):
            assert "was moved to" in refused(act)


@pytest.mark.parametrize("wait", ["follow", "get"])
def test_a_client_that_waits_hears_of_it(remote: RemoteQueue, move: Callable[[], None], wait: str) -> None:
    told: list[str] = []
    consumer = remote.station("t", "**").attach()
    follower = remote.follow("next")
    waits: dict[str, Callable[[], Any]] = {"follow": lambda: next(follower), "get": lambda: consumer.get(1)}
    waiter = threading.Thread(target=lambda: told.append(refused(waits[wait])), daemon=True)
    waiter.start()
    move()
    waiter.join(240)
    assert told
    assert "was moved to" in told[0]

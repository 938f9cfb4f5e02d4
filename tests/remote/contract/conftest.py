"""The two implementations of the Protocols in queue/interface.py, as one fixture: each test runs on both."""

from collections.abc import Iterator

import pytest

from headrace.queue import AnyConsumer, AnyQueue, AnyStation
from support.serving import Served


@pytest.fixture(params=["local", "remote"])
def queue(request: pytest.FixtureRequest, served: Served) -> AnyQueue:
    return served.queue if request.param == "local" else served.connect()


@pytest.fixture
def station(queue: AnyQueue) -> AnyStation:
    return queue.station("s", "**")


@pytest.fixture
def consumer(station: AnyStation) -> Iterator[AnyConsumer]:
    with station.attach() as attached:
        yield attached

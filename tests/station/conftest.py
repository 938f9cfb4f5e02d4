"""Fixtures of the tests of stations: a queue in memory, a station of everything, and a consumer of it."""

from collections.abc import Callable

import pytest

from headrace import Queue
from headrace.station import Consumer, Station


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    return make_quick()


@pytest.fixture
def station(queue: Queue) -> Station:
    return queue.station("s", "**")


@pytest.fixture
def consumer(station: Station) -> Consumer:
    return station.attach()

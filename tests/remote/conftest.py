"""A router for the whole module, and queues served on it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.fleet import free_port, open_plain
from support.serving import Router, Served, Stranger


@pytest.fixture(scope="module")
def router() -> Iterator[Router]:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    session = open_plain([endpoint], [])
    yield session, endpoint
    session.close()


@pytest.fixture
def make_served(shared_memory: Path, router: Router) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def make(**terms: Any) -> Served:
        made.append(Served(shared_memory, router, **terms))
        return made[-1]

    yield make
    for served in made:
        served.close()


@pytest.fixture
def served(make_served: Callable[..., Served]) -> Served:
    return make_served()


@pytest.fixture
def stranger(router: Router, served: Served) -> Stranger:
    return Stranger(router[0], served)

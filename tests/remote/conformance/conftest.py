"""Clients that were written from docs/protocol.md, connected to a site."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from independent_client import Client

from support.serving import Router, Served


@pytest.fixture
def make_client(router: Router) -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def make(served: Served, **options: Any) -> Client:
        made.append(Client(router[1], served.name, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(make_client: Callable[..., Client], served: Served) -> Client:
    return make_client(served)

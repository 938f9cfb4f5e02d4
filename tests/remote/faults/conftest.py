"""Sites with a session of their own, which can be stopped, and a line to them, which can be cut."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.serving import Served, Wire


@pytest.fixture
def make_served(shared_memory: Path) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def make(**terms: Any) -> Served:
        made.append(Served(shared_memory, **terms))
        return made[-1]

    yield make
    for served in made:
        served.close()


@pytest.fixture
def wire(served: Served) -> Iterator[Wire]:
    made = Wire(served.endpoint)
    yield made
    served.close_users()
    made.close()

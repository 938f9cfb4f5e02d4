"""What tests of stations share: queues in memory, which are made and checked at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue


@pytest.fixture
def make_quick(shared_memory: Path, make_queue: Callable[..., Queue]) -> Callable[..., Queue]:
    """As `make_queue`, in memory: for tests that are not about disks."""

    def make(name: str = "q", **terms: Any) -> Queue:
        terms.setdefault("durability", "memory")
        return make_queue(str(shared_memory / name), **terms)

    return make

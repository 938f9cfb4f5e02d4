"""One SparkSession for all tests of the pipeline: it takes seconds to start, and a process can have only one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from headrace.pipeline import spark_session

    session = spark_session("headrace-test", "local[2]")
    yield session
    session.stop()


@pytest.fixture
def make_queue(tmp_path: Path) -> Iterator[Callable[..., Queue]]:
    """Create queues below the test's directory, large enough for Spark; each must check clean in the end."""
    made: list[Queue] = []

    def make(name: str = "q", **terms: Any) -> Queue:
        made.append(Queue.create(tmp_path / name, **{"size": "64MiB", "origin": name, **terms}))
        return made[-1]

    yield make
    for queue in made:
        problems = queue.check()
        queue.close()
        assert problems == []

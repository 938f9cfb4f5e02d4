"""A small queue for tests of the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Queue


@pytest.fixture(autouse=True)
def no_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts of the test alone, and no default queue."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("HEADRACE_QUEUE", raising=False)


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing listens in a test, nothing will."""
    monkeypatch.setattr("headrace.remote.client.connect.REFUSED_S", 0.2)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A small queue, closed. It must pass its check after the test, unless the test damaged it on purpose."""
    path = tmp_path / "q"
    Queue.create(path, size="4MiB", origin="here").close()
    yield path
    if path.exists() and not (path / "spoilt").exists():
        with Queue.open(path) as queue:
            assert queue.check() == []

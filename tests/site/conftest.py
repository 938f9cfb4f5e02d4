"""Configuration files written from text, and sites that serve them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from siteconfig import Serve, Write

from support.daemon import Daemon


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write `site.toml` in the directory of the test."""

    def write(text: str) -> Path:
        path = tmp_path / "site.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`headrace serve` in processes that are killed after the test."""
    started: list[Daemon] = []

    def serve(file: Path) -> Daemon:
        started.append(Daemon(file))
        return started[-1]

    yield serve
    for each in started:
        each.kill()

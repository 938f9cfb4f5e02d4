"""One shell for all examples that a process of the suite runs."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.shell import Shell


@pytest.fixture(scope="session")
def shell() -> Iterator[Shell]:
    with tempfile.TemporaryDirectory() as folder, Shell(Path(folder) / "shell") as shell:
        yield shell

"""Sites in this process, ended when the test is over."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fabric


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    made = Fabric(tmp_path)
    yield made
    made.close()

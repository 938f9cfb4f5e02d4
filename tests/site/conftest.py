"""A configuration file, written from text."""

from pathlib import Path

import pytest
from siteconfig import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write `site.toml` in the directory of the test."""

    def write(text: str) -> Path:
        path = tmp_path / "site.toml"
        path.write_text(text)
        return path

    return write

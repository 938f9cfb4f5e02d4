"""What tests of a site share: a configuration written from text."""

from pathlib import Path

import pytest
from siteconfig import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Put text into `site.toml` of the test's directory."""

    def write(text: str) -> Path:
        path = tmp_path / "site.toml"
        path.write_text(text)
        return path

    return write

"""The logs of a site: one open file, however often the configuration is loaded."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.site.logs import begin_logs

log = logging.getLogger("headrace.site")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger("headrace")
    before = root.handlers, root.level, root.propagate
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers, root.level, root.propagate = before


def test_logs_that_begin_again_leave_no_file_open(tmp_path: Path) -> None:
    first = begin_logs("info", tmp_path / "one.log", 5)
    assert isinstance(first, logging.FileHandler)
    log.info("before")
    begin_logs("info", tmp_path / "two.log", 5)
    log.info("after")
    assert first.stream is None
    assert "before" in (tmp_path / "one.log").read_text()
    assert "after" in (tmp_path / "two.log").read_text()
    assert "after" not in (tmp_path / "one.log").read_text()

"""The logs of a site: one open file, however often the configuration is loaded."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.site.logs import RateLimit, begin_logs

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


def test_messages_that_were_left_out_are_counted_in_a_line_of_their_own(tmp_path: Path) -> None:
    handler = begin_logs("info", tmp_path / "one.log", 1)
    for number in range(8):
        log.warning("product %d is refused", number)
    (limit,) = handler.filters
    assert isinstance(limit, RateLimit)
    for summary in limit.summaries():
        handler.handle(summary)
    lines = (tmp_path / "one.log").read_text().splitlines()
    assert lines[0].endswith("WARNING headrace.site: product 0 is refused")
    assert lines[-1].endswith("more of these in the last minute; the last one: product 7 is refused")
    assert "WARNING headrace.site: " in lines[-1]
    assert not limit.summaries(), "each is counted once"


def test_what_was_left_out_is_counted_before_logs_begin_again(tmp_path: Path) -> None:
    begin_logs("info", tmp_path / "one.log", 1)
    for _ in range(8):
        log.warning("full")
    begin_logs("info", tmp_path / "two.log", 1)
    assert "more of these in the last minute; the last one: full" in (tmp_path / "one.log").read_text()

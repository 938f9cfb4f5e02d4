"""The logs of a site: one open file, however often the configuration is loaded."""

import contextlib
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.site import logs
from headrace.site.log_limit import RateLimit
from headrace.site.logs import begin_logs, log_stray_errors

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


def test_a_message_is_one_line_whatever_is_in_it(tmp_path: Path) -> None:
    begin_logs("info", tmp_path / "one.log", 5)
    log.warning("site %s: %s", "evil\n2026-01-01T00:00:00Z INFO headrace.site: all is well", "\x1b[2J\x9b\u202e\ud800")
    (line,) = (tmp_path / "one.log").read_text().splitlines()
    assert line.endswith(
        "site evil\\n2026-01-01T00:00:00Z INFO headrace.site: all is well: \\x1b[2J\\x9b\\u202e\\ud800"
    )


def test_a_traceback_is_indented_and_bounded(tmp_path: Path) -> None:
    handler = begin_logs("info", tmp_path / "one.log", 1)
    forged = "\n".join(["2026-01-01T00:00:00Z INFO headrace.site: forged \x1b[31m"] * 5000)
    for _ in range(50):
        try:
            raise ValueError(forged)
        except ValueError:
            log.exception("a call failed")
    _summarise(handler)
    lines = (tmp_path / "one.log").read_text().splitlines()
    messages = [line for line in lines if not line.startswith("    ")]
    assert [line.partition("headrace.site: ")[2] for line in messages] == [
        "a call failed",
        "49 more of these in the last minute; the last one: a call failed",
    ]
    assert len(lines) < 70
    assert any("more lines" in line for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_a_flood_from_one_peer_hides_no_message_about_another(tmp_path: Path) -> None:
    begin_logs("info", tmp_path / "one.log", 1)
    for site in ["evil"] * 500 + ["boulder"]:
        log.warning("site %s sends nonsense", site)
    assert (tmp_path / "one.log").read_text().count("evil") == 1
    assert "site boulder sends nonsense" in (tmp_path / "one.log").read_text()


def test_names_that_a_peer_makes_up_are_bounded_together(tmp_path: Path) -> None:
    handler = begin_logs("info", tmp_path / "one.log", 1)
    for number in range(3000):
        log.warning("site %s sends nonsense", f"evil{number}")
    (limit,) = handler.filters
    assert isinstance(limit, RateLimit)
    assert (tmp_path / "one.log").read_text().count("\n") <= 11
    left_out = sum(record.args[0] for record in limit.summaries() if isinstance(record.args, tuple))  # type: ignore[misc]
    assert left_out + (tmp_path / "one.log").read_text().count("\n") == 3000


def test_what_cannot_be_written_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handler = begin_logs("info", tmp_path / "one.log", 100)
    stream = handler.stream  # type: ignore[attr-defined]
    handler.stream = Path("/dev/full").open("w")  # type: ignore[attr-defined]  # noqa: SIM115
    log.warning("lost %d", 1)
    full, handler.stream = handler.stream, stream  # type: ignore[attr-defined]
    with contextlib.suppress(OSError):
        full.close()
    assert capsys.readouterr() == ("", "")
    _summarise(handler)
    assert "1 message could not be written" in (tmp_path / "one.log").read_text()


def test_errors_that_no_code_expected_are_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, hook in ((sys, "excepthook"), (threading, "excepthook"), (sys, "unraisablehook")):
        monkeypatch.setattr(module, hook, getattr(module, hook))
    for name in ("zenoh", "py.warnings"):
        monkeypatch.setattr(logging.getLogger(name), "parent", logging.getLogger())
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    handler = begin_logs("info", tmp_path / "one.log", 1)
    log_stray_errors()

    def fail(number: int) -> None:
        raise ValueError(f"from a site\n{number}")

    for number in range(20):
        thread = threading.Thread(target=fail, args=(number,), name="decoder")
        thread.start()
        thread.join()
    _summarise(handler)
    text = (tmp_path / "one.log").read_text()
    assert text.count("Traceback") == 1
    assert "unexpected error; thread decoder has ended" in text
    assert "19 more of these" in text
    logging.captureWarnings(False)


def test_errors_of_callbacks_of_zenoh_are_told_apart_by_where_they_were_raised(tmp_path: Path) -> None:
    handler = begin_logs("info", tmp_path / "one.log", 1)
    for error in [ValueError("one")] * 20 + [KeyError("another")]:
        try:
            raise error
        except (ValueError, KeyError):
            trace = sys.exc_info()  # the line that logs is one of the library's, and the same for all
        handler.handle(logging.LogRecord("zenoh.handlers", logging.ERROR, "threading.py", 1, "failed", (), trace))
    text = (tmp_path / "one.log").read_text()
    assert (text.count("ValueError: one"), text.count("KeyError: 'another'")) == (1, 1)


def _summarise(handler: logging.Handler) -> None:
    (limit,) = handler.filters
    assert isinstance(limit, RateLimit)
    assert isinstance(handler, logs._Unwritten)
    logs._summarise(handler, limit)

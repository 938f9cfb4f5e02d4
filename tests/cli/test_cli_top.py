"""headrace top, as a user runs it: once, as JSON lines, and live on a terminal."""

import fcntl
import os
import pty
import shutil
import signal
import struct
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from headrace.cli.top.command import redraw_until, resizes
from support.commandline import Run, environment, fill, objects
from support.waiting import is_asleep, until

# --- the command ----------------------------------------------------------------------------------


def test_once_shows_the_queue_without_a_terminal(run: Run, path: Path) -> None:
    fill(path, 1)
    assert "  1 product  oldest" in run("top", path, "--once", "--interval", "100ms").stdout
    fill(path, 2)
    with Queue.open(path) as queue:
        queue.station("decode", "wx/**", start="oldest")
    result = run("top", path, "--once", "--interval", "100ms")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "3 products" in result.stdout
    assert "decode" in result.stdout
    assert "wx/text" in result.stdout


def test_once_is_one_object_for_programs(run: Run, path: Path) -> None:
    fill(path, 3)
    with Queue.open(path) as queue, queue.station("decode", "wx/**", start="oldest").attach() as consumer:
        held = consumer.get(2, 5)
        (told,) = objects(run("top", path, "--once", "--json", "--interval", "100ms").stdout)
        assert len(held) == 2
    assert told["queue"]["held_products"] == 3
    (station,) = told["stations"]
    assert (station["name"], station["waiting"], station["leased"], station["acknowledged_s"]) == ("decode", 1, 2, 0.0)
    assert [(each["pid"], each["leased"]) for each in told["consumers"]] == [(os.getpid(), 2)]
    assert told["feeds"] == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "Standard output is not a terminal: give --once or --json"),
        (["--once", "--interval", "1ms"], "--interval 0.001 s is too short"),
        (["--once", "--interval", "often"], "--interval 'often' is not a length of time"),
    ],
)
def test_invalid_options_are_refused(run: Run, path: Path, words: list[str], problem: str) -> None:
    result = run("top", path, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr


def test_a_missing_queue_is_an_error(run: Run) -> None:
    assert run("top", "nowhere", "--once").exit_code == 3


# --- real processes -------------------------------------------------------------------------------


def test_each_interval_is_one_line_until_ctrl_c(path: Path, start) -> None:
    process = start("top", path, "--json", "--interval", "100ms")
    with Queue.open(path) as queue:
        process.stdout.readline()
        queue.put_many([b"%d" % n for n in range(50)], feed="wx/text")
    until(lambda: [feed["products"] for feed in objects(process.stdout.readline().decode())[0]["feeds"]] == [50])
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=240) == 130
    assert process.stderr.read().strip() == b""


def test_top_ends_quietly_when_its_output_is_closed(path: Path, start) -> None:
    process = start("top", path, "--json", "--interval", "1h")
    process.stdout.close()
    assert process.wait(timeout=240) == 141
    assert process.stderr.read() == b""


def test_a_removed_queue_ends_top_with_an_error(path: Path, start) -> None:
    process = start("top", path, "--json", "--interval", "100ms")
    process.stdout.readline()
    shutil.rmtree(path)
    _, err = process.communicate(timeout=240)
    (told,) = objects(err.decode())
    assert (process.returncode, told["error"]) == (3, "QueueMissingError")
    assert "was removed" in told["problem"]
    assert told["hint"]


def test_a_replaced_queue_ends_top_with_an_error(path: Path, tmp_path: Path, start) -> None:
    process = start("top", path, "--json", "--interval", "100ms")
    process.stdout.readline()
    Queue.create(tmp_path / "other", size="4MiB").close()
    path.rename(tmp_path / "before")
    (tmp_path / "other").rename(path)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 3
    # top may read between the two renames
    assert any(words in err for words in (b"another queue is at", b"was removed"))


def test_damage_ends_top_with_an_error(path: Path, start) -> None:
    process = start("top", path, "--json", "--interval", "100ms")
    process.stdout.readline()
    (path / "spoilt").touch()
    (path / "queue.json").write_text("nonsense")
    _, err = process.communicate(timeout=240)
    (told,) = objects(err.decode())
    assert (process.returncode, told["error"]) == (3, "QueueDamagedError")


def test_stations_that_come_and_go_are_followed(path: Path, start) -> None:
    process = start("top", path, "--json", "--interval", "100ms")
    process.stdout.readline()

    def names() -> list[str]:
        (told,) = objects(process.stdout.readline().decode())
        return [station["name"] for station in told["stations"]]

    with Queue.open(path) as queue:
        station = queue.station("decode", "wx/**")
        until(lambda: names() == ["decode"])
        station.remove()
        until(lambda: names() == [])


class Terminal:
    """A terminal of some size with `headrace top` in it, and what was written there."""

    def __init__(self, start: Any, path: Path, width: int, height: int, *words: str) -> None:
        self._main, terminal = pty.openpty()
        self.resize(width, height)
        env = {
            name: value
            for name, value in environment(TERM="xterm-256color").items()
            if name not in ("COLUMNS", "LINES")
        }
        self.process = start("top", path, *words, stdout=terminal, env=env)
        os.close(terminal)
        os.set_blocking(self._main, False)
        self.shown = b""

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read(self) -> bytes:
        """Everything written so far."""
        try:
            while chunk := os.read(self._main, 65536):
                self.shown += chunk
        except OSError:  # nothing at the moment, or the other side is closed
            pass
        return self.shown

    def close(self) -> None:
        os.close(self._main)


@pytest.fixture
def terminal(start, path: Path) -> Iterator[Any]:
    opened: list[Terminal] = []

    def open_terminal(width: int, height: int, *words: str) -> Terminal:
        opened.append(Terminal(start, path, width, height, *words))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_live_view_restores_the_terminal(terminal, path: Path, number: int, code: int) -> None:
    fill(path, 3)
    live = terminal(100, 30, "--interval", "100ms")
    until(lambda: b"wx/text" in live.read())
    live.process.send_signal(number)
    assert live.process.wait(timeout=240) == code
    shown = live.read()
    assert shown.index(b"\x1b[?1049h") < shown.rindex(b"\x1b[?1049l")  # the other screen, and back
    assert shown.rindex(b"\x1b[?25l") < shown.rindex(b"\x1b[?25h")  # the cursor is visible again
    assert live.process.stderr.read().strip() == b""


def test_a_terminal_that_changes_its_size_is_redrawn_within_the_interval(terminal, path: Path) -> None:
    fill(path, 3)
    live = terminal(100, 30, "--interval", "1h")
    until(lambda: b"wx/text" in live.read())
    until(lambda: is_asleep(live.process.pid), "top waits for the next interval")
    before = len(live.read())
    live.resize(50, 12)
    live.process.send_signal(signal.SIGWINCH)
    until(lambda: b"wx/text" in live.read()[before:], "top draws again")
    lines = live.read()[before:].decode().split("\r\n")
    assert 0 < len(lines) <= 12


def test_a_change_of_size_is_noticed_whichever_thread_gets_the_signal() -> None:
    """The operating system chooses a thread, and there may be others, of the queue."""
    drawn, ends = threading.Event(), threading.Event()
    other = threading.Thread(target=ends.wait, daemon=True)
    other.start()
    with resizes() as resized:
        signal.pthread_kill(other.ident, signal.SIGWINCH)
        due_s = time.monotonic() + 20
        with suppress(InterruptedError):
            redraw_until(due_s, resized, lambda: (drawn.set(), _end()))
    ends.set()
    assert drawn.is_set()


def _end() -> None:
    raise InterruptedError


def test_a_live_view_of_a_removed_queue_ends_with_an_error(terminal, path: Path) -> None:
    live = terminal(80, 24, "--interval", "100ms")
    until(lambda: b"fill" in live.read())
    shutil.rmtree(path)
    assert live.process.wait(timeout=240) == 3
    assert b"was removed while it was watched" in live.process.stderr.read()

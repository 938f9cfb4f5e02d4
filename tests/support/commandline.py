"""Helpers for tests of the command line: queues with content, damage, waiting with a limit, and signals.

A background job and a program started by `nohup` ignore SIGINT, and their children inherit that. Tests that send SIGINT
therefore start children as PROGRAM, which restores the default, or wrap themselves in `interruptible`.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from click.testing import Result

from headrace import Queue

Run = Callable[..., Result]

PROGRAM = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from headrace.cli.main import main; main()",
]
WAIT_S_MAX = 60.0  # a safety net: tests wait for events, and never pass or fail by the clock


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt in this process, even if it was started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def fill(path: Path, count: int, feed: str = "wx/text") -> None:
    """Put products `product 1` … with idents `ident 1` …, numbered by their sequences, so that none is a duplicate."""
    with Queue.open(path) as queue:
        numbers = range(queue.next, queue.next + count)
        queue.put_many([b"product %d" % n for n in numbers], feed=feed, ident=[f"ident {n}" for n in numbers])


def spoil(path: Path, payload: bytes) -> None:
    """Change one byte of a stored payload, in the file."""
    (path / "spoilt").touch()
    for segment in (path / "segments").iterdir():
        content = segment.read_bytes()
        offset = content.find(payload)
        if offset >= 0:
            with segment.open("r+b") as file:
                file.seek(offset)
                file.write(bytes([content[offset] ^ 0xFF]))
            return
    raise AssertionError(f"{payload!r} is in no segment")


def objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects in lines of text."""
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in text.splitlines()]


def wait_until(condition: Callable[[], object], seconds_max: float = WAIT_S_MAX) -> None:
    end_s = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < end_s, f"the condition did not hold within {seconds_max:.0f} s"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **more}

"""Helpers for tests of the command line: queues with content, damage, processes and signals.

A background job and a program started by `nohup` ignore SIGINT, and their children inherit that. Tests that send SIGINT
therefore start children as PROGRAM, which restores the default, or wrap themselves in `interruptible`.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from click.testing import Result

from headrace import Queue
from support.damage import flip_bit

Run = Callable[..., Result]

PROGRAM = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from headrace.cli.main import main; main()",
]


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
    """Damage a stored payload; the queue is not checked after the test."""
    (path / "spoilt").touch()
    flip_bit(path, payload)


def objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects in lines of text."""
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in text.splitlines()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **more}

"""What tests of the command line call: queues with something in them, damage, and waiting with a bound."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from click.testing import Result

from headrace import Queue

Run = Callable[..., Result]


def fill(path: Path, count: int, feed: str = "wx/text") -> None:
    """Products `product 1` … under idents `ident 1` …"""
    numbers = range(1, count + 1)
    with Queue.open(path) as queue:
        queue.put_many([b"product %d" % n for n in numbers], feed=feed, ident=[f"ident {n}" for n in numbers])


def spoil(path: Path, payload: bytes) -> None:
    """Alter one byte of a stored payload, in the file."""
    (path.parent / "spoilt").touch()
    for segment in (path / "segments").iterdir():
        content = segment.read_bytes()
        place = content.find(payload)
        if place >= 0:
            with segment.open("r+b") as file:
                file.seek(place)
                file.write(bytes([content[place] ^ 0xFF]))
            return
    raise AssertionError(f"{payload!r} is in no segment")


def objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects in lines of text."""
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in text.splitlines()]


def wait_until(condition: Callable[[], object], seconds_max: float = 20.0) -> None:
    end_s = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < end_s, "it did not come about"
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

"""Files through a queue and a site, beside rsync and scp, and what a break costs: part of `headrace bench payload`.

A sender and a receiver run in processes of their own, as `headrace send` and `headrace receive` do. All files, the
queue included, are in the same directory; in memory by default, so that the disk is not what is measured.

    queue     both have the directory of the queue
    site      the sender has it; the receiver is connected to the site over TCP, on loopback
    upload    the sender is connected to the site, and the receiver has the directory
    break     the sender is killed at half, and another one continues
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from headrace.bench.loopback_ssh import loopback_ssh
from headrace.bench.processes import processes
from headrace.bench.report import Announce, Figure
from headrace.bench.site_process import serve
from headrace.payload.fragments.receiver import FileReceiver
from headrace.payload.fragments.sender import Sender, SenderStatistics
from headrace.payload.fragments.source import list_sources
from headrace.queue import AnyQueue, Queue
from headrace.remote import connect

FEED = "files"
WAYS = {
    "queue": "through a queue on one machine",
    "site": "put beside a site, received over TCP from it",
    "upload": "sent over TCP to a site, received beside it",
}
FILE_BYTES = 2 << 30
QUEUE_BYTES = 1 << 30
GOAL_MB_S = 800.0
AGAIN_GOAL = 5.0  # per cent
_BLOCK_BYTES = 1 << 20
_WAITS_S = 600.0


def figures(place: Path, scale: float, progress: Announce) -> Iterator[Figure]:
    """All figures about files."""
    size = max(8 << 20, int(FILE_BYTES * scale))
    file = _make_file(place / "file.bin", size)
    others = _others(place, file, progress)
    yield from others
    beside = ", ".join(f"{each.name.removeprefix('file-')} {each.value:,.0f} MB/s" for each in others) or "not found"
    for way, what in WAYS.items():
        progress(f"a file {what}")
        rate, _ = _transfer(place, file, way)
        yield Figure(f"file-{way}", f"a file, {what}", rate / 1e6, "MB/s", GOAL_MB_S, beside=beside)
    progress("a sender that is killed at half")
    again = _broken(place, file)
    yield Figure("file-again", "sent again after a break at half", again * 100, "%", AGAIN_GOAL, at_most=True)


def _make_file(path: Path, size: int) -> Path:
    """Bytes that differ from block to block, so that nothing can be left out."""
    block = bytearray(os.urandom(_BLOCK_BYTES))
    with path.open("wb") as file:
        for number in range(-(-size // _BLOCK_BYTES)):
            block[:8] = number.to_bytes(8)
            file.write(block)
        file.truncate(size)
    return path


# --- ours -----------------------------------------------------------------------------------------


def _transfer(place: Path, file: Path, way: str) -> tuple[float, SenderStatistics]:
    """Bytes per second from the start of the sender until the receiver has the file under its name."""
    with _queue(place) as path, _site(path if way != "queue" else None) as endpoint:
        to, source = (endpoint if way == "upload" else str(path)), (endpoint if way == "site" else str(path))
        with processes(_receive, [(source, place / "in")]) as (receiver,), processes(_send, [(to, file)]) as (sender,):
            begun = time.monotonic()
            sender.send(None)
            told: SenderStatistics = sender.recv()
            receiver.recv()
            took_s = time.monotonic() - begun
    _check_same(file, place / "in" / file.name)
    return file.stat().st_size / took_s, told


def _broken(place: Path, file: Path) -> float:
    """The share of the file that was sent again after a sender was killed at half."""
    size = file.stat().st_size
    with _queue(place) as path, processes(_receive, [(str(path), place / "in")]) as (receiver,):
        with processes(_send, [(str(path), file, size // 2)]) as (first,):
            first.send(None)
            sent = first.recv()  # and it is dead
        with processes(_send, [(str(path), file)]) as (second,):
            second.send(None)
            told: SenderStatistics = second.recv()
        receiver.recv()
    _check_same(file, place / "in" / file.name)
    return max(0.0, float(sent + told.sent_bytes - size) / size)


@contextmanager
def _queue(place: Path) -> Iterator[Path]:
    path = place / "files.queue"
    durability = "memory" if place.is_relative_to("/dev/shm") else "process"
    Queue.create(path, size=QUEUE_BYTES, durability=durability, origin="bench").close()
    shutil.rmtree(place / "in", ignore_errors=True)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def _site(path: Path | None) -> Iterator[str]:
    if path is None:
        yield ""
        return
    with processes(serve, [(path,)]) as (pipe,):
        yield pipe.recv()
        pipe.send("stop")


def _opened(where: str) -> AnyQueue:
    return connect(where)


def _send(parent: Connection, where: str, file: Path, die_at: int = 0) -> None:
    """A process: the sender; it kills itself after so many bytes."""

    def watch(told: SenderStatistics) -> None:
        if die_at and told.sent_bytes >= die_at:
            parent.send(told.sent_bytes)
            os.kill(os.getpid(), 9)

    sources, _ = list_sources([file])
    with _opened(where) as queue:
        parent.send("ready")
        parent.recv()
        at_once = 1 if isinstance(queue, Queue) else 2
        sender = Sender(queue, FEED, sources, timeout_s=_WAITS_S, on_progress=watch, puts_at_once=at_once)
        parent.send(sender.run())


def _receive(parent: Connection, where: str, root: Path) -> None:
    """A process: the receiver of one file."""
    with _opened(where) as queue:
        receiver = FileReceiver(queue, root, FEED, count=1, timeout_s=_WAITS_S)
        parent.send("ready")
        parent.send(receiver.run())


def _check_same(one: Path, other: Path) -> None:
    with one.open("rb") as first, other.open("rb") as second:
        while block := first.read(_BLOCK_BYTES):
            assert block == second.read(_BLOCK_BYTES), "the file that arrived differs"
        assert not second.read(1)


# --- others ---------------------------------------------------------------------------------------


def _others(place: Path, file: Path, progress: Announce) -> list[Figure]:
    """The same file by rsync and scp over SSH on loopback, as far as they are found."""
    with loopback_ssh(place / "ssh") as ssh:
        if ssh is None:
            return []
        found = []
        for name, words in ssh.copies(file, place / "copied.bin").items():
            progress(name)
            begun = time.monotonic()
            done = subprocess.run(words, capture_output=True, check=False, timeout=_WAITS_S)
            took_s = time.monotonic() - begun
            if done.returncode == 0:
                _check_same(file, place / "copied.bin")
                rate = file.stat().st_size / took_s / 1e6
                found.append(Figure(f"file-{name}", f"the same file by {name} over SSH, start included", rate, "MB/s"))
            (place / "copied.bin").unlink(missing_ok=True)
    return found

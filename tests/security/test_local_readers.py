"""A member of the group of a queue reads and follows it without the right to write to any of its files."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Queue
from headrace.errors import QueueAccessError

OTHER, GROUP = 65534, 4242  # a user that is not us, and the group of the queue

# Everything is imported before the rights are given up: the folder of the interpreter may be closed to others.
READER = """
import os, sys
import headrace, headrace.selection.where.where, headrace.cli.main, headrace.cli.watch, headrace.cli.queue, headrace.cli.put
from headrace import Queue
from headrace.errors import *
path, group = sys.argv[1], int(sys.argv[2])
os.setgroups([group]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
for folder, _, files in os.walk(path):
    assert not any(os.access(os.path.join(folder, each), os.W_OK) for each in (".", *files)), folder
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach, unlike that of pytest."""
    if os.getuid() != 0:
        pytest.skip("only root may become another user")
    folder = Path(tempfile.mkdtemp(prefix="headrace-readers-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def queue(place: Path) -> Iterator[Queue]:
    with Queue.create(place / "q", size="2MiB", group=str(GROUP)) as queue:
        yield queue
        assert queue.check() == []


def reader(queue: Queue, program: str, group: int = GROUP) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", READER + program, str(queue.path), str(group)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def said(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def test_a_member_of_the_group_reads_without_the_right_to_write(queue: Queue) -> None:
    for number in range(100):
        queue.put(b"x" * number, feed=f"f/{number % 3}", ident=str(number), properties={"n": number})
    queue.cursor("c").save(7)
    queue.station("s", "f/1")
    told = said(reader(queue, """
with Queue.open(path) as queue:
    assert queue.is_read_only
    print(*(product.ident for product in queue.read_batch("oldest", "f/1 where n > 90")))
    print(queue.statistics().held_products, queue.cursor("c").position, queue.stations(), queue.oldest, queue.next)
"""))  # fmt: skip
    assert told == "91 94 97\n100 7 ['s'] 1 101\n"


def test_what_changes_the_queue_is_refused_with_a_remedy(queue: Queue) -> None:
    queue.put(b"x", feed="f/1")
    queue.cursor("c")
    told = said(reader(queue, """
def refused(action):
    try:
        action()
    except QueueAccessError as error:
        assert "open for reading only" in str(error) and error.hint, error
        return
    raise SystemExit(f"{action} was not refused")
with Queue.open(path) as queue:
    for action in (
        lambda: queue.put(b"x", feed="f/1"), lambda: queue.put_many([b"x"], feed="f/1"),
        lambda: queue.cursor("new"), lambda: queue.cursor("c").save(1), lambda: queue.cursor("c").remove(),
        lambda: queue.station("s", "f/1"), lambda: queue.channel("c", "f/**"), lambda: queue.delete("**"),
        lambda: queue.resize(age=1), lambda: queue.flush(), lambda: queue.check(),
    ):
        refused(action)
    print(queue.read_batch("oldest")[0].feed)
"""))  # fmt: skip
    assert told == "f/1\n"


def test_a_follower_receives_what_is_put_and_ends_when_it_is_stopped(queue: Queue) -> None:
    process = reader(queue, """
import threading
with Queue.open(path) as queue:
    follower = queue.follow("next")
    threading.Thread(target=lambda: (sys.stdin.read(), follower.stop())).start()
    print("ready", flush=True)
    for batch in follower:
        print(*(product.ident for product in batch), flush=True)
print("ended")
""")  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for ident in ("one", "two"):
        queue.put(b"x", feed="f/1", ident=ident)
        assert process.stdout.readline() == f"{ident}\n"
    assert said(process) == "ended\n"


def test_what_a_reader_holds_stays_as_it_is_when_its_segment_is_evicted(queue: Queue) -> None:
    queue.put(b"a" * 1000, feed="f/1", ident="first")
    process = reader(queue, """
with Queue.open(path) as queue:
    batch = queue.read_batch("oldest")
    view = batch[0].payload
    print("held", flush=True)
    follower = queue.follow(batch.next, timeout=60)
    for more in follower:
        if any(product.ident == "last" for product in more):
            break
    assert queue.oldest > batch[0].sequence, "it was not evicted"
    print(batch[0].ident, bytes(view) == b"a" * 1000)
""")  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    before = queue.statistics().pinned_evictions
    for number in range(200):
        queue.put(os.urandom(50_000), feed="f/1", ident=str(number))
    queue.put(b"x", feed="f/1", ident="last")
    assert said(process) == "first True\n"
    assert queue.statistics().pinned_evictions > before


def test_a_writer_dies_and_another_recovers_beside_a_reader(queue: Queue) -> None:
    queue.put(b"x", feed="f/1", ident="one")
    process = reader(queue, """
with Queue.open(path) as queue:
    print("ready", flush=True)
    for batch in queue.follow("oldest", timeout=60):
        if batch[len(batch) - 1].ident == "two":
            break
print("two")
""")  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    dying = subprocess.run(
        [sys.executable, "-c", (
            "import sys; from headrace import Queue; from headrace.kernel import _kernel as kernel\n"
            "queue = Queue.open(sys.argv[1]); kernel.arm_failpoint('append:before-commit')\n"
            "queue.put(b'x', feed='f/1', ident='lost')"
        ), str(queue.path)], check=False,
    )  # fmt: skip
    assert dying.returncode < 0
    queue.put(b"x", feed="f/1", ident="two")
    assert said(process) == "two\n"


def test_another_user_cannot_open_it_and_learns_whom_to_ask(queue: Queue) -> None:
    told = said(reader(queue, """
try:
    Queue.open(path)
except HeadraceError as error:
    print(type(error).__name__, error.hint)
""", group=OTHER))  # fmt: skip
    assert told.startswith("QueueAccessError")
    assert "group" in told


def test_commands_that_read_work_for_the_group(queue: Queue) -> None:
    queue.put(b"x", feed="f/1", ident="one")
    told = said(reader(queue, """
for words in (["queue", "info", path], ["watch", path, "--from", "oldest", "--count", "1"]):
    try:
        headrace.cli.main.headrace.main(words)
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""))  # fmt: skip
    assert "one" in told


def test_a_program_may_choose_to_read_only(tmp_path: Path) -> None:
    Queue.create(tmp_path / "q", size="2MiB").close()
    with Queue.open(tmp_path / "q", read_only=True) as queue, pytest.raises(QueueAccessError, match="reading only"):
        queue.put(b"x", feed="f/1")
    assert stat.S_IMODE((tmp_path / "q" / "control").stat().st_mode) == 0o640

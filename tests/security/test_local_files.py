"""Files of a queue that somebody altered or replaced: one class of error with a remedy, and never a hang."""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import Queue
from headrace.errors import HeadraceError, ProductDamagedError, QueueDamagedError, QueueVersionError
from support.commandline import PROGRAM
from support.daemon import Daemon
from support.fleet import free_port
from support.seeds import random_seed

DEEP = b'{"format":2,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
NUMBERS = (b"1e999", b"-1", b"99999999999999999999999", b"0", b"18446744073709551615")
MUTATIONS = 40


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed queue that has a file of each kind."""
    path = tmp_path_factory.mktemp("whole") / "q"
    with Queue.create(path, size="1MiB", origin="here") as queue:
        queue.channel("sliced", "g/**", slices=8)
        for number in range(300):
            queue.put(b"x" * number, feed=f"f/{number % 5}", ident=f"i{number}")
        queue.put(b"x", feed="g/1")
        queue.cursor("c").save(7)
        with queue.station("s", "f/1").attach() as consumer:
            consumer.get(timeout=0)
        with queue.channel("sliced").supplier():
            pass
    return path


@pytest.fixture
def queue(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "q"))


def files_of(queue: Path) -> list[Path]:
    return sorted(path for path in queue.rglob("*") if path.is_file())


def use(path: Path) -> None:
    """Open a queue and look at everything in it."""
    with Queue.open(path) as queue:
        queue.check()
        position = queue.oldest
        while position < queue.next:
            try:
                batch = queue.read_batch(position, limit=100)
            except ProductDamagedError as error:
                position = error.next
                continue
            for product in batch:
                assert dict(product.properties) is not None
                assert bytes(product.payload) is not None
            position = batch.next
        queue.statistics()
        for name in queue.stations():
            queue.station(name).statistics()
        for name in queue.channels():
            queue.channel(name).statistics()
        for name in queue.cursors():
            assert queue.cursor(name).position >= 0
        queue.put(b"new", feed="f/9")


def only_damage(action: Callable[[Path], object], path: Path) -> bool:
    """Whether the action succeeded; otherwise it said what is damaged, and what to do."""
    try:
        action(path)
    except HeadraceError as error:
        assert isinstance(error, QueueDamagedError | QueueVersionError), repr(error)
        assert error.hint
        return False
    return True


def alter(path: Path, chance: random.Random) -> str:
    data = bytearray(path.read_bytes())
    how = chance.choice(["flip", "flip", "cut", "random", "deep", "numbers", "text"])
    if how == "flip":
        for _ in range(chance.choice([1, 4, 50]) if data else 0):
            data[chance.randrange(min(len(data), chance.choice([64, 4096, 1 << 30])))] ^= 1 << chance.randrange(8)
    elif how == "cut":
        del data[chance.randrange(len(data) + 1) :]
    elif how == "random":
        at = chance.randrange(len(data) + 1)
        data[at : at + 200] = chance.randbytes(200)
    elif how == "deep":
        data = bytearray(DEEP)
    elif how == "numbers":
        data = bytearray(re.sub(rb"\d+", lambda found: chance.choice([found[0], *NUMBERS]), bytes(data)))
    else:
        at = chance.randrange(len(data) + 1)
        data[at : at + 1] = chance.choice([b"\xff\xfe", b"\\ud800", b"\xed\xa0\x80", b"\0"])
    path.write_bytes(data)
    return how


def test_altered_files_are_damage_and_nothing_else(whole: Path, tmp_path: Path) -> None:
    chance = random.Random(random_seed())
    for number in range(MUTATIONS):
        path = Path(shutil.copytree(whole, tmp_path / str(number)))
        file = chance.choice(files_of(path))
        print(number, file.relative_to(path), alter(file, chance))
        only_damage(use, path)
        only_damage(Queue.repair, path)
        only_damage(use, path)
        shutil.rmtree(path)


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [make_fifo, make_link, make_folder])
def test_what_is_no_file_is_named_and_moved_aside(queue: Path, make: Callable[[Path], None]) -> None:
    for name in [str(file.relative_to(queue)) for file in files_of(queue)]:
        path = Path(shutil.copytree(queue, queue.with_name("copy")))
        (path / name).unlink()
        make(path / name)
        only_damage(use, path)
        if name != "queue.json":  # the one file that a repair needs
            Queue.repair(path)
            assert all(file.is_file() and not file.is_symlink() for file in [path / name] if os.path.lexists(file))
            use(path)
        else:
            assert not only_damage(Queue.repair, path)
        shutil.rmtree(path)


def test_commands_end_at_a_fifo_and_say_where_it_is(queue: Path) -> None:
    control, segment = queue / "control", next((queue / "segments").iterdir())
    for file in (control, segment):
        file.unlink()
        os.mkfifo(file)
    for command in ("check", "info"):
        done = subprocess.run(
            [*PROGRAM, "queue", command, str(queue)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode in (1, 3)
        assert f"{control} is not a file of a queue: it is a FIFO" in done.stdout + done.stderr
        assert "headrace queue repair" in done.stderr
    done = subprocess.run([*PROGRAM, "queue", "repair", str(queue)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not [file for file in queue.rglob("*") if file.is_fifo() and file.parent.name != "damaged"]


@pytest.mark.parametrize(("name", "starts"), [("lock", False), ("wanted.json", True), ("audit/site.jsonl", True)])
def test_a_site_never_hangs_at_a_fifo_among_its_files(tmp_path: Path, name: str, starts: bool) -> None:
    file = tmp_path / "site.toml"
    file.write_text(
        f'[site]\nqueue = "q"\nlisten = ["tcp/127.0.0.1:{free_port()}"]\nscouting = "off"\n[queue]\nsize = "4MiB"\n'
    )
    with Daemon(file) as daemon:
        daemon.wait_until_ready()
    fifo = tmp_path / "q" / "site" / name
    fifo.unlink(missing_ok=True)
    os.mkfifo(fifo)
    with Daemon(file) as daemon:
        if starts:
            daemon.wait_until_ready()
            return
        assert daemon.wait() == 3
        assert f"{fifo}: it is a FIFO, not a regular file" in daemon.log.read_text()

"""A process that uses damaged files: `fuzz_files.py queue|archive FOLDER SEED TIMES`.

It damages one file of a queue or an archive at a time, uses it in every way, and ends with code 1 if anything but a
HeadraceError came of it. A use that hangs ends the process, with the stacks of all threads.
"""

import faulthandler
import random
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace import Queue
from headrace.errors import HeadraceError
from headrace.pipeline.archive import Archive
from headrace.pipeline.source.columns import arrow_of
from headrace.queue.request_lags import read_lags
from headrace.relay.hops import read_hops
from headrace.relay.receive.progress import RequestProgress
from headrace.timing.clock.state import read_state

LEASH_S = 60  # for one damaged file
Use = Callable[[Path], None]


def spoil(chance: random.Random, data: bytes) -> bytes:
    """A fault somewhere: bits, a hole, random bytes, a piece left out, an end cut off; more often in the first page."""
    if not data:
        return chance.randbytes(64)
    span = len(data) if chance.random() < 0.5 else min(len(data), 4096)
    place = chance.randrange(span)
    size = min(chance.choice([1, 1, 4, 8, 64, 4096]), len(data) - place)
    new = chance.choice([chance.randbytes(size), bytes(size), b"\xff" * size, bytes([data[place] ^ 1]) * size])
    how = chance.randrange(5)
    if how == 0:
        return data[:place]
    if how == 1:
        return data[:place] + data[place + size :]
    return data[:place] + new + data[place + size :]


# --- a queue ----------------------------------------------------------------------------------------


def make_queue(folder: Path) -> Path:
    path = folder / "whole"
    with Queue.create(path, size="1MiB", origin="here") as queue:
        for number in range(300):
            queue.put(b"x" * number, feed=f"f/{number % 5}", ident=str(number), properties={"n": number})
        queue.cursor("reader").save(77)
        queue.channel("c", "f/**", slices=8)
        queue.share("c")
        station = queue.station("s", "f/1")
        with station.attach() as consumer:
            consumer.ack(consumer.get_nowait(3))
        queue.flush()
    site = path / "site"
    site.mkdir(exist_ok=True)
    (site / "hops.json").write_text("[]")
    return path


def use_queue(path: Path) -> None:
    """As programs and sites do. Each step may refuse; the next one is tried nevertheless."""
    steps: list[Callable[[], object]] = [
        lambda: read_hops(path), lambda: read_state(path), lambda: read_lags(path, 0),
        lambda: RequestProgress(path / "site" / "requests.json"),
    ]  # fmt: skip
    for step in steps:
        with suppress(HeadraceError, OSError):
            step()
    with suppress(HeadraceError), Queue.open(path) as queue, ExitStack() as parts:
        for act in (_read, _cursor, _station, _channel, _put, Queue.check, Queue.statistics):
            with suppress(HeadraceError):
                act(queue)
        del parts
    with suppress(HeadraceError):
        Queue.repair(path)
    with suppress(HeadraceError), Queue.open(path) as queue:
        _read(queue)


def _read(queue: Queue) -> None:
    position = queue.oldest
    while position < queue.next:
        batch = queue.read_batch(position, limit=100)
        for product in batch:
            _ = bytes(product.payload), dict(product.properties), product.feed, product.ident
        position = batch.next


def _cursor(queue: Queue) -> None:
    cursor = queue.cursor("reader")
    _ = cursor.position
    cursor.save(queue.oldest)
    _ = queue.cursors


def _station(queue: Queue) -> None:
    station = queue.station("s")
    station.statistics()
    with station.attach() as consumer:
        consumer.ack(consumer.get_nowait(10))


def _channel(queue: Queue) -> None:
    queue.channel("c").statistics()
    queue.share("c").state()


def _put(queue: Queue) -> None:
    queue.put(b"new", feed="f/1", ident="new", timeout=0)


# --- an archive -------------------------------------------------------------------------------------


def make_archive(folder: Path) -> Path:
    with Queue.create(folder / "source", size="1MiB", origin="here") as queue:
        for number in range(100):
            queue.put(b"x" * number, feed=f"f/{number % 5}", ident=str(number))
        rows = arrow_of(queue.read_batch("oldest", limit=1000))
    path = folder / "whole"
    path.mkdir()
    pq.write_table(pa.Table.from_batches([rows]), path / "part.parquet")
    return path


def use_archive(path: Path) -> None:
    with suppress(HeadraceError):
        archive = Archive(path)
        archive.holdings()
        for _ in archive.batches():
            pass


# --- the loop ---------------------------------------------------------------------------------------


def main(kind: str, folder: Path, seed: int, times: int) -> None:
    make, use = {"queue": (make_queue, use_queue), "archive": (make_archive, use_archive)}[kind]
    chance, home = random.Random(seed), folder / f"{kind}{seed}"
    home.mkdir()
    whole = make(home)
    use(shutil.copytree(whole, home / "control"))  # what is whole can be used
    names = sorted(file.relative_to(whole) for file in whole.rglob("*") if file.is_file())
    for number in range(times):
        name = names[number % len(names)] if number < len(names) else chance.choice(names)
        spoilt = Path(shutil.copytree(whole, home / "spoilt"))
        data = (spoilt / name).read_bytes()
        (spoilt / name).write_bytes(spoil(chance, data))
        print(f"{kind} {seed} {number}: {name}", flush=True)
        faulthandler.dump_traceback_later(LEASH_S, exit=True)
        use(spoilt)
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(spoilt)
    shutil.rmtree(home)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))

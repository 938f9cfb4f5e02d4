"""A process that is killed again and again while it performs batches, for the tests of actions.

    python action_kills.py SCENARIO FOLDER random SEED
    python action_kills.py SCENARIO FOLDER everywhere STRIDE START

A scenario performs batches from its checkpoint on, as Spark does: a batch is noted when all its actions are done. It runs
in forks of this process, which are killed before a call that changes a file, between two writes, or at a random time; the
next one continues with what is there. Spark does not run here.
"""

import io
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake  # noqa: F401 - before the forks
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from headrace.pipeline.actions import Context, DeadLetters, file, table_replaced
from headrace.pipeline.actions import file_append as append
from headrace.pipeline.actions.file import FilePerformer
from headrace.pipeline.actions.table import TablePerformer
from headrace.pipeline.actions.table_staging import Stage
from headrace.pipeline.rules import FileAction, TableAction
from headrace.pipeline.source.open_queues import QueueAddress

BATCHES = int(os.environ.get("KILLS_BATCHES", "6"))
KILLS_MAX = 25
POINTS = {"open", "os.link", "os.rename", "os.remove", "os.truncate", "os.mkdir", "os.rmdir", "shutil.rmtree"}


class Fuse:
    """Kills this process before its n-th step."""

    left = 0

    def step(self, event: str = "", args: Any = None) -> None:
        if self.left and (not event or event in POINTS):
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)


FUSE = Fuse()


def batch_of(number: int) -> pa.RecordBatch:
    """The rows of a batch: some go to one file, some to files of their own, one cannot go anywhere."""
    count = 5 + number
    names = [("shared", f"own{number}", f"k{place % 3}", "..")[place % 4] for place in range(count)]
    return pa.RecordBatch.from_pydict({
        "sequence": pa.array(range(number * 100, number * 100 + count), pa.int64()),
        "feed": ["wx/text"] * count,
        "ident": names,
        "payload": [f"<{number}.{place}:{'x' * (place * 9)}>".encode() for place in range(count)],
    })  # fmt: skip


def context_of(folder: Path, rule: str, number: int) -> Context:
    return Context(rule, number, QueueAddress("q", None), folder / "state" / rule, "kills")


def batches(folder: Path) -> Iterator[int]:
    """From the checkpoint on; a batch is noted when the caller asks for the next."""
    note = folder / "checkpoint"
    begin = int(note.read_text()) if note.exists() else 0
    for number in range(begin, BATCHES):
        yield number
        part = note.with_suffix(".new")
        part.write_text(str(number + 1))
        os.replace(part, note)


# --- scenarios ------------------------------------------------------------------------------------


def files(folder: Path, mode: str) -> None:
    """Two rules write to the same folder."""
    letters = DeadLetters(folder / "dead")
    makers = {
        rule: FilePerformer(
            FileAction(path="{ident}", folder=folder / "files", mode=mode, content=content),  # type: ignore[arg-type]
            "file-0", None, letters,
        )
        for rule, content in (("one", "payload"), ("two", "json"))[: 2 if mode == "append" else 1]
    }  # fmt: skip
    for number in batches(folder):
        for rule, performer in makers.items():
            performer.perform_batches([performer.recipe(batch_of(number))], context_of(folder, rule, number))


def table(folder: Path, format: str, compact_s: float | None = None) -> None:
    """Spark's part is done by Arrow: two files for each batch, in two partitions. Nobody reads meanwhile."""
    table_replaced._QUIET_S = 0.0
    action = TableAction(
        path=str(folder / "table"), format=format, partition_by=("ident",), compact_s=compact_s  # type: ignore[arg-type]
    )  # fmt: skip
    performer = TablePerformer(action, "table-0", DeadLetters(folder / "dead"))
    schema = StructType().add("sequence", "long").add("ident", "string").add("payload", "binary")
    performer._spark_write = write_by_arrow  # type: ignore[method-assign, assignment]
    for number in batches(folder):
        frame = SimpleNamespace(schema=schema, number=number)
        performer.perform(frame, context_of(folder, "one", number))  # type: ignore[arg-type]


def write_by_arrow(frame: Any, stage: Stage) -> None:
    """As Spark may: the same rows, cut into files in another way each time."""
    rows = pa.Table.from_batches([batch_of(frame.number)])
    for ident in sorted(set(rows["ident"].to_pylist())):
        part = rows.filter(pa.compute.equal(rows["ident"], ident)).select(["sequence", "payload"])
        cut = random.randint(0, part.num_rows)
        for place, piece in enumerate((part.slice(0, cut), part.slice(cut))):
            name = stage.folder / f"ident={ident}" / f"part-{place}-{random.getrandbits(30)}.parquet"
            name.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(piece, name)


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "append": lambda folder: files(folder, "append"),
    "each": lambda folder: files(folder, "each"),
    "overwrite": lambda folder: files(folder, "overwrite"),
    "parquet": lambda folder: table(folder, "parquet"),
    "delta": lambda folder: table(folder, "delta"),
    "parquet compacted": lambda folder: table(folder, "parquet", compact_s=1e-9),  # after each batch
    "delta compacted": lambda folder: table(folder, "delta", compact_s=1e-9),
}


# --- kills ----------------------------------------------------------------------------------------


def check_between(scenario: str, folder: Path) -> None:
    """Check what a reader may rely on at any time, also just after a kill."""
    if scenario in ("each", "overwrite"):
        whole = {payload for number in range(BATCHES) for payload in batch_of(number)["payload"].to_pylist()}
        for path in (folder / "files").glob("*"):
            assert path.name.startswith(".headrace") or path.read_bytes() in whole, f"{path} is not whole"
    if scenario.startswith("parquet") and list((folder / "table").glob("ident=*/*.parquet")):
        sequences = pq.read_table(folder / "table", ignore_prefixes=[])["sequence"].to_pylist()  # whatever its name
        assert len(set(sequences)) == len(sequences), "a row is there twice"


class Slow(io.FileIO):
    """A file that accepts a few bytes at a time; each write is a step at which the process may be killed."""

    def write(self, data: Any) -> int:
        FUSE.step()
        return super().write(bytes(data[:7]))


def prepare() -> None:
    with tempfile.TemporaryDirectory() as calm:
        SCENARIOS["each"](Path(calm))  # modules that are imported late are imported now
    sys.addaudithook(FUSE.step)
    chunks = append.Spool.chunks
    append._COPY_BYTES = 7

    def counted(self: append.Spool, path: str) -> Iterator[bytes]:
        for chunk in chunks(self, path):
            FUSE.step()
            yield chunk

    append.Spool.chunks = counted  # type: ignore[method-assign]
    file.open = lambda path, mode, buffering: Slow(path, mode)  # type: ignore[attr-defined]


def run(scenario: str, folder: Path, steps: int = 0, delay_s: float | None = None) -> bool:
    """Run a scenario in a fork that is killed before its n-th step or after a time; return whether it ended by itself."""
    child = os.fork()
    if child == 0:
        random.seed()
        FUSE.left = steps
        SCENARIOS[scenario](folder)
        os._exit(0)
    if delay_s is not None:
        time.sleep(delay_s)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if status and os.WTERMSIG(status) != signal.SIGKILL:
        raise SystemExit(f"the child ended with {status}")
    check_between(scenario, folder)
    return status == 0


def kill_at_random(scenario: str, folder: Path, seed: int) -> int:
    """Kill one pipeline many times; return how often."""
    chance = random.Random(seed)
    for kills in range(KILLS_MAX):
        steps, delay_s = chance.randint(1, 80), chance.random() * 0.04
        if run(scenario, folder, steps) if chance.random() < 0.7 else run(scenario, folder, 0, delay_s):
            return kills
    assert run(scenario, folder)
    return KILLS_MAX


def kill_everywhere(scenario: str, folder: Path, stride: int, start: int) -> int:
    """Kill at each step, or at each n-th, a new pipeline each time."""
    for step in itertools.count(start, stride):
        own = folder / str(step)
        own.mkdir()
        if run(scenario, own, step):
            return step
        assert run(scenario, own)
    raise AssertionError


if __name__ == "__main__":
    scenario, where, how, *numbers = sys.argv[1:]
    prepare()
    print((kill_at_random if how == "random" else kill_everywhere)(scenario, Path(where), *map(int, numbers)))

"""Sinks of each kind in a folder, what they hold, and marks, for the tests of sinks."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace import Queue
from headrace.share.interface import Marks
from headrace.slices.sinks import ParquetSink, QueueSink, Result, Sink, SqliteSink, committed_files

KINDS = ["sqlite", "parquet", "queue"]
FENCED = ["sqlite", "parquet"]
SCHEMA = pa.schema([("slice", pa.int64()), ("sequence", pa.int64()), ("part", pa.int64())])


def marks(*each: tuple[int, int, int]) -> Marks:
    """From (slice, epoch, position) each."""
    slices, epochs, positions = zip(*each, strict=True) if each else ((), (), ())
    return Marks(np.array(slices, np.uint32), np.array(epochs, np.uint32), np.array(positions, np.uint64))


def create(kind: str, folder: Path) -> None:
    """What users have made before they make a sink."""
    if kind == "sqlite":
        with sqlite3.connect(folder / "out.db") as database:
            database.execute("CREATE TABLE rows (slice INTEGER, sequence INTEGER, part INTEGER)")
        database.close()
    elif kind == "queue":
        Queue.create(folder / "out.queue", size="4MiB", durability="memory", origin="here").close()


def open_sink(kind: str, folder: Path, timeout: str = "30s") -> Sink:
    if kind == "sqlite":
        return SqliteSink(folder / "out.db", "rows", timeout=timeout)
    if kind == "parquet":
        return ParquetSink(folder / "out", SCHEMA, timeout=timeout)
    return QueueSink(folder / "out.queue", "out/rows", timeout=timeout)


def value(kind: str, slice_: int, sequence: int, part: int = 0) -> Any:
    row = {"slice": slice_, "sequence": sequence, "part": part}
    return msgspec.json.encode(row) if kind == "queue" else row


def results(kind: str, slice_: int, sequences: Iterable[int], parts: int = 1) -> list[Result]:
    """One result for each product, or a list of several."""
    return [
        Result(slice_, n, value(kind, slice_, n) if parts == 1 else [value(kind, slice_, n, p) for p in range(parts)])
        for n in sequences
    ]


def stored(kind: str, folder: Path) -> list[tuple[int, int, int]]:
    """Slice, sequence and part of everything in the sink, in the order in which it came."""
    if kind == "sqlite":
        database = sqlite3.connect(folder / "out.db")
        try:
            return database.execute("SELECT slice, sequence, part FROM rows ORDER BY rowid").fetchall()
        finally:
            database.close()
    if kind == "parquet":
        rows = [row for path in committed_files(folder / "out") for row in pq.read_table(path).to_pylist()]
    else:
        with Queue.open(folder / "out.queue") as queue:
            rows = [msgspec.json.decode(bytes(product.payload)) for product in queue.read("oldest")]
    return [(row["slice"], row["sequence"], row["part"]) for row in rows]

"""A pipeline on Spark that is killed, together with its Java, has every row once in the end."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import action_spark_kills
import pyarrow.parquet as pq
import pytest
from acting import letters_in
from deltalake import DeltaTable

from headrace import Queue
from support.seeds import random_seed

KILLS = 2
pytestmark = [pytest.mark.spark, pytest.mark.processes]


def run(folder: Path, batches: int, delay_s: float = 0.0) -> bool:
    """Run the pipeline, and kill it a while after so many batches have begun; return whether it ended by itself."""
    log = folder / "log"
    with open(log, "wb") as errors:
        child = subprocess.Popen(
            [sys.executable, action_spark_kills.__file__, str(folder)],
            stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
        )  # fmt: skip
    assert child.stdout is not None
    with child.stdout:
        begun = [line for _, line in zip(range(batches), child.stdout, strict=False)]
        if len(begun) == batches:
            time.sleep(delay_s)
            os.killpg(child.pid, signal.SIGKILL)
    status = child.wait()
    assert status in (0, -signal.SIGKILL), log.read_text()
    print(f"batches {begun}, {delay_s} s, status {status}")
    return status == 0


@pytest.mark.timeout(900)
@pytest.mark.soak
def test_every_row_is_there_once_after_kills(tmp_path: Path, make_queue: Callable[..., Queue]) -> None:
    chance = random.Random(random_seed())
    queue = make_queue("queue")
    for _ in range(KILLS):
        run(tmp_path, chance.randint(1, 3), chance.uniform(0, 3))
    assert run(tmp_path, action_spark_kills.BATCHES + 1)
    count = action_spark_kills.BATCHES * action_spark_kills.ROWS
    everything = list(range(count))
    station = {n: "../out" if n % 50 == 7 else f"s{n % 3}" for n in everything}
    written = [n for n in everything if n % 50 != 7]

    held = {path.name: path.read_bytes() for path in (tmp_path / "files").glob("*.txt")}
    assert held == {f"s{k}.txt": b"".join(b"row %d\n" % n for n in written if n % 3 == k) for k in range(3)}
    letters = letters_in(tmp_path / "dead")
    assert sorted(row["sequence"] for row in letters) == [n for n in everything if n % 50 == 7]
    parquet = pq.read_table(tmp_path / "parquet").sort_by("sequence").to_pylist()
    assert [(row["sequence"], row["text"]) for row in parquet] == [(n, f"row {n}") for n in everything]
    delta = DeltaTable(tmp_path / "delta").to_pyarrow_table().sort_by("sequence").to_pylist()
    assert [(row["sequence"], row["station"]) for row in delta] == list(station.items())
    assert sorted(int(product.ident) for product in queue.read_batch("oldest")) == everything
    assert not [*tmp_path.glob(".headrace/*/staging-*"), *tmp_path.glob(".headrace/dead/*")]

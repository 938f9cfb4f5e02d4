"""Actions that are killed at any point have the same effect as undisturbed ones."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import action_kills
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from support.seeds import random_seed

pytestmark = pytest.mark.processes

FILES, TABLES = ("append", "each", "overwrite"), ("parquet", "delta")
LETTERS = ["rule", "action", "sequence", "feed", "ident", "payload", "batch"]
STRIDES = {
    "append": 12,
    "each": 2,
    "overwrite": 3,
    "parquet": 12,
    "delta": 12,
}  # between the steps at which it is killed
BATCHES_EVERYWHERE = 2  # a kill in the first, in the second, and between them


def kill(scenario: str, folder: Path, how: str, *numbers: int, batches: int) -> None:
    folder.mkdir()
    ran = subprocess.run(
        [sys.executable, action_kills.__file__, scenario, str(folder), how, *map(str, numbers)],
        capture_output=True, text=True, timeout=280, env={**os.environ, "KILLS_BATCHES": str(batches)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    print(f"{scenario} {how} {numbers}: {ran.stdout.strip()}")


def judge(scenario: str, folder: Path, calm: Path, batches: int) -> None:
    if scenario in FILES:
        assert bytes_below(folder / "files") == bytes_below(calm / "files"), folder
        assert letters_in(folder / "dead") == letters_in(calm / "dead") != [], folder
        assert not list((folder / ".headrace" / "dead").glob("*")), folder
    else:
        judge_table(scenario, folder / "table", batches)


def judge_table(scenario: str, path: Path, batches: int) -> None:
    rows = [row for number in range(batches) for row in action_kills.batch_of(number).to_pylist()]
    expected = [(row["sequence"], row["ident"], row["payload"]) for row in rows]
    held = DeltaTable(path).to_pyarrow_table() if scenario.startswith("delta") else pq.read_table(path)
    made = sorted(held.to_pylist(), key=lambda row: row["sequence"])
    assert [(row["sequence"], row["ident"], row["payload"]) for row in made] == expected, path
    assert not list(path.parent.glob(".headrace/*/staging-*")), path
    if scenario == "delta":
        table = DeltaTable(path)
        assert {path.name for path in path.glob("*.parquet")} == {Path(uri).name for uri in table.file_uris()}, (
            "none left over"
        )
        assert len(table.history()) == 1 + batches, "one transaction for each batch"


def undisturbed(scenario: str, folder: Path, batches: int) -> Path:
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(action_kills, "BATCHES", batches)
        action_kills.SCENARIOS[scenario](folder)
    return folder


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".headrace")
    }  # fmt: skip


def letters_in(folder: Path) -> list[dict[str, Any]]:
    rows = [row for path in folder.glob("*.parquet") for row in pq.read_table(path, columns=LETTERS).to_pylist()]
    return sorted(rows, key=lambda row: (row["batch"], row["rule"], row["sequence"]))


@pytest.mark.parametrize("at", ["some steps", pytest.param("each step", marks=pytest.mark.soak)])
@pytest.mark.parametrize("scenario", FILES + TABLES)
def test_a_writer_that_is_killed_at_any_step_leaves_every_row_once(tmp_path: Path, scenario: str, at: str) -> None:
    """At each n-th from a random one on; in `make soak` at each."""
    stride = STRIDES[scenario] if at == "some steps" else 1
    kill(
        scenario,
        tmp_path / "killed",
        "everywhere",
        stride,
        random.SystemRandom().randint(1, stride),
        batches=BATCHES_EVERYWHERE,
    )
    calm = undisturbed(scenario, tmp_path / "calm", BATCHES_EVERYWHERE)
    for folder in (tmp_path / "killed").iterdir():
        judge(scenario, folder, calm, BATCHES_EVERYWHERE)


@pytest.mark.parametrize("scenario", FILES + TABLES)
def test_a_writer_that_is_killed_many_times_leaves_every_row_once(tmp_path: Path, scenario: str) -> None:
    kill(scenario, tmp_path / "killed", "random", random_seed(), batches=6)
    judge(scenario, tmp_path / "killed", undisturbed(scenario, tmp_path / "calm", 6), 6)

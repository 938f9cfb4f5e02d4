"""`headrace bench slices` runs, small, so that it does not rot. Nothing is timed here."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from headrace.bench import (
    slices_assign,
    slices_moves,
    slices_nodes,
    slices_remote,
    slices_scale,
    slices_spark,
    slices_zipf,
)
from headrace.cli.bench import bench

COUNTED = {"moves-lost", "moves-twice", "moves-order"}


def test_every_figure_of_real_nodes_is_taken_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (slices_assign, slices_remote, slices_scale, slices_spark):  # these have tests of their own
        monkeypatch.setattr(part, "run", lambda *_, **__: iter(()))
    monkeypatch.setattr(slices_nodes, "NODES", (1, 2))
    monkeypatch.setattr(slices_zipf, "NODES", 2)
    options = ["slices", "--scale", "0.001", "--no-spark", "--plots", str(tmp_path), "--json"]
    done = CliRunner().invoke(bench, options, catch_exceptions=False)
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    values = {each["name"]: each["value"] for each in report["figures"]}
    assert len(values) == len(report["figures"])
    assert {
        "machine", "linear-2", "local", "remote", "remote-latency-p50", "move-pause-p50", "move-rate",
        "move-fastest", "others-added", "world-stops", "zipf-real-after",
    } <= set(values)  # fmt: skip
    assert [values[name] for name in sorted(COUNTED)] == [0, 0, 0]
    assert values["world-stops"] > 100  # of 256
    assert (tmp_path / "moves.png").read_bytes().startswith(b"\x89PNG")
    assert report["not_measured"]


def test_the_oracle_finds_items_that_are_lost_twice_or_out_of_order() -> None:
    puts_ns = np.arange(6) * 1_000_000
    one = np.array([[10, 12, 14], [0, 0, 1], [1_000_000, 5_000_000, 9_000_000]])
    other = np.array([[12, 13, 11], [0, 0, 1], [4_000_000, 3_000_000, 2_000_000]])
    run = slices_moves.account("slice", puts_ns, [one, other], 10, [2_000_000], 2.0)
    assert (run.items, run.lost, run.twice, run.out_of_order) == (6, 1, 1, 1)
    assert run.slices.tolist() == [0, 0, 0, 0, 1, 1]
    assert run.latencies_ms.tolist() == [1, 2, 3, 0, 1, 5]
    assert run.stops.tolist() == [1, 2, 3, 5]

"""The benchmark of stations runs, small, so that it does not rot. Nothing is timed here."""

import json

import pytest
from click.testing import CliRunner

from headrace.bench import stations
from headrace.cli.bench import bench


def test_the_benchmark_of_stations_takes_all_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stations, "SIZES", (8, 1_000_000))
    monkeypatch.setattr(stations, "ARRAYS", (1, 100))
    monkeypatch.setattr(stations, "CONSUMERS", (1, 2))
    done = CliRunner().invoke(bench, ["stations", "--scale", "0.001", "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    names = [figure["name"] for figure in report["figures"]]
    assert names == [
        *(f"size-{size}" for size in (8, 1_000_000)),
        *(f"array-{array}" for array in (1, 100)),
        *(f"consumers-{count}-one" for count in (1, 2)),
        *(f"consumers-{count}-each" for count in (1, 2)),
        "iterate",
        "latency-p50",
        "latency-p99",
    ]
    assert all(figure["value"] > 0 for figure in report["figures"])
    assert report["not_measured"]

"""The benchmark of remote clients runs, small, so that it does not rot. Nothing is timed here; everything is counted."""

import json

import pytest
from click.testing import CliRunner

from headrace.bench import clients
from headrace.cli.bench import bench


@pytest.mark.processes
def test_the_benchmark_of_clients_takes_all_its_figures_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "QUIET_S", 0.1)
    words = ["clients", "--clients", "12", "--stations", "3", "--rate", "400", "--seconds", "0.5", "--json"]
    done = CliRunner().invoke(bench, words, catch_exceptions=False)
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    figures = {figure["name"]: figure["value"] for figure in report["figures"]}
    each = ("threads", "memory", "idle", "work")
    assert list(figures) == [
        *(f"{who}-{what}" for who in ("site", "consumer", "supplier") for what in each),
        "lost", "twice", "latency-p50", "latency-p99",
    ]  # fmt: skip
    assert (figures["lost"], figures["twice"]) == (0, 0)
    assert figures["consumer-threads"] < 12 + 8, "the consumers of a process have no thread each"
    assert report["not_measured"]

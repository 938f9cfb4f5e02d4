"""The benchmark of trust runs, small, so that it does not rot. Nothing is timed here."""

import json

import pytest
from click.testing import CliRunner

from headrace.bench import relay_hostile, relay_secure
from headrace.cli.bench import bench


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_secure, "BACKLOG", {150: 10_000})
    monkeypatch.setattr(relay_secure, "HOSTILE_S_MIN", 0.5)
    for name, value in {"HONEST": 2, "PROCESSES": 1, "HELD": 1000}.items():
        monkeypatch.setattr(relay_hostile, name, value)


def test_the_benchmark_of_trust_shows_each_variant_beside_the_plain_one_and_the_ratio_of_a_hostile_client() -> None:
    done = CliRunner().invoke(bench, ["relay", "--secure", "--scale", "0.005", "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    figures = {figure["name"]: figure for figure in json.loads(done.stdout)["figures"]}
    measured = ("backlog-150", "live-150", "latency-200-p50", "latency-200-p99")
    variants = ("plain", "tls", "rules", "signed")
    assert [*figures] == [
        *(f"{name}-{variant}" for name in measured for variant in variants),
        "honest-p99", "beside-hostile-p99", "hostile-ratio",
    ]  # fmt: skip
    assert all(figure["value"] > 0 for figure in figures.values())
    assert "times plain" in figures["live-150-signed"]["beside"]
    assert figures["hostile-ratio"]["goal"] == 2.0

"""The benchmark of the relay runs, small, so that it does not rot. Nothing is timed here."""

import json

import pytest
from click.testing import CliRunner

from headrace.bench import relay
from headrace.cli.bench import bench
from headrace.link.session import may_share_memory


def test_the_benchmark_of_the_relay_takes_all_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "BACKLOG", {150: (1_000_000, 500_000.0)})
    monkeypatch.setattr(relay, "RATES", (200,))
    monkeypatch.setattr(relay, "SUBSCRIBERS", (4,))
    done = CliRunner().invoke(bench, ["relay", "--scale", "0.01", "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    names = [figure["name"] for figure in report["figures"]]
    shared = ["backlog-150-shared"] if may_share_memory() else []
    assert names == [
        "backlog-150", *shared, "live-150", "live-behind",
        *(f"latency-200-{name}" for name in ("p50", "p99", "max")), "audio-2-mean", "audio-2-late",
    ]  # fmt: skip
    may_be_zero = {"audio-2-late", "live-behind"}
    assert all(figure["value"] > 0 for figure in report["figures"] if figure["name"] not in may_be_zero)
    assert report["not_measured"]

"""`headrace bench timing` runs, small, so that it does not rot. Nothing is timed here."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from headrace.bench import timing_pacer, timing_plot
from headrace.bench.timing_pacer import KINDS, Stream, arrivals_ns
from headrace.cli.bench import bench
from headrace.timing import JitterStatistics, PacerStatistics


def test_every_figure_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_pacer, "KINDS", tuple(each for each in KINDS if each.name in ("500us", "site")))
    done = CliRunner().invoke(bench, ["timing", "--scale", "0.002", "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    values = {each["name"]: each["value"] for each in report["figures"]}
    assert {"machine", "buffer-50", "buffer-50-station", "jitter-500us", "processor-500us", "jitter-site"} <= set(
        values
    )
    for name in ("buffer-1-late", "buffer-50-late", "lost-500us", "lost-site"):
        assert values[name] == 0, name
    assert report["not_measured"]


def test_the_pictures_are_drawn(tmp_path: Path) -> None:
    nothing = JitterStatistics(0, 0.0, 0.0, 0)
    streams = []
    for kind in KINDS:
        created = np.arange(200, dtype=np.int64) * kind.spacing_us * 1000
        arrivals = arrivals_ns(200, kind.spacing_us * 1000)
        order = np.argsort(arrivals)
        arrived = np.array([created[order], arrivals[order]])
        released = np.array([created, created + 245_000_000 + np.arange(200) % 7 * 1000])
        streams.append(Stream(kind, arrived, released, 5.0, PacerStatistics(*[0] * 12, nothing, nothing)))
    timing_plot.save_plots(tmp_path, streams)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["jitter-atlantic.png", "jitter-fine.png"]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in names)
    assert max(streams[0].before) > 100 * max(streams[0].after) / 10


def test_the_simulated_way_has_the_stated_distribution() -> None:
    way = arrivals_ns(100_000, 0)
    assert 52.5e6 < way.mean() < 54e6
    assert way.min() >= 45_000_000
    assert np.any(np.diff(arrivals_ns(1000, 500_000)) < 0)  # products overtake each other

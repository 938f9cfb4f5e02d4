"""The benchmark of payloads runs, small, so that it does not rot. Nothing is timed here."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.bench import payload, payload_compression, payload_files
from headrace.bench.loopback_ssh import LoopbackSsh
from headrace.bench.report import Figure
from headrace.cli.bench import bench


def test_the_benchmark_of_files_takes_all_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_files, "QUEUE_BYTES", 16 << 20)
    monkeypatch.setattr(payload_files, "WAYS", {"site": "over TCP"})
    monkeypatch.setattr(payload_files, "_others", lambda *words: [Figure("file-scp", "scp", 1.0, "MB/s")])
    monkeypatch.setattr(payload_compression, "figures", lambda *words: iter(()))
    done = CliRunner().invoke(bench, ["payload", "--scale", "0.001", "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    figures = {figure["name"]: figure["value"] for figure in json.loads(done.stdout)["figures"]}
    assert [name for name in figures if name.startswith("file-")] == [
        "file-scp", "file-site", "file-again",
    ]  # fmt: skip
    assert figures["file-again"] <= 5


def test_the_benchmark_of_compression_takes_all_its_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(payload_files, "figures", lambda *words: iter(()))
    monkeypatch.setattr(payload_compression, "PROFILES", ("metar", "nexrad2"))
    monkeypatch.setattr(payload_compression, "_ROUNDS", 1)
    figures = {figure.name: figure.value for figure in payload.run(tmp_path, 0.001, lambda step: None)}
    ratios = [figures[f"ratio-metar-{codec}"] for codec in ("lz4", "zstd", "dictionary")]
    assert ratios == sorted(ratios)
    assert ratios[0] > 1
    assert min(value for name, value in figures.items() if name.startswith("ratio-nexrad2")) >= 1
    assert [name for name in figures if name.startswith("queue-")] == [
        f"queue-{act}-{how}" for how in ("none", "zstd", "dictionary") for act in ("put", "read")
    ]
    assert not list(tmp_path.iterdir())


def test_only_commands_that_are_installed_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/scp" if name == "scp" else None)
    assert list(LoopbackSsh(22, Path("key")).copies(Path("a"), Path("b"))) == ["scp"]

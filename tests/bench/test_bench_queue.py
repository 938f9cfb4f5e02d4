"""The benchmark runs small, so that it does not rot. Nothing here judges speed."""

from pathlib import Path

from running import report_of, run_bench


def test_every_figure_of_the_queue_benchmark_is_taken() -> None:
    report = report_of("queue", "--scale", "0.004")
    names = [figure["name"] for figure in report["figures"]]
    assert names == [
        "put-20k", "put-1m", "put-ratio", "space", "many-blake3", "many-xxh3", "many-unnamed", "many-none", "put-13k", "put-1mb",
        "read-feed", "read-ident", "read-all", "to-arrow", "iterate", "wake-p50", "wake-p99", "open",
    ]  # fmt: skip
    assert all(figure["value"] > 0 for figure in report["figures"])
    assert report["yardstick_us"] > 0


def test_the_benchmark_can_run_on_a_disk(tmp_path: Path) -> None:
    done = run_bench("queue", "--scale", "0.001", "--place", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "durability process" in done.stdout
    assert list(tmp_path.iterdir()) == []

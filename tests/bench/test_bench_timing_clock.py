"""The clock's part of `headrace bench timing`, small: it runs, meets what does not depend on the machine, and draws."""

from pathlib import Path

from headrace.bench.timing_clock import MACHINES, run


def test_the_clock_is_measured_and_drawn(tmp_path: Path) -> None:
    figures = {each.name: each for each in run(tmp_path, 0.1, lambda step: None, tmp_path / "plots" / "clock.png")}
    assert figures["clock-outside"].value == 0
    assert figures["clock-resolution"].met
    assert {f"clock-{kind.name.lower()}" for kind in MACHINES} <= set(figures)
    assert (tmp_path / "plots" / "clock.png").read_bytes().startswith(b"\x89PNG")

"""The simulation of a thousand nodes runs small, so that it does not rot. Nothing here judges speed."""

from pathlib import Path

import numpy as np

from headrace.bench import slices_rebalance, slices_scale


def test_every_figure_of_the_simulation_is_taken_and_drawn(tmp_path: Path) -> None:
    steps: list[str] = []
    figures = {each.name: each for each in slices_scale.run(tmp_path, 0.01, steps.append, tmp_path / "scale.png")}
    assert {
        "decide-alone",
        "scale-balanced",
        "scale-messages",
        "zipf-16-after",
        "rebalance-world-late",
        "paper-table",
    } <= set(figures)
    assert len(steps) == 9
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")
    in_time = [name for name, each in figures.items() if each.unit not in ("ms", "µs") and each.met is False]
    assert in_time == []  # what is simulated does not depend on the machine


def test_a_lane_works_on_its_items_one_after_the_other_and_pauses_when_it_is_told() -> None:
    trace = slices_rebalance.make_trace(2.0, seed=5)
    plain, moved = slices_rebalance.play(trace, None), slices_rebalance.play(trace, "slice")
    for arrivals, services, before, after in zip(trace.arrivals, trace.services, plain.ends, moved.ends, strict=True):
        assert np.all(before >= arrivals + services - 1e-9)
        assert np.all(np.diff(before) >= services[1:] - 1e-9)
        assert np.all(after >= before - 1e-9)
    assert len(moved.pauses_s) == len(trace.moves)
    assert np.allclose(moved.pauses_s, 2 * slices_rebalance.MESSAGE_S)

"""Plot of the clock over time, as a PNG: error and bound on loopback with a liar, and three simulated machines."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.extras import require

if TYPE_CHECKING:
    from headrace.bench.timing_clock import Story

_INCHES = (10.0, 9.0)


def save_plot(path: Path, real: "Story", stories: "Sequence[Story]") -> None:
    """Write the file; create its directory if necessary."""
    require("plots")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(1 + len(stories), 1)
    _draw(rows[0], real, "Four servers on loopback; from the line on, one of them lies by 500 ms")
    for axes, story in zip(rows[1:], stories, strict=True):
        _draw(axes, story, f"{story.name}, simulated: error of the clock, and what was corrected in all")
        corrected = axes.twinx()
        corrected.plot(story.times_s, story.changes_ms, color="tab:orange", linewidth=1)
        corrected.set_ylabel("corrected, ms", color="tab:orange")
    rows[-1].set_xlabel("seconds")
    figure.savefig(path, dpi=110)


def _draw(axes: Any, story: "Story", title: str) -> None:
    bounds = np.array(story.bounds_ms)
    axes.fill_between(story.times_s, -bounds, bounds, alpha=0.2, linewidth=0, label="± bound")
    axes.plot(story.times_s, story.errors_ms, color="tab:blue", linewidth=1, label="error")
    if story.lie_s is not None:
        axes.axvline(story.lie_s, color="tab:red", linestyle="--", linewidth=1)
    axes.set(title=title, ylabel="ms")
    axes.set_xlim(0, story.times_s[-1])
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", fontsize=8)

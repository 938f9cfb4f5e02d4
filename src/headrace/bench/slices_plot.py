"""Plot of the simulated thousand nodes, and of Zipf's law before and after, as a PNG.

load       of the nodes, divided by the mean: the lowest, 5 % to 95 %, and the busiest; joins and deaths are marked
moves      slices that have moved so far
Zipf       busiest node with slices by number, and after the balancer has moved some
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.bench.report import Figure as Measured
from headrace.bench.slices_scale import BOUND, ZIPF, ZIPF_NODES, Story
from headrace.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES = (9.5, 9.0)
_NOTE = {"fontsize": 9, "bbox": {"boxstyle": "round", "facecolor": "white", "edgecolor": "0.6", "alpha": 0.9}}


def save_plot(path: Path, story: Story, figures: Sequence[Measured]) -> None:
    """Write the file; create its directory if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure_of(story, figures).savefig(path, dpi=110)


def figure_of(story: Story, figures: Sequence[Measured]) -> "Figure":
    require("plots")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    load, moves, zipf = figure.subplots(3, 1, height_ratios=(1.4, 0.8, 1))
    _draw_load(load, story)
    moves.step(story.times_s, story.moved, where="post", color="tab:purple")
    moves.set(ylabel="slices moved", xlabel="seconds, simulated", title="Moves: only what the bound needs")
    moves.yaxis.set_major_formatter("{x:,.0f}")
    moves.sharex(load)
    for axes in (load, moves):
        axes.grid(alpha=0.3)
        for moment in (story.join_s, story.die_s):
            axes.axvline(moment, color="0.5", linestyle="--", linewidth=1)
    _draw_zipf(zipf, {each.name: each.value for each in figures})
    return figure


def _draw_load(axes: Any, story: Story) -> None:
    lowest, low, median, high, busiest = np.array(story.shares).T
    axes.fill_between(story.times_s, low, high, alpha=0.25, linewidth=0, label="5 % to 95 % of the nodes")
    axes.plot(story.times_s, busiest, color="tab:red", label="busiest node")
    axes.plot(story.times_s, median, color="tab:blue", label="median")
    axes.plot(story.times_s, lowest, color="tab:green", linewidth=1, label="least busy node")
    axes.axhline(1 + BOUND, color="0.4", linestyle=":", linewidth=1, label=f"bound, {1 + BOUND:g}")
    for moment, words in ((story.join_s, f"{story.nodes // 2:,} nodes join"), (story.die_s, "some nodes die")):
        axes.text(moment, 0.9, words, transform=axes.get_xaxis_transform(), ha="center", va="center", **_NOTE)
    axes.set(
        ylabel="load, divided by the mean",
        title=f"{story.nodes:,} nodes share the slices of {story.publishers:,} publishers",
    )
    axes.set_xlim(0, None)
    axes.legend(loc="upper center", fontsize=8)


def _draw_zipf(axes: Any, values: dict[str, float]) -> None:
    places = np.arange(len(ZIPF_NODES))
    for offset, kind, words, colour in (
        (-0.2, "before", "slices by number", "0.6"),
        (0.2, "after", "balanced", "tab:blue"),
    ):
        heights = [values.get(f"zipf-{nodes}-{kind}", 0.0) for nodes in ZIPF_NODES]
        bars = axes.bar(places + offset, heights, 0.38, color=colour, label=words)
        axes.bar_label(bars, fmt="%.2f", fontsize=9)
    axes.axhline(1 + BOUND, color="0.4", linestyle=":", linewidth=1, label=f"bound, {1 + BOUND:g}")
    axes.margins(y=0.12)  # for the numbers above the bars
    axes.set_xticks(places, [f"{nodes} nodes" for nodes in ZIPF_NODES])
    axes.set(
        ylabel="busiest node, divided by the mean",
        title=f"Keys by Zipf's law, {ZIPF:g}; more than the bound: one slice alone",
    )
    axes.legend(loc="upper left", fontsize=8)

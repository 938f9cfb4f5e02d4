"""Plot of the runs with moves, as a PNG: how long items wait over time, with and without moves.

Each row is a run: the median and the longest wait of the items put within 10 ms. Moves are marked at the bottom.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.bench.slices_moves import MOVES_PER_S, RATE, Run
from headrace.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES = (9.5, 7.5)
_BIN_S = 0.01
_TITLES = {
    "none": "no moves",
    "slice": "slices move one by one, in sessions",
    "world": "the world stops for each move, best case",
}


def save_plot(path: Path, runs: dict[str, Run]) -> None:
    """Write the file; create its directory if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure_of(runs).savefig(path, dpi=110)


def figure_of(runs: dict[str, Run]) -> "Figure":
    require("plots")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"Wait of items from put to work: {RATE:,} items/s, {MOVES_PER_S:g} moves/s")
    rows = figure.subplots(len(runs), 1, sharex=True, sharey=True)
    for axes, run in zip(np.atleast_1d(rows), runs.values(), strict=True):
        _draw(axes, run)
    rows[0].legend(loc="upper right", fontsize=8)
    rows[-1].set(xlabel="seconds since the first put")
    return figure


def _draw(axes: Any, run: Run) -> None:
    bins = (run.times_s / _BIN_S).astype(np.int64)
    order = np.lexsort((run.latencies_ms, bins))
    bins, waits_ms = bins[order], run.latencies_ms[order]
    begins = np.flatnonzero(np.diff(bins, prepend=-1))
    ends = np.append(begins[1:], len(bins))
    times_s = bins[begins] * _BIN_S
    axes.vlines(times_s, waits_ms[begins], waits_ms[ends - 1], color="tab:orange", linewidth=0.8, label="longest")
    axes.plot(times_s, waits_ms[(begins + ends) // 2], color="tab:blue", linewidth=0.8, label="median")
    if len(run.moves_s):
        axes.plot(run.moves_s, np.full(len(run.moves_s), 0.02), "|", transform=axes.get_xaxis_transform(),
                  color="tab:red", markersize=5, label="move")  # fmt: skip
    axes.set_yscale("log")
    axes.grid(alpha=0.3)
    stops = len(run.stops) / len(run.moves_s) if len(run.moves_s) else 0
    axes.set(ylabel="ms", title=_TITLES[run.kind] + (f": {stops:.0f} slices stop each time" if stops > 1.5 else ""))

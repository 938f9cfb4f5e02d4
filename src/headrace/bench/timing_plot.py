"""Plots of jitter before and after a pacer, as PNG: figures 16 to 20 of NaradaBrokering's paper again.

jitter-atlantic.png   the whole picture: input and output over time, on one logarithmic axis, and each product's delay
jitter-fine.png       outputs alone: two precisions, a site over loopback, and 500 microseconds
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headrace.bench.timing_pacer import Stream
from headrace.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEFORE, AFTER = "tab:red", "tab:blue"


def save_plots(folder: Path, streams: Sequence[Stream]) -> None:
    """Write the files; create the directory if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    named = {stream.kind.name: stream for stream in streams}
    jitter_figure(named["atlantic-fine"]).savefig(folder / "jitter-atlantic.png", dpi=110)
    fine_figure(named).savefig(folder / "jitter-fine.png", dpi=110)


def _figure(inches: tuple[float, float]) -> "Figure":
    require("plots")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def jitter_figure(stream: Stream) -> "Figure":
    """Before and after: the delay of each product, and the jitter."""
    figure = _figure((9.5, 7.0))
    delays, jitters = figure.subplots(2, 1, sharex=True)
    draw_delays(delays, stream.arrived, stream.released)
    draw_jitter(jitters, stream)
    jitters.set_xlabel("seconds since the first product was created")
    figure.suptitle(f"A stream before and after a pacer ({stream.kind.what})")
    return figure


def draw_delays(axes: Any, arrived: npt.NDArray[Any], released: npt.NDArray[Any]) -> None:
    """How long after its creation each product arrived, and was released."""
    start = int(min(arrived[0].min(), released[0].min()))
    way_ms = (arrived[1] - arrived[0]) / 1e6
    axes.plot((arrived[0] - start) / 1e9, way_ms, ".", markersize=2, color=BEFORE, label="arrived")
    held_ms = (released[1] - released[0]) / 1e6
    shift_ms = np.median(held_ms) - np.percentile(way_ms, 1) - 200  # the clocks of release and creation differ
    axes.plot((released[0] - start) / 1e9, held_ms - shift_ms, ".", markersize=2, color=AFTER, label="released")
    axes.set(ylabel="milliseconds after creation", title="Each product: how long after its creation")
    axes.set_ylim(0, None)
    axes.set_xlim(0, None)
    axes.grid(alpha=0.3)
    axes.legend(loc="center right", fontsize=8, markerscale=5)


def draw_jitter(axes: Any, stream: Stream) -> None:
    """RTP's jitter of the input and of the output."""
    start, ends = int(stream.arrived[0].min()), np.maximum.accumulate(stream.arrived[0])
    for times, jitter, colour, words in (
        (ends, stream.before, BEFORE, "before the pacer"),
        (stream.released[0], stream.after, AFTER, "after the pacer"),
    ):
        rest = jitter[len(jitter) // 10 :]
        label = f"{words}{_mean(jitter)}, median {_microseconds(float(np.median(rest)))}" if len(rest) else words
        axes.plot((times[1:] - start) / 1e9, jitter, color=colour, linewidth=1, label=label)
    axes.set(yscale="log", ylabel="jitter", title="Jitter by RTP's formula")
    axes.yaxis.set_major_formatter(lambda value, _: _microseconds(value))
    axes.grid(alpha=0.3)
    _leave_room(axes)
    axes.legend(loc="upper right", fontsize=8)


def _leave_room(axes: Any) -> None:
    """Above the data, for a legend."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.3)


def fine_figure(named: dict[str, Stream]) -> "Figure":
    """Outputs alone: what precision, a real site and a spacing of 500 microseconds make of it."""
    figure = _figure((9.5, 9.0))
    precisions, site, fine = figure.subplots(3, 1)
    for name, words, colour in (("atlantic", "precision 1 ms", "tab:orange"), ("atlantic-fine", "100 µs", AFTER)):
        _draw_output(precisions, named[name], words, colour)
    precisions.set_title("Output, from the other side of the Atlantic (simulated), every 5 ms")
    stream = named["site"]
    start, ends = int(stream.arrived[0].min()), np.maximum.accumulate(stream.arrived[0])
    before = "before the pacer" + _mean(stream.before)
    site.plot((ends[1:] - start) / 1e9, stream.before, color=BEFORE, linewidth=1, label=before)
    _draw_output(site, stream, "after the pacer", AFTER)
    site.set_title("Input and output, through a real site over loopback, every 5 ms")
    for name, words, colour in (("500us", "precision 100 µs", AFTER), ("500us-spin", "20 µs (spins)", "tab:green")):
        _draw_output(fine, named[name], words, colour)
    fine.axhline(50, color="0.4", linestyle=":", linewidth=1)
    fine.set_title("Output, every 500 µs")
    fine.set_xlabel("seconds since the first product was created")
    for axes in (precisions, site, fine):
        axes.set(yscale="log", ylabel="jitter")
        axes.yaxis.set_major_formatter(lambda value, _: _microseconds(value))
        axes.grid(alpha=0.3)
        axes.set_xlim(0, None)
        _leave_room(axes)
        axes.legend(loc="upper right", fontsize=8)
    return figure


def _draw_output(axes: Any, stream: Stream, words: str, colour: str) -> None:
    start = int(stream.released[0].min())
    label = f"{words}{_mean(stream.after)}, {stream.processor:.1f} % of a processor"
    axes.plot((stream.released[0][1:] - start) / 1e9, stream.after, color=colour, linewidth=1, label=label)


def _mean(jitter: npt.NDArray[np.float64]) -> str:
    rest = jitter[len(jitter) // 10 :]
    return f": mean {_microseconds(float(rest.mean()))}" if len(rest) else ""


def _microseconds(value: float) -> str:
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} µs"

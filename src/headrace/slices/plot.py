"""Plot: the history of a group of nodes, as a picture.

    load       how many workers of each node were busy
    waiting    products that each node had read and not begun
    slices     that each node owned, on top of each other

A session is a line: solid where slices moved between two nodes, dotted where they had no owner before. Up to `_NAMED`
nodes have a colour and a name; of more, all are drawn and the first ones are named.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headrace.extras import require
from headrace.share.interface import Reason, Sample, Session, ShareState
from headrace.units import format_count, format_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES = (9.5, 8.5)
_NAMED = 10
_GAP_S = 4.0  # without a sample for so long, a node was away
_STEP_S = 0.5
_MARKED = 60  # sessions
_COLOURS: dict[Reason, str] = {
    "load": "tab:purple", "join": "tab:green", "drain": "tab:brown", "idle": "tab:olive", "dead": "tab:red",
    "hand": "tab:cyan",
}  # fmt: skip

Times = npt.NDArray[np.float64]


def save_plot(path: Path, samples: Sequence[Sample], state: ShareState) -> None:
    """Write the file, in the format that its name ends with; create its directory if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure_of(samples, state).savefig(path, dpi=110)


def figure_of(samples: Sequence[Sample], state: ShareState) -> "Figure":
    require("plots")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    load, waiting, slices = figure.subplots(3, 1, sharex=True, height_ratios=(1.2, 0.8, 1.2))
    start_ns = samples[0].time_ns
    draw_load(load, samples, start_ns)
    draw_waiting(waiting, samples, start_ns)
    draw_slices(slices, samples, start_ns)
    for axes in (load, waiting, slices):
        mark_sessions(axes, state.sessions, start_ns, samples[-1].time_ns, named=axes is slices)
        axes.grid(alpha=0.3)
        axes.set_ylim(0, axes.get_ylim()[1] * (1 if axes is waiting else 1.2))  # room for a legend
    load.set_xlim(0, max(1.0, (samples[-1].time_ns - start_ns) / 1e9))
    slices.set_xlabel(f"seconds since {format_time(start_ns)}")
    nodes = format_count(len({each.node for each in samples}), "node")
    done = format_count(int(state.products.sum()), "product")
    figure.suptitle(f"group {state.group} of stream {state.stream}: {nodes}, {done} confirmed")
    return figure


def draw_load(axes: Any, samples: Sequence[Sample], start_ns: int) -> None:
    """Workers in use, for each node."""
    for number, (node, own) in enumerate(_by_node(samples).items()):
        times, busy = _with_gaps(_times(own, start_ns), np.array([each.busy for each in own]))
        axes.plot(times, busy, linewidth=1.4, label=node if number < _NAMED else None)
    axes.set(ylabel="workers in use", title="Load of each node")
    axes.legend(loc="upper right", fontsize=8, ncols=2)


def draw_waiting(axes: Any, samples: Sequence[Sample], start_ns: int) -> None:
    for own in _by_node(samples).values():
        times, waiting = _with_gaps(_times(own, start_ns), np.array([float(each.waiting) for each in own]))
        axes.plot(times, waiting, linewidth=1.2)
    axes.set(ylabel="products", title="Waiting at each node")
    axes.yaxis.set_major_formatter("{x:,.0f}")


def draw_slices(axes: Any, samples: Sequence[Sample], start_ns: int) -> None:
    """Slices that each node owned, on top of each other; a node that is silent owns none that are shown."""
    nodes = _by_node(samples)
    known = [_times(own, start_ns) for own in nodes.values()]
    times = np.unique(np.concatenate([*known, np.arange(0.0, max(each[-1] for each in known), _STEP_S)]))
    counts = [np.array([each.slices for each in own]) for own in nodes.values()]
    layers = [_held(times, own, count) for own, count in zip(known, counts, strict=True)]
    axes.stackplot(times, *layers, step="post", alpha=0.75, linewidth=0)
    axes.set(ylabel="slices", title="Slices of each node, and sessions")
    axes.yaxis.set_major_formatter("{x:,.0f}")


def mark_sessions(axes: Any, sessions: Sequence[Session], start_ns: int, end_ns: int, *, named: bool) -> None:
    """A line for each session in this time, in the colour of its reason; `named`: with a legend."""
    told: set[tuple[str, bool]] = set()
    within = [each for each in sessions if start_ns <= each.begun_ns <= end_ns]
    for each in within[-_MARKED:]:
        had_owner = bool(each.giver)
        what = each.reason if had_owner else f"{each.reason}, no owner before"
        label = what if named and (each.reason, had_owner) not in told else None
        told.add((each.reason, had_owner))
        style = "-" if had_owner else ":"
        at_s = (each.begun_ns - start_ns) / 1e9
        axes.axvline(at_s, color=_COLOURS[each.reason], linestyle=style, linewidth=1, alpha=0.8, label=label)
    if named and told:
        axes.legend(
            title="sessions, by reason", loc="upper right", fontsize=8, title_fontsize=8, ncols=min(4, len(told))
        )


def _by_node(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    nodes: dict[str, list[Sample]] = {}
    for each in samples:
        nodes.setdefault(each.node, []).append(each)
    return nodes


def _times(samples: Sequence[Sample], start_ns: int) -> Times:
    return np.array([(each.time_ns - start_ns) / 1e9 for each in samples])


def _with_gaps(times: Times, values: Times) -> tuple[Times, Times]:
    """Break the line where samples are missing."""
    gaps = np.flatnonzero(np.diff(times) > _GAP_S) + 1
    return np.insert(times, gaps, times[gaps - 1]), np.insert(values, gaps, np.nan)


def _held(times: Times, own: Times, values: npt.NDArray[Any]) -> Times:
    """At each time the latest value that is not too old, 0 otherwise."""
    place = np.searchsorted(own, times, side="right") - 1
    found = np.maximum(place, 0)
    return np.where((place >= 0) & (times - own[found] < _GAP_S), values[found], 0).astype(np.float64)

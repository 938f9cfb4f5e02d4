"""Plot: latencies over time with the cut, and the hourly table, as a PNG."""

from pathlib import Path
from typing import Any

import numpy as np

from headrace.demo.outcome import Row, TableVerdicts
from headrace.demo.plan import SECOND, WATCHERS, Plan
from headrace.demo.run import LinkCut
from headrace.extras import require

_INCHES = (9.0, 8.0)
_STATIONS_MAX = 30
_BIN_S = 0.1
_COLOURS = ("tab:blue", "tab:orange")


def save_plot(path: Path, plan: Plan, cut: LinkCut | None, tables: TableVerdicts) -> None:
    """Write the file; create its directory if necessary."""
    require("plots")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1)
    _draw_latencies(above, plan, cut)
    _draw_hours(below, tables.hourly)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _draw_latencies(axes: Any, plan: Plan, cut: LinkCut | None) -> None:
    """The median of each tenth of a second, and the range from the 5th to the 95th percentile."""
    series = {watcher.name: np.load(plan.latencies_of(watcher.name)) for watcher in WATCHERS}
    start_s = min((float(created.min()) for created, _ in series.values() if len(created)), default=0.0)
    for colour, (name, (created, latencies)) in zip(_COLOURS, series.items(), strict=True):
        offsets = ((created - start_s) / _BIN_S).astype(int)
        bins = np.unique(offsets)
        shares = np.array([np.percentile(latencies[offsets == offset], (5, 50, 95)) for offset in bins]).reshape(-1, 3)
        axes.plot(bins * _BIN_S, shares[:, 1] * 1000, color=colour, linewidth=1.2, label=f"watcher {name}, median")
        axes.fill_between(bins * _BIN_S, shares[:, 0] * 1000, shares[:, 2] * 1000, color=colour, alpha=0.2, linewidth=0)
    if cut is not None:
        at_s = cut.at_ns / 1e9 - start_s
        axes.axvspan(at_s, at_s + cut.lasted_s, color="0.85", label="the link is cut", zorder=0)
    axes.set(yscale="log", xlabel="created at, s", ylabel="latency, ms", title=f"from put to watcher at site {SECOND}")
    axes.legend(loc="best", fontsize=8)


def _draw_hours(axes: Any, hourly: list[Row]) -> None:
    """Mean, lowest and highest temperature of the stations with most reports."""
    known = [row for row in hourly if row["temperature"] is not None]
    reports: dict[str, int] = {}
    for row in known:
        reports[row["station"]] = reports.get(row["station"], 0) + row["reports"]
    stations = sorted(sorted(reports, key=lambda station: -reports[station])[:_STATIONS_MAX])
    hours = sorted({row["hour"] for row in known})
    for number, hour in enumerate(hours):
        rows = [row for row in known if row["hour"] == hour and row["station"] in stations]
        offsets = [stations.index(row["station"]) + (number + 0.5) / len(hours) * 0.6 - 0.3 for row in rows]
        means = [row["temperature"] for row in rows]
        ends = np.array([(row["coldest"], row["warmest"]) for row in rows]).reshape(-1, 2)
        (line,) = axes.plot(offsets, means, "o", markersize=3, label=f"{hour:%d %H}:00")
        axes.vlines(offsets, ends[:, 0], ends[:, 1], color=line.get_color(), linewidth=1)
    axes.set_xticks(range(len(stations)), stations, rotation=90, fontsize=8)
    axes.set(ylabel="temperature, °C", title="table hourly: mean, lowest and highest temperature of each station")
    if hours:
        axes.legend(title="hour, UTC", loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)

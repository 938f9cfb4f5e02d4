"""Plot: the run over time and the hourly table, as a PNG.

    products     put at the first site and arrived at the second; the cut opens a gap between the two, the backlog
    latency      from put to a watcher at the second site
    work         products per second of each worker; one of them is killed
    nodes        products per second of each processing node; the second one joins
    table        mean, lowest and highest temperature by station and hour
    jitter       of a stream from across the Atlantic, simulated: as it arrived, and after a pacer

The first three share an axis, seconds since the first product was put. Everything is drawn from what the processes
recorded, not from what they reported.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headrace.demo.nodes import Sharing, draw_sharing
from headrace.demo.outcome import Delivery, Row, TableVerdicts
from headrace.demo.pacing import Smoothing, draw_smoothing
from headrace.demo.plan import FIRST, KILLED_WORKER, SECOND, STATION, WATCHERS, WORKERS, Plan
from headrace.extras import require
from headrace.units import format_count, format_latency

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES = (9.5, 16.5)
_STATIONS_MAX = 24
_LATENCY_BIN_S, _WORK_BIN_S = 0.1, 0.5
_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:purple")
_BAD = "tab:red"
_NOTE = {"fontsize": 9, "bbox": {"boxstyle": "round", "facecolor": "white", "edgecolor": "0.6", "alpha": 0.9}}


def save_plot(
    path: Path, plan: Plan, delivery: Delivery, tables: TableVerdicts, sharing: Sharing | None,
    smoothing: Smoothing | None,
) -> None:  # fmt: skip
    """Write the file; create its directory if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure_of(plan, delivery, tables, sharing, smoothing).savefig(path, dpi=110)


def figure_of(
    plan: Plan, delivery: Delivery, tables: TableVerdicts, sharing: Sharing | None = None,
    smoothing: Smoothing | None = None,
) -> "Figure":  # fmt: skip
    require("plots")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    products, latency, work, nodes, hours, jitter = figure.subplots(6, 1, height_ratios=(1.1, 1, 0.8, 0.8, 1.2, 1))
    created, latencies = np.load(plan.times_of(WATCHERS[0].name))
    start_s = float(created.min()) if len(created) else 0.0
    _draw_products(products, created - start_s, latencies, delivery)
    _draw_latencies(latency, plan, start_s)
    _draw_work(work, plan, start_s, delivery)
    for axes in (products, latency, work):
        _mark(axes, delivery, start_s)
        axes.set_xlim(0, None)
        axes.grid(alpha=0.3)
    latency.sharex(products)
    work.sharex(products)
    work.set_xlabel("seconds since the first product was put")
    if sharing is not None:
        draw_sharing(nodes, plan, sharing, (_COLOURS[0], _COLOURS[1]))
        nodes.grid(alpha=0.3)
    _draw_hours(hours, tables.hourly)
    if smoothing is not None:
        draw_smoothing(jitter, smoothing)
        jitter.grid(alpha=0.3)
    lost = sum(verdict.lost for verdict in (*delivery.watchers.values(), delivery.workers, *tables.verdicts.values()))
    put = format_count(delivery.first.inserted_products, "product")
    figure.suptitle(f"headrace demo, seed {plan.seed}: {put} put, {delivery.arrived:,} arrived, {lost:,} lost")
    return figure


def _mark(axes: Any, delivery: Delivery, start_s: float) -> None:
    """The time of the cut and of the kill."""
    if delivery.cut is not None:
        at_s = delivery.cut.at_ns / 1e9 - start_s
        axes.axvspan(at_s, at_s + delivery.cut.lasted_s, color="0.88", zorder=0, linewidth=0)
    if delivery.kill is not None:
        axes.axvline(delivery.kill.at_ns / 1e9 - start_s, color=_BAD, linestyle=":", linewidth=1)


def _draw_products(axes: Any, put_s: npt.NDArray[Any], latencies: npt.NDArray[Any], delivery: Delivery) -> None:
    """How many were put, and how many had arrived, at each time; the area between them is the backlog."""
    put_s, arrived_s = np.sort(put_s), np.sort(put_s + latencies)
    times = np.union1d(put_s, arrived_s)
    put, arrived = (np.searchsorted(each, times, side="right") for each in (put_s, arrived_s))
    axes.plot(times, put, color=_COLOURS[0], label=f"put at site {FIRST}")
    axes.plot(times, arrived, color=_COLOURS[1], label=f"arrived at site {SECOND}")
    axes.fill_between(times, arrived, put, color=_BAD, alpha=0.25, linewidth=0, label="backlog")
    cut = delivery.cut
    if cut is not None and len(times):
        text = f"link cut for {cut.lasted_s:.1f} s:\n{format_count(cut.missing, 'product')} missing"
        if cut.caught_up_after_s is not None:
            text += f",\nall there {format_latency(cut.caught_up_after_s)} later"
        middle = int(np.argmax(put - arrived))
        place = (times[middle], (put[middle] + arrived[middle]) / 2)
        arrow = {"arrowstyle": "->", "color": _BAD}
        axes.annotate(text, place, (0.97, 0.08), textcoords="axes fraction", ha="right", arrowprops=arrow, **_NOTE)
    axes.set(
        ylabel="products", title=f"Every product arrives, also those of the cut (grey): site {FIRST} → site {SECOND}"
    )
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(loc="upper left", fontsize=8)


def _draw_latencies(axes: Any, plan: Plan, start_s: float) -> None:
    """The median of each tenth of a second, and the range from the 5th to the 95th percentile."""
    for colour, watcher in zip(_COLOURS, WATCHERS, strict=False):
        created, latencies = np.load(plan.times_of(watcher.name))
        offsets = ((created - start_s) / _LATENCY_BIN_S).astype(int)
        bins = np.unique(offsets)
        shares = np.array([np.percentile(latencies[offsets == offset], (5, 50, 95)) for offset in bins]).reshape(-1, 3)
        low, median, high = shares.T
        axes.plot(bins * _LATENCY_BIN_S, median, color=colour, linewidth=1.2, label=f"watcher {watcher.name}: median")
        axes.fill_between(bins * _LATENCY_BIN_S, low, high, color=colour, alpha=0.2, linewidth=0, label="5 % to 95 %")
    axes.set(
        yscale="log",
        ylabel="latency",
        title=f"Latency from put at site {FIRST} to a watcher at site {SECOND}, by time of put",
    )
    axes.yaxis.set_major_formatter(lambda seconds, _: f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms")
    axes.legend(loc="upper left", fontsize=8, ncols=2)


def _draw_work(axes: Any, plan: Plan, start_s: float, delivery: Delivery) -> None:
    """Products that each worker acknowledged, per second; the killed worker ends with a cross."""
    ends = np.arange(0, plan.seconds * 2, _WORK_BIN_S)
    last_s = 0.0
    for colour, worker in zip((_COLOURS[0], _BAD, _COLOURS[2]), WORKERS, strict=True):
        times, counts = np.load(plan.times_of(worker))
        rates, _ = np.histogram(times - start_s, ends, weights=counts)
        used = 1 + int(np.max(np.nonzero(rates)[0], initial=0))
        last_s = max(last_s, ends[used])
        axes.step(ends[:used], rates[:used] / _WORK_BIN_S, where="post", color=colour, label=worker)
    kill = delivery.kill
    if kill is not None:
        at_s = kill.at_ns / 1e9 - start_s
        text = f"{KILLED_WORKER} killed\nwhile it held {format_count(kill.held, 'product')}"
        if kill.back_after_s is not None:
            text += f";\nredelivered after {format_latency(kill.back_after_s)}"
        axes.plot([at_s], [0], "X", color=_BAD, markersize=11, clip_on=False, zorder=5)
        arrow = {"arrowstyle": "->", "color": _BAD}
        axes.annotate(
            text,
            (at_s, 0),
            (at_s + 0.3, 0.6),
            textcoords=("data", "axes fraction"),
            va="center",
            arrowprops=arrow,
            **_NOTE,
        )
    axes.set(
        ylabel="products per second",
        title=f"Work of station {STATION}: the others take over what the killed worker held",
    )
    axes.yaxis.set_major_formatter("{x:,.0f}")
    _leave_room(axes)
    axes.legend(loc="upper left", fontsize=8, ncols=len(WORKERS))


def _leave_room(axes: Any) -> None:
    """Above the data, for a legend."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.25 * (high - low))


def _draw_hours(axes: Any, hourly: list[Row]) -> None:
    """Mean, lowest and highest temperature of the stations with most reports."""
    known = [row for row in hourly if row["temperature"] is not None]
    reports: dict[str, int] = {}
    for row in known:
        reports[row["station"]] = reports.get(row["station"], 0) + row["reports"]
    stations = sorted(sorted(reports, key=lambda station: -reports[station])[:_STATIONS_MAX])
    shown = [row for row in known if row["station"] in stations]
    hours = sorted({row["hour"] for row in shown})
    for number, hour in enumerate(hours):
        rows = [row for row in shown if row["hour"] == hour]
        offsets = [stations.index(row["station"]) + (number + 0.5) / len(hours) * 0.6 - 0.3 for row in rows]
        means = [row["temperature"] for row in rows]
        ends = np.array([(row["coldest"], row["warmest"]) for row in rows]).reshape(-1, 2)
        (line,) = axes.plot(offsets, means, "o", markersize=3.5, label=f"{hour:%d %b %H:%M} UTC")
        axes.vlines(offsets, ends[:, 0], ends[:, 1], color=line.get_color(), linewidth=1)
    axes.set_xticks(range(len(stations)), stations, rotation=90, fontsize=8)
    axes.grid(axis="y", alpha=0.3)
    axes.set(
        ylabel="temperature, °C",
        title=f"Table hourly, made by Spark: mean and range, {len(stations)} of {len(reports)} stations",
    )
    if hours:
        _leave_room(axes)
        axes.legend(title="hour from", loc="upper left", fontsize=8, title_fontsize=8, ncols=len(hours))

"""A frame drawn for a terminal: the queue on top, then stations, consumers and feeds, as many as fit.

The three lists share the rows evenly, and a list that does not fit shows how many rows it has. On a narrow terminal the
less urgent columns are left out. Names may come from other sites: cells are text, never markup.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.cli.top.frame import ConsumerRow, Frame, QueueRow, StationRow
from headrace.text import visible
from headrace.units import format_age, format_count, format_size

FEEDS_MAX = 10
_UNKNOWN = "–"
_WIDE = 96  # columns from which everything is shown
_NARROW = 72  # columns below which there are no bars
_HEAD_LINES = 3  # title, fill, rates
_NAME_WIDTH_MIN = 12


@dataclass(frozen=True, slots=True)
class Canvas:
    """The size and the abilities of the terminal."""

    width: int
    height: int | None = None  # None: no limit
    ascii_only: bool = False


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of a list, on canvases of at least `width_min`."""

    header: str
    cell: Callable[[Any, Canvas], Text | str]
    width_min: int = 0


@dataclass(frozen=True, slots=True)
class _List:
    """One of the lists; its title is the header of its first column."""

    title: str
    rows: Sequence[Any]
    name: Callable[[Any, Canvas], Text]
    columns: Sequence[_Column]
    style: Callable[[Any], str] = lambda row: ""
    rows_max: int | None = None  # if the canvas has no height


def draw(frame: Frame, canvas: Canvas) -> Group:
    """The whole screen; never taller than the canvas."""
    parts: list[RenderableType] = [_title(frame), _fill(frame.queue, canvas), _rates(frame.queue)]
    lists = [each for each in _lists(frame) if each.rows]
    for each, shown in zip(lists, _shown(lists, canvas.height), strict=True):
        if shown:
            parts += ["", _draw_list(each, shown, canvas)]
    return Group(*parts)


def _shown(lists: Sequence[_List], height: int | None) -> list[int]:
    """How many rows of each list to show."""
    wanted = [len(each.rows) for each in lists]
    if height is None:
        return [min(want, each.rows_max or want) for each, want in zip(lists, wanted, strict=True)]
    return share_lines(height - _HEAD_LINES, wanted)


def share_lines(lines: int, wanted: Sequence[int]) -> list[int]:
    """How many rows each list gets; a list needs two more lines for its header.

    Lists take turns, the first one first. Rows that one list does not need go to the others.
    """
    given = [0] * len(wanted)
    while given != list(wanted):
        before = list(given)
        for index, want in enumerate(wanted):
            cost = 1 if given[index] else 3
            if given[index] < want and lines >= cost:
                given[index] += 1
                lines -= cost
        if given == before:
            break
    return given


def _draw_list(each: _List, shown: int, canvas: Canvas) -> Table:
    """A table without a frame; names take the space that the other columns leave."""
    title = each.title if shown == len(each.rows) else f"{each.title} ({shown} of {len(each.rows)})"
    columns = [column for column in each.columns if canvas.width >= column.width_min]
    table = Table(box=None, expand=True, padding=(0, 1), pad_edge=False, header_style="reverse")
    table.add_column(title, no_wrap=True, overflow="ellipsis", ratio=1, min_width=_NAME_WIDTH_MIN)
    for column in columns:
        table.add_column(column.header, no_wrap=True, overflow="ellipsis", justify="right")
    for row in each.rows[:shown]:
        cells = [each.name(row, canvas), *(column.cell(row, canvas) for column in columns)]
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), style=each.style(row))
    return table


# --- numbers and bars ------------------------------------------------------------------------------


def bar(fill: float, width: int, ascii_only: bool = False) -> Text:
    """A bar of `width` characters; red if it is nearly full, empty only if `fill` is 0."""
    style = "green" if fill < 0.6 else "yellow" if fill < 0.9 else "red"
    full = min(width, max(round(fill * width), 1 if fill > 0 else 0))
    block, rest = "#." if ascii_only else "█░"
    return Text(block * full, style=style).append(rest * (width - full), style="dim")


def short(number: int) -> str:
    """`9,999`, then `12.3k`, `4.56M`: at most five characters."""
    if number < 10_000:
        return f"{number:,}"
    for unit, size in (("k", 10**3), ("M", 10**6), ("G", 10**9)):
        if number < 999.5 * size:
            return f"{number / size:.3g}{unit}"
    return f"{number / 10**12:.3g}T"


def per_second(rate: float | None) -> str:
    """With one decimal below 100."""
    if rate is None:
        return _UNKNOWN
    return f"{rate:.1f}" if 0 < rate < 99.95 else short(round(rate))


def bytes_per_second(rate: float | None) -> str:
    return _UNKNOWN if rate is None else f"{format_size(rate)}/s"


# --- the queue ------------------------------------------------------------------------------------


def _title(frame: Frame) -> Table:
    line = Table.grid(expand=True, padding=(0, 2))
    line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    line.add_column(no_wrap=True, justify="right", style="dim")
    over = "" if frame.seconds is None else f"  per second over {format_age(frame.seconds)}"
    line.add_row(Text(visible(frame.queue.path), style="bold"), Text(f"{frame.time[11:19]} UTC{over}"))
    return line


def _fill(queue: QueueRow, canvas: Canvas) -> Text:
    age = "" if queue.oldest_age_s is None else f"  oldest {format_age(queue.oldest_age_s)}"
    return Text.assemble(
        "fill ",
        bar(queue.fill, 24 if canvas.width >= _WIDE else 10, canvas.ascii_only),
        f" {queue.fill:4.0%}  {format_size(queue.file_bytes)} of {format_size(queue.size)}",
        f"  {short(queue.held_products)} product{'' if queue.held_products == 1 else 's'}{age}",
        no_wrap=True,
        overflow="ellipsis",
    )


def _rates(queue: QueueRow) -> Text:
    return Text.assemble(
        "in   ",
        (f"{per_second(queue.products_s)}/s  {bytes_per_second(queue.bytes_s)}", "bold"),
        f"   duplicates {per_second(queue.duplicates_s)}/s   evicted {per_second(queue.evicted_s)}/s",
        f"   {format_count(queue.readers, 'reader')}, {format_count(queue.writers, 'writer')}",
        no_wrap=True,
        overflow="ellipsis",
    )


# --- the lists ------------------------------------------------------------------------------------


def _lists(frame: Frame) -> list[_List]:
    """The most urgent list first."""
    return [
        _List("stations", frame.stations, _station_name, _STATION, lambda row: "dim" if row.paused else ""),
        _List("consumers", frame.consumers, lambda row, canvas: Text(visible(row.station)), _CONSUMER),
        _List(
            "feeds", frame.feeds, lambda row, canvas: Text(visible(row.feed)), _FEED,
            lambda row: "" if row.products_s else "dim", FEEDS_MAX,
        ),
    ]  # fmt: skip


def _station_name(row: StationRow, canvas: Canvas) -> Text:
    """Indented by its depth in the chain, followed by its group and flags."""
    step = "> " if canvas.ascii_only else "└ "
    text = Text("  " * (row.depth - 1) + step if row.depth else "", style="dim")
    text.append(visible(row.name), style="not dim")
    flags = [f"in {row.group}"] if row.group else []
    flags += [word for word, holds in (("paused", row.paused), ("blocking", row.blocking)) if holds]
    return text.append(f" {visible(', '.join(flags))}" if flags else "", style="dim cyan")


def _capacity(row: StationRow, canvas: Canvas) -> Text:
    return bar(row.fill, 14 if canvas.width >= _WIDE else 8, canvas.ascii_only)


def _waiting(row: StationRow, canvas: Canvas) -> str:
    """Without a capacity of its own, products that the station has not examined yet count as waiting."""
    return short(row.waiting + row.behind) if row.capacity is None else f"{short(row.waiting)}/{short(row.capacity)}"


def _parked(row: StationRow, canvas: Canvas) -> Text:
    return Text(short(row.parked), style="yellow" if row.parked else "")


def _dropped(row: StationRow, canvas: Canvas) -> Text:
    return Text(per_second(row.dropped_s), style="red" if row.dropped_s else "")


def _heartbeat(row: ConsumerRow, canvas: Canvas) -> Text:
    age = format_age(row.beat_age_s)
    return Text(age) if row.alive else Text(f"dead {age}", style="red")


_STATION = (
    _Column("capacity", _capacity, _NARROW),
    _Column("waiting", _waiting),
    _Column("leased", lambda row, canvas: short(row.leased)),
    _Column("parked", _parked),
    _Column("in/s", lambda row, canvas: per_second(row.admitted_s), _WIDE),
    _Column("ack/s", lambda row, canvas: per_second(row.acknowledged_s)),
    _Column("drop/s", _dropped),
    _Column("lag", lambda row, canvas: format_age(row.lag_s)),
)
_CONSUMER = (
    _Column("place", lambda row, canvas: str(row.place), _NARROW),
    _Column("pid", lambda row, canvas: str(row.pid)),
    _Column("leased", lambda row, canvas: short(row.leased)),
    _Column("acked", lambda row, canvas: short(row.acknowledged)),
    _Column("got/s", lambda row, canvas: per_second(row.delivered_s), _NARROW),
    _Column("ack/s", lambda row, canvas: per_second(row.acknowledged_s)),
    _Column("heartbeat", _heartbeat),
)
_FEED = (
    _Column("products/s", lambda row, canvas: per_second(row.products_s)),
    _Column("payload/s", lambda row, canvas: bytes_per_second(row.bytes_s)),
    _Column("products", lambda row, canvas: short(row.products)),
    _Column("payload", lambda row, canvas: format_size(row.bytes), _WIDE),
)

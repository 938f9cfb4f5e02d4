"""What commands show: JSON lines for programs, tables for people, one line per product, and progress bars.

A table has frames and colours on a terminal and plain columns in a pipe. A progress bar goes to standard error, and
only if that is a terminal. Names may come from other sites, so each cell passes through `visible` and is never read as
markup.
"""

import codecs
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failure import json_line
from headrace.text import visible
from headrace.units import format_latency, format_size, format_time

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from headrace.product import Product
    from headrace.product.options import Fragment


def product_values(product: "Product", **more: Any) -> dict[str, Any]:
    """All fields of a product except its payload, and `more`; times are ISO 8601, the signature is hexadecimal."""
    mark, part = product.options.replay, product.options.fragment
    return {
        "sequence": product.sequence,
        "feed": product.feed,
        "ident": product.ident,
        "size": product.size,
        "signature": product.signature.hex(),
        "origin": product.origin,
        "origin_sequence": product.origin_sequence,
        "previous": product.previous,
        "created": format_time(product.created_ns),
        "bound_s": None if product.bound_ns is None else product.bound_ns / 1e9,
        "inserted": format_time(product.inserted_ns),
        "priority": product.priority,
        "expiry": None if product.expiry_ns is None else format_time(product.expiry_ns),
        "slice": product.slice,
        "properties": dict(product.properties),
        "replay": None if mark is None else {"run": f"{mark.run:016x}", "sequence": mark.sequence},
        "fragment": None if part is None else _part_values(part),
        **more,
    }


def _part_values(part: "Fragment") -> dict[str, Any]:
    """Which part of something larger a product is: the number of the part, from 1 on, or that it is the manifest."""
    is_manifest = part.number == part.count - 1
    return {
        "transfer": part.transfer.hex(), "manifest": is_manifest, "part": None if is_manifest else part.number + 1,
        "parts": part.count - 1,
    }  # fmt: skip


def echo_json(value: Any) -> None:
    click.echo(json_line(value))


def product_text(product: "Product", age_s: float, time_ns: int | None = None) -> str:
    """One line: sequence, time (of insertion if none is given), size, age, feed and ident, and what is special."""
    part = product.options.fragment
    time = format_time(product.inserted_ns if time_ns is None else time_ns)
    return (
        f"{product.sequence:>8}  {time}  {format_size(product.size):>9}  "
        f"{format_latency(age_s):>8}  {visible(product.feed)}  {visible(product.ident)}"
        f"{'  (replay)' if product.is_replay else ''}{'' if part is None else f'  ({part})'}"
    )


# --- payloads -------------------------------------------------------------------------------------

PAYLOAD_BYTES_MAX = 2048  # that are shown of one payload
_PAYLOAD_LINES_MAX = 40
_HEX_BYTES = 16
_INDENT = " " * 10


def payload_lines(payload: "bytes | memoryview") -> list[str]:
    """The beginning of a payload for a terminal: text with control characters escaped, or a hexadecimal dump.

    It is text if it is UTF-8 and has no zero byte. A last line says how many bytes are left out.
    """
    start = bytes(payload[:PAYLOAD_BYTES_MAX])
    text = _text_of(start)
    lines = (
        _hex_lines(start) if text is None else [visible(line.rstrip("\r")) for line in text.rstrip("\n").split("\n")]
    )
    shown = len(start)
    if text is not None and len(lines) > _PAYLOAD_LINES_MAX:
        lines = lines[:_PAYLOAD_LINES_MAX]
        shown = len("\n".join(text.split("\n")[:_PAYLOAD_LINES_MAX]).encode())
    if shown < len(payload):
        lines.append(f"… {format_size(len(payload) - shown)} more: headrace cat")
    return [_INDENT + line for line in lines]


def _text_of(start: bytes) -> str | None:
    """As text; None if it is binary. The last character may be cut."""
    if b"\0" in start:
        return None
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return None


def _hex_lines(start: bytes) -> list[str]:
    """As `hexdump -C` does: offset, bytes, characters."""
    pieces = [(offset, start[offset : offset + _HEX_BYTES]) for offset in range(0, len(start), _HEX_BYTES)]
    return [
        f"{offset:06x}  {piece.hex(' '):<{_HEX_BYTES * 3}} |{''.join(chr(b) if 32 <= b < 127 else '.' for b in piece)}|"
        for offset, piece in pieces
    ]


# --- tables ---------------------------------------------------------------------------------------


def is_terminal() -> bool:
    return sys.stdout.isatty()


def show_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = ()) -> None:
    """Write a table to standard output; the columns in `right` are aligned to the right."""
    texts = [[visible(str(cell)) for cell in row] for row in rows]
    if is_terminal():
        from rich.console import Console

        Console().print(framed_table(title, header, texts, right))
        return
    click.echo(f"{title}:")
    for line in plain_columns([header, *texts] if any(header) else texts, right):
        click.echo(f"  {line}")


def show_fields(title: str, values: Mapping[str, object]) -> None:
    """Write a table of names and values, one pair per line."""
    show_table(title, ("", ""), list(values.items()))


def framed_table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()
) -> "Table":
    """A table for a terminal; cells are text, not markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", show_header=any(header), box=box.ROUNDED)
    for column, name in enumerate(header):
        table.add_column(name, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def plain_columns(rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_pad(row, widths, right)).rstrip() for row in rows]


def _pad(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> list[str]:
    pairs = enumerate(zip(row, widths, strict=True))
    return [cell.rjust(width) if column in right else cell.ljust(width) for column, (cell, width) in pairs]


# --- progress -------------------------------------------------------------------------------------


class ProgressBar:
    """A progress bar on standard error; without a terminal it does nothing."""

    def __init__(self, progress: "Progress | None", task: "TaskID | None") -> None:
        self._progress, self._task = progress, task

    def set(self, done: float, total: float | None = None) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)


@contextmanager
def progress_bar(title: str, total: float | None = None, shown: bool = True) -> Iterator[ProgressBar]:
    """A bar that disappears at the end of the block."""
    if not shown or not sys.stderr.isatty():
        yield ProgressBar(None, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield ProgressBar(progress, progress.add_task(title, total=total))


@contextmanager
def transfer_bar(title: str) -> Iterator[ProgressBar]:
    """A bar of bytes, with their rate, that disappears at the end of the block."""
    if not sys.stderr.isatty():
        yield ProgressBar(None, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield ProgressBar(progress, progress.add_task(title, total=None))

"""What commands show: JSON lines for programs, tables for people, one line per product.

A table has frames and colours on a terminal and is plain columns in a pipe. Names come from strangers, so every one
passes through `visible` and is never taken for markup.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headrace.cli.failure import visible
from headrace.units import format_age, format_size, format_time

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.product import Product


def product_values(product: "Product", **more: Any) -> dict[str, Any]:
    """All that is known of a product but its payload, and `more`; times are ISO 8601, the signature hexadecimal."""
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
        "inserted": format_time(product.inserted_ns),
        "priority": product.priority,
        "expiry": None if product.expiry_ns is None else format_time(product.expiry_ns),
        "slice": product.slice,
        "properties": dict(product.properties),
        **more,
    }


def json_line(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def echo_json(value: Any) -> None:
    click.echo(json_line(value))


def is_terminal() -> bool:
    return sys.stdout.isatty()


def show_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = ()) -> None:
    """A table on standard output; the columns in `right` are aligned to the right."""
    texts = [[visible(str(cell)) for cell in row] for row in rows]
    if is_terminal():
        from rich.console import Console

        Console().print(framed_table(title, header, texts, right))
        return
    click.echo(f"{title}:")
    for line in plain_columns([header, *texts] if any(header) else texts, right):
        click.echo(f"  {line}")


def framed_table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()
) -> "Table":
    """The same for a terminal; cells are text, not markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", show_header=any(header), box=box.ROUNDED)
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def plain_columns(rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_pad(row, widths, right)).rstrip() for row in rows]


def _pad(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> list[str]:
    pairs = enumerate(zip(row, widths, strict=True))
    return [cell.rjust(width) if place in right else cell.ljust(width) for place, (cell, width) in pairs]


def show_terms(title: str, values: Mapping[str, object]) -> None:
    """Names and values, one pair per line."""
    show_table(title, ("", ""), list(values.items()))


def format_short_age(seconds: float) -> str:
    """As `format_age`, down to microseconds: `0.00042` → `420 µs`."""
    if seconds >= 1:
        return format_age(seconds)
    if seconds >= 0.001:
        return f"{seconds * 1e3:.1f} ms"
    return f"{max(0.0, seconds) * 1e6:.0f} µs"


def product_text(product: "Product", age_s: float) -> str:
    """One line: sequence, time, size, age when it was shown, feed, ident."""
    return (
        f"{product.sequence:>8}  {format_time(product.inserted_ns)}  {format_size(product.size):>9}  "
        f"{format_short_age(age_s):>8}  {product.feed}  {visible(product.ident)}"
    )


def many(count: int, noun: str) -> str:
    """`1 product`, `2,000 products`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"

"""Notebook: small HTML tables, for the `_repr_html_` of what a notebook shows.

Feed names, idents, payloads and the names of other sites are text of strangers: everything is escaped here, characters
that are not printable are made visible, and both cells and tables have limits. What cannot be looked at any more (a
closed queue, a station that was removed) shows the reason instead of raising.

The module is imported where a table is made: the standard library's `html` takes longer to load than a help page may.
"""

import html
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from headrace.errors import HeadraceError
from headrace.text import visible
from headrace.units import format_count

CELL_MAX = 120  # characters shown of a value
ROWS_MAX = 10  # shown of a table
PAYLOAD_BYTES = 80  # shown of a payload

Facts = Sequence[tuple[str, object]]  # name and value; a value of None is left out


def cell(value: object) -> str:
    """A value as text for HTML: short, visible and escaped."""
    text = str(value)
    shown = text if len(text) <= CELL_MAX else text[: CELL_MAX - 1] + "…"
    return html.escape(visible(shown))


def payload_text(payload: memoryview) -> str:
    """The beginning of a payload: as text if it is text, otherwise in hexadecimal."""
    begin = bytes(payload[:PAYLOAD_BYTES])
    more = "…" if payload.nbytes > PAYLOAD_BYTES else ""
    try:
        return begin.decode("utf-8" if not more else "ascii") + more
    except UnicodeDecodeError:
        return begin[: PAYLOAD_BYTES // 2].hex(" ", 4) + ("…" if payload.nbytes > PAYLOAD_BYTES // 2 else "")


def facts_table(title: str, facts: Facts) -> str:
    """One thing: a name and a value in each row."""
    rows = "".join(
        f'<tr><th style="text-align:left">{cell(name)}</th><td style="text-align:left">{cell(value)}</td></tr>'
        for name, value in facts
        if value is not None
    )
    return f"<table><caption>{cell(title)}</caption>{rows}</table>"


def rows_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], count: int, noun: str) -> str:
    """The first of `count` things, one in each row, and how many more there are."""
    head = "".join(f"<th>{cell(name)}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{cell("" if value is None else value)}</td>' for value in row)
        + "</tr>"
        for row in islice(rows, ROWS_MAX)
    )  # fmt: skip
    left = count - ROWS_MAX
    more = f'<tr><td colspan="{len(heads)}">… {format_count(left, f"more {noun}")}</td></tr>' if left > 0 else ""
    return f"<table><caption>{cell(title)}</caption><tr>{head}</tr>{body}{more}</table>"


def shown(title: str, look: Callable[[], str]) -> str:
    """What `look` makes; if the thing can no longer be looked at, its title and the reason."""
    try:
        return look()
    except HeadraceError as error:
        return facts_table(title, [("problem", error.problem), ("try", error.hint or None)])

"""Reading: a document becomes a SiteConfig, and everything in it that cannot be is complained of.

What is wrong is left at its default, and the report knows that it was wrong: no rule then speaks about it (rules.py).
"""

from typing import Any

from headrace.selection.table_keys import with_clauses
from headrace.site.config import LAYOUT, REPEATED, TABLES, SiteConfig
from headrace.toml.report import Report
from headrace.toml.tables import Values, elements_of, read_keys, single, struct_of


def read_tables(report: Report) -> SiteConfig:
    """What the document says, with defaults for all that is missing or wrong; good only without complaints."""
    data = report.document.data
    for table in data:
        if table not in TABLES:
            report.unknown_table(table)
    tables: Values = {table: _table(report, table) for table in TABLES if table not in REPEATED}
    if "site" not in data:
        report.add(("site",), "the table is missing", 'begin with [site] and queue = "wx.queue"')
    tables |= {table: tuple(_elements(report, table)) for table in REPEATED}
    given = {table: value for table, value in tables.items() if value is not None}
    return SiteConfig(**{"site": struct_of(LAYOUT.tables["site"], {}), **given})


def _table(report: Report, table: str) -> Any:
    """A table that stands once; None if it is not there."""
    raw = single(report, table)
    if raw is None:
        return None
    values = read_keys(report, (table,), raw, LAYOUT.tables[table])
    if table == "site" and values.get("mode") == "client":
        values.setdefault("listen", ())
    return struct_of(LAYOUT.tables[table], values)


def _elements(report: Report, table: str) -> list[Any]:
    """The elements of a table that may be repeated."""
    elements = []
    for place, raw in enumerate(elements_of(report, table)):
        path = (table, place)
        values = read_keys(report, path, raw, LAYOUT.tables[table])
        if table == "request":
            selection = with_clauses(report, path, raw, values.get("selection"))
            values = {"name": f"request {place + 1}", **values}
            if selection is not None:
                values["selection"] = selection
        elements.append(struct_of(LAYOUT.tables[table], values))
    return elements

"""Reading: a document becomes structs, and everything in it that cannot be is complained of.

Each key is read by itself, so that one mistake hides no other. What is wrong is left at its default, and the report
knows that it was wrong: no rule then speaks about it (rules.py).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.errors import InvalidError, SelectionError
from headrace.selection import Selection
from headrace.site.config import CLAUSES, REPEATED, TABLES, Key, Request, SiteConfig, keys_of
from headrace.site.document import Document, KeyPath
from headrace.site.kinds import Listed
from headrace.site.report import Report, bracketed

Values = dict[str, Any]
_EXAMPLES = {"queue": '"wx.queue"', "select": '"wx/radar/**"', "who": '"*"', "authority": '"authority.pem"'}


def read_tables(document: Document, report: Report) -> SiteConfig:
    """What the document says, with defaults for all that is missing or wrong; good only without complaints."""
    for table in document.data:
        if table not in TABLES:
            report.unknown_table(table)
    tables: Values = {table: _table(document, report, table) for table in TABLES if table not in REPEATED}
    if "site" not in document.data:
        report.add(("site",), "the table is missing", 'begin with [site] and queue = "wx.queue"')
    tables |= {table: tuple(_elements(document, report, table)) for table in REPEATED}
    given = {table: value for table, value in tables.items() if value is not None}
    return SiteConfig(**{"site": _struct("site", {}), **given})


def given_keys(document: Document) -> frozenset[KeyPath]:
    """The paths of all keys that the document has."""
    return frozenset(document.spots)


def _table(document: Document, report: Report, table: str) -> msgspec.Struct | None:
    """A table that stands once; None if it is not there."""
    raw = document.data.get(table)
    if raw is None:
        return None
    if not isinstance(raw, dict):
        report.add((table,), _not_a_table(raw), f"write [{table}], in single brackets, once")
        return None
    values = _values(document, report, (table,), raw)
    if table == "site" and values.get("mode") == "client":
        values.setdefault("listen", ())
    return _struct(table, values)


def _elements(document: Document, report: Report, table: str) -> list[msgspec.Struct]:
    """The elements of a table that may be repeated."""
    raws = document.data.get(table, [])
    if not isinstance(raws, list) or not all(isinstance(raw, dict) for raw in raws):
        report.add((table,), "it is not a list of tables", f"write [[{table}]], in two brackets, before each")
        return []
    elements = []
    for place, raw in enumerate(raws):
        path = (table, place)
        values = _values(document, report, path, raw)
        if table == "request":
            values = _with_clauses(report, path, raw, {"name": f"request {place + 1}", **values})
        elements.append(_struct(table, values))
    return elements


def _struct(table: str, values: Values) -> msgspec.Struct:
    """The struct of a table. What must be given and is not is None, and has been complained of."""
    struct = TABLES[table]
    required: Values = {key.field: None for key in keys_of(struct) if key.is_required}
    return struct(**{**required, **values})


def _not_a_table(raw: Any) -> str:
    return "it is a list of tables" if isinstance(raw, list) else "it is not a table"


# --- keys -----------------------------------------------------------------------------------------


def _values(document: Document, report: Report, path: KeyPath, raw: Mapping[str, Any]) -> Values:
    """What the keys of one table say, by field; only those that are given and right."""
    struct = TABLES[str(path[0])]
    keys = keys_of(struct)
    known = [key.name for key in keys] + list(CLAUSES if struct is Request else ())
    for name in raw:
        if name not in known:
            report.unknown((*path, name), known)
    values: Values = {}
    for key in keys:
        if key.name in raw:
            _take(document, report, (*path, key.name), key, raw[key.name], values)
        elif key.is_required:
            hint = f"write {key.name} = {_EXAMPLES[key.name]} below {bracketed(str(path[0]))}"
            report.add((*path, key.name), "the key is missing", hint)
    return values


def _take(document: Document, report: Report, path: KeyPath, key: Key, value: Any, values: Values) -> None:
    """Keep a value, or complain of it."""
    if isinstance(key.kind, Listed):
        values[key.field] = _listed(document, report, path, key.kind, value)
        return
    try:
        values[key.field] = key.kind.read(value, document.folder)
    except InvalidError as error:
        report.refuse(path, error)


def _listed(document: Document, report: Report, path: KeyPath, kind: Listed, value: Any) -> tuple[Any, ...]:
    """The right ones among the elements of a list."""
    if kind.alone and value == kind.alone:
        return (kind.alone,)
    if not isinstance(value, list):
        report.add(path, f"{value!r} is not a list", "write it in brackets: [" + _example(value) + "]")
        return ()
    read: list[Any] = []
    for place, element in enumerate(value):
        try:
            item = kind.item.read(element, document.folder)
        except InvalidError as error:
            report.refuse((*path, place), error)
            continue
        if item in read:
            report.add((*path, place), f"{element!r} stands there twice", "keep one of them")
        else:
            read.append(item)
    return tuple(read)


def _example(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) and value.isprintable() and '"' not in value else "…"


# --- clauses of a request -------------------------------------------------------------------------


def _with_clauses(report: Report, path: KeyPath, raw: Mapping[str, Any], values: Values) -> Values:
    """The request with the clauses that are keys of their own made part of its selection."""
    clauses = {clause: raw[clause] for clause in CLAUSES if clause in raw}
    right = {clause for clause in clauses if _is_clause(report, (*path, clause), clause, raw[clause])}
    selection = values.get("selection")
    if selection is None:
        return values
    for clause in sorted(right & set(selection.given())):
        problem = f"select has this clause too, in {str(selection)!r}"
        report.add((*path, clause), problem, "leave it out here, or there")
        right.remove(clause)
    return {**values, "selection": selection.replace(**{clause: clauses[clause] for clause in right})}


def _is_clause(report: Report, path: KeyPath, clause: str, value: Any) -> bool:
    """Whether a value will do for a clause; a complaint if not."""
    try:
        Selection.from_dict({clause: value})
    except SelectionError as error:
        report.refuse(path, error)
        return False
    return True

"""Tables: the keys of a table become values, and every invalid one is reported.

Each key is read by itself, so that one problem hides no other. An invalid value is left out, and the report remembers
its key, so that no later check reports it again.
"""

from collections.abc import Mapping
from typing import Any

from headrace.errors import InvalidError
from headrace.toml.document import KeyPath
from headrace.toml.kinds import Listed
from headrace.toml.layout import Key, Table, keys_of
from headrace.toml.report import Report

Values = dict[str, Any]


def read_keys(report: Report, path: KeyPath, raw: Mapping[str, Any], table: Table) -> Values:
    """The values of one table, by field; only those that are given and valid. Inner tables are not read."""
    known = table.key_names()
    for name in raw:
        if name not in known:
            report.unknown((*path, name), known)
    values: Values = {}
    for key in keys_of(table.struct):
        if key.name in raw:
            _take(report, (*path, key.name), key, raw[key.name], values)
        elif key.is_required:
            hint = f"write {key.name} = {report.layout.examples[key.name]} below {_heading(report, path)}"
            report.add((*path, key.name), "the key is required", hint)
    return values


def struct_of(table: Table, values: Values) -> Any:
    """The struct of a table. A required value that is missing is None, and has been reported."""
    required: Values = {key.field: None for key in keys_of(table.struct) if key.is_required}
    return table.struct(**{**required, **values})


def elements_of(report: Report, table: str) -> list[Mapping[str, Any]]:
    """The elements of a table that may be repeated."""
    raws = report.document.data.get(table, [])
    if not isinstance(raws, list) or not all(isinstance(raw, dict) for raw in raws):
        report.add((table,), "it is not a list of tables", f"write [[{table}]], in double brackets, before each")
        return []
    return raws


def single(report: Report, table: str) -> Mapping[str, Any] | None:
    """A table that is not repeated; None if it is missing."""
    raw = report.document.data.get(table)
    if raw is None or isinstance(raw, dict):
        return raw
    problem = "it is a list of tables" if isinstance(raw, list) else "it is not a table"
    report.add((table,), problem, f"write [{table}], in single brackets, once")
    return None


def given_keys(report: Report) -> frozenset[KeyPath]:
    """The paths of all keys that the document has."""
    return frozenset(report.document.spots)


def _heading(report: Report, path: KeyPath) -> str:
    """The table at a path, without its number."""
    names = [part for part in path if isinstance(part, str)]
    return report.layout.bracketed(".".join(names))


# --- keys -----------------------------------------------------------------------------------------


def _take(report: Report, path: KeyPath, key: Key, value: Any, values: Values) -> None:
    """Keep a value, or report the problem."""
    if isinstance(key.kind, Listed):
        values[key.field] = _listed(report, path, key.kind, value)
        return
    try:
        values[key.field] = key.kind.read(value, report.document.folder)
    except InvalidError as error:
        report.refuse(path, error)


def _listed(report: Report, path: KeyPath, kind: Listed, value: Any) -> tuple[Any, ...]:
    """The valid elements of a list."""
    if kind.alone and value == kind.alone:
        return (kind.alone,)
    if not isinstance(value, list):
        report.add(path, f"{value!r} is not a list", "write it in brackets: [" + _example(value) + "]")
        return ()
    read: list[Any] = []
    for place, element in enumerate(value):
        try:
            item = kind.item.read(element, report.document.folder)
        except InvalidError as error:
            report.refuse((*path, place), error)
            continue
        if item in read and not kind.is_sequence:
            report.add((*path, place), f"{element!r} is listed twice", "keep one of them")
        else:
            read.append(item)
    return tuple(read)


def _example(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) and value.isprintable() and '"' not in value else "…"

"""Selections in TOML files: the kind of the key `select`, and clauses that are keys of their own.

    [[request]]
    select = "wx/radar/**"
    ident = "^L2-BZIP2/K"       the clause `ident` of the selection

Used by every file that has selections: the configuration of a site and rule files.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.errors import SelectionError
from headrace.selection.selection import KEYS, Selection
from headrace.toml.document import KeyPath
from headrace.toml.kinds import Kind
from headrace.toml.report import Report

CLAUSES = tuple(key for key in KEYS if key not in ("feed", "function"))  # of a selection, as keys of its table


def _selection(value: Any, folder: Path) -> Selection:
    if not isinstance(value, str):
        raise SelectionError(f"{value!r} is not text", 'write a feed pattern, "wx/radar/**", or a selection')
    selection = Selection.parse(value)
    if selection.function is not None:
        raise SelectionError(
            f"function {selection.function} is evaluated by readers and stations only", "use where, tags or xpath"
        )
    return selection


SELECTION = Kind("selection", _selection, str)


def with_clauses(report: Report, path: KeyPath, raw: Mapping[str, Any], selection: Selection | None) -> Any:
    """The selection with the clauses that are keys of their own; None if it was invalid."""
    clauses = {clause: raw[clause] for clause in CLAUSES if clause in raw}
    right = {clause for clause in clauses if _is_clause(report, (*path, clause), clause, raw[clause])}
    if selection is None:
        return None
    for clause in sorted(right & set(selection.given())):
        problem = f"select has this clause too: {str(selection)!r}"
        report.add((*path, clause), problem, "write it here or in select")
        right.remove(clause)
    return selection.replace(**{clause: clauses[clause] for clause in right})


def _is_clause(report: Report, path: KeyPath, clause: str, value: Any) -> bool:
    """Whether a value is valid for a clause; reported if not."""
    try:
        Selection.from_dict({clause: value})
    except SelectionError as error:
        report.refuse(path, error)
        return False
    return True

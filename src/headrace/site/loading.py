"""Loading: from the path of a configuration to a SiteConfig, or to every problem in it.

    toml/document.py ──► read_tables ──► queue_terms.py ──► contradictions.py ──► SiteConfig
    TOML, places         keys, kinds     the queue          what excludes what
            └─────────── toml/report.py: every problem ──────────┘

`check_config` adds what only a start needs: channel_terms.py and functions.py. A site that runs, and commands that find
it by its file, do without.

An invalid value is left at its default, and the report remembers its key, so that no later step reports it again.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.selection.functions import Function
from headrace.selection.table_keys import with_clauses
from headrace.site.channel_terms import check_channels
from headrace.site.config import LAYOUT, REPEATED, TABLES, SiteConfig
from headrace.site.contradictions import contradictions
from headrace.site.functions import TABLE as FUNCTIONS
from headrace.site.functions import function_problems, load_functions, read_functions
from headrace.site.queue_terms import adopt_queue_terms
from headrace.site.warnings import warnings
from headrace.toml.document import KeyPath, Problem, config_error, read_document
from headrace.toml.report import Report
from headrace.toml.tables import Values, elements_of, given_keys, read_keys, single, struct_of


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and where its values come from."""

    config: SiteConfig
    given: frozenset[KeyPath]  # the keys that the file has
    queue_exists: bool  # then the queue decides [queue] and the name of the site


def check_config(path: str | os.PathLike[str]) -> list[Problem]:
    """Every problem of the file, in its order; nothing is changed.

    A file that is valid by itself is compared with the channels of the queue, and then its functions are loaded.
    """
    document, examined = read_document(Path(path), LAYOUT), _examine(Path(path))
    if not isinstance(examined, Loaded) or isinstance(document, Problem):
        return examined if isinstance(examined, list) else []
    report = Report(document, LAYOUT)
    check_channels(examined.config, report)
    return report.problems() or function_problems(document, LAYOUT, examined.config.functions)


def check_warnings(path: str | os.PathLike[str]) -> list[Problem]:
    """What may end badly together with the configurations of other sites; empty if the file has problems."""
    document, examined = read_document(Path(path), LAYOUT), _examine(Path(path))
    if isinstance(document, Problem) or not isinstance(examined, Loaded):
        return []
    report = Report(document, LAYOUT)
    for each in warnings(examined.config):
        report.add(each.paths[0], each.problem, each.hint)
    return report.problems()


def load_config(path: str | os.PathLike[str]) -> SiteConfig:
    """The configuration; ConfigError shows the first problem, and has all of them in `problems`."""
    return load(path).config


def load(path: str | os.PathLike[str]) -> Loaded:
    """As `load_config`, and which values come from the file or from the queue."""
    examined = _examine(Path(path))
    if isinstance(examined, Loaded):
        return examined
    raise config_error(examined, f"headrace config check {path}")


def load_functions_of(path: str | os.PathLike[str]) -> dict[str, Function]:
    """Import the functions that the file names; ConfigError lists those that cannot be loaded."""
    places, document = load_config(path).functions, read_document(Path(path), LAYOUT)
    assert not isinstance(document, Problem)
    return load_functions(document, LAYOUT, places)


def _examine(path: Path) -> Loaded | list[Problem]:
    document = read_document(path, LAYOUT)
    if isinstance(document, Problem):
        return [document]
    report = Report(document, LAYOUT)
    given = given_keys(report)
    config, queue_exists = adopt_queue_terms(read_tables(report), given, report)
    found = [each for each in contradictions(config) if not any(map(report.is_wrong, each.paths))]
    for each in found:
        report.add(each.paths[0], each.problem, each.hint)
    return report.problems() or Loaded(config, given, queue_exists)


# --- tables ---------------------------------------------------------------------------------------


def read_tables(report: Report) -> SiteConfig:
    """The document as a SiteConfig, with defaults for missing and invalid values; usable only without problems."""
    data = report.document.data
    for table in data:
        if table not in LAYOUT.tables:
            report.unknown_table(table)
    tables: Values = {table: _table(report, table) for table in TABLES if table not in REPEATED}
    if "site" not in data:
        report.add(("site",), "the table is required", 'begin with [site] and queue = "wx.queue"')
    tables |= {table: tuple(_elements(report, table)) for table in REPEATED}
    tables[FUNCTIONS] = read_functions(report)
    given = {table: value for table, value in tables.items() if value is not None}
    return SiteConfig(**{"site": struct_of(LAYOUT.tables["site"], {}), **given})


def _table(report: Report, table: str) -> Any:
    """A table that is not repeated; None if it is missing."""
    raw = single(report, table)
    if raw is None:
        return None
    values = read_keys(report, (table,), raw, LAYOUT.tables[table])
    if table == "site" and values.get("mode") == "client":
        values.setdefault("listen", ())
    return struct_of(LAYOUT.tables[table], values)


def _elements(report: Report, table: str) -> list[Any]:
    """The elements of a repeated table."""
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

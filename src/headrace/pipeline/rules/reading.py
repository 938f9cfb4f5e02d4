"""Reading: a document becomes terms and rules, and everything in it that cannot be is complained of.

An action is a table, `[rule.file]`, several of them, `[[rule.file]]`, or in short the value of its first key:
`file = "{feed}/{ident}"`. What is wrong is left at its default, and the report knows that it was wrong.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headrace.pipeline.rules.rule import ACTIONS, LAYOUT, SHORT, PipelineTerms, Rule
from headrace.selection.table_keys import with_clauses
from headrace.toml.document import KeyPath
from headrace.toml.report import Report
from headrace.toml.tables import Values, elements_of, read_keys, single, struct_of

_RULE = LAYOUT.tables["rule"]


class Tables(NamedTuple):
    """What a file says, with defaults for all that is missing or wrong; good only without complaints."""

    pipeline: PipelineTerms
    rules: tuple[Rule, ...]
    spark: tuple[tuple[str, str], ...]


def read_tables(report: Report) -> Tables:
    data = report.document.data
    for table in data:
        if table not in LAYOUT.tables:
            report.unknown_table(table)
    if "pipeline" not in data:
        report.add(("pipeline",), "the table is missing", 'begin with [pipeline] and queue = "wx.queue"')
    if not data.get("rule"):
        report.add(("rule",), "there is no rule", "write [[rule]] with name, select and an action")
    raw = single(report, "pipeline")
    terms = struct_of(LAYOUT.tables["pipeline"], read_keys(report, ("pipeline",), raw or {}, LAYOUT.tables["pipeline"]))
    rules = tuple(_rule(report, ("rule", place), raw) for place, raw in enumerate(elements_of(report, "rule")))
    return Tables(terms, rules, tuple(_spark(report)))


def _rule(report: Report, path: KeyPath, raw: Mapping[str, Any]) -> Rule:
    values = read_keys(report, path, raw, _RULE)
    selection = with_clauses(report, path, raw, values.get("select"))
    if selection is not None:
        values["select"] = selection
    actions = {name: tuple(_actions(report, (*path, name), name, raw[name])) for name in ACTIONS if name in raw}
    rule: Rule = struct_of(_RULE, {**values, **actions})
    return rule


def _actions(report: Report, path: KeyPath, name: str, raw: Any) -> Iterator[Any]:
    """The actions of one name, as many as there are."""
    if isinstance(raw, dict):
        yield _action(report, path, name, raw)
    elif isinstance(raw, list) and raw and all(isinstance(each, dict) for each in raw):
        for place, each in enumerate(raw):
            yield _action(report, (*path, place), name, each)
    elif name in SHORT and isinstance(raw, str | list):
        yield _action(report, path, name, {SHORT[name]: raw})
    else:
        example = f"or in short {name} = {LAYOUT.examples[SHORT[name]]}" if name in SHORT else "with its keys below it"
        report.add(path, f"{raw!r} is no action", f"write [rule.{name}], {example}")


def _action(report: Report, path: KeyPath, name: str, raw: Mapping[str, Any]) -> Any:
    values: Values = read_keys(report, path, raw, _RULE.inner[name])
    if values.get("command") == () and not report.is_wrong((*path, "command")):
        report.add((*path, "command"), "the command is empty", 'name a program: command = ["decoder", "{ident}"]')
    return struct_of(_RULE.inner[name], values)


# --- settings of Spark's --------------------------------------------------------------------------


def _spark(report: Report) -> Iterator[tuple[str, str]]:
    yield from _flattened(report, ("spark",), single(report, "spark") or {})


def _flattened(report: Report, path: KeyPath, raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """`executor.memory = "2g"` as it is known to Spark; quoted and full names are understood too."""
    for key, value in raw.items():
        at = (*path, key)
        if isinstance(value, dict):
            yield from _flattened(report, at, value)
        elif isinstance(value, bool):
            yield _setting(at), "true" if value else "false"
        elif isinstance(value, str | int | float):
            yield _setting(at), str(value)
        else:
            report.add(at, f"{value!r} is no setting", 'write a text, a number, true or false: executor.memory = "2g"')


def _setting(path: KeyPath) -> str:
    name = ".".join(str(part) for part in path[1:])
    return name if name.startswith("spark.") else f"spark.{name}"


def action_path(report: Report, place: int, name: str, number: int) -> KeyPath:
    """Where an action stands in the document."""
    path: KeyPath = ("rule", place, name)
    raw = report.document.at(path)
    is_listed = isinstance(raw, list) and bool(raw) and all(isinstance(each, dict) for each in raw)
    return (*path, number) if is_listed else path

"""Load a rule file: from its path to plain data, or to every problem in it.

    rules.toml ─ toml/document.py ─┐
                                   ├─► read ──► defaults.py ──► conflicts.py ──► RuleFile
    rules.py ─── python_rules.py ──┘   keys,    keys that       contradictions
                                       kinds    depend on others

An action is a table, `[rule.file]`, several tables, `[[rule.file]]`, or in short the value of its first key:
`file = "{feed}/{ident}"`. A key whose value is invalid keeps its default, and the report remembers that it was invalid,
so that a later check does not report the consequence of a problem as a second problem.

Invariant: a `RuleFile` that leaves this module has no problems. Nothing is created or changed on disk here.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.pipeline.rules.conflicts import find_conflicts
from headrace.pipeline.rules.defaults import with_defaults
from headrace.pipeline.rules.python_rules import SUFFIX, read_module
from headrace.pipeline.rules.rule import ACTIONS, LAYOUT, SHORT, PipelineTerms, Rule, RuleFile
from headrace.selection.table_keys import with_clauses
from headrace.toml.document import KeyPath, Problem, config_error, read_document
from headrace.toml.report import Report
from headrace.toml.tables import Values, elements_of, read_keys, single, struct_of

_PIPELINE, _RULE = LAYOUT.tables["pipeline"], LAYOUT.tables["rule"]


def load_rules(path: str | os.PathLike[str]) -> RuleFile:
    """The rules in a file. ConfigError states the first problem and carries all of them as `problems`."""
    examined = _examine(Path(path))
    if isinstance(examined, RuleFile):
        return examined
    raise config_error(examined, f"headrace pipeline check {path}")


def check_rules(path: str | os.PathLike[str]) -> list[Problem]:
    """Every problem of a rule file, in the order of the file."""
    examined = _examine(Path(path))
    return [] if isinstance(examined, RuleFile) else examined


def _examine(path: Path) -> RuleFile | list[Problem]:
    document = read_module(path) if path.suffix == SUFFIX else read_document(path, LAYOUT)
    if isinstance(document, Problem):
        return [document]
    report = Report(document, LAYOUT)
    rules = with_defaults(_read(path, report), report)
    find_conflicts(rules, report)
    return report.problems() or rules


# --- tables and keys ------------------------------------------------------------------------------


def _read(path: Path, report: Report) -> RuleFile:
    """The content of a document, with the default for each key that is missing or invalid."""
    data = report.document.data
    for table in data:
        if table not in LAYOUT.tables:
            report.unknown_table(table)
    if "pipeline" not in data:
        report.add(("pipeline",), "the table is missing", 'begin with [pipeline] and queue = "wx.queue"')
    if not data.get("rule"):
        report.add(("rule",), "there is no rule", "write [[rule]] with name, select and an action")
    terms = _terms(report, ("pipeline",), single(report, "pipeline") or {})
    rules = tuple(_rule(report, ("rule", place), raw) for place, raw in enumerate(elements_of(report, "rule")))
    settings = tuple(_spark_settings(report, ("spark",), single(report, "spark") or {}))
    return RuleFile(path=path.absolute(), pipeline=terms, rules=rules, spark=settings)


def _terms(report: Report, path: KeyPath, raw: Mapping[str, Any]) -> PipelineTerms:
    values = read_keys(report, path, raw, _PIPELINE)
    for name, table in _PIPELINE.inner.items():
        inner = raw.get(name)
        if isinstance(inner, dict):
            values[name] = struct_of(table, read_keys(report, (*path, name), inner, table))
        elif inner is not None:
            report.add((*path, name), f"{inner!r} is not a table", f"write [pipeline.{name}], and its keys below it")
    terms: PipelineTerms = struct_of(_PIPELINE, values)
    return terms


def _rule(report: Report, path: KeyPath, raw: Mapping[str, Any]) -> Rule:
    values = read_keys(report, path, raw, _RULE)
    selection = with_clauses(report, path, raw, values.get("select"))
    if selection is not None:
        values["select"] = selection
    actions = {name: tuple(_actions(report, (*path, name), name, raw[name])) for name in ACTIONS if name in raw}
    rule: Rule = struct_of(_RULE, {**values, **actions})
    return rule


def _actions(report: Report, path: KeyPath, name: str, raw: Any) -> Iterator[Any]:
    """All actions of one kind."""
    if isinstance(raw, dict):
        yield _action(report, path, name, raw)
    elif isinstance(raw, list) and raw and all(isinstance(each, dict) for each in raw):
        for place, each in enumerate(raw):
            yield _action(report, (*path, place), name, each)
    elif name in SHORT and isinstance(raw, str | list):
        yield _action(report, path, name, {SHORT[name]: raw})
    else:
        example = f"or in short {name} = {LAYOUT.examples[SHORT[name]]}" if name in SHORT else "with its keys below it"
        report.add(path, f"{raw!r} is not an action", f"write [rule.{name}], {example}")


def _action(report: Report, path: KeyPath, name: str, raw: Mapping[str, Any]) -> Any:
    values: Values = read_keys(report, path, raw, _RULE.inner[name])
    if values.get("command") == () and not report.is_wrong((*path, "command")):
        report.add((*path, "command"), "the command is empty", 'name a program: command = ["decoder", "{ident}"]')
    return struct_of(_RULE.inner[name], values)


def _spark_settings(report: Report, path: KeyPath, raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """`executor.memory = "2g"` under the full name that Spark knows. Quoted and full names are accepted too."""
    for key, value in raw.items():
        at = (*path, key)
        if isinstance(value, dict):
            yield from _spark_settings(report, at, value)
        elif isinstance(value, bool):
            yield _setting_name(at), "true" if value else "false"
        elif isinstance(value, str | int | float):
            yield _setting_name(at), str(value)
        else:
            hint = 'write text, a number, true or false: executor.memory = "2g"'
            report.add(at, f"{value!r} is not a Spark setting", hint)


def _setting_name(path: KeyPath) -> str:
    name = ".".join(str(part) for part in path[1:])
    return name if name.startswith("spark.") else f"spark.{name}"

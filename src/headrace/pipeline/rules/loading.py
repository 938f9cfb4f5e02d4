"""Loading: from the path of a rule file to plain data, or to all that is wrong with it.

rules.toml ─ toml/document.py ─┐
                               ├─► reading.py ──► settling.py ──► conflicts.py ──► RuleFile
rules.py ─── module.py ────────┘    keys, kinds   defaults        contradictions
"""

import os
from pathlib import Path

from headrace.pipeline.rules.conflicts import find_conflicts
from headrace.pipeline.rules.module import SUFFIX, read_module
from headrace.pipeline.rules.reading import read_tables
from headrace.pipeline.rules.rule import LAYOUT, RuleFile
from headrace.pipeline.rules.settling import settle
from headrace.toml.document import Problem, config_error, read_document
from headrace.toml.report import Report


def load_rules(path: str | os.PathLike[str]) -> RuleFile:
    """The rules in a file; ConfigError tells the first mistake, and has all of them as `complaints`."""
    examined = examine(Path(path))
    if isinstance(examined, RuleFile):
        return examined
    raise config_error(examined, f"headrace pipeline check {path}")


def examine(path: Path) -> RuleFile | list[Problem]:
    """The rules, or everything that is wrong with them, in the order of the file; nothing is changed anywhere."""
    document = read_module(path) if path.suffix == SUFFIX else read_document(path, LAYOUT)
    if isinstance(document, Problem):
        return [document]
    report = Report(document, LAYOUT)
    tables = read_tables(report)
    tables = settle(tables, path, report)
    find_conflicts(tables, report)
    complaints = report.problems()
    if complaints:
        return complaints
    return RuleFile(path=path.absolute(), pipeline=tables.pipeline, rules=tables.rules, spark=tables.spark)

"""Defaults that depend on where the rule file is, or on other keys.

A default that is the same for every file is in rule.py. Here are the others: output folders beside the rule file,
the name of the pipeline, the content of an action (the payload, if the rows have one), the column of a watermark, and
absolute paths of tables and programs.

Invalid values are left as they are: conflicts.py reports them.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import OptionError, RuleError
from headrace.pipeline.rules.rule import JSON, PAYLOAD, PipelineTerms, Rule, RuleFile
from headrace.pipeline.rules.views import ColumnTypes, made_columns, row_columns, views_of
from headrace.toml.kinds import to_be_filled
from headrace.toml.report import Report

OBSERVED = "observed"


def with_defaults(file: RuleFile, report: Report) -> RuleFile:
    """The same rules with every default filled in."""
    terms = _terms(file.pipeline, file.path, report)
    rules = tuple(_rule(rule, terms, report.document.folder) for rule in file.rules)
    return msgspec.structs.replace(file, pipeline=terms, rules=rules)


def _terms(terms: PipelineTerms, path: Path, report: Report) -> PipelineTerms:
    names = {"checkpoint": f"{path.stem}.checkpoint", "tables": "tables", "files": "files"}
    changes: dict[str, Path | str] = {"name": terms.name or _pipeline_name(path.stem)}
    for key, name in names.items():
        if getattr(terms, key) is None and not report.is_wrong(("pipeline", key)):
            try:
                changes[key] = to_be_filled(name, report.document.folder)
            except OptionError as error:
                report.refuse(("pipeline", key), error)
    return msgspec.structs.replace(terms, **changes)


def _pipeline_name(stem: str) -> str:
    """A valid name, from that of the file."""
    return re.sub(r"[^A-Za-z0-9]+", "-", stem).strip("-")[:63] or "pipeline"


def _rule(rule: Rule, terms: PipelineTerms, folder: Path) -> Rule:
    try:
        made = made_columns(rule, folder)
        columns = row_columns(rule, made)
    except RuleError:
        return rule  # conflicts.py reports it
    content = default_content(columns)
    actions = {
        "file": tuple(_with(each, folder=terms.files, content=content) for each in rule.file),
        "table": tuple(_with_path(each, terms, folder) for each in rule.table),
        "publish": tuple(_with(each, content=content) for each in rule.publish),
        "exec": tuple(_with_program(_with(each, folder=folder, content=content), folder) for each in rule.exec),
        "pipe": tuple(_with_program(_with(each, folder=folder, content=content), folder) for each in rule.pipe),
    }
    column = _watermark(rule, made)
    return msgspec.structs.replace(rule, **actions, **({"watermark_column": column} if column else {}))


def _with(action: Any, **defaults: Any) -> Any:
    """The action with defaults for the keys that it does not set."""
    missing = {key: value for key, value in defaults.items() if getattr(action, key) is None}
    return msgspec.structs.replace(action, **missing)


def _with_path(action: Any, terms: PipelineTerms, folder: Path) -> Any:
    if action.path is None:
        return action
    base = terms.tables or folder / "tables"
    return msgspec.structs.replace(action, path=os.path.normpath(base / action.path))


def _with_program(action: Any, folder: Path) -> Any:
    """The action with the absolute path of its program, if the program was given as a path."""
    command = action.command
    if not command or "/" not in command[0] or "{" in command[0]:
        return action
    found = program_path(command[0], folder)
    return msgspec.structs.replace(action, command=(found, *command[1:])) if found else action


def _watermark(rule: Rule, made: ColumnTypes | None) -> str | None:
    if rule.watermark_s is None or rule.sql is None or rule.watermark_column is not None:
        return None
    (columns,) = views_of(rule, made).values()
    return default_watermark(columns)


# --- shared with conflicts.py ---------------------------------------------------------------------


def default_watermark(columns: ColumnTypes | None) -> str | None:
    """The column of a watermark that names none: `observed`, or `created` if the rows are products."""
    if columns is None:
        return OBSERVED
    return OBSERVED if OBSERVED in columns else "created" if PAYLOAD in columns else None


def default_content(columns: ColumnTypes | None) -> str:
    """What an action writes of a row: its payload if it has one, else the row as JSON."""
    return PAYLOAD if columns is not None and PAYLOAD in columns else JSON


def program_path(program: str, folder: Path) -> str | None:
    """The program on PATH, or relative to the folder of the rules if it is a path. None: there is no such program."""
    return shutil.which(str(folder / program) if "/" in program else program)

"""Settling: defaults that depend on where the file is, or on other keys, become values."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import OptionError, RuleError
from headrace.pipeline.rules.reading import Tables
from headrace.pipeline.rules.rule import JSON, PAYLOAD, PipelineTerms, Rule
from headrace.pipeline.rules.views import ColumnTypes, made_columns, row_columns, views_of
from headrace.toml.kinds import to_be_filled
from headrace.toml.report import Report

OBSERVED = "observed"


def settle(tables: Tables, path: Path, report: Report) -> Tables:
    """The same with nothing left open; what is wrong is complained of elsewhere."""
    terms = _terms(tables.pipeline, path, report)
    folder = report.document.folder
    rules = tuple(_rule(rule, terms, folder) for rule in tables.rules)
    return tables._replace(pipeline=terms, rules=rules)


def _terms(terms: PipelineTerms, path: Path, report: Report) -> PipelineTerms:
    names = {"checkpoint": f"{path.stem}.checkpoint", "tables": "tables", "files": "files"}
    changes: dict[str, Path | str] = {"name": terms.name or _plain(path.stem)}
    for key, name in names.items():
        if getattr(terms, key) is None and not report.is_wrong(("pipeline", key)):
            try:
                changes[key] = to_be_filled(name, report.document.folder)
            except OptionError as error:
                report.refuse(("pipeline", key), error)
    return msgspec.structs.replace(terms, **changes)


def _plain(name: str) -> str:
    """As the name of a pipeline may be."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:63] or "pipeline"


def _rule(rule: Rule, terms: PipelineTerms, folder: Path) -> Rule:
    try:
        made = made_columns(rule, folder)
        columns = row_columns(rule, made)
    except (RuleError, TypeError):
        return rule  # conflicts.py tells
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
    """The action with defaults where it has nothing."""
    missing = {key: value for key, value in defaults.items() if getattr(action, key) is None}
    return msgspec.structs.replace(action, **missing)


def _with_path(action: Any, terms: PipelineTerms, folder: Path) -> Any:
    if action.path is None:
        return action
    base = terms.tables or folder / "tables"
    return msgspec.structs.replace(action, path=os.path.normpath(base / action.path))


def _with_program(action: Any, folder: Path) -> Any:
    """A program that is given as a path, as an absolute one."""
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


# --- defaults -------------------------------------------------------------------------------------


def default_watermark(columns: ColumnTypes | None) -> str | None:
    """The column that a watermark is for if none is named: `observed`, or `created` of products."""
    if columns is None:
        return OBSERVED
    return OBSERVED if OBSERVED in columns else "created" if PAYLOAD in columns else None


def default_content(columns: ColumnTypes | None) -> str:
    """What is written of a row: its payload, if it has one."""
    return PAYLOAD if columns is not None and PAYLOAD in columns else JSON


def program_path(program: str, folder: Path) -> str | None:
    """The program on PATH, or below the folder of the rules if it is a path; None if it cannot be run."""
    return shutil.which(str(folder / program) if "/" in program else program)

"""Conflicts of one action: with the columns of the rule's rows, with its selection, and between its own keys.

What is checked: each template names columns and groups that exist, and formats that fit them; the content is text or
bytes; a program exists; SQL that an action repeats gives the same rows again. conflicts.py calls `check_action` for
each action and checks everything that concerns more than one.
"""

import difflib
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.errors import MissingExtraError, RuleError
from headrace.extras import require
from headrace.pipeline.rules.defaults import default_content, program_path
from headrace.pipeline.rules.rule import (
    JSON,
    METADATA_COLUMNS,
    NOTHING,
    PAYLOAD,
    Action,
    AlertAction,
    ExecAction,
    FileAction,
    Metadata,
    PipeAction,
    PublishAction,
    Rule,
    TableAction,
)
from headrace.pipeline.rules.sql import check_condition, is_random
from headrace.pipeline.rules.template import at_place, template
from headrace.pipeline.rules.template_field import Field, groups_in
from headrace.pipeline.rules.template_safety import Purpose
from headrace.pipeline.rules.views import ColumnTypes
from headrace.toml.document import KeyPath
from headrace.toml.report import Report


class ActionInFile(NamedTuple):
    """Where an action stands, and what is known about its rule."""

    rule: Rule
    path: KeyPath
    columns: ColumnTypes | None  # of the rows; None: unknown
    report: Report

    def add(self, key: str, problem: str, hint: str) -> None:
        if not self.report.is_wrong((*self.path, key)):
            self.report.add((*self.path, key), problem, hint)

    def check_template(self, key: str, source: str | None, purpose: Purpose, number: int | None = None) -> None:
        path = (*self.path, key) if number is None else (*self.path, key, number)
        if source is None or self.report.is_wrong(path):
            return
        for error in list(template_errors(source, purpose, self.rule, self.columns)):
            self.report.refuse(path, error)


def check_action(action: Action, where: ActionInFile) -> None:
    """Report every conflict of one action."""
    _CHECKS[type(action)](action, where)


def _check_file(action: FileAction, where: ActionInFile) -> None:
    where.check_template("path", action.path, "path")
    _check_content(action.content, action.remove, where, action.metadata)
    _check_metadata(action, where)
    if action.path is not None and action.mode == "each" and not where.report.is_wrong((*where.path, "path")):
        made = template(action.path, "path", where.rule.select.ident)
        if made.is_constant:
            where.add("mode", '"each" writes one file per row, and every row would have the same path',
                      "write {sequence}, or another field, into path")  # fmt: skip


def _check_table(action: TableAction, where: ActionInFile) -> None:
    if action.format == "delta":
        try:
            require("delta")
        except MissingExtraError as error:
            where.add("format", error.problem, error.hint)
    for number, column in enumerate(action.partition_by):
        if where.columns is not None and column not in where.columns:
            where.report.add((*where.path, "partition_by", number), f"the rows have no column {column!r}",
                             f"columns are: {', '.join(where.columns)}")  # fmt: skip
    if where.columns is not None and len(action.partition_by) >= len(where.columns):
        where.add("partition_by", "it names every column, and a table needs at least one more", "leave a column out")


def _check_publish(action: PublishAction, where: ActionInFile) -> None:
    where.check_template("feed", action.feed, "feed")
    where.check_template("ident", action.ident, "ident")
    _check_content(action.content, (), where)
    if action.queue is not None and action.site is not None:
        where.add("site", "queue is given too", "give only one of them")
    _check_repeatable(where)


def _check_exec(action: ExecAction, where: ActionInFile) -> None:
    _check_command(action.command, where)
    _check_content(action.content, action.remove, where, action.metadata, allows_nothing=True)
    _check_metadata(action, where)


def _check_pipe(action: PipeAction, where: ActionInFile) -> None:
    _check_command(action.command, where)
    _check_content(action.content, action.remove, where, action.metadata)
    _check_metadata(action, where)


def _check_alert(action: AlertAction, where: ActionInFile) -> None:
    where.check_template("feed", action.feed, "feed")
    where.check_template("ident", action.ident, "ident")
    where.check_template("message", action.message, "text")
    if action.when is not None and not where.report.is_wrong((*where.path, "when")):
        for error in check_condition(action.when, where.columns):
            where.report.refuse((*where.path, "when"), error)
    _check_repeatable(where)


def _check_repeatable(where: ActionInFile) -> None:
    """The queue recognizes a repeated product by its signature, so a repeated batch must give the same rows."""
    sql = where.rule.sql
    if sql is not None and not where.report.is_wrong((*where.path[:2], "sql")) and is_random(sql):
        where.report.add((*where.path[:2], "sql"), "rand() and uuid() give other products when a batch is repeated",
                         "compute them from columns: hash(station, observed)")  # fmt: skip


def _check_command(command: tuple[str, ...] | None, where: ActionInFile) -> None:
    if not command or where.report.is_wrong((*where.path, "command")):
        return
    for number, argument in enumerate(command):
        where.check_template("command", argument, "argument", number)
    program = template(command[0], "argument")
    if not program.is_constant:
        where.add("command", "the program itself comes from products", "name the program; arguments may have fields")
    elif program_path(command[0], where.report.document.folder) is None:
        where.report.add((*where.path, "command", 0), f"there is no program {command[0]!r}",
                         "install it, give its path, or put its folder on PATH")  # fmt: skip


def _check_metadata(action: FileAction | ExecAction | PipeAction, where: ActionInFile) -> None:
    if action.metadata not in ("none", "ldm") and action.content == NOTHING:
        where.add("content", f"{action.metadata!r} frames contents, and there is none", "leave content out")
    if action.metadata == "none" or where.columns is None:
        return
    needed = [*METADATA_COLUMNS, *([PAYLOAD] if action.content == NOTHING else [])]
    missing = [column for column in needed if column not in where.columns]
    if missing:
        where.add(
            "metadata", f"the rows have no column {missing[0]!r}, which it needs", "select it too, or leave it out"
        )


def _check_content(
    content: str | None, removed: tuple[str, ...], where: ActionInFile, metadata: Metadata = "none",
    allows_nothing: bool = False,
) -> None:  # fmt: skip
    if content == NOTHING and metadata == "none" and not allows_nothing:
        where.add("content", "the output would be empty", 'choose "payload", "json" or a column')
    elif content not in (None, JSON, NOTHING) and where.columns is not None:
        kind = where.columns.get(str(content))
        if content not in where.columns:
            where.add("content", f"the rows have no column {content!r}", f"columns are: {', '.join(where.columns)}")
        elif kind is not None and not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            where.add("content", f"{content!r} is {kind}, neither text nor bytes", 'choose another, or "json"')
    effective = content or default_content(where.columns)
    if removed and (effective == JSON or (effective == NOTHING and metadata == "none")):
        where.add("remove", f"it applies to payloads, and the content is {effective!r}", "leave it out")


_CHECKS: dict[type, Any] = {
    FileAction: _check_file, TableAction: _check_table, PublishAction: _check_publish, ExecAction: _check_exec,
    PipeAction: _check_pipe, AlertAction: _check_alert,
}  # fmt: skip


# --- templates ------------------------------------------------------------------------------------


def template_errors(source: str, purpose: Purpose, rule: Rule, columns: ColumnTypes | None) -> Iterator[RuleError]:
    """An error for each field that rows with these columns cannot fill in. `columns` None: they are unknown."""
    pattern = rule.select.ident
    try:
        made = template(source, purpose, pattern)
    except RuleError as refused:
        yield refused
        return
    for field in made.fields:
        place = source.find(f"{{{field.source}}}")
        for error in _field_errors(field, rule, columns):
            yield at_place(error, source, place)


def _field_errors(field: Field, rule: Rule, columns: ColumnTypes | None) -> Iterator[RuleError]:
    missing = [group for group in field.groups if not _has_group(rule, group)]
    if missing:
        yield _no_group(missing[0], rule)
        return
    if columns is None:
        return
    unknown = [column for column in field.columns if column not in columns]
    if unknown:
        yield _no_column(field, unknown[0], rule, columns)
    elif field.groups and not field.is_moment and field.name in columns:
        hint = "give the group, or the column, another name"
        yield RuleError(f"{field.name!r} is both a group of the ident and a column", hint)
    elif not field.groups and not field.level and not field.key:
        yield from _format_errors(field, columns[field.columns[0]])


def _has_group(rule: Rule, group: str) -> bool:
    if rule.select.ident is None:
        return False
    groups = groups_in(rule.select.ident)
    return int(group) <= groups.count if group.isdecimal() else group in groups.names


def _no_group(group: str, rule: Rule) -> RuleError:
    if rule.select.ident is None:
        problem = f"there is no group {group} of the ident: the selection has no ident pattern"
        return RuleError(problem, "give the rule one, with groups in parentheses: ident = '^(SA..)'")
    groups = groups_in(rule.select.ident)
    has = "no groups" if not groups.count else f"{groups.count} group" + "s" * (groups.count > 1)
    return RuleError(f"the pattern {rule.select.ident!r} has {has}, and not {group}", "count its parentheses")


def _no_column(field: Field, column: str, rule: Rule, columns: ColumnTypes) -> RuleError:
    offered = [*columns, *(groups_in(rule.select.ident).names if rule.select.ident is not None else ())]
    if field.name != column:  # of a group, a level or a property
        return RuleError(f"{{{field.source}}} needs the column {column!r}, which the rows do not have", "select it too")
    near = difflib.get_close_matches(column, offered, 1)
    hint = f"did you mean {{{near[0]}}}?" if near else f"there are: {', '.join(sorted(offered))}"
    return RuleError(f"the rows have no column {column!r}", hint)


def _format_errors(field: Field, kind: pa.DataType | None) -> Iterator[RuleError]:
    if kind is None or not field.format:
        return
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if "%" in field.format and not is_time:
        yield RuleError(f"{{{field.source}}} has a time format, and {field.name} is {kind}", "leave the format out")
    elif is_time and "%" not in field.format:
        yield RuleError(f"{field.name} is a time, and {field.format!r} is not a time format", "write %Y%m%d")
    elif field.format[0] in "0." and not is_number and not pa.types.is_string(kind):
        yield RuleError(f"{{{field.source}}} has a number format, and {field.name} is {kind}", "leave the format out")

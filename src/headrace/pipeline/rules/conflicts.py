"""Conflicts: what cannot stand together in a rule file, though each key is right by itself.

Either a value would have no effect, which nobody means, or a rule would fail on its first product. Nothing is said
about a key that was complained of before.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.errors import RuleError
from headrace.pipeline.rules.purpose import Purpose
from headrace.pipeline.rules.reading import Tables, action_path
from headrace.pipeline.rules.rule import (
    ACTIONS,
    JSON,
    LAYOUT,
    NOTHING,
    AlertAction,
    ExecAction,
    FileAction,
    PipeAction,
    PipelineTerms,
    PublishAction,
    Rule,
    TableAction,
)
from headrace.pipeline.rules.scope import template_errors
from headrace.pipeline.rules.settling import OBSERVED, default_content, default_watermark, program_path
from headrace.pipeline.rules.sql import check_condition, has_chance, look_through, stream_errors
from headrace.pipeline.rules.template import template
from headrace.pipeline.rules.views import ColumnTypes, made_columns, row_columns, views_of
from headrace.toml.document import KeyPath
from headrace.toml.report import Report

_CLAUSES = {
    "every": ("counts products, and a batch that is done again would count anew", "where sequence % 10 = 0"),
    "max_age_s": (
        "asks the clock, and a batch that is done again would select others",
        "where created > current_timestamp() - interval 1 hour",
    ),
}


class Place(NamedTuple):
    """One action, and what is known of the rule that it belongs to."""

    rule: Rule
    path: KeyPath
    columns: ColumnTypes | None  # of the rows
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


def find_conflicts(tables: Tables, report: Report) -> None:
    """Complain of every conflict within a file."""
    _about_terms(tables, report)
    _about_names(tables, report)
    for place, rule in enumerate(tables.rules):
        _about_rule(rule, ("rule", place), place, report)
    _about_tables(tables, report)
    _about_loops(tables, report)


def _about_terms(tables: Tables, report: Report) -> None:
    terms, folder = tables.pipeline, report.document.folder
    given = report.document.data.get("pipeline")
    is_bare = isinstance(given, dict) and "queue" not in given and "site" not in given
    if is_bare and not _has_typo(report, ("pipeline",)):
        report.add(("pipeline",), "there is neither queue nor site to read from",
                   'give queue = "wx.queue", or site = "tcp/host:7447"')  # fmt: skip
    folders = {"checkpoint": terms.checkpoint, "tables": terms.tables, "files": terms.files}
    for key, path in folders.items():
        if path is None or terms.queue is None or report.is_wrong(("pipeline", key)):
            continue
        if path.is_relative_to(terms.queue):
            report.add(("pipeline", key), f"{path} is within the queue", "choose a folder of its own")
    if terms.checkpoint is not None and terms.checkpoint in (terms.tables, terms.files, folder):
        report.add(("pipeline", "checkpoint"), f"{terms.checkpoint} has other things in it, too",
                   "choose a folder of its own")  # fmt: skip


def _has_typo(report: Report, path: KeyPath) -> bool:
    """Whether a table has a key that nobody knows, which may be the one that is missed."""
    return not set(report.document.at(path)) <= set(LAYOUT.tables[str(path[0])].key_names())


def _about_names(tables: Tables, report: Report) -> None:
    seen: dict[str, int] = {}
    for place, rule in enumerate(tables.rules):
        if report.is_wrong(("rule", place, "name")):
            continue
        first = seen.setdefault(rule.name.casefold(), place)
        if first != place:
            report.add(("rule", place, "name"), f"{rule.name!r} is the name of [[rule]] {first + 1} already",
                       "choose another: progress and state of a rule go by its name")  # fmt: skip


# --- one rule -------------------------------------------------------------------------------------


def _about_rule(rule: Rule, path: KeyPath, place: int, report: Report) -> None:
    _about_selection(rule, path, report)
    made = _about_decoder(rule, path, report)
    _about_sql(rule, path, made, report)
    columns = None if report.is_wrong((*path, "sql")) or report.is_wrong((*path, "decode")) else row_columns(rule, made)
    actions = list(rule.actions())
    if not actions and not any(report.is_wrong((*path, name)) for name in ACTIONS) and not _has_typo(report, path):
        report.add(path, "the rule does nothing", "give it an action: [rule.file], [rule.table], [rule.publish] …")
    for name, number, action in actions:
        where = Place(rule, action_path(report, place, name, number), columns, report)
        if rule.select is not None:
            _ABOUT[type(action)](action, where)


def _about_selection(rule: Rule, path: KeyPath, report: Report) -> None:
    for clause, (problem, instead) in _CLAUSES.items():
        if rule.select is not None and clause in rule.select.given():
            at = (*path, clause) if report.document.at((*path, clause)) is not None else (*path, "select")
            report.add(at, f"{clause} {problem}", f'write it as sql: "… {instead}"')


def _about_decoder(rule: Rule, path: KeyPath, report: Report) -> ColumnTypes | None:
    """The columns that the decoder makes, if there is one and they are known."""
    if rule.schema is not None and (rule.decode is None or ":" not in rule.decode):
        what = "there is nothing to decode" if rule.decode is None else f"the decoder {rule.decode!r} has its own"
        report.add((*path, "schema"), what, 'leave it out; it goes with decode = "module:function"')
        return None
    if rule.decode is None or report.is_wrong((*path, "decode")) or report.is_wrong((*path, "schema")):
        return None
    try:
        return made_columns(rule, report.document.folder)
    except RuleError as error:
        report.refuse((*path, "decode"), error)
        return None


def _about_sql(rule: Rule, path: KeyPath, made: ColumnTypes | None, report: Report) -> None:
    if rule.sql is None:
        for key in ("watermark", "watermark_column"):
            if report.document.at((*path, key)) is not None and not report.is_wrong((*path, "sql")):
                report.add((*path, key), "there is no sql that it could be for", "give sql, or leave it out")
        return
    if report.is_wrong((*path, "decode")):
        return
    found = look_through(rule.sql, views_of(rule, made))
    for error in found.errors:
        report.refuse((*path, "sql"), error)
    watermark = _about_watermark(rule, path, made, report)
    if not report.is_wrong((*path, "watermark")) and not report.is_wrong((*path, "watermark_column")):
        for error in stream_errors(rule.sql, watermark):
            report.refuse((*path, "sql"), error)


def _about_watermark(rule: Rule, path: KeyPath, made: ColumnTypes | None, report: Report) -> str | None:
    """The column that has the watermark, if there is one."""
    if rule.watermark_s is None:
        if rule.watermark_column is not None:
            report.add((*path, "watermark_column"), "there is no watermark", 'give watermark = "10min" too')
        return None
    ((view, columns),) = views_of(rule, made).items()
    column = rule.watermark_column or default_watermark(columns)
    key = "watermark_column" if rule.watermark_column else "watermark"
    if column is None:
        report.add((*path, key), f"it needs a column with times, and {view} has no {OBSERVED!r}",
                   'name one: watermark_column = "created"')  # fmt: skip
    elif columns is not None and column not in columns:
        report.add((*path, key), f"{view} has no column {column!r}", f"times are: {', '.join(_times(columns))}")
    elif columns is not None and columns[column] is not None and not pa.types.is_timestamp(columns[column]):
        report.add((*path, key), f"{column!r} is no time, but {columns[column]}",
                   f"times are: {', '.join(_times(columns))}")  # fmt: skip
    return column


def _times(columns: ColumnTypes) -> list[str]:
    return [name for name, kind in columns.items() if kind is None or pa.types.is_timestamp(kind)]


# --- actions --------------------------------------------------------------------------------------


def _about_file(action: FileAction, where: Place) -> None:
    where.check_template("path", action.path, "path")
    _about_content(action.content, action.remove, where, allows_nothing=False)
    if action.path is not None and action.mode == "each" and not where.report.is_wrong((*where.path, "path")):
        made = template(action.path, "path", where.rule.select.ident)
        if made.is_constant:
            where.add("mode", '"each" writes a file for each row, and all would have the same path',
                      "write {sequence}, or another field, into path")  # fmt: skip


def _about_table(action: TableAction, where: Place) -> None:
    if action.format == "delta" and importlib.util.find_spec("deltalake") is None:
        where.add("format", "the package deltalake is not installed", "run: pip install 'headrace[delta]'")
    for number, column in enumerate(action.partition_by):
        if where.columns is not None and column not in where.columns:
            where.report.add((*where.path, "partition_by", number), f"the rows have no column {column!r}",
                             f"columns are: {', '.join(where.columns)}")  # fmt: skip
    if where.columns is not None and len(action.partition_by) >= len(where.columns):
        where.add("partition_by", "nothing is left for the table but its partitions", "leave a column out")


def _about_publish(action: PublishAction, where: Place) -> None:
    where.check_template("feed", action.feed, "feed")
    where.check_template("ident", action.ident, "ident")
    _about_content(action.content, (), where, allows_nothing=False)
    if action.queue is not None and action.site is not None:
        where.add("site", "there is a queue, too", "put products into one of them")
    _about_chance(where)


def _about_exec(action: ExecAction, where: Place) -> None:
    _about_command(action.command, where)
    _about_content(action.content, action.remove, where, allows_nothing=True)


def _about_pipe(action: PipeAction, where: Place) -> None:
    _about_command(action.command, where)
    _about_content(action.content, action.remove, where, allows_nothing=False)


def _about_alert(action: AlertAction, where: Place) -> None:
    where.check_template("feed", action.feed, "feed")
    where.check_template("ident", action.ident, "ident")
    where.check_template("message", action.message, "text")
    if action.when is not None and not where.report.is_wrong((*where.path, "when")):
        for error in check_condition(action.when, where.columns):
            where.report.refuse((*where.path, "when"), error)
    _about_chance(where)


def _about_chance(where: Place) -> None:
    """What is put twice is known by being the same."""
    sql = where.rule.sql
    if sql is not None and not where.report.is_wrong((*where.path[:2], "sql")) and has_chance(sql):
        where.report.add((*where.path[:2], "sql"), "rand() and uuid() give other products when a batch is done again",
                         "make them from columns: hash(station, observed)")  # fmt: skip


def _about_command(command: tuple[str, ...] | None, where: Place) -> None:
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


def _about_content(content: str | None, removed: tuple[str, ...], where: Place, allows_nothing: bool) -> None:
    if content == NOTHING and not allows_nothing:
        where.add("content", "there would be nothing in it", 'choose "payload", "json" or a column')
    elif content not in (None, JSON, NOTHING) and where.columns is not None:
        kind = where.columns.get(str(content))
        if content not in where.columns:
            where.add("content", f"the rows have no column {content!r}", f"columns are: {', '.join(where.columns)}")
        elif kind is not None and not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            where.add("content", f"{content!r} is {kind}, neither text nor bytes", 'choose another, or "json"')
    settled = content or default_content(where.columns)
    if removed and settled in (JSON, NOTHING):
        where.add("remove", f"it is for payloads, and the content is {settled!r}", "leave it out")


_ABOUT: dict[type, Any] = {
    FileAction: _about_file, TableAction: _about_table, PublishAction: _about_publish, ExecAction: _about_exec,
    PipeAction: _about_pipe, AlertAction: _about_alert,
}  # fmt: skip


# --- rules among themselves -----------------------------------------------------------------------


def _about_tables(tables: Tables, report: Report) -> None:
    """A table has one writer, who knows what he has written."""
    seen: dict[Path, str] = {}
    folder = tables.pipeline.tables or report.document.folder / "tables"
    dead = folder / tables.pipeline.dead_letters
    for place, rule in enumerate(tables.rules):
        for number, action in enumerate(rule.table):
            path = (*action_path(report, place, "table", number), "path")
            if report.is_wrong(path):
                continue
            target = folder / action.path
            title = f"[[rule]] {place + 1}"
            first = "the dead letters" if target == dead else seen.setdefault(target, title)
            if first != title or (number and first == title and target in list(_earlier(rule, number, folder))):
                report.add(path, f"{target} is written by {first} already", "choose another path")


def _earlier(rule: Rule, number: int, folder: Path) -> Iterator[Path]:
    yield from (folder / action.path for action in rule.table[:number])


def _about_loops(tables: Tables, report: Report) -> None:
    """A rule that selects what it puts itself would never come to an end. A feed with fields is looked at when it is
    filled in, and so is a selection by more than the feed (actions/publish.py).
    """
    for place, rule in enumerate(tables.rules):
        if rule.select is None:
            continue
        by_feed = set(rule.select.given()) <= {"feed"}
        for name, number, action in rule.actions():
            if not isinstance(action, PublishAction | AlertAction) or not _is_own(action, tables.pipeline):
                continue
            path = action_path(report, place, name, number)
            is_wrong = any(report.is_wrong((*path, key)) for key in ("feed", "queue", "site"))
            is_fixed = action.feed is not None and "{" not in action.feed
            if by_feed and is_fixed and not is_wrong and rule.select.wants_feed(action.feed):
                report.add((*path, "feed"), f"the rule selects {action.feed!r} itself, and would never come to an end",
                           "choose a feed that select does not match")  # fmt: skip


def _is_own(action: PublishAction | AlertAction, terms: PipelineTerms) -> bool:
    """Whether products go where the pipeline's come from."""
    if isinstance(action, AlertAction) or (action.queue is None and action.site is None):
        return True
    return action.queue == terms.queue if action.queue is not None else action.site == terms.site

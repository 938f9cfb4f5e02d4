"""Conflicts: contradictions between the keys of a rule file, each of which is valid by itself.

A conflict is either a value that would have no effect, which nobody intends, or a rule that would fail on its first
product. Keys that were reported as invalid before are skipped.

This module checks [pipeline], each rule (selection, decoder, SQL, watermark) and the rules together (two writers of one
table, a rule that selects its own output). action_conflicts.py checks single actions.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from headrace.errors import FabricError, OptionError, RuleError
from headrace.link.credentials import TlsTerms, check_tls
from headrace.pipeline.rules.action_conflicts import ActionInFile, check_action
from headrace.pipeline.rules.defaults import OBSERVED, default_watermark
from headrace.pipeline.rules.otherwise import OTHERWISE, inexact_clauses, is_exact
from headrace.pipeline.rules.rule import ACTIONS, LAYOUT, AlertAction, PipelineTerms, PublishAction, Rule, RuleFile
from headrace.pipeline.rules.sql import analyse_query, stream_errors
from headrace.pipeline.rules.views import ColumnTypes, made_columns, row_columns, views_of
from headrace.product.ldm_feedtypes import ldm_warning
from headrace.toml.document import KeyPath
from headrace.toml.report import Report

_CLAUSES = {  # of a selection that a pipeline cannot repeat: the problem, and the SQL to write instead
    "every": ("counts products, and the count would differ when a batch is repeated", "where sequence % 10 = 0"),
    "max_age_s": (
        "depends on the clock, and would select other products when a batch is repeated",
        "where created > current_timestamp() - interval 1 hour",
    ),
}


def find_conflicts(file: RuleFile, report: Report) -> None:
    """Report every conflict within a file."""
    _check_terms(file, report)
    _check_login(file, report)
    _check_names(file, report)
    for place, rule in enumerate(file.rules):
        _check_rule(rule, place, report)
    _check_otherwise(file, report)
    _check_tables(file, report)
    _check_loops(file, report)


def _check_terms(file: RuleFile, report: Report) -> None:
    terms, folder = file.pipeline, report.document.folder
    given = report.document.data.get("pipeline")
    is_bare = isinstance(given, dict) and "queue" not in given and "site" not in given
    if is_bare and not _has_unknown_key(report, ("pipeline",)):
        report.add(("pipeline",), "there is neither queue nor site to read from",
                   'give queue = "wx.queue", or site = "tcp/host:7447"')  # fmt: skip
    folders = {"checkpoint": terms.checkpoint, "tables": terms.tables, "files": terms.files}
    for key, path in folders.items():
        if path is None or terms.queue is None or report.is_wrong(("pipeline", key)):
            continue
        if path.is_relative_to(terms.queue):
            report.add(("pipeline", key), f"{path} is inside the queue", "choose a separate folder")
    if terms.checkpoint is not None and terms.checkpoint in (terms.tables, terms.files, folder):
        report.add(("pipeline", "checkpoint"), f"{terms.checkpoint} is also used for other files",
                   "choose a separate folder")  # fmt: skip


def _check_login(file: RuleFile, report: Report) -> None:
    terms = file.pipeline
    sites = [terms.site, *(action.site for rule in file.rules for action in rule.publish)]
    for name in ("tls", "user"):
        if getattr(terms, name) is not None and not any(sites):
            report.add(("pipeline", name), "it has no effect without a site", "give site too, or leave the table out")
    tls = terms.tls
    if tls is None or any(report.is_wrong(("pipeline", "tls", key)) for key in ("authority", "certificate", "key")):
        return
    try:
        check_tls(TlsTerms(tls.authority, tls.certificate, tls.key))
    except (FabricError, OptionError) as error:
        report.add(("pipeline", "tls"), error.problem, error.hint)


def _has_unknown_key(report: Report, path: KeyPath) -> bool:
    """Whether a table has an unknown key, which may be a misspelt form of the missing one."""
    return not set(report.document.at(path)) <= set(LAYOUT.tables[str(path[0])].key_names())


def _check_names(file: RuleFile, report: Report) -> None:
    seen: dict[str, int] = {}
    for place, rule in enumerate(file.rules):
        if report.is_wrong(("rule", place, "name")):
            continue
        first = seen.setdefault(rule.name.casefold(), place)
        if first != place:
            report.add(("rule", place, "name"), f"{rule.name!r} is already the name of [[rule]] {first + 1}",
                       "choose another name: the progress and state of a rule are stored under it")  # fmt: skip


# --- one rule -------------------------------------------------------------------------------------


def _check_rule(rule: Rule, place: int, report: Report) -> None:
    path: KeyPath = ("rule", place)
    _check_selection(rule, path, report)
    made = _check_decoder(rule, path, report)
    _check_sql(rule, path, made, report)
    columns = None if report.is_wrong((*path, "sql")) or report.is_wrong((*path, "decode")) else row_columns(rule, made)
    actions = list(rule.actions())
    is_invalid = any(report.is_wrong((*path, name)) for name in ACTIONS)
    if not actions and not rule.discard and not is_invalid and not _has_unknown_key(report, path):
        report.add(path, "the rule has no action", "give it one: [rule.file], [rule.table], [rule.publish] …")
    if actions and rule.discard:
        report.add((*path, "discard"), f"the rule has the action {actions[0][0]!r}", "leave one of them out")
    for name, number, action in actions:
        if rule.select is not None:
            check_action(action, ActionInFile(rule, action_path(report, place, name, number), columns, report))


def action_path(report: Report, place: int, name: str, number: int) -> KeyPath:
    """Where an action stands in the document: `[rule.file]` has no number, `[[rule.file]]` has."""
    path: KeyPath = ("rule", place, name)
    raw = report.document.at(path)
    is_listed = isinstance(raw, list) and bool(raw) and all(isinstance(each, dict) for each in raw)
    return (*path, number) if is_listed else path


def ldm_warnings(file: RuleFile) -> Iterator[str]:
    """Rules that select feed types of LDM: valid, and probably copied from a pqact.conf."""
    for rule in file.enabled:
        if warning := ldm_warning(rule.select.feed):
            yield f"rule {rule.name}: {warning}"


def _check_selection(rule: Rule, path: KeyPath, report: Report) -> None:
    for clause, (problem, instead) in _CLAUSES.items():
        if rule.select is not None and clause in rule.select.given():
            at = (*path, clause) if report.document.at((*path, clause)) is not None else (*path, "select")
            report.add(at, f"{clause} {problem}", f'write it as sql: "… {instead}"')


def _check_decoder(rule: Rule, path: KeyPath, report: Report) -> ColumnTypes | None:
    """The columns that the decoder makes, if there is one and they are known."""
    if rule.schema is not None and (rule.decode is None or ":" not in rule.decode):
        what = "there is nothing to decode" if rule.decode is None else f"the decoder {rule.decode!r} has its own"
        report.add((*path, "schema"), what, 'leave it out; it belongs to decode = "module:function"')
        return None
    if rule.decode is None or report.is_wrong((*path, "decode")) or report.is_wrong((*path, "schema")):
        return None
    try:
        return made_columns(rule, report.document.folder)
    except RuleError as error:
        report.refuse((*path, "decode"), error)
        return None


def _check_sql(rule: Rule, path: KeyPath, made: ColumnTypes | None, report: Report) -> None:
    if rule.sql is None:
        for key in ("watermark", "watermark_column"):
            if report.document.at((*path, key)) is not None and not report.is_wrong((*path, "sql")):
                report.add((*path, key), "it has no effect without sql", "give sql, or leave it out")
        return
    if report.is_wrong((*path, "decode")):
        return
    found = analyse_query(rule.sql, views_of(rule, made))
    for error in found.errors:
        report.refuse((*path, "sql"), error)
    watermark = _check_watermark(rule, path, made, report)
    if not report.is_wrong((*path, "watermark")) and not report.is_wrong((*path, "watermark_column")):
        for error in stream_errors(rule.sql, watermark):
            report.refuse((*path, "sql"), error)


def _check_watermark(rule: Rule, path: KeyPath, made: ColumnTypes | None, report: Report) -> str | None:
    """The column of the watermark, if there is one."""
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
        report.add((*path, key), f"{column!r} is {columns[column]}, not a time",
                   f"times are: {', '.join(_times(columns))}")  # fmt: skip
    return column


def _times(columns: ColumnTypes) -> list[str]:
    return [name for name, kind in columns.items() if kind is None or pa.types.is_timestamp(kind)]


# --- rules together -------------------------------------------------------------------------------


def _check_otherwise(file: RuleFile, report: Report) -> None:
    last = max((place for place, rule in enumerate(file.rules) if rule.otherwise), default=-1)
    for place, rule in enumerate(file.rules):
        above = [each for each in file.rules[:place] if each.enabled and each.select is not None]
        if rule.otherwise and not above:
            report.add(
                ("rule", place, OTHERWISE), "there is no enabled rule above it", "leave it out, or move the rule"
            )
        elif rule.otherwise and (inexact := [each for each in above if not is_exact(each.select)]):
            clause = (inexact_clauses(inexact[0].select) or ["every"])[0]
            report.add(("rule", place, OTHERWISE), f"the rule {inexact[0].name!r} above it selects by {clause!r}, which"
                       " is evaluated at the queue only", f"move {inexact[0].name!r} below this rule")  # fmt: skip
        if rule.discard and place > last:
            report.add(("rule", place, "discard"), "it has no effect without a rule with otherwise below it",
                       "leave the rule out")  # fmt: skip


def _check_tables(file: RuleFile, report: Report) -> None:
    """A table has one writer: only its own journal tells an action which batches are in the table."""
    folder = file.pipeline.tables or report.document.folder / "tables"
    writers: dict[Path, str] = {folder / file.pipeline.dead_letters: "the dead letters"}
    for place, rule in enumerate(file.rules):
        for number, action in enumerate(rule.table):
            path = (*action_path(report, place, "table", number), "path")
            if report.is_wrong(path):
                continue
            target = folder / action.path
            if target in writers:
                report.add(path, f"{target} is already written by {writers[target]}", "choose another path")
            for other, writer in writers.items():
                if other != target and (other.is_relative_to(target) or target.is_relative_to(other)):
                    report.add(path, f"{target} and {other}, a table of {writer}, lie one in the other",
                               "choose a path beside it: compact and keep are for all files below a path")  # fmt: skip
            writers.setdefault(target, f"[[rule]] {place + 1}")


def _check_loops(file: RuleFile, report: Report) -> None:
    """A rule that selects its own output would never end.

    Only a fixed feed and a selection by feed alone can be checked here. Everything else is checked when the feed is
    filled in (actions/publish.py).
    """
    for place, rule in enumerate(file.rules):
        if rule.select is None:
            continue
        by_feed = set(rule.select.given()) <= {"feed"}
        for name, number, action in rule.actions():
            if not isinstance(action, PublishAction | AlertAction) or not _is_own_queue(action, file.pipeline):
                continue
            path = action_path(report, place, name, number)
            is_wrong = any(report.is_wrong((*path, key)) for key in ("feed", "queue", "site"))
            is_fixed = action.feed is not None and "{" not in action.feed
            if by_feed and is_fixed and not is_wrong and rule.select.wants_feed(action.feed):
                report.add((*path, "feed"), f"the rule selects {action.feed!r} itself, and would never end",
                           "choose a feed that select does not match")  # fmt: skip


def _is_own_queue(action: PublishAction | AlertAction, terms: PipelineTerms) -> bool:
    """Whether the products go to the queue that the pipeline reads."""
    if isinstance(action, AlertAction) or (action.queue is None and action.site is None):
        return True
    return action.queue == terms.queue if action.queue is not None else action.site == terms.site

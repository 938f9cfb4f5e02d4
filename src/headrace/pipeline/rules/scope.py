"""Scope: what the templates of a rule may name, and what is wrong with one that names something else."""

import difflib
from collections.abc import Iterator

import pyarrow as pa

from headrace.errors import RuleError
from headrace.pipeline.rules.field import Field, groups_in
from headrace.pipeline.rules.purpose import Purpose
from headrace.pipeline.rules.rule import Rule
from headrace.pipeline.rules.template import at_place, template
from headrace.pipeline.rules.views import ColumnTypes


def template_errors(source: str, purpose: Purpose, rule: Rule, columns: ColumnTypes | None) -> Iterator[RuleError]:
    """Every field that cannot be filled in from rows with these columns, if they are known."""
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
        yield RuleError(f"{field.name!r} is a group of the ident and a column", hint)
    elif not field.groups and not field.level and not field.key:
        yield from _format_errors(field, columns[field.columns[0]])


def _has_group(rule: Rule, group: str) -> bool:
    if rule.select.ident is None:
        return False
    groups = groups_in(rule.select.ident)
    return int(group) <= groups.count if group.isdecimal() else group in groups.names


def _no_group(group: str, rule: Rule) -> RuleError:
    if rule.select.ident is None:
        problem = f"there is no group {group} of the ident: the selection has no pattern for it"
        return RuleError(problem, "give the rule one, with groups in parentheses: ident = '^(SA..)'")
    groups = groups_in(rule.select.ident)
    has = "no group" if not groups.count else f"{groups.count} group" + "s" * (groups.count > 1)
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
        yield RuleError(f"{{{field.source}}} has the format of a time, and {field.name} is {kind}", "leave it out")
    elif is_time and "%" not in field.format:
        yield RuleError(f"{field.name} is a time, and {field.format!r} is no format of one", "write %Y%m%d")
    elif field.format[0] in "0." and not is_number and not pa.types.is_string(kind):
        yield RuleError(f"{{{field.source}}} has the format of a number, and {field.name} is {kind}", "leave it out")

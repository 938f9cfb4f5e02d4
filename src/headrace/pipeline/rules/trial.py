"""Trial: what the rules of a file would do with sample products, without Spark and without changing anything.

A trial decodes the sample, if the rule has a decoder, shows the rows, and fills in the templates of each action. It
does not run SQL: for a rule with SQL, a trial tells which products the rule selects and which rows they become, and
shows the templates as they are written. What the SQL leaves of these rows is for run/sql_trial.py, on Spark.

`headrace pipeline check --sample` prints trials.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa

from headrace.errors import RuleError
from headrace.pipeline.decoders.decoder import reason
from headrace.pipeline.rules.otherwise import refusal
from headrace.pipeline.rules.rule import (
    Action,
    AlertAction,
    ExecAction,
    FileAction,
    PipeAction,
    PublishAction,
    Rule,
    RuleFile,
    TableAction,
)
from headrace.pipeline.rules.template import template
from headrace.pipeline.rules.template_safety import Purpose
from headrace.pipeline.rules.views import decoder_of
from headrace.pipeline.source.columns import SCHEMA
from headrace.product.product import Product

ROWS_MAX = 100  # rows of one product that a trial shows
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = Mapping[str, Any]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What one action would do with one row. `error` tells why it would refuse the row."""

    action: str  # the name of its table: "file", "publish" …
    target: str  # a path, a feed, or a command
    ident: str | None = None  # of the published product
    when: str | None = None  # the condition of an alert, which a trial does not evaluate
    is_open: bool = False  # it depends on the result of SQL, so the templates are shown as they are written
    error: str | None = None


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule would do with one product."""

    rule: str
    place: int  # of the product among the samples
    refused_by: str | None = None  # the clause of the selection that refuses it, or the rule above that selects it
    rows: int | None = None  # that the product becomes, before SQL
    shown: tuple[dict[str, Any], ...] = ()  # the first of them as the decoder makes them; none without a decoder
    has_sql: bool = False  # which decides what the actions get
    error: str | None = None  # why decoding fails; the product would be a dead letter
    previews: tuple[Preview, ...] = ()

    @property
    def is_taken(self) -> bool:
        return self.refused_by is None


def try_rules(rules: RuleFile, products: Iterable[Product]) -> Iterator[Trial]:
    """A trial for each product and each enabled rule."""
    decoders = {rule.name: decoder_of(rule, rules.path.parent) for rule in rules.enabled if rule.decode is not None}
    for place, product in enumerate(products):
        for rule in rules.enabled:
            refused = refusal(rules, rule, product)
            if refused is not None:
                yield Trial(rule=rule.name, place=place, refused_by=refused)
            else:
                yield _trial(rule, place, product, decoders.get(rule.name))


def _trial(rule: Rule, place: int, product: Product, decoder: Any) -> Trial:
    row = row_of(product)
    rows, shown = [row], tuple[dict[str, Any], ...]()
    if decoder is not None:
        decoded = decoder.decode(batch_of([product]))
        if decoded.errors:
            return Trial(rule=rule.name, place=place, rows=0, error=decoded.errors[0][1])
        try:
            produced = decoded.rows.drop_columns(["place"]).to_pylist()
        except (ValueError, OverflowError) as error:  # a time outside the years 1 to 9999
            return Trial(rule=rule.name, place=place, rows=0, error=reason(error))
        rows, shown = [{**row, **made} for made in produced], tuple(produced[:ROWS_MAX])
    has_sql = rule.sql is not None
    previews = tuple(_open_preview(name, action) for name, _, action in rule.actions())
    return Trial(rule=rule.name, place=place, rows=len(rows), shown=shown, has_sql=has_sql,
                 previews=previews if has_sql else previews_of(rule, rows))  # fmt: skip


def previews_of(rule: Rule, rows: list[dict[str, Any]]) -> tuple[Preview, ...]:
    """What the actions of a rule would do with its rows, each different preview once."""
    filled = [_preview(rule, name, action, each) for each in rows[:ROWS_MAX] for name, _, action in rule.actions()]
    return tuple(dict.fromkeys(filled))


def _preview(rule: Rule, name: str, action: Action, row: Row) -> Preview:
    pattern = rule.select.ident

    def filled(source: str, purpose: Purpose) -> str:
        return template(source, purpose, pattern).text(row)

    try:
        if isinstance(action, FileAction):
            return Preview(action=name, target=f"{action.folder}/{filled(action.path, 'path')}")
        if isinstance(action, TableAction):
            parts = "".join(f"/{column}={row.get(column)}" for column in action.partition_by)
            return Preview(action=name, target=f"{action.path}{parts}")
        if isinstance(action, ExecAction | PipeAction):
            command = [filled(argument, "argument") for argument in action.command]
            return Preview(action=name, target=shlex.join(command))
        when = action.when if isinstance(action, AlertAction) else None
        feed, ident = filled(action.feed, "feed"), filled(action.ident, "ident")
        return Preview(action=name, target=feed, ident=ident, when=when)
    except RuleError as error:
        shown = _open_preview(name, action)
        return msgspec.structs.replace(shown, error=error.problem, is_open=False)


def _open_preview(name: str, action: Action) -> Preview:
    """The action with its templates as they are written."""
    if isinstance(action, FileAction):
        return Preview(action=name, target=f"{action.folder}/{action.path}", is_open=True)
    if isinstance(action, TableAction):
        parts = "".join(f"/{column}=…" for column in action.partition_by)
        return Preview(action=name, target=f"{action.path}{parts}", is_open=bool(parts))
    if isinstance(action, PublishAction | AlertAction):
        when = action.when if isinstance(action, AlertAction) else None
        return Preview(action=name, target=action.feed, ident=action.ident, when=when, is_open=True)
    return Preview(action=name, target=shlex.join(action.command), is_open=True)


# --- products as rows -----------------------------------------------------------------------------


def row_of(product: Product) -> dict[str, Any]:
    """A product as a row with the columns of the pipeline; values are those that Arrow would return."""
    return {
        "sequence": product.sequence, "feed": product.feed, "ident": product.ident, "payload": bytes(product.payload),
        "signature": product.signature or None, "origin": product.origin, "origin_sequence": product.origin_sequence,
        "created": _time(product.created_ns), "inserted": _time(product.inserted_ns), "priority": product.priority,
        "expiry": None if product.expiry_ns is None else _time(product.expiry_ns), "slice": product.slice,
        "properties": {name: _property(value) for name, value in product.properties.items()},
    }  # fmt: skip


def batch_of(products: Iterable[Product]) -> pa.RecordBatch:
    """Products as a RecordBatch with the columns of the pipeline (source/columns.py)."""
    rows = [row_of(product) for product in products]
    columns = [pa.array([_cell(row[field.name]) for row in rows], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _cell(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def _time(ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=ns // 1000)


def _property(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Views: the table that a rule's SQL can select from, and the columns of its rows.

    products   the columns of a product (pipeline/source/columns.py)
    decoded    if the rule decodes: what the decoder makes, and the columns of the product that it comes from, but for
               the payload and for those that the decoder has itself

Types are Arrow's where they are known: SQL may make others.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from headrace.errors import OptionError, RuleError
from headrace.pipeline.decoders import Decoder, decoder
from headrace.pipeline.rules.rule import Rule
from headrace.pipeline.rules.sql import look_through
from headrace.pipeline.source.columns import SCHEMA

PRODUCTS, DECODED = "products", "decoded"
ColumnTypes = Mapping[str, pa.DataType | None]

PRODUCT_COLUMNS: ColumnTypes = {field.name: field.type for field in SCHEMA}


def decoder_of(rule: Rule, folder: Path) -> Decoder:
    """The decoder of a rule, looked for beside the rules too; RuleError says why there is none."""
    with importable(folder):
        try:
            return decoder(rule.decode or "", rule.schema)
        except OptionError as error:
            raise RuleError(error.problem, error.hint) from None


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Modules in this folder can be imported meanwhile."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def decoded_columns(made: ColumnTypes | None) -> ColumnTypes | None:
    """The columns of `decoded`, from those that the decoder makes."""
    if made is None:
        return None
    return {**{name: kind for name, kind in PRODUCT_COLUMNS.items() if name != "payload"}, **made}


def made_columns(rule: Rule, folder: Path) -> ColumnTypes | None:
    """The columns that the decoder of a rule makes; RuleError: there is no such decoder."""
    if rule.decode is None:
        return None
    return {field.name: field.type for field in decoder_of(rule, folder).schema}


def views_of(rule: Rule, made: ColumnTypes | None) -> dict[str, ColumnTypes | None]:
    """The one table for the rule's SQL, by its name."""
    return {PRODUCTS: PRODUCT_COLUMNS} if rule.decode is None else {DECODED: decoded_columns(made)}


def row_columns(rule: Rule, made: ColumnTypes | None) -> ColumnTypes | None:
    """The columns of the rule's rows; None if they are not known."""
    views = views_of(rule, made)
    if rule.sql is None:
        (columns_of_view,) = views.values()
        return columns_of_view
    columns = look_through(rule.sql, views).columns
    if columns is None:
        return None
    known = {name: kind for view in views.values() for name, kind in (view or {}).items()}
    return {name: known.get(name) for name in columns}

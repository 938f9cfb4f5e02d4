"""Views: the table that the SQL of a rule selects from, and the columns of the rule's rows.

    products   the columns of a product (pipeline/source/columns.py)
    decoded    if the rule has a decoder: the columns of the decoder, and those of the product, except the payload and
               columns that the decoder has too

Types are Arrow's. A column that SQL computes has an unknown type, None.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from headrace.errors import MissingExtraError, OptionError, RuleError
from headrace.pipeline.decoders import Decoder, decoder
from headrace.pipeline.rules.rule import Rule
from headrace.pipeline.rules.sql import analyse_query
from headrace.pipeline.source.columns import SCHEMA

PRODUCTS, DECODED = "products", "decoded"
ColumnTypes = Mapping[str, pa.DataType | None]

PRODUCT_COLUMNS: ColumnTypes = {field.name: field.type for field in SCHEMA}


def decoder_of(rule: Rule, folder: Path) -> Decoder:
    """The decoder of a rule; modules in the folder of the rules are found too. RuleError: there is none."""
    with importable(folder):
        try:
            return decoder(rule.decode or "", rule.schema)
        except (MissingExtraError, OptionError) as error:
            raise RuleError(error.problem, error.hint) from None


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Make the modules of a folder importable within the block."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def decoded_columns(made: ColumnTypes | None) -> ColumnTypes | None:
    """The columns of `decoded`, from those of the decoder."""
    if made is None:
        return None
    return {**{name: kind for name, kind in PRODUCT_COLUMNS.items() if name != "payload"}, **made}


def made_columns(rule: Rule, folder: Path) -> ColumnTypes | None:
    """The columns of a rule's decoder; None without a decoder. RuleError: there is no such decoder."""
    if rule.decode is None:
        return None
    return {field.name: field.type for field in decoder_of(rule, folder).schema}


def views_of(rule: Rule, made: ColumnTypes | None) -> dict[str, ColumnTypes | None]:
    """The one table for the SQL of a rule, by its name."""
    return {PRODUCTS: PRODUCT_COLUMNS} if rule.decode is None else {DECODED: decoded_columns(made)}


def row_columns(rule: Rule, made: ColumnTypes | None) -> ColumnTypes | None:
    """The columns of a rule's rows; None if they are unknown."""
    views = views_of(rule, made)
    if rule.sql is None:
        (columns_of_view,) = views.values()
        return columns_of_view
    columns = analyse_query(rule.sql, views).columns
    if columns is None:
        return None
    known = {name: kind for view in views.values() for name, kind in (view or {}).items()}
    return {name: known.get(name) for name in columns}

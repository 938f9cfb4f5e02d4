"""SqlTrial: what the SQL of a rule leaves of sample products, on Spark and without changing anything.

All samples that a rule selects are one batch: they are decoded, the SQL runs on their rows, and the templates of the
actions are filled in by its result. There is no state and no watermark, so a window shows what these samples alone
would give, at once.

`headrace pipeline check --sample` prints it after the trials of single products (rules/trial.py).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.rules.otherwise import refusal
from headrace.pipeline.rules.rule import Rule, RuleFile
from headrace.pipeline.rules.trial import ROWS_MAX, Preview, batch_of, previews_of
from headrace.pipeline.run.decoding import decoded
from headrace.pipeline.run.micro_batch import decoded_rows, queried
from headrace.pipeline.spark.failures import failure_of
from headrace.product.product import Product


class SqlTrial(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one rule's SQL."""

    rule: str
    before: int = 0  # rows that the SQL got
    rows: int = 0  # rows that it left
    shown: tuple[dict[str, Any], ...] = ()  # the first of them
    error: str | None = None  # why Spark failed
    previews: tuple[Preview, ...] = ()


def rules_with_sql(rules: RuleFile, products: Iterable[Product]) -> list[tuple[Rule, list[Product]]]:
    """The rules whose SQL would get something, and the samples that they select."""
    given = list(products)
    selected = [
        (rule, [each for each in given if refusal(rules, rule, each) is None])
        for rule in rules.enabled
        if rule.sql is not None
    ]
    return [(rule, chosen) for rule, chosen in selected if chosen]


def try_sql(spark: SparkSession, folder: Path, chosen: Iterable[tuple[Rule, list[Product]]]) -> Iterator[SqlTrial]:
    """A trial for each of these rules; `folder` is that of the rules."""
    for rule, products in chosen:
        try:
            yield _trial(spark, rule, products, folder)
        except PySparkException as error:
            yield SqlTrial(rule=rule.name, error=failure_of(f"{type(error).__name__}: {error}").text)


def _trial(spark: SparkSession, rule: Rule, products: list[Product], folder: Path) -> SqlTrial:
    frame = spark.createDataFrame(pa.Table.from_batches([batch_of(products)]))
    rows = (frame if rule.decode is None else decoded_rows(decoded(frame, rule, folder))).persist()
    try:
        before, result = rows.count(), queried(rows, rule)
        found = _first(result)
        count = len(found) if len(found) < ROWS_MAX else result.count()
    finally:
        rows.unpersist()
    return SqlTrial(rule=rule.name, before=before, rows=count, shown=tuple(found), previews=previews_of(rule, found))


def _first(result: DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.limit(ROWS_MAX).toArrow().to_pylist(maps_as_pydicts="lossy")
    return found

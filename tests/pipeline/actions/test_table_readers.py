"""Tables as other programs read them: with the commands that docs/actions.md shows, beside a stage, and when compacted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from test_action_table import Bench, rows, staged_only

from headrace.pipeline.actions import table_compaction

READERS: dict[str, Callable[[Any, Path], list[int]]] = {
    "spark": lambda spark, path: [row.sequence for row in spark.read.parquet(str(path)).collect()],
    "pandas": lambda _, path: pd.read_parquet(path)["sequence"].tolist(),
    "arrow": lambda _, path: ds.dataset(path, partitioning="hive").to_table()["sequence"].to_pylist(),
    "polars": lambda _, path: pl.scan_parquet(path).collect()["sequence"].to_list(),
    "duckdb": lambda _, path: [
        row[0] for row in duckdb.sql(f"select sequence from read_parquet('{path}/**/*.parquet')").fetchall()
    ],
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("partition_by", [(), ("station",)])
def test_every_reader_takes_the_folder_as_it_is(
    spark: Any, tmp_path: Path, reader: str, partition_by: tuple[str, ...]
) -> None:
    bench = Bench(tmp_path, "parquet", *partition_by)
    for number in range(4):
        bench.put(rows(spark, number * 5, number * 5 + 5), number)
    staged_only(bench, rows(spark, 20, 30), 4)
    assert sorted(READERS[reader](spark, bench.path)) == list(range(20)), "beside a stage"
    assert bench.put(rows(spark, 20, 30), 4).rows == 10
    table_compaction.compact_table(bench.path)
    assert sorted(READERS[reader](spark, bench.path)) == list(range(30)), "compacted"


@pytest.mark.parametrize("reader", ["spark", "arrow", "polars", "duckdb"])
def test_a_table_that_has_grown_is_read_with_all_columns_as_documented(spark: Any, tmp_path: Path, reader: str) -> None:
    bench = Bench(tmp_path, "parquet")
    bench.action = msgspec.structs.replace(bench.action, columns="grow")
    bench.put(rows(spark, 0, 2, "id as sequence"), 0)
    bench.put(rows(spark, 2, 4, "id as sequence, id * 2 as more"), 1)
    expected = [(0, None), (1, None), (2, 4), (3, 6)]
    assert sorted(_grown(reader, spark, bench.path), key=lambda row: row[0]) == expected


def _grown(reader: str, spark: Any, path: Path) -> list[tuple[Any, ...]]:
    if reader == "spark":
        read = spark.read.option("mergeSchema", "true").parquet(str(path))
        return [tuple(row) for row in read.select("sequence", "more").collect()]
    if reader == "duckdb":
        return duckdb.sql(
            f"select sequence, more from read_parquet('{path}/*.parquet', union_by_name = true)"
        ).fetchall()
    if reader == "polars":
        schema = {"sequence": pl.Int64, "more": pl.Int64}
        return pl.scan_parquet(path, schema=schema, missing_columns="insert").collect().rows()
    schema = pa.unify_schemas([pq.read_schema(file) for file in path.glob("*.parquet")])
    held = ds.dataset(path, schema=schema).to_table()
    return list(zip(held["sequence"].to_pylist(), held["more"].to_pylist(), strict=True))

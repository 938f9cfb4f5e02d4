"""The benchmarks of the pipeline run, small, so that they do not rot. No time is judged here."""

from typing import Any

import pytest
from running import report_of

pytestmark = pytest.mark.spark


def figures(*words: str) -> dict[str, Any]:
    """The figures of a benchmark. It runs in a process of its own, because a process can have only one Spark."""
    return {figure["name"]: figure["value"] for figure in report_of(*words)["figures"]}


def test_the_benchmark_of_the_pipeline_measures_every_figure() -> None:
    taken = figures("pipeline", "--scale", "0.01")
    assert list(taken) == [
        "start", "first", "batch", "batch-bare", "batch-parquet", "selected", "pushed", "columns", "limit", "stream-noop",
        "stream-bare", "stream-columns",
        "stream-parquet",
        "batch-cost", "put-to-table", "put-to-table-max", "metar",
    ]  # fmt: skip
    assert all(value > 0 for value in taken.values())


@pytest.mark.soak
def test_every_product_of_a_steady_stream_is_in_the_table() -> None:
    taken = figures("steady", "--minutes", "0.1", "--rate", "200")
    assert taken["products"] > 500
    assert taken["missing"] == 0
    assert taken["memory"] > 50

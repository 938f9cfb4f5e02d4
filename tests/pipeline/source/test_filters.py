"""Spark's filters as a narrower selection, without Spark's session."""

from datetime import datetime

import pytest
from pyspark.sql.datasource import EqualNullSafe, In

from headrace.pipeline.source.filters import Narrow, narrowed
from headrace.selection import Selection

VALUES = {"feed": "wx/text", "origin": "q", "priority": 3, "slice": 3, "sequence": 3}


def resolve(_: datetime) -> int:
    return 1


@pytest.mark.parametrize(("column", "value"), VALUES.items())
def test_a_null_in_a_list_matches_no_product(column: str, value: int | str) -> None:
    with_null = narrowed(Selection(), [In((column,), (value, None))], resolve)
    assert with_null == narrowed(Selection(), [In((column,), (value,))], resolve)
    assert with_null != Narrow(Selection())


@pytest.mark.parametrize("column", VALUES)
def test_a_filter_for_nulls_is_left_to_spark(column: str) -> None:
    assert narrowed(Selection(), [EqualNullSafe((column,), None)], resolve) == Narrow(Selection())

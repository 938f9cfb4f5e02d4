"""Batches as DataFrames."""

from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from headrace import Batch, Queue
from headrace.product.arrow import record_batch

AT = datetime(2026, 11, 15, 12, 30, tzinfo=UTC)


@pytest.fixture
def batch(make_quick: Callable[..., Queue]) -> Batch:
    queue = make_quick()
    queue.put(b"one", feed="a/b", ident="1", created=AT, slice=7, properties={"n": 5, "site": "KDEN"})
    queue.put(b"\0\xff", feed="a/b", ident="2", created=AT, priority=6, expiry=datetime(2100, 1, 1, tzinfo=UTC))
    queue.put(b"", feed="c")
    return queue.read_batch()


def test_a_batch_becomes_a_frame_of_pandas(batch: Batch) -> None:
    frame = batch.to_pandas()
    assert list(frame.columns) == record_batch(batch).schema.names
    assert frame["payload"].tolist() == [b"one", b"\0\xff", b""]
    assert frame["feed"].dtype == "category"
    assert frame["feed"].tolist() == ["a/b", "a/b", "c"]
    assert frame["created"].tolist()[:2] == [pd.Timestamp(AT)] * 2
    assert (frame["slice"][0], frame["slice"].isna().tolist()) == (7, [False, True, True])
    assert dict(frame["properties"][0]) == {"n": "5", "site": "KDEN"}
    assert frame["sequence"].tolist() == batch.sequences.tolist()


def test_numbers_of_a_frame_are_not_copied(batch: Batch) -> None:
    table = record_batch(batch)
    numbers = table.to_pandas(split_blocks=True)["sequence"].to_numpy()
    assert np.shares_memory(numbers, table.column("sequence").to_numpy())


def test_a_batch_becomes_a_frame_of_polars(batch: Batch) -> None:
    frame = batch.to_polars()
    assert frame.columns == record_batch(batch).schema.names
    assert frame["payload"].to_list() == [b"one", b"\0\xff", b""]
    assert frame.schema["feed"] == pl.Categorical
    assert frame["created"].to_list()[:2] == [AT] * 2
    assert frame["slice"].to_list() == [7, None, None]
    assert frame["expiry"].is_null().to_list() == [True, False, True]
    told = frame["properties"].to_list()[0]
    assert (told if isinstance(told, dict) else {each["key"]: each["value"] for each in told}) == {
        "n": "5",
        "site": "KDEN",
    }


def test_an_empty_batch_becomes_an_empty_frame_with_all_columns(make_quick: Callable[..., Queue]) -> None:
    empty = make_quick().read_batch()
    assert (len(empty.to_pandas()), empty.to_pandas().shape[1]) == (0, 13)
    assert empty.to_polars().shape == (0, 13)

"""Parts: rows in bounded pieces, put in halves if a piece is too large after all."""

import pyarrow as pa
import pytest

from headrace.errors import BatchTooLargeError
from headrace.pipeline.source.parts import PartBuilder, parts_of, put_or_halve


def batch(*sizes: int) -> pa.RecordBatch:
    return pa.record_batch({"payload": pa.array([bytes(size) for size in sizes], pa.binary())})


def rows(parts: object) -> list[int]:
    return [part.num_rows for part in parts]  # type: ignore[attr-defined]


def test_small_batches_become_one_part_and_large_ones_several() -> None:
    assert rows(parts_of([batch(10), batch(10, 10)], 10_000)) == [3]
    assert rows(parts_of([batch(*[1000] * 10)], 4000)) == [3, 3, 3, 1]


def test_a_row_that_is_larger_than_a_part_is_a_part_by_itself() -> None:
    assert rows(parts_of([batch(10, 9000, 10)], 1000)) == [1, 1, 1]


def test_rows_keep_their_order() -> None:
    sizes = [(7919 * number) % 3000 for number in range(200)]
    parts = parts_of((batch(*sizes[first : first + 7]) for first in range(0, 200, 7)), 5000)
    assert [len(each) for part in parts for each in part.column("payload").to_pylist()] == sizes


def test_a_builder_without_rows_has_no_rest() -> None:
    builder = PartBuilder(1000)
    assert rows(builder.add(batch())) == rows(builder.rest()) == []


def test_a_part_that_is_too_large_is_put_in_halves() -> None:
    tried: list[int] = []

    def put(part: pa.RecordBatch) -> tuple[int, int]:
        tried.append(part.num_rows)
        if part.num_rows > 2:
            raise BatchTooLargeError("too large", "put less at once")
        return part.num_rows, 1

    assert put_or_halve(batch(1, 2, 3, 4, 5), put) == (5, 3)
    assert tried == [5, 2, 3, 1, 2]


def test_a_single_row_that_is_too_large_is_an_error() -> None:
    def put(part: pa.RecordBatch) -> tuple[int, int]:
        raise BatchTooLargeError("too large", "put less at once")

    with pytest.raises(BatchTooLargeError):
        put_or_halve(batch(1, 1), put)

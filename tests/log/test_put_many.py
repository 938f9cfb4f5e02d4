"""Putting batches."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace import Queue
from headrace.errors import BatchTooLargeError, HeadraceError, OptionError, PayloadError, PayloadTooLargeError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def payloads_of(queue: Queue) -> list[bytes]:
    return [bytes(product.payload) for product in queue.read_batch()]


def test_a_batch_gets_consecutive_sequences(queue: Queue) -> None:
    queue.put(b"before", feed="a")
    receipt = queue.put_many([b"1", b"2", b"3"], feed="a", ident="same")
    assert (receipt.first, receipt.stored, len(receipt)) == (2, 3, 3)
    assert receipt.sequences.tolist() == [2, 3, 4]
    assert not receipt.duplicates.any()


def test_duplicates_within_a_batch_and_of_stored_products_are_reported(queue: Queue) -> None:
    queue.put(b"held", feed="a", ident="i")
    receipt = queue.put_many([b"new", b"held", b"new", b"last"], feed="a", ident="i")
    assert receipt.sequences.tolist() == [2, 1, 2, 3]
    assert receipt.duplicates.tolist() == [False, True, True, False]
    assert (receipt.stored, receipt.first) == (2, 2)
    assert payloads_of(queue) == [b"held", b"new", b"last"]


def test_a_signature_missing_from_a_column_is_computed(queue: Queue) -> None:
    receipt = queue.put_many([b"1", b"2", b"1"], feed="a", ident="i", signature=[None, b"s" * 16, None])
    assert receipt.duplicates.tolist() == [False, False, True]


def test_an_empty_batch_stores_nothing(queue: Queue) -> None:
    assert queue.put_many([], feed="a").stored == 0
    assert queue.next == 1


def test_every_column_accepts_one_value_per_product(queue: Queue) -> None:
    queue.put_many(
        [b"1", b"2"], feed=["a", "b/c"], ident=["x", "y"], created=[10, 20], priority=[0, 7],
        expiry=np.array([2**62, 2**62 + 1]), properties=[{"n": 1}, None], slice=np.array([3, 4], np.uint8),
        signature=[b"s" * 16, b"t" * 16], origin=["here", "there"], origin_sequence=[5, 9], previous=[0, 8],
    )  # fmt: skip
    first, second = queue.read_batch()
    assert (first.feed, first.ident, first.created_ns, first.priority) == ("a", "x", 10, 0)
    assert (second.feed, second.ident, second.created_ns, second.priority) == ("b/c", "y", 20, 7)
    assert (first.expiry_ns, second.expiry_ns) == (2**62, 2**62 + 1)
    assert (dict(first.properties), dict(second.properties)) == ({"n": 1}, {})
    assert (first.slice, second.slice) == (3, 4)
    assert (first.signature, second.signature) == (b"s" * 16, b"t" * 16)
    assert (second.origin, second.origin_sequence, second.previous) == ("there", 9, 8)


@pytest.mark.parametrize(
    "column",
    [
        lambda data: pa.array(data, pa.binary()),
        lambda data: pa.array([b"x", *data], pa.large_binary())[1:],
        lambda data: pa.chunked_array([pa.array(data[:1], pa.binary()), pa.array(data[1:], pa.binary())]),
        lambda data: pa.array(data, pa.binary(4)),
        lambda data: np.array(data, dtype="S4"),
        lambda data: np.array(data, dtype=object),
        lambda data: np.frombuffer(b"".join(data), np.uint8).reshape(-1, 4),
        lambda data: np.frombuffer(b"".join(data), np.uint8).reshape(-1, 4).T.copy().T,
        tuple,
        iter,
    ],
)
def test_payloads_are_accepted_as_any_kind_of_column(queue: Queue, column: Callable[[list[bytes]], object]) -> None:
    data = [b"aaaa", b"bbbb", b"cccc"]
    queue.put_many(column(data), feed="a")
    assert payloads_of(queue) == data


def test_idents_and_feeds_are_accepted_as_arrow_or_numpy_columns(queue: Queue) -> None:
    queue.put_many([b"1", b"2"], feed=pa.array(["a", "b"]).dictionary_encode(), ident=np.array(["x", "yy"]))
    assert (queue.read_batch().feeds, queue.read_batch().idents) == (["a", "b"], ["x", "yy"])


def test_a_batch_spans_segments_and_holds_products_larger_than_a_segment(queue: Queue) -> None:
    payloads = [bytes([i]) * (200_000 if i % 3 == 0 else 9000) for i in range(12)]
    assert queue.put_many(payloads, feed="a").stored == 12
    assert payloads_of(queue) == payloads


def test_a_batch_that_would_evict_its_own_beginning_is_refused_as_a_whole(queue: Queue) -> None:
    queue.put(b"before", feed="a")
    before = queue.statistics()
    with pytest.raises(BatchTooLargeError, match="several calls"):
        queue.put_many([bytes([i]) * 400_000 for i in range(9)], feed="a")
    assert queue.next == 2
    assert queue.check() == []
    assert queue.put(b"after", feed="a") == 2
    assert queue.statistics().inserted_products == before.inserted_products + 1


_BAD: list[tuple[object, dict[str, object], type[Exception], str]] = [
    (b"one", {}, PayloadError, "list of bytes"),
    ([b"1", "two"], {}, PayloadError, "product 1 of the batch"),
    ([b"1", bytes(600_000)], {}, PayloadTooLargeError, "product 1 of the batch"),
    (
        [b"1", bytes(600_000)],
        {"ident": pa.array(["a", "b"])},
        PayloadTooLargeError,
        "product 1 of the batch: a payload",
    ),
    ([b"1", b"2"], {"ident": ["x"]}, HeadraceError, "ident has 1 values for 2"),
    ([b"1", b"2"], {"ident": ["x", None]}, HeadraceError, "ident.1"),
    ([b"1", b"2"], {"ident": ["x", "y" * 2000]}, HeadraceError, "product 1 of the batch"),
    ([b"1", b"2"], {"feed": ["a", "b c"]}, HeadraceError, "illegal level"),
    ([b"1", b"2"], {"feed": ["a"]}, HeadraceError, "feed has 1 values"),
    ([b"1", b"2"], {"priority": [1, 9]}, HeadraceError, "priority"),
    ([b"1", b"2"], {"priority": [1.5, 2]}, HeadraceError, "whole numbers"),
    ([b"1", b"2"], {"slice": [1]}, HeadraceError, "slice has 1 values"),
    ([b"1", b"2"], {"created": [1, -1]}, HeadraceError, "created"),
    ([b"1", b"2"], {"created": np.array([1, 2**40], "M8[s]")}, OptionError, r"created\[1\] is 36812-02-20T00:36:16"),
    ([b"1", b"2"], {"created": np.array([1, -1], "M8[us]")}, OptionError, r"created\[1\] is 1969-12-31"),
    ([b"1", b"2"], {"expiry": np.array([1, "NaT"], "M8[us]")}, OptionError, r"expiry\[1\] is NaT"),
    ([b"1", b"2"], {"ident": pa.array([b"x", b"\xff"]).view(pa.string())}, HeadraceError, "ident .* is not UTF-8"),
    ([b"1", b"2"], {"signature": [b"x"]}, HeadraceError, "signature has 1"),
    ([b"1", b"2"], {"signature": [b"x", b"y"]}, HeadraceError, "16 bytes"),
    ([b"1", b"2"], {"properties": [{"a": object()}, {}]}, HeadraceError, "object"),
    (pa.array([b"1", None]), {}, PayloadError, "nulls"),
    (pa.array([1, 2]), {}, PayloadError, "int64"),
    (np.zeros(4), {}, PayloadError, "payload ends"),
    (7, {}, PayloadError, "int"),
]


@pytest.mark.parametrize(("payloads", "columns", "error", "words"), _BAD)
def test_an_invalid_batch_stores_nothing(
    queue: Queue, payloads: object, columns: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        queue.put_many(payloads, **{"feed": "a", **columns})  # type: ignore[arg-type]
    assert queue.next == 1


@pytest.mark.parametrize("first", [[0], np.array([0]), pa.array([0], pa.timestamp("us")), 0, "1970-01-01", EPOCH])
def test_the_unix_epoch_is_a_valid_creation_time(queue: Queue, first: Any) -> None:
    queue.put_many([b"1"], feed="a", created=first)
    assert queue.read_batch()[0].created_ns == 1


def test_an_expiry_of_0_means_none_as_a_number_and_the_epoch_as_a_time(queue: Queue) -> None:
    queue.put_many([b"1", b"2"], feed="a", expiry=[0, 2**62])
    queue.put_many([b"3", b"4"], feed="a", expiry=pa.array([0, None], pa.timestamp("us", "UTC")))
    queue.put_many([b"5", b"6"], feed="a", expiry=np.array([0, 2**62], "datetime64[ns]"))
    batch = queue.read_batch()
    assert [bytes(product.payload) for product in batch] == [b"1", b"2", b"4", b"6"]
    assert [product.expiry_ns for product in batch] == [None, 2**62, None, 2**62]
    assert batch.expired == 2


@pytest.mark.parametrize("kind", [list, pa.array])
def test_none_in_a_column_means_no_slice_or_no_expiry(
    make_queue: Callable[..., Queue], kind: Callable[[list[int | None]], Any]
) -> None:
    queue = make_queue()
    far = 4_000_000_000_000_000_000
    queue.put_many([b"1", b"2", b"3"], feed="x", slice=kind([5, None, 0]), expiry=kind([None, far, None]))
    products = list(queue.read_batch("oldest"))
    assert [product.slice for product in products] == [5, None, 0]
    assert [product.expiry_ns for product in products] == [None, far, None]
    with pytest.raises(OptionError, match="priority"):
        queue.put_many([b"4"], feed="x", priority=kind([None]))

"""Products as reading makes them, and copies of them, look the same to a program."""

import gc
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace import Product, Queue
from headrace.product.product import FIELDS, MadeProduct
from headrace.testing import MockClock

NOW_NS = 1_700_000_000_123_456_789
PAYLOAD = b"payload " * 20


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue.create(tmp_path / "q", size="2MiB", origin="here", clock=MockClock(NOW_NS)) as queue:
        yield queue


@pytest.fixture
def product(queue: Queue) -> Product:
    queue.put(
        PAYLOAD, feed="wx/a", ident="näme", created=NOW_NS - 5_000_000_000, expiry="1h", priority=6, slice=3,
        properties={"n": 1, "t": "x"},
    )  # fmt: skip
    return next(iter(queue.read()))


def test_a_product_has_all_that_was_put_and_its_times_as_datetimes(product: Product) -> None:
    assert (product.feed, product.ident, bytes(product.payload)) == ("wx/a", "näme", PAYLOAD)
    assert (product.sequence, product.origin, product.origin_sequence, product.previous) == (1, "here", 1, None)
    assert (product.priority, product.slice, dict(product.properties)) == (6, 3, {"n": 1, "t": "x"})
    assert len(product.signature) == 16
    assert product.size == len(PAYLOAD)
    assert product.inserted == datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
    assert product.created == product.inserted - timedelta(seconds=5)
    assert product.expiry == product.inserted + timedelta(hours=1)
    assert (product.inserted_ns, product.created_ns) == (NOW_NS, NOW_NS - 5_000_000_000)


def test_a_plain_product_has_no_optional_facts(queue: Queue) -> None:
    queue.put(b"", feed="a")
    product = next(iter(queue.read()))
    assert (product.ident, product.slice, product.expiry, product.expiry_ns) == ("", None, None, None)
    assert (dict(product.properties), product.priority, product.size) == ({}, 4, 0)


def test_a_copy_and_a_pickled_product_equal_the_original(product: Product) -> None:
    for same in (product.copy(), pickle.loads(pickle.dumps(product)), pickle.loads(pickle.dumps(product.copy()))):
        assert isinstance(same, MadeProduct)
        assert same == product
        assert product == same
        assert hash(same) == hash(product)
        assert repr(same) == repr(product)
        for name in (*FIELDS, "size", "created", "inserted", "expiry"):
            assert getattr(same, name) == getattr(product, name), name


def test_products_that_differ_in_anything_are_not_equal(product: Product) -> None:
    values = {name: getattr(product, name) for name in FIELDS}
    for name, other in {"ident": "x", "payload": memoryview(b"x"), "slice": 4, "properties": {}}.items():
        assert MadeProduct(**values | {name: other}) != product, name
    assert product != "product"


def test_both_kinds_are_products_and_read_only(product: Product) -> None:
    for each in (product, product.copy()):
        assert isinstance(each, Product)
        with pytest.raises(AttributeError):
            each.feed = "b"
        with pytest.raises(TypeError):
            each.payload[0] = 1


def test_a_product_and_its_payload_outlive_batch_and_queue(tmp_path: Path) -> None:
    with Queue.create(tmp_path / "q2", size="2MiB") as queue:
        queue.put(PAYLOAD, feed="a")
        product = queue.read_batch("oldest")[0]
        view = product.payload
    del queue
    gc.collect()
    assert bytes(product.payload) == PAYLOAD
    del product
    gc.collect()
    assert bytes(view) == PAYLOAD


def test_repr_shows_the_beginning_of_a_long_payload(queue: Queue) -> None:
    queue.put(b"x" * 50, feed="wx/a", ident="i")
    queue.put(b"short", feed="wx/a")
    assert [repr(product) for product in queue.read()] == [
        f"<Product 1 wx/a 'i' {b'x' * 40!r} … 50 bytes>",
        "<Product 2 wx/a '' b'short'>",
    ]

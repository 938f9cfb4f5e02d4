"""Putting single products."""

import gc
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from headrace import Duplicate, Queue
from headrace.errors import (
    FeedError,
    IdentError,
    OptionError,
    PayloadError,
    PayloadTooLargeError,
    PropertyError,
    QueueClosedError,
)
from headrace.testing import MockClock


def test_a_product_is_read_as_it_was_put(queue: Queue) -> None:
    created = datetime(2026, 1, 6, 0, 53, tzinfo=UTC)
    properties = {"level": 3, "gain": -0.5, "mode": "clear air", "final": True, "none": float("inf")}
    sequence = queue.put(
        b"\x00payload\xff", feed="wx/radar/KFTG", ident="L2 ünïcode \n\x00 verbatim", created=created, priority=7,
        expiry="1h", properties=properties, slice=12,
    )  # fmt: skip
    (product,) = queue.read_batch()
    assert (product.sequence, sequence) == (1, 1)
    assert (product.feed, product.ident) == ("wx/radar/KFTG", "L2 ünïcode \n\x00 verbatim")
    assert bytes(product.payload) == b"\x00payload\xff"
    assert len(product.signature) == 16
    assert (product.origin, product.origin_sequence, product.previous) == ("here", 1, None)
    assert product.created_ns == int(created.timestamp()) * 10**9
    assert product.priority == 7
    assert product.slice == 12
    assert dict(product.properties) == properties
    assert product.expiry_ns is not None
    assert 3599e9 < product.expiry_ns - product.inserted_ns < 3601e9


def test_sequences_start_at_one_and_grow_by_one(queue: Queue) -> None:
    assert [queue.put(bytes([i]), feed="a") for i in range(5)] == [1, 2, 3, 4, 5]
    assert (queue.oldest, queue.next) == (1, 6)


def test_the_same_content_is_stored_once(queue: Queue) -> None:
    first = queue.put(b"twice", feed="a", ident="one")
    again = queue.put(b"twice", feed="a", ident="one")
    assert again == Duplicate(of=1)
    assert not again
    assert (first, queue.next) == (1, 2)
    assert queue.statistics().duplicates == 1


def test_without_dedup_everything_is_stored(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue(dedup="none")
    assert [queue.put(b"same", feed="a") for _ in range(3)] == [1, 2, 3]
    assert queue.read_batch()[0].signature == b""


def test_a_queue_without_dedup_keeps_given_signatures_and_does_not_compare_them(
    make_queue: Callable[..., Queue],
) -> None:
    queue = make_queue(dedup="none")
    assert [queue.put(b"x", feed="a", signature=b"s" * 16) for _ in range(2)] == [1, 2]
    assert queue.read_batch()[0].signature == b"s" * 16


def test_a_signature_may_be_given(queue: Queue) -> None:
    signature = bytes(range(16))
    queue.put(b"one", feed="a", signature=signature)
    assert queue.put(b"other", feed="a", signature=signature) == Duplicate(of=1)
    assert queue.read_batch()[0].signature == signature


def test_a_duplicate_is_known_only_while_the_first_copy_is_held(queue: Queue) -> None:
    queue.put(b"first", feed="a", ident="one")
    number = 0
    while queue.oldest == 1:
        assert queue.put(b"first", feed="a", ident="one") == Duplicate(of=1)
        queue.put(number.to_bytes(4, "big") * 5000, feed="a")
        number += 1
    assert isinstance(queue.put(b"first", feed="a", ident="one"), int)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 65536, 300_000, 524_288])
def test_a_payload_of_up_to_a_quarter_of_the_queue_is_stored(queue: Queue, size: int) -> None:
    payload = np.random.default_rng(size).bytes(size)
    sequence = queue.put(payload, feed="a")
    assert isinstance(sequence, int)
    (product,) = queue.read_batch(sequence)
    assert product.payload == payload
    assert product.size == size


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_any_bytes_like_object_is_a_payload(queue: Queue, kind: Callable[[bytes], object]) -> None:
    queue.put(kind(b"abcd"), feed="a")
    assert queue.read_batch()[0].payload == b"abcd"


def test_a_product_from_another_site_keeps_its_origin(queue: Queue) -> None:
    queue.put(b"1", feed="a", origin="boulder", origin_sequence=77, previous=70)
    queue.put(b"2", feed="a")
    queue.put(b"3", feed="a")
    foreign, own, next_own = queue.read_batch()
    assert (foreign.origin, foreign.origin_sequence, foreign.previous) == ("boulder", 77, 70)
    assert (own.origin, own.origin_sequence, own.previous) == ("here", 2, None)
    assert next_own.previous == 2


def test_times_come_from_the_clock(make_queue: Callable[..., Queue]) -> None:
    clock = MockClock(1_000_000)
    queue = make_queue(clock=clock)
    queue.put(b"1", feed="a")
    clock.advance(5)
    queue.put(b"2", feed="a", created=42)
    first, second = queue.read_batch()
    assert (first.created_ns, first.inserted_ns) == (1_000_000, 1_000_000)
    assert (second.created_ns, second.inserted_ns) == (42, 5_001_000_000)


@pytest.mark.parametrize("first", [datetime(1970, 1, 1, tzinfo=UTC), "1970-01-01T00:00Z", 0])
def test_the_unix_epoch_is_a_valid_time(queue: Queue, first: datetime | str | int) -> None:
    queue.put(b"1", feed="a", created=first)
    queue.put(b"2", feed="a", expiry=first)
    batch = queue.read_batch()
    assert ([product.created_ns for product in batch], batch.expired) == ([1], 1)


def test_an_expired_product_is_counted_and_not_delivered(make_queue: Callable[..., Queue]) -> None:
    clock = MockClock(10**18)
    queue = make_queue(clock=clock)
    queue.put(b"soon", feed="a", expiry="10s")
    queue.put(b"never", feed="a")
    assert len(queue.read_batch()) == 2
    clock.advance(10)
    batch = queue.read_batch()
    assert ([bytes(p.payload) for p in batch], batch.expired) == ([b"never"], 1)


_BAD = [
    ({"feed": ""}, FeedError, "empty"),
    ({"feed": "a//b"}, FeedError, "illegal level"),
    ({"feed": "/a"}, FeedError, "illegal level"),
    ({"feed": "a b"}, FeedError, "illegal level"),
    ({"feed": "a/*"}, FeedError, "illegal level"),
    ({"feed": "x" * 256}, FeedError, "256 bytes"),
    ({"feed": None}, FeedError, "not text"),
    ({"feed": 7}, FeedError, "not text"),
    ({"ident": "i" * 1025}, IdentError, "1025 bytes"),
    ({"ident": "ü" * 513}, IdentError, "1026 bytes"),
    ({"ident": b"bytes"}, IdentError, "not text"),
    ({"ident": None}, IdentError, "not text"),
    ({"ident": "\ud800"}, IdentError, "UTF-8"),
    ({"payload": "text"}, PayloadError, "str"),
    ({"payload": None}, PayloadError, "NoneType"),
    ({"payload": np.zeros((4, 4))[:, 1]}, PayloadError, "contiguous"),
    ({"payload": bytes(1_048_577)}, PayloadTooLargeError, "quarter"),
    ({"priority": 8}, OptionError, "priority 8"),
    ({"priority": -1}, OptionError, "priority -1"),
    ({"priority": "high"}, OptionError, "priority"),
    ({"slice": 65535}, OptionError, "slice 65535"),
    ({"slice": -1}, OptionError, "slice -1"),
    ({"created": "yesterday"}, OptionError, "yesterday"),
    ({"created": datetime(2026, 1, 1)}, OptionError, "time zone"),
    ({"created": -5}, OptionError, "-5"),
    ({"expiry": "soon"}, OptionError, "soon"),
    ({"signature": b"short"}, OptionError, "16 bytes"),
    ({"origin": "over there", "origin_sequence": 1}, OptionError, "site id"),
    ({"origin": "elsewhere"}, OptionError, "origin_sequence"),
    ({"properties": {"x": [1]}}, PropertyError, "list"),
    ({"properties": {"": 1}}, PropertyError, "name"),
    ({"properties": {"x": 1 << 63}}, PropertyError, "64 bits"),
    ({"properties": {"x": "y" * 70_000}}, PropertyError, "bytes"),
    ({"properties": [1]}, PropertyError, "mapping"),
]


@pytest.mark.parametrize(("bad", "error", "words"), _BAD, ids=[f"{b}"[:40] for b, _, _ in _BAD])
def test_an_invalid_argument_has_its_own_error_and_stores_nothing(
    queue: Queue, bad: dict[str, object], error: type[Exception], words: str
) -> None:
    call: dict[str, object] = {"payload": b"x", "feed": "a", **bad}
    with pytest.raises(error, match=words) as caught:
        queue.put(call.pop("payload"), **call)  # type: ignore[arg-type]
    assert caught.value.hint  # type: ignore[attr-defined]
    assert queue.next == 1


def test_a_closed_queue_keeps_no_file_open_and_needs_no_garbage_collector_for_that(tmp_path: Path) -> None:
    gc.disable()
    try:
        with Queue.create(tmp_path / "closed", size="1MiB") as queue:
            queue.put(b"x", feed="a")
        del queue
        files = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
    finally:
        gc.enable()
    assert [file for file in files if file.startswith(str(tmp_path))] == []


def test_using_a_closed_queue_is_an_error(queue: Queue) -> None:
    queue.close()
    for use in (lambda: queue.put(b"x", feed="a"), lambda: queue.put_many([b"x"], feed="a"), queue.read, queue.check):
        with pytest.raises(QueueClosedError, match="open it again"):
            use()

"""Put: the same tests on a local and on a remote queue."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace import Duplicate, HeadraceError, Queue
from headrace.errors import BlockedError, ProductDamagedError, RejectedError
from headrace.product.options import Options, OriginSignature
from headrace.queue import AnyQueue
from support.serving import Served, idents, put, work
from support.waiting import until


def test_a_put_returns_the_sequence_or_the_duplicate(queue: AnyQueue) -> None:
    puts = [queue.put(payload, feed="a", ident="i") for payload in (b"1", b"2", b"1", b"3")]
    assert puts == [1, 2, Duplicate(1), 3]


def test_a_product_without_an_ident_is_never_a_duplicate(queue: AnyQueue) -> None:
    assert [queue.put(b"21.5", feed=feed) for feed in ("room/a", "room/b", "room/b")] == [1, 2, 3]
    assert queue.put_many([b"21.5"] * 3, feed="room/a").stored == 3
    receipt = queue.put_many(
        [b"21.5"] * 4, feed="room/a", ident=["", "i", "", "i"], signature=[None, None, b"s" * 16, None]
    )
    assert receipt.duplicates.tolist() == [False, False, False, True]
    assert queue.put(b"21.5", feed="room/c", signature=b"s" * 16) == Duplicate(9)
    assert len({product.signature for product in queue.read()}) == 9


def test_every_fact_of_a_product_is_read_back(queue: AnyQueue) -> None:
    before_ns = time.time_ns()
    queue.put(
        memoryview(b"\0payload"), feed="wx/text", ident="SAUS70 ü", created=datetime(2026, 1, 2, tzinfo=UTC), priority=6,
        expiry="1h", properties={"n": 1, "x": 0.5, "s": "t", "b": True}, slice=3, signature=b"s" * 16,
        origin="elsewhere", origin_sequence=7, previous=5,
    )  # fmt: skip
    after_ns = time.time_ns()
    product = queue.read_batch()[0]
    assert bytes(product.payload) == b"\0payload"
    assert product.properties == {"n": 1, "x": 0.5, "s": "t", "b": True}
    assert (product.feed, product.ident, product.priority, product.slice) == ("wx/text", "SAUS70 ü", 6, 3)
    assert (product.origin, product.origin_sequence, product.previous) == ("elsewhere", 7, 5)
    assert product.created_ns == 1767312000 * 10**9
    assert before_ns <= (product.expiry_ns or 0) - 3600 * 10**9 <= after_ns
    assert product.signature == b"s" * 16
    assert before_ns <= product.inserted_ns <= after_ns


def test_options_are_kept_whether_or_not_they_are_known(queue: AnyQueue) -> None:
    known = Options(bound_us=7, hops=3, signed=OriginSignature(9, bytes(64)), unknown=((77, b"later"),))
    strange = Options(unknown=((200, b"changes what the payload means"),))
    queue.put(b"x", feed="a", ident="i", created=5, options=known)
    queue.put_many([b"x"] * 2, feed="a", ident=["j", "k"], created=5, options=[strange, known])
    assert [product.options for product in queue.read()] == [known, strange, known]
    assert [product.bound_ns for product in queue.read()] == [7000, None, 7000]
    with pytest.raises(ProductDamagedError, match="a form that this Headrace does not know"):
        queue.read_batch()[1].payload


def test_many_products_are_put_as_one_batch(queue: AnyQueue) -> None:
    queue.put(b"2", feed="y", ident="j")
    receipt = queue.put_many(
        [b"1", b"2", b"3"], feed=["x", "y", "x"], ident=np.array(["i", "j", "k"]), priority=pa.array([1, 2, 3]),
        properties=[{"n": 1}, None, {}], created=np.array([5, 6, 7]), slice=9, expiry="1h",
    )  # fmt: skip
    assert (receipt.products, receipt.stored, receipt.first) == (3, 2, 2)
    assert receipt.sequences.tolist() == [2, 1, 3]
    assert receipt.duplicates.tolist() == [False, True, False]
    batch = queue.read_batch(2)
    assert (idents(batch), batch.feeds) == (["i", "k"], ["x", "x"])
    assert [(p.priority, dict(p.properties), p.created_ns, p.slice) for p in batch] == [
        (1, {"n": 1}, 5, 9),
        (3, {}, 7, 9),
    ]


def test_payloads_may_be_columns(queue: AnyQueue) -> None:
    assert queue.put_many(pa.array([b"a", b"bb"]), feed="x").stored == 2
    assert queue.put_many(np.arange(6, dtype=np.uint8).reshape(2, 3), feed="x").stored == 2
    assert [bytes(p.payload) for p in queue.read_batch()] == [b"a", b"bb", b"\0\1\2", b"\3\4\5"]
    assert queue.put_many([], feed="x").products == 0


@pytest.mark.parametrize("column", [list, lambda values: pa.array(values, pa.int64())], ids=["list", "arrow"])
@pytest.mark.parametrize("slices", [[None, None], [None, 3]], ids=["no slices", "some slices"])
def test_columns_may_have_nulls_for_slice_and_expiry(queue: AnyQueue, column: Any, slices: list[Any]) -> None:
    later = time.time_ns() + 10**12
    queue.put_many([b"1", b"2"], feed="x", slice=column(slices), expiry=column([later, None]))
    assert [(product.slice, product.expiry_ns) for product in queue.read_batch()] == [(None, later), (slices[1], None)]


def test_a_batch_of_another_queue_is_put_as_it_is(queue: AnyQueue, make_queue: Callable[..., Queue]) -> None:
    other = make_queue(origin="other")
    put(other, "1", "2", "3")
    receipt = queue.put_batch(other.read_batch(), keep=[1, 0, 1])
    assert receipt.sequences.tolist() == [1, 2]
    assert [(p.ident, p.origin, p.origin_sequence) for p in queue.read_batch()] == [
        ("1", "other", 1),
        ("3", "other", 3),
    ]
    assert make_queue("third", origin="third").put_batch(queue.read_batch()).stored == 2


MISTAKES: dict[str, Callable[[AnyQueue], Any]] = {
    "a payload that is text": lambda q: q.put("text", feed="a"),
    "an invalid feed": lambda q: q.put(b"x", feed="a b"),
    "a feed that is a number": lambda q: q.put(b"x", feed=5),  # type: ignore[arg-type]
    "an ident that is too long": lambda q: q.put(b"x", feed="a", ident="i" * 2000),
    "an ident that is far too long": lambda q: q.put(b"x", feed="a", ident="i" * 5000),
    "an ident that is bytes": lambda q: q.put(b"x", feed="a", ident=b"i"),  # type: ignore[arg-type]
    "an ident that is not UTF-8": lambda q: q.put(b"x", feed="a", ident="\ud800"),
    "a priority out of range": lambda q: q.put(b"x", feed="a", priority=8),
    "a property that is a list": lambda q: q.put(b"x", feed="a", properties={"p": [1]}),  # type: ignore[dict-item]
    "an invalid expiry": lambda q: q.put(b"x", feed="a", expiry="soon"),
    "a slice out of range": lambda q: q.put(b"x", feed="a", slice=65535),
    "a signature that is short": lambda q: q.put(b"x", feed="a", signature=b"s"),
    "an origin without sequence": lambda q: q.put(b"x", feed="a", origin="elsewhere"),
    "a payload too large": lambda q: q.put(bytes(5 << 20), feed="a"),
    "a batch too large": lambda q: q.put_many([bytes([i]) * 900_000 for i in range(9)], feed="a"),
    "a column that is short": lambda q: q.put_many([b"x", b"y"], feed=["a"]),
    "a bad feed in a column": lambda q: q.put_many([b"x", b"y"], feed=["a", ""]),
    "a bad ident in a column": lambda q: q.put_many([b"x", b"y"], feed="a", ident=["i", "i" * 2000]),
    "a bad payload in a column": lambda q: q.put_many([b"x", 5], feed="a"),
    "one payload instead of many": lambda q: q.put_many(b"x", feed="a"),
    "an invalid start": lambda q: q.read_batch("yesterday"),
    "a start below zero": lambda q: q.read_batch(-1),
    "a limit of zero": lambda q: q.read_batch(limit=0),
    "an invalid selection": lambda q: q.read_batch(selection="a where ("),
    "a cursor without a name": lambda q: q.cursor(""),
    "an invalid timeout": lambda q: q.follow(timeout="soon"),
    "a station that is missing": lambda q: q.station("s", create=False),
    "a station without a name": lambda q: q.station("/", "**"),
    "a station with an unknown option": lambda q: q.station("s", "**", blockin=True),
    "a station with contradicting options": lambda q: q.station("s", "**", blocking=True, capacity=5, discard="fifo"),
    "a station behind a missing one": lambda q: q.station("s", "**", after="t"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_invalid_argument_raises_the_same_error_on_both(served: Served, mistake: str) -> None:
    told = []
    for queue in (served.queue, served.connect()):
        with pytest.raises(HeadraceError) as caught:
            MISTAKES[mistake](queue)
        told.append((type(caught.value), caught.value.problem, caught.value.hint))
    assert told[0] == told[1]
    assert served.queue.next == 1


def test_a_put_waits_for_a_blocking_station(queue: AnyQueue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=2)
    put(queue, "1", "2")
    with pytest.raises(BlockedError, match="blocking station 's' was full"):
        put(queue, "3", timeout=0)
    begun = time.monotonic()
    with pytest.raises(BlockedError, match="nothing was stored"):
        queue.put_many([b"3", b"4"], feed="a", timeout="200ms")
    assert time.monotonic() - begun >= 0.2
    with station.attach() as consumer:
        timer = threading.Timer(0.2, lambda: consumer.ack(consumer.get(2)))
        timer.start()
        put(queue, "3")
        timer.join()
    assert queue.next == 4


def test_a_put_is_rejected_at_max_queue(queue: AnyQueue) -> None:
    queue.station("s", "**", max_queue=1)
    put(queue, "1")
    with pytest.raises(RejectedError, match="1 product waiting"):
        put(queue, "2")


def test_a_put_that_waits_says_for_whom(queue: AnyQueue, caplog: pytest.LogCaptureFixture) -> None:
    station = queue.station("decode", "**", blocking=True, capacity=1)
    put(queue, "1")
    waiting = threading.Thread(target=put, args=(queue, "2"), daemon=True)
    waiting.start()
    until(lambda: any("waiting for station decode: 1 of 1 waiting, no consumer attached" in m for m in caplog.messages))
    with pytest.raises(BlockedError) as told:
        put(queue, "3", timeout=0)
    assert told.value.waits_for == "station decode: 1 of 1 waiting, no consumer attached"
    assert work(station) == ["1"]
    waiting.join(60)
    assert not waiting.is_alive()

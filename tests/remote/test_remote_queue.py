"""Put, read, follow and cursors: the same tests on a queue here and on the queue of a site."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zenoh

import headrace
from headrace import Batch, Duplicate, HeadraceError, Queue, Selection
from headrace.errors import (
    BatchTooLargeError,
    CursorNameError,
    OptionError,
    ProductDamagedError,
    QueueClosedError,
    QueueError,
    SelectionError,
)
from headrace.remote.client import follower as following
from support.fleet import free_port, open_plain
from support.serving import Served

Router = tuple[zenoh.Session, str]


@pytest.fixture(scope="module")
def router() -> Iterator[Router]:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    session = open_plain([endpoint], [])
    yield session, endpoint
    session.close()


@pytest.fixture
def served(shared_memory: Path, router: Router) -> Iterator[Served]:
    made = Served(shared_memory, router)
    yield made
    made.close()


@pytest.fixture(params=["here", "remote"])
def queue(request: pytest.FixtureRequest, served: Served) -> Queue:
    return served.queue if request.param == "here" else served.connect()


def put(queue: Queue, *idents: str, feed: str = "a", **more: Any) -> None:
    for ident in idents:
        queue.put(ident.encode(), feed=feed, ident=ident, **more)


def idents(batch: Batch) -> list[str]:
    return [product.ident for product in batch]


# --- put --------------------------------------------------------------------------------------------


def test_a_put_tells_the_sequence_or_the_duplicate(queue: Queue) -> None:
    assert [queue.put(payload, feed="a") for payload in (b"1", b"2", b"1", b"3")] == [1, 2, Duplicate(1), 3]


def test_everything_that_is_put_comes_back(queue: Queue) -> None:
    queue.put(
        memoryview(b"\0payload"), feed="wx/text", ident="SAUS70 ü", created=datetime(2026, 1, 2, tzinfo=UTC), priority=6,
        expiry="1h", properties={"n": 1, "x": 0.5, "s": "t", "b": True}, slice=3, signature=b"s" * 16,
        origin="elsewhere", origin_sequence=7, previous=5,
    )  # fmt: skip
    product = queue.read()[0]
    assert bytes(product.payload) == b"\0payload"
    assert product.properties == {"n": 1, "x": 0.5, "s": "t", "b": True}
    assert (product.feed, product.ident, product.priority, product.slice) == ("wx/text", "SAUS70 ü", 6, 3)
    assert (product.origin, product.origin_sequence, product.previous) == ("elsewhere", 7, 5)
    assert product.created_ns == 1767312000 * 10**9
    assert 3590 < ((product.expiry_ns or 0) - time.time_ns()) / 1e9 <= 3600
    assert product.signature == b"s" * 16
    assert abs(product.inserted_ns - time.time_ns()) < 60e9


def test_many_are_put_as_one(queue: Queue) -> None:
    queue.put(b"2", feed="z")
    receipt = queue.put_many(
        [b"1", b"2", b"3"], feed=["x", "y", "x"], ident=np.array(["i", "j", "k"]), priority=pa.array([1, 2, 3]),
        properties=[{"n": 1}, None, {}], created=np.array([5, 6, 7]), slice=9, expiry="1h",
    )  # fmt: skip
    assert (receipt.products, receipt.stored, receipt.first) == (3, 2, 2)
    assert receipt.sequences.tolist() == [2, 1, 3]
    assert receipt.duplicates.tolist() == [False, True, False]
    batch = queue.read(2)
    assert (idents(batch), batch.feeds) == (["i", "k"], ["x", "x"])
    assert [(p.priority, dict(p.properties), p.created_ns, p.slice) for p in batch] == [
        (1, {"n": 1}, 5, 9),
        (3, {}, 7, 9),
    ]


def test_payloads_may_be_columns(queue: Queue) -> None:
    assert queue.put_many(pa.array([b"a", b"bb"]), feed="x").stored == 2
    assert queue.put_many(np.arange(6, dtype=np.uint8).reshape(2, 3), feed="x").stored == 2
    assert [bytes(p.payload) for p in queue.read()] == [b"a", b"bb", b"\0\1\2", b"\3\4\5"]
    assert queue.put_many([], feed="x").products == 0


@pytest.mark.parametrize("column", [list, lambda values: pa.array(values, pa.int64())], ids=["list", "arrow"])
@pytest.mark.parametrize("slices", [[None, None], [None, 3]], ids=["no slices", "some slices"])
def test_columns_may_say_that_there_is_no_slice_and_no_expiry(queue: Queue, column: Any, slices: list[Any]) -> None:
    later = time.time_ns() + 10**12
    queue.put_many([b"1", b"2"], feed="x", slice=column(slices), expiry=column([later, None]))
    assert [(product.slice, product.expiry_ns) for product in queue.read()] == [(None, later), (slices[1], None)]


def test_a_batch_of_another_queue_is_put_as_it_is(queue: Queue, make_queue: Callable[..., Queue]) -> None:
    other = make_queue(origin="other")
    put(other, "1", "2", "3")
    receipt = queue.put_batch(other.read(), keep=[1, 0, 1])
    assert receipt.sequences.tolist() == [1, 2]
    assert [(p.ident, p.origin, p.origin_sequence) for p in queue.read()] == [("1", "other", 1), ("3", "other", 3)]
    assert make_queue("third", origin="third").put_batch(queue.read()).stored == 2


MISTAKES: dict[str, Callable[[Queue], Any]] = {
    "a payload that is text": lambda q: q.put("text", feed="a"),
    "a feed that is none": lambda q: q.put(b"x", feed="a b"),
    "a feed that is a number": lambda q: q.put(b"x", feed=5),  # type: ignore[arg-type]
    "an ident that is too long": lambda q: q.put(b"x", feed="a", ident="i" * 2000),
    "an ident that is far too long": lambda q: q.put(b"x", feed="a", ident="i" * 5000),
    "an ident that is bytes": lambda q: q.put(b"x", feed="a", ident=b"i"),  # type: ignore[arg-type]
    "an ident that is no UTF-8": lambda q: q.put(b"x", feed="a", ident="\ud800"),
    "a priority out of range": lambda q: q.put(b"x", feed="a", priority=8),
    "a property that is a list": lambda q: q.put(b"x", feed="a", properties={"p": [1]}),  # type: ignore[dict-item]
    "an expiry that is none": lambda q: q.put(b"x", feed="a", expiry="soon"),
    "a slice out of range": lambda q: q.put(b"x", feed="a", slice=65535),
    "a signature that is short": lambda q: q.put(b"x", feed="a", signature=b"s"),
    "an origin without sequence": lambda q: q.put(b"x", feed="a", origin="elsewhere"),
    "a payload too large": lambda q: q.put(bytes(2 << 20), feed="a"),
    "a batch too large": lambda q: q.put_many([bytes([i]) * 900_000 for i in range(9)], feed="a"),
    "a column that is short": lambda q: q.put_many([b"x", b"y"], feed=["a"]),
    "a bad feed in a column": lambda q: q.put_many([b"x", b"y"], feed=["a", ""]),
    "a bad ident in a column": lambda q: q.put_many([b"x", b"y"], feed="a", ident=["i", "i" * 2000]),
    "a bad payload in a column": lambda q: q.put_many([b"x", 5], feed="a"),
    "payloads that are one": lambda q: q.put_many(b"x", feed="a"),
    "a start that is none": lambda q: q.read("yesterday"),
    "a start below zero": lambda q: q.read(-1),
    "a limit of nothing": lambda q: q.read(limit=0),
    "a selection that is none": lambda q: q.read(selection="a where ("),
    "a cursor without a name": lambda q: q.cursor(""),
    "a timeout that is none": lambda q: q.follow(timeout="soon"),
    "a station that is missing": lambda q: q.station("s"),
    "a station without a name": lambda q: q.station("/", "**"),
    "a station with an unknown option": lambda q: q.station("s", "**", blockin=True),
    "a station with options that contradict": lambda q: q.station("s", "**", blocking=True, capacity=5, discard="fifo"),
    "a station behind none": lambda q: q.station("s", "**", after="t"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_the_same_words(served: Served, mistake: str) -> None:
    told = []
    for queue in (served.queue, served.connect()):
        with pytest.raises(HeadraceError) as caught:
            MISTAKES[mistake](queue)
        told.append((type(caught.value), caught.value.problem, caught.value.hint))
    assert told[0] == told[1]
    assert served.queue.next == 1


def test_a_selection_error_shows_the_place(served: Served) -> None:
    with pytest.raises(HeadraceError) as caught:
        served.connect().station("s", "a where (")
    assert getattr(caught.value, "column", None)


def test_a_selection_that_is_too_long_for_the_network_is_refused(served: Served) -> None:
    long = Selection(origin=[f"a-site-with-a-long-name-{number}" for number in range(4000)])
    assert len(served.queue.read(selection=long)) == 0
    with pytest.raises(SelectionError, match="too long for a queue on another machine"):
        served.connect().read(selection=long)


def test_a_batch_that_is_too_large_for_the_network_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.client.arguments.CALL_BYTES_MAX", 1000)
    with pytest.raises(BatchTooLargeError, match="that one message can carry"):
        served.connect().put_many([bytes(600), bytes(601)], feed="a")


# --- read -------------------------------------------------------------------------------------------


def test_a_batch_is_the_same_in_all_its_columns(served: Served) -> None:
    put(served.queue, "1", "2", feed="x", properties={"p": 1})
    put(served.queue, "3", feed="y", expiry="1h", slice=2)
    here, remote = served.queue.read(), served.connect().read()
    assert remote.to_arrow() == here.to_arrow()
    assert (remote.next, remote.lost, remote.scanned, len(remote)) == (here.next, None, 3, 3)
    assert remote.record(1) == here.record(1)
    assert remote.deliveries.tolist() == [0, 0, 0]


def test_a_read_takes_what_the_selection_wants_up_to_the_limits(queue: Queue) -> None:
    put(queue, *"12345678", feed="a")
    put(queue, "9", feed="b")
    assert idents(queue.read("oldest", "b")) == ["9"]
    batch = queue.read(3, Selection("a", ident="[2468]"), limit=2)
    assert (idents(batch), batch.next, batch.filtered) == (["4", "6"], 8, 4)
    assert idents(queue.read(limit=100, bytes_limit=3)) == ["1", "2", "3"]
    assert idents(queue.read(selection=Selection(every=4))) == ["4", "8"]
    assert (len(queue.read("next")), queue.read("next").next) == (0, 10)
    assert (len(queue.read(selection="none")), queue.read(selection="none").scanned) == (0, 9)


def test_starts_are_understood(queue: Queue) -> None:
    put(queue, *"123")
    begun = datetime.now(UTC) - timedelta(minutes=1)
    for start in ("oldest", 0, 1, "1h", timedelta(hours=1), begun, begun.isoformat()):
        assert queue.resolve(start) == 1
    assert (queue.resolve("next"), queue.resolve(timedelta(0))) == (4, 4)
    assert (queue.oldest, queue.next) == (1, 4)


def test_a_lost_range_is_told_exactly(queue: Queue) -> None:
    for number in range(60):
        queue.put(number.to_bytes(2, "big") + bytes(100_000), feed="a")
    batch = queue.read(2, limit=1)
    assert batch.lost is not None
    assert (batch.lost.first, batch.lost.last) == (2, queue.oldest - 1)
    assert batch.sequences.tolist() == [queue.oldest]


def test_a_damaged_product_is_named_and_can_be_passed_over(queue: Queue, served: Served) -> None:
    put(queue, "first", "second", "third")
    served.spoil(b"second")
    assert idents(queue.read()) == ["first"]
    with pytest.raises(ProductDamagedError, match="product 2 in") as caught:
        queue.read(2)
    assert (caught.value.sequence, caught.value.next) == (2, 3)
    follower = queue.follow("oldest", timeout=0)
    assert idents(next(follower)) == ["first"]
    with pytest.raises(ProductDamagedError):
        next(follower)
    follower.position = caught.value.next
    assert [idents(batch) for batch in follower] == [["third"]]


def test_a_read_may_take_several_answers(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    put(served.queue, *map(str, range(95)))
    monkeypatch.setattr(following, "PAGE_PRODUCTS_MAX", 10)
    remote = served.connect()
    batch = remote.read(limit=73)
    assert (idents(batch), batch.next, batch.scanned) == ([str(n) for n in range(73)], 74, 73)
    assert len(remote.read(limit=1000)) == 95
    assert len(remote.read(bytes_limit=100)) == len(served.queue.read(bytes_limit=100))


def test_payloads_live_on_without_the_queue(served: Served) -> None:
    remote = served.connect()
    remote.put(b"payload", feed="a")
    payload = remote.read()[0].payload
    remote.close()
    assert bytes(payload) == b"payload"


# --- follow -----------------------------------------------------------------------------------------


def test_a_follower_gets_what_is_there_and_what_comes(queue: Queue) -> None:
    put(queue, "1", "2")
    follower = queue.follow("oldest", limit=1, timeout=10)
    assert [idents(next(follower)) for _ in range(2)] == [["1"], ["2"]]
    timer = threading.Timer(0.2, put, (queue, "3"))
    timer.start()
    assert idents(next(follower)) == ["3"]
    assert follower.position == 4
    timer.join()


def test_a_follower_ends_when_nothing_wanted_comes(queue: Queue) -> None:
    put(queue, "1", feed="b")
    begun = time.monotonic()
    assert list(queue.follow("oldest", "a", timeout=0.3)) == []
    assert 0.3 <= time.monotonic() - begun < 3


def test_a_follower_without_time_still_sees_what_has_come_since(queue: Queue) -> None:
    follower = queue.follow("oldest", timeout=0)
    for ident in "123":
        put(queue, ident)
        assert idents(next(follower)) == [ident]
    assert list(follower) == []


def test_a_follower_can_be_stopped_by_another_thread(queue: Queue) -> None:
    follower = queue.follow()
    timer = threading.Timer(0.2, follower.stop)
    timer.start()
    begun = time.monotonic()
    assert list(follower) == []
    assert time.monotonic() - begun < 3
    timer.join()


def test_a_follower_that_was_stopped_does_not_wait(queue: Queue) -> None:
    follower = queue.follow()
    follower.stop()
    begun = time.monotonic()
    follower.wait(4)
    assert time.monotonic() - begun < 2


def test_a_follower_can_be_set_to_another_position(queue: Queue) -> None:
    put(queue, *"12345")
    follower = queue.follow("oldest", limit=1, timeout=5)
    next(follower)
    follower.position = 4
    assert idents(next(follower)) == ["4"]
    follower.position = 2
    assert idents(follower.next_nowait() or queue.read("next")) == ["2"]
    follower.position = 6
    assert follower.next_nowait() is None


def test_every_nth_is_counted_through(queue: Queue) -> None:
    put(queue, *map(str, range(1, 11)))
    batches = queue.follow("oldest", Selection(every=3), limit=1, timeout=0)
    assert [idents(batch) for batch in batches] == [["3"], ["6"], ["9"]]


def test_a_follower_works_with_async_for(queue: Queue) -> None:
    put(queue, "1")

    async def follow() -> list[str]:
        found = []
        async for batch in queue.follow("oldest", timeout=0.5):
            found += idents(batch)
            if found == ["1"]:
                put(queue, "2")
        return found

    assert asyncio.run(follow()) == ["1", "2"]


def test_many_products_come_complete_and_in_order(queue: Queue) -> None:
    def produce() -> None:
        for number in range(40):
            queue.put_many([b"%d/%d" % (number, n) for n in range(50)], feed=f"feed/{number % 3}")

    producer = threading.Thread(target=produce)
    follower = queue.follow("oldest", timeout=10)
    producer.start()
    sequences: list[int] = []
    while len(sequences) < 2000:
        sequences += next(follower).sequences.tolist()
    producer.join()
    assert sequences == list(range(1, 2001))


# --- cursors ----------------------------------------------------------------------------------------


def test_a_cursor_is_kept(queue: Queue) -> None:
    put(queue, *"12345")
    cursor = queue.cursor("c")
    assert (cursor.position, cursor.name, queue.cursors()) == (1, "c", ["c"])
    batch = cursor.read(limit=2)
    cursor.commit(batch)
    assert (cursor.position, queue.cursor("c", "next").position) == (3, 3)
    assert idents(next(cursor.follow(limit=2, timeout=1))) == ["3", "4"]
    assert (cursor.seek("next"), cursor.position) == (6, 6)
    cursor.save(2)
    for batch in cursor:
        assert idents(batch) == ["2", "3", "4", "5"]
        break
    assert cursor.state.position == 2
    assert cursor.state.saved_ns > 0


def test_a_cursor_keeps_the_sum_of_what_was_lost(queue: Queue) -> None:
    cursor = queue.cursor("c")
    for number in range(60):
        queue.put(number.to_bytes(2, "big") + bytes(100_000), feed="a")
    batch = cursor.read(limit=1)
    cursor.commit(batch)
    state = cursor.state
    assert (state.lost, state.lost_products) == (batch.lost, batch.lost.products if batch.lost else 0)


def test_a_cursor_that_was_removed_is_gone(queue: Queue) -> None:
    cursor = queue.cursor("c")
    cursor.remove()
    assert queue.cursors() == []
    with pytest.raises(CursorNameError, match="was removed"):
        cursor.save(1)


# --- tell, and the rest -----------------------------------------------------------------------------


def test_a_queue_tells_of_itself(queue: Queue, served: Served) -> None:
    put(queue, "1", "2", feed="x")
    queue.cursor("c")
    told = queue.statistics()
    assert (told.held_products, told.next, [each.feed for each in told.feeds]) == (2, 3, ["x"])
    assert [each.name for each in told.cursors] == ["c"]
    assert queue.config == served.queue.config
    assert queue.origins == [served.name]
    assert queue.wanted("x") == served.queue.wanted("x")
    queue.flush()


def test_the_door_opens_directories_too(served: Served) -> None:
    with headrace.connect(served.queue.path) as by_path, headrace.connect(str(served.queue.path)) as by_text:
        put(by_path, "1")
        assert idents(by_text.read()) == ["1"]


def test_a_closed_queue_says_so(served: Served) -> None:
    with served.connect() as remote:
        follower = remote.follow("oldest")
    assert "closed" in repr(remote)
    for use in (lambda: remote.put(b"x", feed="a"), remote.read, lambda: next(follower), lambda: remote.next):
        with pytest.raises(QueueClosedError, match="open it again"):
            use()
    remote.close()


@pytest.mark.parametrize("name", ["delete", "resize", "check", "channel", "channels"])
def test_what_concerns_files_is_refused(served: Served, name: str) -> None:
    with pytest.raises(QueueError, match="needs the files of the queue"):
        getattr(served.connect(), name)("x")


def test_several_threads_may_use_one_connection(served: Served) -> None:
    remote = served.connect()
    done: list[int] = []

    def produce(name: str) -> None:
        for number in range(30):
            remote.put(b"%s %d" % (name.encode(), number), feed=name)
            done.append(remote.next)

    threads = [threading.Thread(target=produce, args=(f"t{n}",)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(done), served.queue.next) == (150, 151)


@pytest.mark.parametrize(
    ("where", "match"),
    [("tcp://host:7447", "written as a URL"), ("tcp/host", "has no port"), ("tcp/host:1?sit=a", "unknown option"),
     ("tcp/host:1?site=a/b", "not a site id")],
)  # fmt: skip
def test_what_is_no_endpoint_is_told(where: str, match: str) -> None:
    with pytest.raises(OptionError, match=match):
        headrace.connect(where)

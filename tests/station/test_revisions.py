"""Revisions: a consumer acknowledges with a new payload, which later stations of the series get."""

from collections.abc import Callable

from handling import drain, idents, payloads, put, series, vanish

from headrace import Queue


def test_each_station_gets_the_latest_revision_under_the_same_sequence(queue: Queue) -> None:
    first, second, third = series(queue, "first", "second", "third")
    queue.put(b"raw", feed="a", ident="x", priority=6, properties={"run": 5}, expiry="1h", slice=7)
    before = queue.read_batch()[0]
    with first.attach() as consumer:
        batch = consumer.get_nowait()
        assert (payloads(batch), batch.revisions.tolist()) == ([b"raw"], [0])
        consumer.ack(batch, payloads=[b"decoded"])
    with second.attach() as consumer:
        batch = consumer.get_nowait()
        assert (payloads(batch), batch.revisions.tolist()) == ([b"decoded"], [1])
        consumer.ack(batch, payloads=[bytearray(b"decoded and checked")])
    with third.attach() as consumer:
        batch = consumer.get_nowait()
        assert (payloads(batch), batch.revisions.tolist()) == ([b"decoded and checked"], [2])
        after = batch[0]
        consumer.ack(batch)
    for field in ("sequence", "feed", "ident", "origin", "origin_sequence", "previous", "created_ns", "priority",
                  "expiry_ns", "slice", "properties"):  # fmt: skip
        assert getattr(after, field) == getattr(before, field), field


def test_other_readers_get_the_original_payload(queue: Queue) -> None:
    beside = queue.station("beside", "**")
    first, second = series(queue, "first", "second")
    put(queue, "1", "2")
    with first.attach() as consumer:
        batch = consumer.get_nowait(2)
        consumer.ack(batch, payloads=[b"one", b"two"])
        assert payloads(batch) == [b"1", b"2"]
    put(queue, "3")
    assert drain(first) == ["3"]
    assert payloads(queue.read_batch()) == [b"1", b"2", b"3"]
    assert payloads(beside.attach().get_nowait(9)) == [b"1", b"2", b"3"]
    assert payloads(second.attach().get_nowait(9)) == [b"one", b"two", b"3"]


def test_revisions_are_not_delivered_as_products(queue: Queue) -> None:
    first, second = series(queue, "first", "second")
    put(queue, "1")
    with first.attach() as consumer:
        consumer.ack(consumer.get_nowait(), payloads=[b"one"])
    late = queue.station("late", "**", start="oldest")
    assert drain(late) == ["1"]
    assert idents(queue.read_batch()) == ["1"]
    assert drain(first) == []
    assert drain(second) == ["1"]
    assert queue.put(b"one", feed="a") == 3  # not taken for a duplicate of the revision


def test_revisions_are_not_counted_as_products(queue: Queue) -> None:
    first, _ = series(queue, "first", "second")
    put(queue, "1")
    with first.attach() as consumer:
        consumer.ack(consumer.get_nowait(), payloads=[b"one"])
    told = queue.statistics()
    assert ([feed.products for feed in told.feeds], told.held_products) == ([1], 1)


def test_some_payloads_may_stay_unchanged(queue: Queue) -> None:
    first, second = series(queue, "first", "second")
    put(queue, *"1234")
    with first.attach() as consumer:
        batch = consumer.get_nowait(3)
        consumer.ack(batch, payloads=[None, b"two", None])
        consumer.ack(consumer.get_nowait()[0], payloads=[b"four"])
    batch = second.attach().get_nowait(9)
    assert payloads(batch) == [b"1", b"two", b"3", b"four"]
    assert batch.revisions.tolist() == [0, 1, 0, 1]


def test_a_payload_may_become_empty(queue: Queue) -> None:
    first, second = series(queue, "first", "second")
    put(queue, "1")
    with first.attach() as consumer:
        consumer.ack(consumer.get_nowait(), payloads=[b""])
    batch = second.attach().get_nowait()
    assert (payloads(batch), batch.revisions.tolist()) == ([b""], [1])


def test_payloads_of_a_list_belong_to_its_products(queue: Queue) -> None:
    first, second = series(queue, "first", "second")
    put(queue, *"123")
    with first.attach() as consumer:
        batch = consumer.get_nowait(3)
        consumer.ack([batch[2], batch[0]], payloads=[b"three", b"one"])
    found = second.attach().get_nowait(9)
    assert dict(zip(idents(found), payloads(found), strict=True)) == {"3": b"three", "1": b"one"}


def test_payloads_of_a_list_belong_to_its_products_across_batches(queue: Queue) -> None:
    first, second = series(queue, "first", "second")
    put(queue, *"1234")
    with first.attach() as consumer:
        one, other = consumer.get_nowait(2), consumer.get_nowait(2)
        consumer.ack([one[0], other[0], one[1], other[1]], payloads=[b"one", b"three", b"two", b"four"])
    found = second.attach().get_nowait(9)
    assert dict(zip(idents(found), payloads(found), strict=True)) == {
        "1": b"one", "2": b"two", "3": b"three", "4": b"four",
    }  # fmt: skip


def test_a_restored_product_keeps_its_revision(queue: Queue) -> None:
    first, second = series(queue, "first", "second")
    put(queue, "1")
    with first.attach() as consumer:
        consumer.ack(consumer.get_nowait(), payloads=[b"one"])
    consumer = second.attach()
    assert payloads(consumer.get_nowait()) == [b"one"]
    vanish(consumer)
    batch = second.attach().get_nowait()
    assert (payloads(batch), batch.deliveries.tolist(), batch.revisions.tolist()) == ([b"one"], [2], [1])


def test_a_revision_survives_a_reopening(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    first, _ = series(queue, "first", "second")
    put(queue, "1")
    with first.attach() as consumer:
        consumer.ack(consumer.get_nowait(), payloads=[b"one"])
    queue.close()
    with Queue.open(queue.path) as again:
        batch = again.station("second").attach().get_nowait()
        assert (payloads(batch), batch.revisions.tolist()) == ([b"one"], [1])

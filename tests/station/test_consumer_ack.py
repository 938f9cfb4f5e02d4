"""Consumers acknowledge, discard and give back products, and put new ones."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from handling import drain, idents, payloads, put

from headrace import Queue
from headrace.errors import LeaseLostError, OptionError, PayloadTooLargeError, StationError
from headrace.station import Consumer, Station

# --- ack, discard, nack ---------------------------------------------------------------------------


def test_batches_products_and_lists_of_products_are_acknowledged(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, *"123456")
    consumer.ack(consumer.get_nowait(2))
    batch = consumer.get_nowait(4)
    consumer.ack(batch[0])
    consumer.ack([batch[2], batch[1]])
    assert (station.statistics().acknowledged, station.statistics().leased) == (5, 1)
    consumer.ack([])
    consumer.ack((batch[3],))
    assert (station.statistics().acknowledged, station.statistics().leased) == (6, 0)


def test_a_list_may_have_products_of_several_batches(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, *"1234")
    first, second = consumer.get_nowait(2), consumer.get_nowait(2)
    consumer.ack([first[1], second[0], first[0]])
    consumer.detach()
    assert drain(station) == ["4"]


def test_products_are_acknowledged_in_any_order(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, *"123")
    first, second, third = (consumer.get_nowait() for _ in range(3))
    for batch in (third, first, second):
        consumer.ack(batch)
    assert (station.statistics().acknowledged, station.lag().products) == (3, 0)


def test_a_second_acknowledgement_is_refused(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1", "2")
    batch = consumer.get_nowait(2)
    consumer.ack(batch)
    for again in (batch, batch[0], [batch[1]]):
        with pytest.raises(StationError):
            consumer.ack(again)
    assert station.statistics().acknowledged == 2


def test_the_rest_of_a_partly_acknowledged_batch_is_acknowledged_with_an_error(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, *"123")
    batch = consumer.get_nowait(3)
    consumer.ack(batch[1])
    with pytest.raises(LeaseLostError, match="1 of 3 products"):
        consumer.ack(batch)
    assert (station.statistics().acknowledged, station.statistics().leased) == (3, 0)


def test_a_product_that_was_read_and_not_leased_is_refused(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1", "2")
    consumer.get_nowait(1)
    read = queue.read_batch("oldest")
    with pytest.raises(StationError):
        consumer.ack(read[1])
    with pytest.raises(LeaseLostError):
        consumer.ack(read)
    assert (station.statistics().acknowledged, station.statistics().leased) == (0, 1)


def test_a_product_of_another_consumer_is_refused(queue: Queue, station: Station, consumer: Consumer) -> None:
    other = station.attach()
    put(queue, "1", "2")
    mine, theirs = consumer.get_nowait(), other.get_nowait()
    with pytest.raises(LeaseLostError):
        consumer.ack(theirs)
    with pytest.raises(StationError):
        consumer.ack(theirs[0])
    assert station.statistics().leased == 2
    consumer.ack(mine)
    other.ack(theirs)


def test_a_batch_of_another_station_is_refused(queue: Queue, station: Station, consumer: Consumer) -> None:
    other = queue.station("other", "b").attach()
    put(queue, "1", "2")
    put(queue, "3", "4", feed="b")
    mine, theirs = consumer.get_nowait(2), other.get_nowait(2)
    with pytest.raises(LeaseLostError):
        consumer.ack(theirs)
    assert (station.statistics().acknowledged, station.statistics().leased) == (0, 2)
    consumer.ack(mine)


@pytest.mark.parametrize("what", ["abc", [1, 2], b"x", 5, None])
def test_an_argument_that_is_not_a_lease_is_refused(consumer: Consumer, what: object) -> None:
    with pytest.raises(OptionError, match=r"is not a product|is not a lease"):
        consumer.ack(what)  # type: ignore[arg-type]


def test_a_product_from_long_ago_is_acknowledged_with_its_batch(queue: Queue, consumer: Consumer) -> None:
    put(queue, *(str(number) for number in range(100)))
    batches = [consumer.get_nowait() for _ in range(100)]
    with pytest.raises(StationError, match="acknowledge the whole batch instead"):
        consumer.ack(batches[0][0])
    for batch in batches:
        consumer.ack(batch)


def test_discarded_products_are_counted_and_not_passed_on(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1", "2", "3")
    batch = consumer.get_nowait(3)
    consumer.discard(batch[0])
    consumer.discard([batch[1]])
    consumer.ack(batch[2])
    told = station.statistics()
    assert (told.discarded, told.acknowledged, told.leased, told.waiting) == (2, 1, 0, 0)
    consumer.detach()
    assert drain(station) == []


def test_products_that_are_given_back_come_before_newer_ones(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, *"1234")
    batch = consumer.get_nowait(3)
    consumer.nack([batch[2], batch[0]])
    other = station.attach()
    again = other.get_nowait(9)
    assert idents(again) == ["1", "3", "4"]
    assert again.deliveries.tolist() == [1, 1, 1]


def test_products_that_are_given_back_as_failed_count_as_delivered(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, "1")
    consumer.nack(consumer.get_nowait(), failed=True)
    assert (station.statistics().retries, station.statistics().redelivered) == (1, 0)
    assert consumer.get_nowait().deliveries.tolist() == [2]
    assert station.statistics().redelivered == 1


def test_products_that_were_given_back_are_refused(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1")
    batch = consumer.get_nowait()
    consumer.nack(batch)
    with pytest.raises(StationError):
        consumer.ack(batch)
    again = consumer.get_nowait()
    with pytest.raises(LeaseLostError):
        consumer.ack(batch)
    consumer.ack(again)
    assert station.statistics().acknowledged == 1


def test_a_product_that_is_given_back_wakes_a_waiting_consumer(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, "1")
    batch = consumer.get_nowait()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(station.attach().get, 1, 20)
        consumer.nack(batch)
        assert idents(waiting.result(240)) == ["1"]


@pytest.mark.parametrize("payloads", [[], [b"1"], [b"1", b"2", b"3"], b"12"])
def test_a_wrong_number_of_payloads_is_refused(queue: Queue, consumer: Consumer, payloads: object) -> None:
    put(queue, "1", "2")
    batch = consumer.get_nowait(2)
    with pytest.raises(OptionError, match="one for each"):
        consumer.ack(batch, payloads=payloads)  # type: ignore[arg-type]
    consumer.ack(batch)


def test_a_payload_that_is_not_bytes_is_refused_and_nothing_is_acknowledged(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, "1", "2")
    batch = consumer.get_nowait(2)
    with pytest.raises(OptionError, match="not bytes"):
        consumer.ack(batch, payloads=[b"fine", "text"])
    assert station.statistics().leased == 2
    consumer.ack(batch)


def test_a_payload_that_is_too_large_is_refused(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1")
    batch = consumer.get_nowait()
    with pytest.raises(PayloadTooLargeError):
        consumer.ack(batch, payloads=[bytes(1 << 20)])
    assert station.statistics().leased == 1


# --- new ------------------------------------------------------------------------------------------


def test_drafts_are_filled_in_and_put_as_one_batch(queue: Queue, consumer: Consumer) -> None:
    monitor = queue.station("monitor", "b/**").attach()
    drafts = consumer.new(3, 4, feed="b/new", ident="fresh")
    for number, draft in enumerate(drafts):
        draft.payload[:] = b"%04d" % number
        draft.priority = 5
        draft.properties["run"] = number
    consumer.put(drafts)
    batch = monitor.get_nowait(9)
    assert payloads(batch) == [b"0000", b"0001", b"0002"]
    assert [(p.feed, p.ident, p.priority, dict(p.properties)) for p in batch] == [
        ("b/new", "fresh", 5, {"run": number}) for number in range(3)
    ]


def test_a_draft_may_change_its_length(queue: Queue, consumer: Consumer) -> None:
    (draft,) = consumer.new(feed="b")
    draft.payload += b"as long as needed"
    consumer.put([draft])
    assert payloads(consumer.get_nowait()) == [b"as long as needed"]


@pytest.mark.parametrize(("count", "size"), [(0, 1), (-1, 1), (1, -1), (1.5, 1), (1, "2")])
def test_invalid_drafts_are_refused(consumer: Consumer, count: int, size: int) -> None:
    with pytest.raises(OptionError):
        consumer.new(count, size, feed="b")

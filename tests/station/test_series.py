"""Stations in series: a product goes to the next station when the one before has acknowledged it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from handling import EPOCH_NS, drain, idents, in_child, payloads, put, put_together, series, vanish

from headrace import Queue, Selection
from headrace.errors import BlockedError, StationError
from headrace.kernel._kernel import WINDOW
from headrace.testing import MockClock


def test_a_station_gets_products_that_the_one_before_has_acknowledged(queue: Queue) -> None:
    first, second, third = series(queue, "first", "second", "third")
    put(queue, "1", "2", "3")
    assert (drain(second), drain(third)) == ([], [])
    with first.attach() as consumer:
        batch = consumer.get_nowait(2)
        consumer.ack(batch[1])
        assert drain(second) == ["2"]
        assert drain(third) == ["2"]
    assert drain(first) == ["1", "3"]
    assert drain(second) == ["1", "3"]
    assert drain(third) == ["1", "3"]
    assert [station.statistics().acknowledged for station in (first, second, third)] == [3, 3, 3]


def test_an_acknowledgement_wakes_a_consumer_of_the_next_station(queue: Queue) -> None:
    first, second = series(queue, "first", "second")
    put(queue, "1")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.attach().get, 1, 20)
        assert drain(first) == ["1"]
        assert idents(waiting.result(240)) == ["1"]


def test_products_that_a_station_does_not_select_flow_past_it(queue: Queue) -> None:
    queue.station("first", "**")
    second = queue.station("second", "b/**", after="first")
    third = queue.station("third", "**", after="second")
    put(queue, "1", feed="a")
    put(queue, "2", feed="b")
    assert drain(third) == []
    assert drain(queue.station("first")) == ["1", "2"]
    assert drain(third) == ["1"]
    assert drain(second) == ["2"]
    assert drain(third) == ["2"]


def test_products_that_the_first_station_does_not_select_go_to_the_next_at_once(queue: Queue) -> None:
    first = queue.station("first", "b/**")
    second = queue.station("second", "**", after="first")
    third = queue.station("third", "c/**", after="second")
    put(queue, "1", feed="a")
    put(queue, "2", feed="b")
    put(queue, "3", feed="c")
    put(queue, "4", feed="a")
    assert drain(second) == ["1", "3", "4"]
    assert drain(third) == ["3"]
    assert drain(first) == ["2"]
    assert drain(second) == ["2"]
    assert [station.statistics().admitted for station in (first, second, third)] == [1, 4, 1]


@pytest.mark.parametrize("terms", [{"after": "first"}, {"group": "shared"}], ids=["in series", "side by side"])
def test_a_station_that_nobody_consumes_holds_up_no_other(queue: Queue, terms: dict[str, str]) -> None:
    """It has more products waiting than a station alone takes up ahead of its consumers."""
    first = queue.station("first", "a", group=terms.get("group"))
    queue.station("second", "b", **terms)
    queue.put_many([b""] * (WINDOW + 10), feed="b")
    put(queue, "wanted", feed="a")
    assert drain(first) == ["wanted"]
    assert queue.station("second").statistics().waiting == WINDOW + 10


def test_a_station_in_a_series_may_select_by_record(queue: Queue) -> None:
    first = queue.station("first", Selection(ident="^x"))
    second = queue.station("second", Selection("a"), after="first")
    put(queue, "x1", "y2", "x3", feed="a")
    put(queue, "x4", feed="b")
    first.statistics()
    assert drain(second) == ["y2"]
    assert drain(first) == ["x1", "x3", "x4"]
    assert drain(second) == ["x1", "x3"]


def test_discarded_products_do_not_reach_the_next_station(queue: Queue) -> None:
    first, second, third = series(queue, "first", "second", "third")
    put(queue, *"123")
    with first.attach() as consumer:
        batch = consumer.get_nowait(3)
        consumer.discard([batch[1]])
        consumer.ack([batch[0], batch[2]])
    assert drain(second) == ["1", "3"]
    assert drain(third) == ["1", "3"]
    assert first.statistics().discarded == 1
    assert queue.read_batch("oldest").sequences.tolist() == [1, 2, 3]


def test_products_that_find_a_station_full_go_to_the_next(queue: Queue) -> None:
    first = queue.station("first", "**", capacity=2)
    second = queue.station("second", "**", after="first")
    put(queue, *"1234")
    assert drain(second) == ["3", "4"]
    assert drain(first) == ["1", "2"]
    assert drain(second) == ["1", "2"]
    assert first.statistics().dropped["flowed_around"] == 2


@pytest.mark.parametrize(("discard", "gone"), [("fifo", "1"), ("priority", "3")])
def test_products_that_a_full_station_drops_go_to_the_next(queue: Queue, discard: str, gone: str) -> None:
    first = queue.station("first", "**", capacity=3, discard=discard)
    second = queue.station("second", "**", after="first")
    for ident, priority in [("1", 4), ("2", 5), ("3", 2), ("4", 6)]:
        put(queue, ident, priority=priority)
    assert drain(second) == [gone]
    assert sorted(drain(first)) == sorted({"1", "2", "3", "4"} - {gone})
    assert first.statistics().dropped[discard] == 1


def test_a_station_in_the_middle_may_be_full(queue: Queue) -> None:
    first = queue.station("first", "**")
    second = queue.station("second", "**", after="first", capacity=1)
    third = queue.station("third", "**", after="second")
    put(queue, *"123")
    assert drain(first) == ["1", "2", "3"]
    assert drain(third) == ["2", "3"]
    assert drain(second) == ["1"]
    assert drain(third) == ["1"]


def test_a_blocking_station_later_in_the_series_makes_producers_wait(queue: Queue) -> None:
    first = queue.station("first", "**")
    second = queue.station("second", "**", after="first", blocking=True, capacity=2)
    put(queue, "1")
    put(queue, "2")
    assert drain(first) == ["1", "2"]
    with pytest.raises(BlockedError, match="second"):
        put(queue, "3", timeout=0)
    assert drain(second) == ["1", "2"]
    put(queue, "3", timeout=0)
    assert drain(first) == ["3"]
    assert drain(second) == ["3"]


def test_a_station_can_be_inserted_between_two_others(queue: Queue) -> None:
    first, third = series(queue, "first", "third")
    put(queue, "1", "2")
    with first.attach() as consumer:
        consumer.ack(consumer.get_nowait(1))
    second = queue.station("second", "**", after="first")
    put(queue, "3")
    assert drain(first) == ["2", "3"]
    assert drain(third) == ["1", "2"]  # acknowledged or put before the insertion
    assert drain(second) == ["3"]
    assert drain(third) == ["3"]
    assert first.terms.stage < second.terms.stage < third.terms.stage
    assert first.terms.chain == second.terms.chain == third.terms.chain


@pytest.mark.parametrize("selection", [Selection("**"), Selection(ident=".")], ids=["by rows", "by reading"])
def test_a_station_that_joins_gets_only_later_products_however_far_the_chain_is_behind(
    queue: Queue, selection: Selection
) -> None:
    first = queue.station("first", selection)
    put(queue, "1")
    second = queue.station("second", selection, after="first")
    put(queue, "2")
    third = queue.station("third", selection, after="second")
    put(queue, "3")
    second.change(selection="b")
    put(queue, "4")
    assert drain(first) == ["1", "2", "3", "4"]
    assert drain(second) == ["2", "3"]
    assert sorted(drain(third)) == ["3", "4"]


def test_the_number_of_stations_between_two_others_is_limited(queue: Queue) -> None:
    series(queue, "first", "last")
    with pytest.raises(StationError, match="no room between 'first' and the next"):
        for number in range(20):
            queue.station(str(number), "**", after="first")
    queue.station("end", "**", after="last")
    put(queue, "1")
    for name in ("first", "0", "last", "end"):
        if name == "0":
            for number in range(len(queue.stations()) - 4, -1, -1):
                assert drain(queue.station(str(number))) == ["1"]
        else:
            assert drain(queue.station(name)) == ["1"]


def test_products_of_a_removed_station_go_to_the_next(queue: Queue) -> None:
    first, second, third = series(queue, "first", "second", "third")
    put(queue, *"123")
    assert drain(first) == ["1", "2", "3"]
    consumer = second.attach()
    held = consumer.get_nowait(1)
    second.remove()
    assert drain(third) == ["1", "2", "3"]
    with pytest.raises(StationError):
        consumer.ack(held)
    put(queue, "4")
    assert drain(first) == ["4"]
    assert drain(third) == ["4"]


def test_products_of_a_removed_first_station_go_to_the_next(queue: Queue) -> None:
    first, second = series(queue, "first", "second")
    put(queue, "1", "2")
    assert first.statistics().waiting == 2
    first.remove()
    put(queue, "3")
    assert drain(second) == ["1", "2", "3"]


def test_urgent_products_come_first_at_every_station(queue: Queue) -> None:
    first, second = series(queue, "first", "second")
    for ident, priority in [("1", 4), ("2", 7), ("3", 4), ("4", 0), ("5", 7)]:
        put(queue, ident, priority=priority)
    assert drain(first) == ["2", "5", "1", "3", "4"]
    put(queue, "6", priority=7)
    put(queue, "7", priority=4)
    with first.attach() as consumer:
        for batch in consumer.batches(1, timeout=0):
            assert batch[0].ident in "67"
    assert drain(second) == ["2", "5", "6", "1", "3", "7", "4"]


def test_a_series_shares_one_position(queue: Queue) -> None:
    first, second = series(queue, "first", "second")
    put(queue, *"123")
    assert drain(first) == ["1", "2", "3"]
    second.seek(3)
    assert drain(second) == []
    assert drain(first) == ["3"]
    assert drain(second) == ["3"]


# --- restore after a death ------------------------------------------------------------------------


def test_restore_to_the_input_delivers_again_at_the_same_station(queue: Queue) -> None:
    first, second = series(queue, "first", "second", restore="input")
    put(queue, "1", "2")
    vanishing = first.attach()
    vanishing.get_nowait(1)
    vanish(vanishing)
    assert drain(second) == []
    assert drain(first) == ["1", "2"]


def test_restore_to_the_output_passes_the_product_to_the_next_station(queue: Queue) -> None:
    first, second = series(queue, "first", "second", restore="output")
    put(queue, "1", "2")
    vanishing = first.attach()
    vanishing.get_nowait(1)
    vanish(vanishing)
    assert drain(first) == ["2"]
    batch = second.attach().get_nowait(9)
    assert (idents(batch), batch.deliveries.tolist()) == (["1", "2"], [1, 1])
    assert (first.statistics().restored, first.statistics().acknowledged) == (1, 1)


def test_restore_to_the_output_keeps_the_order(queue: Queue) -> None:
    first, second = series(queue, "first", "second", restore="output")
    put(queue, *"1234")
    vanishing = first.attach()
    vanishing.get_nowait(3)
    vanish(vanishing)
    first.statistics()
    assert drain(second) == ["1", "2", "3"]


def test_restore_to_the_output_of_the_last_station_ends_the_product(queue: Queue) -> None:
    (station,) = series(queue, "only", restore="output")
    put(queue, "1")
    vanishing = station.attach()
    vanishing.get_nowait(1)
    vanish(vanishing)
    told = station.statistics()
    assert (told.restored, told.waiting, told.leased, told.acknowledged) == (1, 0, 0, 0)


def test_restore_to_the_start_passes_all_stations_again(queue: Queue) -> None:
    first, second, third = series(queue, "first", "second", "third", restore="start")
    put(queue, "1")
    with first.attach() as consumer:
        consumer.ack(consumer.get_nowait(), payloads=[b"one"])
    assert drain(second) == ["1"]
    vanishing = third.attach()
    vanishing.get_nowait()
    put(queue, "2")
    vanish(vanishing)
    assert drain(third) == []
    batch = first.attach().get_nowait(1)
    assert (idents(batch), payloads(batch), batch.revisions.tolist()) == (["1"], [b"one"], [1])
    assert third.statistics().restored == 1


def test_a_detach_gives_back_to_the_input_whatever_restore_says(queue: Queue) -> None:
    first, second = series(queue, "first", "second", restore="output")
    put(queue, "1")
    with first.attach() as consumer:
        consumer.get_nowait()
    assert drain(second) == []
    assert drain(first) == ["1"]
    assert first.terms.restore == "output"


# --- times ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("timed", ["first", "second"])
def test_a_timeout_applies_to_its_station_only(make_quick: Callable[..., Queue], timed: str) -> None:
    """Not to the stations before and behind it."""
    clock = MockClock(EPOCH_NS)
    queue = make_quick(clock=clock)
    first = queue.station("first", "**", timeout="10s" if timed == "first" else None)
    second = queue.station("second", "**", after="first", timeout="10s" if timed == "second" else None)
    put(queue, "1")
    assert drain(first) == ["1"]
    clock.advance(11)
    assert drain(second) == (["1"] if timed == "first" else [])
    assert second.statistics().expired == (0 if timed == "first" else 1)


def test_a_product_that_expires_at_one_station_goes_to_the_next(make_quick: Callable[..., Queue]) -> None:
    clock = MockClock(EPOCH_NS)
    queue = make_quick(clock=clock)
    first = queue.station("first", "**", timeout="10s")
    second = queue.station("second", "**", after="first")
    put(queue, "1")
    clock.advance(10)
    put(queue, "2")
    assert drain(first) == ["2"]
    assert drain(second) == ["1", "2"]
    assert (first.statistics().expired, second.statistics().expired) == (1, 0)


def test_a_product_past_its_expiry_is_delivered_by_no_station(make_quick: Callable[..., Queue]) -> None:
    clock = MockClock(EPOCH_NS)
    queue = make_quick(clock=clock)
    first, second = series(queue, "first", "second")
    put(queue, "1", expiry="10s")
    assert drain(first) == ["1"]
    clock.advance(10)
    assert drain(second) == []
    assert second.statistics().expired == 1


def test_a_scan_of_the_log_does_not_wait_for_room_at_a_blocking_station(queue: Queue) -> None:
    """The selections decide by record; the first station is full and the second is not."""
    first = queue.station("first", Selection(ident="^x"), blocking=True, capacity=1)
    second = queue.station("second", Selection(ident="^x"), after="first")
    put_together(queue, "x1", "x2", "x3")
    assert in_child(lambda: first.statistics().waiting) == "1"
    consumer = first.attach()
    assert [idents(consumer.get(1, timeout=240)) for _ in range(2)] == [["x1"], ["x2"]]
    assert drain(second) == []

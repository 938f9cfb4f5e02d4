"""Stations side by side: each product goes to one of them."""

from collections.abc import Callable

import pytest
from handling import drain, idents, put, put_together, vanish, work

from headrace import Queue, Selection
from headrace.errors import BlockedError, StationExistsError
from headrace.station import Station


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    return make_quick(dedup="none")


def group(queue: Queue, count: int, selection: object = "**", **terms: object) -> list[Station]:
    return [queue.station(f"w{number}", selection, group="workers", **terms) for number in range(1, count + 1)]


def waiting(stations: list[Station]) -> list[int]:
    return [station.statistics().waiting for station in stations]


def test_each_product_goes_to_one_station_of_a_group(queue: Queue) -> None:
    stations = group(queue, 3)
    beside = queue.station("beside", "**")
    put(queue, *"123456789")
    shares = [drain(station) for station in stations]
    assert sorted(ident for share in shares for ident in share) == list("123456789")
    assert drain(beside) == list("123456789")
    assert len({station.terms.chain for station in stations}) == 1


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_round_robin_gives_every_station_the_same_number(queue: Queue, count: int) -> None:
    stations = group(queue, count)
    for _ in range(count * 4):
        queue.put(b"x", feed="a")
    assert waiting(stations) == [4] * count


@pytest.mark.parametrize("count", [2, 3])
def test_round_robin_takes_turns_in_the_order_of_the_stations(queue: Queue, count: int) -> None:
    stations = group(queue, count)
    turns = []
    for _ in range(count * 3):
        before = waiting(stations)
        queue.put(b"x", feed="a")
        turns.append([new - old for new, old in zip(waiting(stations), before, strict=True)].index(1))
    start = turns[0]
    assert turns == [(start + number) % count for number in range(count * 3)]


def test_round_robin_does_not_depend_on_the_speed_of_consumers(queue: Queue) -> None:
    stations = group(queue, 3)
    consumers = [station.attach() for station in stations]
    for number in range(30):
        queue.put(b"x", feed="a")
        work(consumers[number % 3])
    for consumer in consumers:
        work(consumer)
    assert [station.statistics().acknowledged for station in stations] == [10, 10, 10]


def test_a_full_station_is_passed_over(queue: Queue) -> None:
    full, free = queue.station("full", "**", group="g", capacity=1), queue.station("free", "**", group="g")
    put(queue, *"12345")
    assert waiting([full, free]) == [1, 4]
    queue.station("third", "**", group="g", capacity=1)
    put(queue, *"67890")
    told = [queue.station(name).statistics() for name in ("full", "free", "third")]
    assert sum(station.waiting for station in told) == 10
    assert all(sum(station.dropped.values()) == 0 for station in told)


def test_a_full_station_gets_its_share_up_to_its_capacity(queue: Queue) -> None:
    stations = [queue.station("full", "**", group="g", capacity=1), queue.station("free", "**", group="g")]
    put(queue, *"12345")
    assert waiting(stations) == [1, 4]


def test_products_flow_past_a_group_that_is_full_and_are_counted_once(queue: Queue) -> None:
    stations = group(queue, 2, capacity=2)
    behind = queue.station("behind", "**", after="w1")
    put(queue, *"1234567")
    assert waiting(stations) == [2, 2]
    assert sum(station.statistics().dropped["flowed_around"] for station in stations) == 3
    assert drain(behind) == ["5", "6", "7"]


def test_a_blocking_group_that_is_full_makes_producers_wait(queue: Queue) -> None:
    stations = group(queue, 3, blocking=True, capacity=2)
    put_together(queue, *"123456")
    assert waiting(stations) == [2, 2, 2]
    with pytest.raises(BlockedError):
        put(queue, "7", timeout=0)
    for station in stations:
        drain(station)
    put(queue, "7", timeout=0)
    assert sum(waiting(stations)) == 1


def test_a_blocking_group_with_room_at_one_station_blocks_no_producer(queue: Queue) -> None:
    stations = group(queue, 3, blocking=True, capacity=2)
    put_together(queue, *"123456")
    drain(stations[1])
    put(queue, "7", timeout=0)
    put(queue, "8", timeout=0)
    assert waiting(stations) == [2, 2, 2]
    with pytest.raises(BlockedError):
        put(queue, "9", timeout=0)


def test_a_blocking_group_with_an_unlimited_station_blocks_no_producer(queue: Queue) -> None:
    full = queue.station("full", "**", group="g", blocking=True, capacity=1)
    free = queue.station("free", "**", group="g", blocking=True)
    for ident in "1234":
        put(queue, ident, timeout=0)
    assert waiting([full, free]) == [1, 3]


def test_least_loaded_chooses_the_station_with_the_fewest_products(queue: Queue) -> None:
    stations = group(queue, 3, distribution="least_loaded")
    put(queue, *"123456")
    assert waiting(stations) == [2, 2, 2]
    drain(stations[1])
    put(queue, "7", "8")
    assert waiting(stations) == [2, 2, 2]
    assert sorted(drain(stations[1])) == ["7", "8"]


def test_least_loaded_counts_leased_products(queue: Queue) -> None:
    stations = group(queue, 2, distribution="least_loaded")
    put(queue, *"1234")
    busy = stations[0].attach()
    busy.get_nowait(9)
    drain(stations[1])
    put(queue, "5", "6")
    assert waiting(stations) == [0, 2]


def test_each_station_of_a_group_gets_only_products_that_it_selects(queue: Queue) -> None:
    left = queue.station("left", "a/**", group="g")
    right = queue.station("right", "b/**", group="g")
    put(queue, "1", "2", feed="a")
    put(queue, "3", feed="b")
    put(queue, "4", feed="c")
    assert drain(left) == ["1", "2"]
    assert drain(right) == ["3"]


def test_a_group_may_select_by_record(queue: Queue) -> None:
    stations = group(queue, 3, Selection(ident="^x"))
    put(queue, "x1", "y2", "x3", "x4", "y5", "x6")
    stations[0].statistics()
    shares = [drain(station) for station in stations]
    assert sorted(ident for share in shares for ident in share) == ["x1", "x3", "x4", "x6"]


def test_a_group_may_stand_in_the_middle_of_a_series(queue: Queue) -> None:
    first = queue.station("first", "**")
    middle = [queue.station(name, "**", after="first", group="g") for name in ("m1", "m2", "m3")]
    last = queue.station("last", "**", after="m2")
    put(queue, *"123456")
    assert drain(first) == list("123456")
    assert drain(last) == []
    assert sum(waiting(middle)) == 6
    shares = [drain(station) for station in middle]
    assert sorted(ident for share in shares for ident in share) == list("123456")
    assert sorted(drain(last)) == list("123456")


def test_a_late_member_of_a_group_gets_its_share_from_then_on(queue: Queue) -> None:
    first = queue.station("w1", "**", group="workers")
    put(queue, *"1234")
    assert waiting([first]) == [4]
    stations = [first, *group(queue, 3)[1:]]
    put(queue, *"567890abc")
    assert sum(waiting(stations)) == 13
    assert min(waiting(stations)) == 3


def test_when_a_member_is_removed_the_others_get_everything(queue: Queue) -> None:
    stations = group(queue, 3)
    stations[1].remove()
    put(queue, *"123456")
    assert sum(waiting([stations[0], stations[2]])) == 6
    stations[2].remove()
    put(queue, "7")
    assert stations[0].statistics().waiting == 7


def test_products_that_wait_at_a_removed_station_go_to_the_others(queue: Queue) -> None:
    stations = group(queue, 3)
    put(queue, *"123456")
    assert waiting(stations) == [2, 2, 2]
    stations[1].remove()
    assert sum(waiting([stations[0], stations[2]])) == 6


def test_a_group_has_one_distribution(queue: Queue) -> None:
    group(queue, 1)
    with pytest.raises(StationExistsError, match="has distribution round_robin"):
        queue.station("w2", "**", group="workers", distribution="least_loaded")
    assert queue.stations() == ["w1"]


def test_a_change_of_distribution_applies_to_the_whole_group(queue: Queue) -> None:
    stations = group(queue, 2)
    stations[1].change(distribution="least_loaded")
    assert {station.terms.distribution for station in stations} == {"least_loaded"}


# --- restore after a death ------------------------------------------------------------------------


def test_restore_to_the_group_distributes_the_products_of_a_dead_consumer(queue: Queue) -> None:
    stations = group(queue, 3, restore="group")
    put(queue, *"123456789")
    dying = stations[0].attach()
    held = idents(dying.get_nowait(9))
    assert len(held) == 3
    vanish(dying)
    assert stations[0].statistics().restored == 3
    assert waiting(stations) == [1, 4, 4]
    shares = [drain(station) for station in stations]
    assert sorted(ident for share in shares for ident in share) == list("123456789")
    for share in shares:
        assert share == sorted(share)


def test_restore_to_the_group_keeps_the_delivery_count(queue: Queue) -> None:
    stations = group(queue, 3, restore="group")
    put(queue, *"123")
    dying = stations[0].attach()
    (ident,) = idents(dying.get_nowait(9))
    vanish(dying)
    stations[0].statistics()
    found = {}
    for station in stations:
        batch = station.attach().get_nowait(9)
        found.update(zip(idents(batch), batch.deliveries.tolist(), strict=True))
    assert found.pop(ident) == 2
    assert list(found.values()) == [1, 1]


def test_restore_to_the_input_leaves_the_products_at_their_station(queue: Queue) -> None:
    stations = group(queue, 3)
    put(queue, *"123456")
    dying = stations[0].attach()
    dying.get_nowait(9)
    vanish(dying)
    assert waiting(stations) == [2, 2, 2]

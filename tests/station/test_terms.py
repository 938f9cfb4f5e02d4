"""Terms: what is refused before anything is made, and what each option does."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from handling import EPOCH_NS, drain, idents, put, put_together, vanish, work

from headrace import Queue, Selection
from headrace.errors import (
    OptionError,
    RejectedError,
    SelectionError,
    StationError,
    StationMissingError,
    StationNameError,
    TermsError,
)
from headrace.testing import MockClock

S = 10**9


@pytest.fixture
def clock() -> MockClock:
    return MockClock(EPOCH_NS)


@pytest.fixture
def queue(make_quick: Callable[..., Queue], clock: MockClock) -> Queue:
    return make_quick(clock=clock)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "nearest"),
    [("bloking", "blocking"), ("capasity", "capacity"), ("time_out", "timeout"), ("max_deliveries", "deliveries_max"),
     ("pre_scale", "prescale"), ("consumer_max", "consumers_max")],
)  # fmt: skip
def test_an_unknown_option_is_refused_and_the_nearest_named(queue: Queue, option: str, nearest: str) -> None:
    with pytest.raises(OptionError, match=f"did you mean '{nearest}'") as told:
        queue.station("s", "**", **{option: 5})
    assert option in told.value.problem
    assert queue.stations() == []


def test_an_option_that_is_near_to_none_is_answered_with_all(queue: Queue) -> None:
    with pytest.raises(OptionError, match=r"options are: .*blocking.*max_queue"):
        queue.station("s", "**", xyzzy=1)


@pytest.mark.parametrize("option", ["order", "discard", "restore", "distribution"])
def test_an_unknown_policy_is_refused_and_the_known_are_named(queue: Queue, option: str) -> None:
    known = {"order": "deadline", "discard": "lifo", "restore": "output", "distribution": "least_loaded"}[option]
    with pytest.raises(OptionError, match=f"{option} 'fastest' is unknown") as told:
        queue.station("s", "**", **{option: "fastest"})
    assert known in told.value.hint
    assert queue.stations() == []


def test_a_policy_that_is_no_text_is_refused(queue: Queue) -> None:
    with pytest.raises(OptionError, match="order"):
        queue.station("s", "**", order=["fifo"])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("capacity", 0), ("capacity", -1), ("capacity", 131_073), ("capacity", 1.5), ("capacity", "10"), ("capacity", True),
        ("prescale", 0), ("prescale", 2**31), ("prescale", None), ("deliveries_max", -1), ("deliveries_max", 65_001),
        ("blocking", 1), ("blocking", None), ("durable", "yes"), ("batch_max", 0), ("batch_max", 65_537),
        ("consumers_max", 0), ("consumers_max", 257), ("max_queue", 0), ("hung_after", -1), ("hung_after", "soon"),
        ("timeout", 0), ("timeout", "0s"), ("timeout", -5), ("pacing", "x"), ("start_time", "noon"),
        ("stop_time", datetime(2026, 1, 1)),  # without a zone
        ("start_time", True),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_with_a_remedy(queue: Queue, option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=option) as told:
        queue.station("s", "**", **{option: value})
    assert told.value.hint
    assert queue.stations() == []


@pytest.mark.parametrize("option", ["start_time", "stop_time"])
@pytest.mark.parametrize("value", [-1, 2**63])
def test_a_moment_out_of_range_is_refused(queue: Queue, option: str, value: int) -> None:
    with pytest.raises(OptionError, match=option):
        queue.station("s", "**", **{option: value})


def test_a_selection_that_cannot_be_is_refused_and_nothing_made(queue: Queue) -> None:
    for selection in ("a//b", "where (", 7):
        with pytest.raises(SelectionError):
            queue.station("s", selection)
    assert queue.stations() == []


def test_a_group_has_a_name_like_a_station(queue: Queue) -> None:
    with pytest.raises(StationNameError, match="is invalid"):
        queue.station("s", "**", group="a/b")


def test_all_contradictions_are_named_at_once(queue: Queue) -> None:
    with pytest.raises(TermsError) as told:
        queue.station(
            "s", "**", blocking=True, discard="fifo", restore="group", capacity=5, batch_max=6,
            start_time=EPOCH_NS + 5, stop_time=EPOCH_NS + 5,
        )  # fmt: skip
    assert len(told.value.conflicts) == 4
    for word in ("discard", "restore", "batch_max", "start_time"):
        assert any(word in conflict.options for conflict in told.value.conflicts)
        assert word in str(told.value)
    assert queue.stations() == []


@pytest.mark.parametrize(
    "options",
    [
        {"blocking": True, "capacity": 5, "discard": "priority"},
        {"discard": "fifo"},
        {"capacity": 20_000, "order": "deadline"},
        {"capacity": 20_000, "discard": "deadline"},
        {"restore": "group"},
        {"capacity": 5, "batch_max": 6},
        {"pacing": "1s"},
        {"start_time": "2026-01-02", "stop_time": "2026-01-01"},
    ],
)
def test_each_contradiction_is_refused(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(TermsError) as told:
        queue.station("s", "**", **options)
    assert len(told.value.conflicts) == 1
    assert queue.stations() == []


def test_a_change_into_a_contradiction_changes_nothing(queue: Queue) -> None:
    station = queue.station("s", "**", capacity=5)
    terms = station.terms
    with pytest.raises(TermsError):
        station.change(capacity=None, discard="fifo", order="fifo")
    with pytest.raises(OptionError):
        station.change(order="fifo", bloking=True)
    assert station.terms == terms


def test_beside_whom_a_station_stands_cannot_be_changed(queue: Queue) -> None:
    station = queue.station("s", "**")
    with pytest.raises(OptionError, match="cannot change"):
        station.change(group="g")


def test_behind_whom_a_station_stands_cannot_be_changed(queue: Queue) -> None:
    queue.station("first", "**")
    station = queue.station("s", "**")
    with pytest.raises(OptionError, match="cannot change"):
        station.change(after="first")


def test_one_cannot_stand_behind_nobody(queue: Queue) -> None:
    with pytest.raises(StationMissingError, match="no station 'ghost' to stand behind"):
        queue.station("s", "**", after="ghost")
    assert queue.stations() == []


def test_who_joins_a_line_under_way_cannot_begin_elsewhere(queue: Queue) -> None:
    queue.station("first", "**")
    queue.station("g1", "**", group="g")
    for where in ({"after": "first"}, {"group": "g"}):
        with pytest.raises(OptionError, match="running chain"):
            queue.station("s", "**", start="oldest", **where)
    assert queue.stations() == ["first", "g1"]


def test_times_are_taken_as_people_write_them(queue: Queue) -> None:
    terms = queue.station(
        "s", "**", hung_after=timedelta(minutes=1), timeout="2h", pacing=1.5, batch_max=3,
        start_time="2026-01-01T00:00Z", stop_time=datetime(2026, 1, 2, tzinfo=UTC),
    ).terms  # fmt: skip
    assert (terms.hung_after_s, terms.timeout_s, terms.pacing_s) == (60, 7200, 1.5)
    assert ((terms.stop_ns or 0) - (terms.start_ns or 0)) == 86400 * S


# --- prescale -------------------------------------------------------------------------------------


@pytest.mark.parametrize("selection", [Selection("a"), Selection(ident="^x")], ids=["by rows", "by reading"])
def test_a_prescale_takes_exactly_every_nth_of_what_is_selected(queue: Queue, selection: Selection) -> None:
    station = queue.station("s", selection, prescale=3)
    consumer = station.attach()
    got: list[str] = []
    for number in range(1, 21):
        put(queue, f"x{number}", feed="a")
        put(queue, f"other{number}", feed="b")
        if number % 7 == 0:
            station.statistics()
            got += work(consumer)
    station.statistics()
    got += work(consumer)
    assert got == [f"x{number}" for number in range(3, 21, 3)]


def test_a_prescale_written_as_part_of_the_selection_is_the_same(queue: Queue) -> None:
    station = queue.station("s", Selection("a", every=2))
    assert (station.terms.prescale, station.terms.selection) == (2, "a")
    put(queue, *"12345")
    assert drain(station) == ["2", "4"]
    assert queue.station("s", "a", prescale=2).terms == station.terms


def test_a_prescale_can_be_changed_while_consumers_work(queue: Queue) -> None:
    station = queue.station("s", "**", prescale=2)
    consumer = station.attach()
    put(queue, *"1234")
    assert work(consumer) == ["2", "4"]
    station.change(prescale=1)
    put(queue, "5", "6")
    assert work(consumer) == ["5", "6"]
    station.change(prescale=3)
    put(queue, *(str(number) for number in range(7, 16)))
    assert len(work(consumer)) == 3


def test_a_prescale_is_exact_when_the_station_has_no_room_for_a_while(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(dedup="none")
    station = queue.station("s", "**", prescale=2, blocking=True, capacity=2)
    queue.put_many([b"x"] * 20, feed="a")
    got: list[int] = []
    with station.attach() as consumer:
        for batch in consumer.batches(1, timeout=0):
            got += batch.sequences.tolist()
            station.statistics()
    assert got == list(range(2, 21, 2))


# --- the capacity --------------------------------------------------------------------------------------


def test_without_a_capacity_nothing_is_dropped(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(dedup="none", size="8MiB")
    station = queue.station("s", "**")
    for _ in range(10):
        queue.put_many([b"x"] * 1000, feed="a")
        station.statistics()
    got: list[int] = []
    with station.attach() as consumer:
        for batch in consumer.batches(3000, timeout=0):
            got += batch.sequences.tolist()
    assert got == list(range(1, 10_001))
    assert sum(station.statistics().dropped.values()) == 0


def test_new_products_flow_past_a_full_capacity_and_are_counted(queue: Queue) -> None:
    station = queue.station("s", "**", capacity=2)
    consumer = station.attach()
    put(queue, *"1234")
    assert idents(consumer.get_nowait(1)) == ["1"]
    put(queue, "5", "6")
    assert idents(consumer.get_nowait(9)) == ["2", "5"]
    assert station.statistics().dropped["flowed_around"] == 3


def test_what_is_leased_takes_no_room_in_the_capacity(queue: Queue) -> None:
    station = queue.station("s", "**", capacity=2)
    consumer = station.attach()
    put(queue, "1", "2")
    consumer.get_nowait(2)
    put(queue, "3", "4")
    assert idents(consumer.get_nowait(9)) == ["3", "4"]
    assert station.statistics().dropped["flowed_around"] == 0


def test_a_capacity_can_be_changed_while_consumers_work(queue: Queue) -> None:
    station = queue.station("s", "**", capacity=1)
    consumer = station.attach()
    put(queue, "1", "2")
    assert station.statistics().dropped["flowed_around"] == 1
    station.change(capacity=3)
    put(queue, "3", "4", "5")
    assert (station.statistics().waiting, station.statistics().capacity) == (3, 3)
    station.change(capacity=1)
    assert station.statistics().waiting == 3  # what has been taken stays
    put(queue, "6")
    assert work(consumer) == ["1", "3", "4"]
    station.change(capacity=None)
    put(queue, "7", "8", "9")
    assert work(consumer) == ["7", "8", "9"]
    assert station.statistics().dropped["flowed_around"] == 3


def test_a_change_is_seen_by_other_openings(queue: Queue, clock: MockClock) -> None:
    station = queue.station("s", "**", capacity=1)
    with Queue.open(queue.path, clock=clock) as again:
        consumer = again.station("s").attach()
        station.change(capacity=2, order="fifo")
        assert again.station("s").terms == station.terms
        put(queue, "1", "2", "3")
        assert work(consumer) == ["1", "2"]


# --- order ----------------------------------------------------------------------------------------


def test_urgent_products_come_first_and_equals_in_turn(queue: Queue) -> None:
    station = queue.station("s", "**")
    for ident, priority in [("1", 4), ("2", 7), ("3", 0), ("4", 4), ("5", 7)]:
        put(queue, ident, priority=priority)
    assert drain(station) == ["2", "5", "1", "4", "3"]


@pytest.mark.parametrize("order", ["fifo", "any"])
def test_first_in_first_out_does_not_ask_for_priority(queue: Queue, order: str) -> None:
    station = queue.station("s", "**", order=order)
    for ident, priority in [("1", 4), ("2", 7), ("3", 0), ("4", 4)]:
        put(queue, ident, priority=priority)
    assert drain(station) == ["1", "2", "3", "4"]


def put_with_deadlines(queue: Queue) -> None:
    """In the order 1, 2, 3, 4; by deadline 2, 3, 1, and 4 has none."""
    for ident, seconds in [("1", 30), ("2", 10), ("3", 20)]:
        put(queue, ident, expiry=EPOCH_NS + seconds * S)
    put(queue, "4")


def test_what_expires_first_comes_first(queue: Queue) -> None:
    station = queue.station("s", "**", order="deadline", capacity=10)
    put_with_deadlines(queue)
    assert drain(station) == ["2", "3", "1", "4"]


def test_what_never_expires_comes_last_and_in_turn(queue: Queue) -> None:
    station = queue.station("s", "**", order="deadline", capacity=10)
    for ident, priority in [("1", 4), ("2", 7), ("3", 0)]:
        put(queue, ident, priority=priority)
    assert drain(station) == ["1", "2", "3"]


def test_the_order_can_be_changed_for_products_that_come_later(queue: Queue) -> None:
    station = queue.station("s", "**", capacity=10)
    consumer = station.attach()
    station.change(order="deadline")
    put_with_deadlines(queue)
    assert work(consumer) == ["2", "3", "1", "4"]
    station.change(order="fifo")
    for ident, priority in [("5", 4), ("6", 7)]:
        put(queue, ident, priority=priority)
    assert work(consumer) == ["5", "6"]
    station.change(order="priority")
    for ident, priority in [("7", 4), ("8", 7)]:
        put(queue, ident, priority=priority)
    assert work(consumer) == ["8", "7"]


@pytest.mark.parametrize("before", ["fifo", "priority"])
def test_a_change_to_deadlines_holds_for_what_waits(queue: Queue, before: str) -> None:
    station = queue.station("s", "**", capacity=10, order=before)
    put_with_deadlines(queue)
    assert station.statistics().waiting == 4
    station.change(order="deadline")
    assert drain(station) == ["2", "3", "1", "4"]


def test_a_change_from_deadlines_holds_for_what_waits(queue: Queue) -> None:
    station = queue.station("s", "**", capacity=10, order="deadline")
    put_with_deadlines(queue)
    assert station.statistics().waiting == 4
    station.change(order="fifo")
    assert drain(station) == ["1", "2", "3", "4"]


# --- times ----------------------------------------------------------------------------------------


def test_products_older_than_the_time_out_expire(queue: Queue, clock: MockClock) -> None:
    station = queue.station("s", "**", timeout="10s")
    put(queue, "1")
    clock.advance(6)
    put(queue, "2")
    clock.advance(4)
    assert drain(station) == ["2"]
    assert (station.statistics().expired, station.statistics().acknowledged) == (1, 1)


def test_of_time_out_and_expiry_the_earlier_counts(queue: Queue, clock: MockClock) -> None:
    station = queue.station("s", "**", timeout="10s")
    put(queue, "1", expiry="5s")
    put(queue, "2", expiry="1h")
    clock.advance(5)
    assert drain(station) == ["2"]
    put(queue, "3", expiry="1h")
    clock.advance(10)
    assert drain(station) == []
    assert station.statistics().expired == 2


def test_the_time_out_counts_also_where_idents_decide(queue: Queue, clock: MockClock) -> None:
    station = queue.station("s", Selection(ident="^x"), timeout="10s")
    put(queue, "x1")
    assert station.statistics().waiting == 1
    clock.advance(10)
    put(queue, "x2")
    station.statistics()
    assert drain(station) == ["x2"]
    assert station.statistics().expired == 1


def test_nothing_is_handed_out_before_the_start_time(queue: Queue, clock: MockClock) -> None:
    station = queue.station("s", "**", start_time=EPOCH_NS + 60 * S)
    consumer = station.attach()
    put(queue, "1", "2")
    assert work(consumer) == []
    assert station.statistics().waiting == 2
    clock.advance(59)
    assert work(consumer) == []
    clock.advance(1)
    assert work(consumer) == ["1", "2"]


def test_a_consumer_that_waits_gets_its_products_when_the_start_time_comes(queue: Queue, clock: MockClock) -> None:
    station = queue.station("s", "**", start_time=EPOCH_NS + 60 * S)
    put(queue, "1")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(station.attach().get, 1, 20)
        clock.advance(60)
        assert idents(waiting.result(20)) == ["1"]


@pytest.mark.parametrize("selection", [Selection("a"), Selection(ident="^x")], ids=["by rows", "by reading"])
def test_nothing_is_taken_that_was_put_after_the_stop_time(
    queue: Queue, clock: MockClock, selection: Selection
) -> None:
    station = queue.station("s", selection, stop_time=EPOCH_NS + 60 * S)
    put(queue, "x1")
    clock.advance(59)
    put(queue, "x2")
    clock.advance(1)
    put(queue, "x3")
    station.statistics()
    assert drain(station) == ["x1", "x2"]


def test_what_came_after_the_stop_time_is_counted_once(queue: Queue) -> None:
    queue.station("first", "**", blocking=True, capacity=1)
    station = queue.station("s", "**", after="first", stop_time=EPOCH_NS - 1)
    put_together(queue, "1", "2", "3")
    counts = [station.statistics().expired for _ in range(10)]
    assert max(counts) <= 3


# --- batches --------------------------------------------------------------------------------------


def test_no_get_has_more_than_the_largest_batch(queue: Queue) -> None:
    consumer = queue.station("s", "**", batch_max=2).attach()
    put(queue, *"12345")
    assert [idents(consumer.get_nowait(100)) for _ in range(3)] == [["1", "2"], ["3", "4"], ["5"]]


def test_the_largest_batch_can_be_changed_while_consumers_work(queue: Queue) -> None:
    station = queue.station("s", "**", batch_max=1)
    consumer = station.attach()
    station.change(batch_max=3)
    put(queue, *"1234")
    assert idents(consumer.get_nowait(100)) == ["1", "2", "3"]


def test_pacing_waits_for_a_full_batch(queue: Queue) -> None:
    consumer = queue.station("s", "**", batch_max=3, pacing="30s").attach()
    with ThreadPoolExecutor(1) as pool:
        getting = pool.submit(consumer.get, 3, 60)
        put(queue, "1")
        put(queue, "2")
        with pytest.raises(TimeoutError):
            getting.result(0.5)
        put(queue, "3")
        assert idents(getting.result(20)) == ["1", "2", "3"]


def test_pacing_gives_what_there_is_when_its_time_is_over(queue: Queue) -> None:
    consumer = queue.station("s", "**", batch_max=3, pacing="100ms").attach()
    put(queue, "1", "2")
    assert idents(consumer.get(3)) == ["1", "2"]


def test_pacing_does_not_wait_longer_than_the_time_out(queue: Queue) -> None:
    consumer = queue.station("s", "**", batch_max=3, pacing="1h").attach()
    put(queue, "1")
    assert idents(consumer.get(3, timeout="100ms")) == ["1"]


def test_with_pacing_an_empty_get_takes_its_time_once(queue: Queue) -> None:
    consumer = queue.station("s", "**", batch_max=3, pacing="1h").attach()
    begun = time.monotonic()
    consumer.get(3, timeout=1)
    assert time.monotonic() - begun < 1.6


# --- limits ---------------------------------------------------------------------------------------


def test_more_consumers_than_agreed_are_refused(queue: Queue) -> None:
    station = queue.station("s", "**", consumers_max=2)
    first, _second = station.attach(), station.attach()
    with pytest.raises(StationError, match="2 consumers, its consumers_max"):
        station.attach()
    first.detach()
    third = station.attach()
    vanish(third)
    fourth = station.attach()
    station.change(consumers_max=3)
    fifth = station.attach()
    assert station.statistics().consumers == 3
    for consumer in (fourth, fifth):
        consumer.detach()


def test_a_put_is_refused_when_as_many_wait_as_agreed(queue: Queue) -> None:
    station = queue.station("s", "a", max_queue=3)
    consumer = station.attach()
    put(queue, *"123")
    for _ in range(2):
        with pytest.raises(RejectedError, match="'s' has 3 products waiting") as told:
            put(queue, "4")
    assert "max_queue" in told.value.hint
    assert queue.next == 4
    put(queue, "other", feed="b")
    assert idents(consumer.get_nowait(1)) == ["1"]
    put(queue, "5")
    assert work(consumer) == ["2", "3", "5"]
    assert station.statistics().rejected == 2


def test_a_put_is_refused_without_waiting(queue: Queue) -> None:
    queue.station("s", "a", max_queue=1)
    put(queue, "1")
    with pytest.raises(RejectedError):
        put(queue, "2", timeout="1h")


def test_the_limit_of_what_waits_can_be_changed_and_taken_away(queue: Queue) -> None:
    station = queue.station("s", "a", max_queue=1)
    put(queue, "1")
    station.change(max_queue=2)
    put(queue, "2")
    with pytest.raises(RejectedError):
        put(queue, "3")
    station.change(max_queue=None)
    put(queue, "3")
    assert drain(station) == ["1", "2", "3"]


def test_other_openings_are_refused_as_well(queue: Queue, clock: MockClock) -> None:
    with Queue.open(queue.path, clock=clock) as again:
        put(again, "0")
        queue.station("s", "a", max_queue=1)
        put(again, "1")
        with pytest.raises(RejectedError):
            put(again, "2")


# --- selections -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(tags=[7, 9]), ["two", "three"]),
        (Selection(tags={"kind": "radar"}), ["one", "two"]),
        (Selection(ident="^t"), ["two", "three"]),
        (Selection(not_ident="^t"), ["one", "four"]),
        (Selection(where="level > 3 and kind = 'radar'"), ["two"]),
        (Selection("b/**", where="size >= 4"), ["four"]),
        (Selection(priority="5.."), ["four"]),
        (Selection(origin="there"), []),
        (Selection(slices="3-4"), ["three"]),
        ("a ident ~ 'n'", ["one"]),
        ({"feed": "a", "ident": "o"}, ["one", "two"]),
        (lambda product: len(product.payload) == 3, ["one", "two"]),
        (Selection("a", function=lambda product: product.ident > "p"), ["two", "three"]),
        (Selection(function=lambda product: 1 // (len(product.ident) - 3) >= 0), ["three", "four"]),
    ],
)
def test_a_station_selects_by_all_that_the_language_has(queue: Queue, selection: Any, expected: list[str]) -> None:
    station = queue.station("s", selection, order="fifo")
    put(queue, "one", properties={"tag": 5, "kind": "radar", "level": 3})
    put(queue, "two", properties={"tag": 7, "kind": "radar", "level": 4})
    put(queue, "three", properties={"tag": 9, "kind": "text", "level": 5}, slice=3)
    put(queue, "four", feed="b/c", priority=7)
    station.statistics()
    assert drain(station) == expected
    assert station.statistics().admitted == len(expected)


def test_a_function_has_to_be_given_by_everyone_who_attaches(queue: Queue, clock: MockClock) -> None:
    def wants(product: Any) -> bool:
        return bool(product.ident.startswith("x"))

    queue.station("s", wants)
    put(queue, "x1", "y2")
    with Queue.open(queue.path, clock=clock) as again:
        station = again.station("s")
        with pytest.raises(OptionError, match="function, which this process does not have"):
            station.attach()
        station.statistics()
        again.station("s", wants)
        station.statistics()
        assert drain(station) == ["x1"]


def test_who_does_not_know_the_function_passes_nothing_over(queue: Queue, clock: MockClock) -> None:
    def wants(product: Any) -> bool:
        return bool(product.ident.startswith("x"))

    station = queue.station("s", wants, blocking=True, capacity=10)
    with Queue.open(queue.path, clock=clock) as again:
        put(again, *(f"{'xy'[number % 2]}{number}" for number in range(10)))
        assert again.station("s").statistics().behind == 10
    station.statistics()
    assert drain(station) == ["x0", "x2", "x4", "x6", "x8"]

"""Terms: invalid ones are refused before anything is created; selections."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from handling import EPOCH_NS, drain, put

from headrace import Queue, Selection
from headrace.errors import (
    OptionError,
    SelectionError,
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


def test_only_a_channel_says_which_stations_belong_to_it(queue: Queue) -> None:
    with pytest.raises(OptionError, match="a station has no option 'channel'"):
        queue.station("s", "**", channel="c")  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="a station has no option 'channel'"):
        queue.station("s", "**").change(channel="c")  # type: ignore[call-arg]


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


def test_an_option_without_a_near_match_lists_all_options(queue: Queue) -> None:
    with pytest.raises(OptionError, match=r"options are: .*blocking.*max_queue"):
        queue.station("s", "**", xyzzy=1)


@pytest.mark.parametrize("option", ["order", "discard", "restore", "distribution"])
def test_an_unknown_policy_is_refused_and_the_known_are_named(queue: Queue, option: str) -> None:
    known = {"order": "deadline", "discard": "lifo", "restore": "output", "distribution": "least_loaded"}[option]
    with pytest.raises(OptionError, match=f"{option} 'fastest' is unknown") as told:
        queue.station("s", "**", **{option: "fastest"})
    assert known in told.value.hint
    assert queue.stations() == []


def test_a_policy_that_is_not_text_is_refused(queue: Queue) -> None:
    with pytest.raises(OptionError, match="order"):
        queue.station("s", "**", order=["fifo"])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("capacity", 0), ("capacity", -1), ("capacity", 131_073), ("capacity", 1.5), ("capacity", "10"), ("capacity", True),
        ("prescale", 0), ("prescale", 2**31), ("prescale", None), ("deliveries_max", -1), ("deliveries_max", 65_001),
        ("blocking", 1), ("blocking", None), ("durable", "yes"), ("batch_max", 0), ("batch_max", 65_537),
        ("consumers_max", 0), ("consumers_max", 1025), ("max_queue", 0), ("hung_after", -1), ("hung_after", "soon"),
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


def test_an_invalid_selection_is_refused_and_nothing_is_created(queue: Queue) -> None:
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


def test_the_group_of_a_station_cannot_change(queue: Queue) -> None:
    station = queue.station("s", "**")
    with pytest.raises(OptionError, match="cannot change"):
        station.change(group="g")


def test_the_place_of_a_station_in_its_series_cannot_change(queue: Queue) -> None:
    queue.station("first", "**")
    station = queue.station("s", "**")
    with pytest.raises(OptionError, match="cannot change"):
        station.change(after="first")


def test_a_station_cannot_stand_behind_a_missing_one(queue: Queue) -> None:
    with pytest.raises(StationMissingError, match="no station 'ghost' to stand behind"):
        queue.station("s", "**", after="ghost")
    assert queue.stations() == []


def test_a_station_that_joins_a_running_chain_cannot_choose_its_start(queue: Queue) -> None:
    queue.station("first", "**")
    queue.station("g1", "**", group="g")
    for where in ({"after": "first"}, {"group": "g"}):
        with pytest.raises(OptionError, match="running chain"):
            queue.station("s", "**", start="oldest", **where)
    assert queue.stations() == ["first", "g1"]


def test_times_may_be_text_numbers_or_objects(queue: Queue) -> None:
    terms = queue.station(
        "s", "**", hung_after=timedelta(minutes=1), timeout="2h", pacing=1.5, batch_max=3,
        start_time="2026-01-01T00:00Z", stop_time=datetime(2026, 1, 2, tzinfo=UTC),
    ).terms  # fmt: skip
    assert (terms.hung_after_s, terms.timeout_s, terms.pacing_s) == (60, 7200, 1.5)
    assert ((terms.stop_ns or 0) - (terms.start_ns or 0)) == 86400 * S


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
def test_a_station_supports_every_clause_of_a_selection(queue: Queue, selection: Any, expected: list[str]) -> None:
    station = queue.station("s", selection, order="fifo")
    put(queue, "one", properties={"tag": 5, "kind": "radar", "level": 3})
    put(queue, "two", properties={"tag": 7, "kind": "radar", "level": 4})
    put(queue, "three", properties={"tag": 9, "kind": "text", "level": 5}, slice=3)
    put(queue, "four", feed="b/c", priority=7)
    station.statistics()
    assert drain(station) == expected
    assert station.statistics().admitted == len(expected)


def test_every_process_that_attaches_must_pass_the_function(queue: Queue, clock: MockClock) -> None:
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


def test_a_process_without_the_function_skips_nothing(queue: Queue, clock: MockClock) -> None:
    def wants(product: Any) -> bool:
        return bool(product.ident.startswith("x"))

    station = queue.station("s", wants, blocking=True, capacity=10)
    with Queue.open(queue.path, clock=clock) as again:
        put(again, *(f"{'xy'[number % 2]}{number}" for number in range(10)))
        assert again.station("s").statistics().behind == 10
    station.statistics()
    assert drain(station) == ["x0", "x2", "x4", "x6", "x8"]

"""Quality of service: reading options, and every conflict among them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.channel.conflicts import agree, find_conflicts, validate
from headrace.channel.qos import FIELDS, OPTIONS, QoS, station_terms
from headrace.errors import InvalidError, TermsError

NOW_NS = 1_800_000_000 * 10**9
HOUR_NS = 3600 * 10**9


def problems(**options: Any) -> list[tuple[str, ...]]:
    """The options of each conflict."""
    return [conflict.options for conflict in find_conflicts(options, NOW_NS)]


# --- reading --------------------------------------------------------------------------------------


def test_an_empty_qos_has_no_conflicts() -> None:
    assert validate(QoS(), NOW_NS) == []
    assert agree({}) == (QoS(), None, None)


def test_ages_and_times_may_be_text_or_objects() -> None:
    qos = QoS.of(
        timeout="10s", pacing=timedelta(milliseconds=250), start_time="2026-11-15T12:00Z",
        stop_time=datetime(2026, 11, 16, tzinfo=UTC),
    )  # fmt: skip
    assert (qos.timeout_s, qos.pacing_s) == (10.0, 0.25)
    assert qos.stop_time_ns is not None
    assert qos.start_time_ns is not None
    assert qos.stop_time_ns - qos.start_time_ns == 12 * HOUR_NS


def test_a_qos_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        QoS().order = "fifo"  # type: ignore[misc]


def test_none_leaves_an_option_open() -> None:
    assert QoS.of(**dict.fromkeys(OPTIONS)) == QoS()


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("ordr", "order"),
        ("max_per_consumers", "max_per_consumer"),
        ("time_out", "timeout"),
        ("timeout_s", "timeout"),
        ("MaxEventsPerConsumer", "max_per_consumer"),
        ("OrderPolicy", "order"),
        ("EventReliability", "reliability"),
        ("MaximumBatchSize", "batch_max"),
        ("PacingInterval", "pacing"),
        ("blocking", "reliability"),
        ("capacity", "max_per_consumer"),
    ],
)
def test_an_unknown_option_suggests_the_nearest(slip: str, meant: str) -> None:
    with pytest.raises(TermsError) as told:
        QoS.of(**{slip: 1})
    assert told.value.hint == f"did you mean {meant}?"


def test_an_option_without_a_near_match_lists_all_options() -> None:
    with pytest.raises(TermsError, match="the options are reliability, connections, order"):
        QoS.of(zzz=1)


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(TermsError) as told:
        QoS.of(ordr="fifo", timeout="soon", stop_time="tomorrow", batch_max=3)
    assert [conflict.options for conflict in told.value.conflicts] == [("ordr",), ("timeout",), ("stop_time",)]
    assert str(told.value).startswith("3 conflicts: (1) there is no option 'ordr'; (2) timeout 'soon'")
    assert "(1) did you mean order?; (2) write a number and a unit" in told.value.hint


def test_a_terms_error_is_an_invalid_error() -> None:
    assert issubclass(TermsError, InvalidError)


# --- invalid values -------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["reliability", "connections", "order", "discard"])
def test_an_unknown_policy_lists_the_known_ones(option: str) -> None:
    (conflict,) = find_conflicts({option: "whatever"}, NOW_NS)
    assert conflict.options == (option,)
    assert conflict.problem == f"{option} 'whatever' is unknown"
    assert conflict.remedy.startswith("choose one of ")
    assert conflict.of_values


@pytest.mark.parametrize("option", ["max_per_consumer", "max_queue", "batch_max", "suppliers_max", "consumers_max"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True, 10**20])
def test_a_limit_must_be_a_positive_integer(option: str, value: Any) -> None:
    (conflict,) = find_conflicts({option: value}, NOW_NS)
    assert conflict.options == (option,)
    assert conflict.of_values


@pytest.mark.parametrize("option", ["timeout", "pacing"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True, "-5s", "1e9", b"1s", 10**12])
def test_an_age_must_be_finite_and_not_negative(option: str, value: Any) -> None:
    assert problems(**{option: value}, batch_max=2) == [(option,)]


def test_a_timeout_of_zero_is_refused() -> None:
    (conflict,) = find_conflicts({"timeout": "0s"}, NOW_NS)
    assert conflict.problem == "timeout 0 would expire every product at once"


def test_a_pacing_of_zero_is_valid() -> None:
    assert problems(pacing=0) == []


@pytest.mark.parametrize("value", [-1, 1 << 63, "noon", 1.5, True])
def test_an_invalid_time_is_refused(value: Any) -> None:
    assert problems(start_time=value) == [("start_time",)]


def test_a_qos_that_was_not_read_from_options_is_validated_too() -> None:
    wrong = QoS(order="up", batch_max="3", timeout_s="1s", start_time_ns=-5)  # type: ignore[arg-type]
    assert {conflict.options for conflict in validate(wrong, NOW_NS)} == {
        ("order",), ("batch_max",), ("timeout",), ("start_time",),
    }  # fmt: skip


# --- values that contradict each other ------------------------------------------------------------


def test_persistent_reliability_conflicts_with_a_discard_policy() -> None:
    for discard in ("fifo", "lifo", "priority", "deadline"):
        assert problems(reliability="persistent", discard=discard, max_per_consumer=10) == [("reliability", "discard")]
    assert problems(reliability="persistent", discard="any", max_per_consumer=10) == []


def test_persistent_reliability_requires_persistent_connections() -> None:
    assert problems(reliability="persistent", connections="best_effort") == [("reliability", "connections")]
    assert problems(reliability="best_effort", connections="best_effort") == []


def test_under_persistent_reliability_suppliers_wait_or_are_rejected_but_not_both() -> None:
    both = {"max_per_consumer": 10, "max_queue": 20}
    assert problems(reliability="persistent", **both) == [("reliability", "max_per_consumer", "max_queue")]
    assert problems(reliability="persistent", max_queue=20) == []
    assert problems(reliability="persistent", max_per_consumer=20) == []
    assert problems(**both) == []


def test_a_discard_policy_requires_a_limit() -> None:
    assert problems(discard="fifo") == [("discard", "max_per_consumer")]
    assert problems(discard="fifo", max_per_consumer=10) == []


def test_pushes_are_not_rejected_before_a_station_is_full() -> None:
    assert problems(max_queue=9, max_per_consumer=10) == [("max_queue", "max_per_consumer")]
    assert problems(max_queue=10, max_per_consumer=10) == []


def test_a_batch_must_fit_into_a_station() -> None:
    assert problems(batch_max=11, max_per_consumer=10) == [("batch_max", "max_per_consumer")]
    assert problems(batch_max=10, max_per_consumer=10) == []


def test_pacing_requires_batches() -> None:
    assert problems(pacing="1s") == [("pacing", "batch_max")]
    assert problems(pacing="1s", batch_max=1) == [("pacing", "batch_max")]
    assert problems(pacing="1s", batch_max=2) == []


def test_pacing_must_be_shorter_than_the_timeout() -> None:
    assert problems(pacing="1s", batch_max=2, timeout="1s") == [("pacing", "timeout")]
    assert problems(pacing="1s", batch_max=2, timeout="2s") == []


def test_a_channel_must_start_before_it_stops() -> None:
    start, stop = NOW_NS + 2 * HOUR_NS, NOW_NS + HOUR_NS
    assert problems(start_time=start, stop_time=stop) == [("start_time", "stop_time")]
    assert problems(start_time=stop, stop_time=stop) == [("start_time", "stop_time")]
    assert problems(start_time=stop, stop_time=start) == []


def test_a_stop_time_in_the_past_is_refused() -> None:
    assert problems(stop_time=NOW_NS) == [("stop_time",)]
    assert problems(stop_time=NOW_NS + 1) == []
    assert problems(start_time=NOW_NS - HOUR_NS) == []


def test_an_order_by_deadline_is_valid_without_a_timeout() -> None:
    """Products may have an expiry of their own."""
    assert problems(order="deadline") == []
    assert problems(discard="deadline", max_per_consumer=10) == []


def test_every_conflict_is_named_not_only_the_first() -> None:
    assert problems(
        reliability="persistent", connections="best_effort", discard="fifo", max_queue=9, batch_max=11,
        max_per_consumer=10, pacing="5s", timeout="1s", start_time=NOW_NS, stop_time=NOW_NS - 1, ordr="fifo",
    ) == [
        ("ordr",), ("reliability", "discard"), ("batch_max", "max_per_consumer"), ("start_time", "stop_time"),
        ("reliability", "connections"), ("reliability", "max_per_consumer", "max_queue"),
        ("max_queue", "max_per_consumer"), ("pacing", "timeout"), ("stop_time",),
    ]  # fmt: skip


def test_a_mistake_is_reported_once() -> None:
    assert problems(discard="fifo", max_per_consumer=-3, batch_max=10) == [("max_per_consumer",)]
    assert problems(pacing="soon", timeout="1s", batch_max=1) == [("pacing",)]


def test_every_conflict_has_a_problem_and_a_remedy() -> None:
    for conflict in find_conflicts({"discard": "fifo", "pacing": "1s", "stop_time": 1, "nonsense": 0}, NOW_NS):
        assert conflict.problem
        assert conflict.remedy
        assert str(conflict) == f"{', '.join(conflict.options)}: {conflict.problem}; {conflict.remedy}"


def test_agreeing_raises_all_conflicts_as_one_error() -> None:
    with pytest.raises(TermsError) as told:
        agree({"discard": "fifo", "pacing": "1s"}, NOW_NS)
    assert len(told.value.conflicts) == 2
    with pytest.raises(TermsError, match=r"^discard fifo says what .*; give max_per_consumer"):
        agree({"discard": "fifo"}, NOW_NS)


# --- terms of stations ----------------------------------------------------------------------------


def test_a_qos_becomes_the_terms_of_a_station() -> None:
    terms = station_terms(
        QoS.of(
            reliability="persistent", order="deadline", max_per_consumer=50, timeout="2s", batch_max=10, pacing="1s",
            consumers_max=3, start_time=5, stop_time=NOW_NS,
        )
    )  # fmt: skip
    assert terms == {
        "blocking": True, "durable": True, "order": "deadline", "discard": "lifo", "capacity": 50, "max_queue": None,
        "timeout": 2.0, "start_time": 5, "stop_time": NOW_NS, "batch_max": 10, "pacing": 1.0, "consumers_max": 3,
    }  # fmt: skip


def test_open_options_become_the_defaults_of_stations() -> None:
    assert set(station_terms(QoS())) == set(station_terms(QoS.of(**dict.fromkeys(FIELDS))))
    terms = station_terms(QoS())
    assert (terms["blocking"], terms["order"], terms["discard"]) == (False, "priority", "lifo")


def test_the_options_are_the_fields_without_their_units() -> None:
    assert FIELDS["timeout"] == "timeout_s"
    assert FIELDS["start_time"] == "start_time_ns"
    assert tuple(FIELDS.values()) == QoS.__struct_fields__

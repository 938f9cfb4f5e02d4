"""A station inherits the terms of its channel and may only tighten them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.channel.conflicts import looser, tighten
from headrace.channel.qos import FIELDS, POLICIES, QoS, is_open
from headrace.errors import TermsError

CHANNEL = QoS.of(
    reliability="best_effort", connections="best_effort", order="fifo", discard="any", max_per_consumer=100,
    timeout="10s", start_time=1000, stop_time=2000, batch_max=10, pacing="2s", consumers_max=4,
)  # fmt: skip


def at_station(**options: Any) -> QoS:
    return tighten(CHANNEL, CHANNEL.with_options(options))


def test_a_station_that_says_nothing_has_the_terms_of_its_channel() -> None:
    assert at_station() == CHANNEL


@pytest.mark.parametrize(
    ("option", "tighter"),
    [
        ("max_per_consumer", 99),
        ("timeout", 9.5),
        ("batch_max", 1),
        ("pacing", 0.0),
        ("consumers_max", 1),
        ("start_time", 1001),
        ("stop_time", 1999),
        ("connections", "persistent"),
        ("discard", "priority"),
    ],
)
def test_a_station_may_be_tighter(option: str, tighter: Any) -> None:
    assert getattr(at_station(**{option: tighter}), FIELDS[option]) == tighter


@pytest.mark.parametrize(
    ("option", "looser"),
    [
        ("max_per_consumer", 101),
        ("timeout", 10.5),
        ("batch_max", 11),
        ("pacing", 2.5),
        ("consumers_max", 5),
        ("start_time", 999),
        ("stop_time", 2001),
        ("order", "priority"),
    ],
)
def test_a_station_may_not_be_looser(option: str, looser: Any) -> None:
    with pytest.raises(TermsError) as told:
        at_station(**{option: looser})
    (conflict,) = told.value.conflicts
    assert conflict.options == (option,)
    assert conflict.remedy


def test_the_error_names_the_option_and_both_values_and_a_remedy() -> None:
    with pytest.raises(TermsError) as told:
        at_station(timeout="30s")
    assert told.value.problem == "timeout 30 s exceeds the channel's 10 s"
    assert told.value.hint == "choose 10 s or less, or change the channel"


def test_all_looser_options_are_reported_at_once() -> None:
    with pytest.raises(TermsError) as told:
        at_station(timeout="30s", batch_max=11, order="priority")
    assert [conflict.options for conflict in told.value.conflicts] == [("order",), ("timeout",), ("batch_max",)]


@pytest.mark.parametrize(("option", "value"), [("reliability", "persistent"), ("max_queue", 500), ("suppliers_max", 1)])
def test_options_for_suppliers_belong_to_the_channel(option: str, value: Any) -> None:
    with pytest.raises(TermsError, match=f"{option} is the channel's alone"):
        at_station(**{option: value})


def test_reliability_cannot_be_lowered() -> None:
    with pytest.raises(TermsError, match="it has persistent, the station asks for best_effort"):
        tighten(QoS(reliability="persistent"), QoS(reliability="best_effort"))


def test_persistent_connections_cannot_be_dropped() -> None:
    with pytest.raises(TermsError, match="the channel keeps connections persistent"):
        tighten(QoS(), QoS(connections="best_effort"))


def test_a_station_chooses_where_the_channel_leaves_it_open() -> None:
    said = QoS.of(
        order="deadline", discard="fifo", max_per_consumer=5, timeout="1h", batch_max=5, pacing="1s", consumers_max=9
    )
    assert tighten(QoS(), said) == said


# --- properties -----------------------------------------------------------------------------------

COUNT = st.none() | st.integers(1, 100)
AGE = st.none() | st.floats(0, 100)
ANY_QOS = st.builds(
    QoS,
    **{option: st.sampled_from(choices) for option, choices in POLICIES.items()},
    max_per_consumer=COUNT, max_queue=COUNT, batch_max=COUNT, suppliers_max=COUNT, consumers_max=COUNT,
    timeout_s=AGE, pacing_s=AGE, start_time_ns=COUNT, stop_time_ns=COUNT,
)  # fmt: skip


def promises_less(option: str, channel: Any, station: Any) -> bool:
    """The rule in other words: whether a station promises less than its channel."""
    if is_open(option, channel) or channel == station:
        return False
    if is_open(option, station) or option in ("order", "discard", "reliability", "max_queue", "suppliers_max"):
        return True
    if option == "connections":
        return bool(station == "best_effort")
    return bool(station < channel) if option == "start_time" else bool(station > channel)


@given(ANY_QOS, ANY_QOS)
def test_the_result_is_never_looser_than_the_channel(channel: QoS, station: QoS) -> None:
    try:
        result = tighten(channel, station)
    except TermsError:
        return
    for option, field in FIELDS.items():
        assert not promises_less(option, getattr(channel, field), getattr(result, field)), option
    assert looser(channel, result) == []


@given(ANY_QOS, ANY_QOS)
def test_only_looser_options_are_refused(channel: QoS, station: QoS) -> None:
    """Each option that is refused is refused on its own, too."""
    for conflict in looser(channel, station):
        (option,) = conflict.options
        alone = msgspec.structs.replace(channel, **{FIELDS[option]: getattr(station, FIELDS[option])})
        assert [each.options for each in looser(channel, alone)] == [(option,)]


@given(ANY_QOS)
def test_a_station_may_repeat_what_the_channel_says(channel: QoS) -> None:
    assert tighten(channel, channel) == channel


@given(ANY_QOS, ANY_QOS, ANY_QOS)
def test_tightening_is_transitive(first: QoS, second: QoS, third: QoS) -> None:
    try:
        middle = tighten(first, second)
        last = tighten(middle, third)
    except TermsError:
        return
    assert looser(first, last) == []

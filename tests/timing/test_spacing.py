"""When products are due: stream time against elapsed time."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import OptionError
from headrace.timing.replay.spacing import AS_FAST_AS_POSSIBLE, Spacing, parse_speed, speed_text

S = 1_000_000_000


def times(*seconds: float) -> Any:
    return np.array([round(each * S) for each in seconds], np.int64)


def test_the_first_product_is_due_at_once_and_the_others_in_their_distance() -> None:
    spacing, stream = Spacing(2.0), times(100, 102, 106)
    assert spacing.due(stream, 50 * S) == 1
    assert spacing.left_ns(int(stream[1]), 50 * S) == S
    assert [spacing.due(stream[1:], 50 * S + late) for late in (0, S - 1, S, 3 * S - 1, 3 * S)] == [0, 0, 1, 1, 2]


def test_a_caller_that_falls_behind_gets_everything_that_is_due() -> None:
    spacing, stream = Spacing(), times(0, 1, 2, 3, 4)
    assert spacing.due(stream, 0) == 1
    assert spacing.due(stream[1:], 3 * S + 1) == 3
    assert spacing.behind_ns(int(stream[1]), 3 * S) == 2 * S


def test_a_pause_keeps_the_rest_of_the_distance() -> None:
    spacing, stream = Spacing(), times(10, 20)
    spacing.due(stream, 0)
    spacing.pause(int(stream[0]), 4 * S)
    assert spacing.due(stream[1:], 1000 * S) == 0
    spacing.resume(1000 * S)
    assert spacing.left_ns(int(stream[1]), 1000 * S) == 6 * S


def test_a_change_of_speed_holds_from_now_on() -> None:
    spacing, stream = Spacing(), times(0, 10)
    spacing.due(stream, 0)
    spacing.set_speed(4.0, 0, 2 * S)
    assert spacing.left_ns(int(stream[1]), 2 * S) == 2 * S
    spacing.set_speed(AS_FAST_AS_POSSIBLE, 0, 3 * S)
    assert spacing.due(stream[1:], 3 * S) == 1
    spacing.set_speed(1.0, int(stream[1]), 3 * S)
    assert spacing.left_ns(25 * S, 3 * S) == 15 * S


def test_a_speed_that_changes_during_a_pause_does_not_end_it() -> None:
    spacing, stream = Spacing(), times(0, 10)
    spacing.due(stream, 0)
    spacing.pause(0, S)
    spacing.set_speed(3.0, 0, 5 * S)
    assert spacing.is_paused
    spacing.resume(7 * S)
    assert spacing.left_ns(int(stream[1]), 7 * S) == 3 * S


@given(st.lists(st.tuples(st.sampled_from(["pause", "resume", "speed"]), st.integers(0, 10 * S)), max_size=20))
def test_stream_time_never_runs_backwards_whatever_is_commanded(commands: list[tuple[str, int]]) -> None:
    spacing, now, last = Spacing(), 0, 0
    spacing.due(times(0), 0)
    for number, (command, later) in enumerate(commands):
        now += later
        if command == "speed":
            spacing.set_speed(0.5 + number, last, now)
        elif command == "pause":
            spacing.pause(last, now)
        else:
            spacing.resume(now) if spacing.is_paused else None
        assert spacing.stream_ns(now) >= last
        last = spacing.stream_ns(now)


def test_speeds_are_factors_or_max() -> None:
    assert [parse_speed(each) for each in (1, 0.5, "10x", "10", "2.5 x", "max")] == [
        1.0,
        0.5,
        10.0,
        10.0,
        2.5,
        math.inf,
    ]
    assert [parse_speed(speed_text(each)) for each in (1.0, 0.25, math.inf)] == [1.0, 0.25, math.inf]
    for wrong in (0, -1, "fast", "", True, None, math.nan, 1e9):
        with pytest.raises(OptionError, match="is invalid"):
            parse_speed(wrong)

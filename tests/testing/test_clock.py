"""The mock clock."""

import pytest

from headrace.testing import MockClock


def test_a_clock_stands_still_until_it_is_advanced() -> None:
    clock = MockClock(1_000)
    assert (clock.now_ns(), clock.now_ns()) == (1_000, 1_000)
    before = clock.elapsed_ns()
    clock.advance(1.5)
    assert clock.now_ns() == 1_500_001_000
    assert clock.elapsed_ns() - before == 1_500_000_000


def test_the_time_of_day_can_be_set_back_while_no_time_passes() -> None:
    clock = MockClock(5_000)
    before = clock.elapsed_ns()
    clock.set(2_000)
    assert clock.now_ns() == 2_000
    assert clock.elapsed_ns() == before


def test_advance_refuses_a_negative_time() -> None:
    with pytest.raises(ValueError, match="set"):
        MockClock().advance(-1)

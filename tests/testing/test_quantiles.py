"""The inverse distribution function that sizes and gaps are drawn from."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.testing.profiles import GAPS_S, PROFILES
from headrace.testing.quantiles import Quantiles

TABLES = [GAPS_S, *(profile.sizes_bytes for profile in PROFILES.values())]


@pytest.mark.parametrize("table", TABLES)
def test_every_given_quantile_is_met_exactly(table: Quantiles) -> None:
    # A value repeated at the next share is met at its first share.
    for share, value in zip(table.shares, table.values, strict=True):
        assert table.at(share) == pytest.approx(value)


@given(st.sampled_from(TABLES), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_never_has_a_smaller_value(table: Quantiles, a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert table.at(low) <= table.at(high) * (1 + 1e-12)


def test_halfway_between_two_quantiles_lies_their_geometric_mean() -> None:
    assert Quantiles.of({0: 1, 1: 100}).at(0.5) == pytest.approx(10)


def test_a_segment_that_starts_at_zero_is_a_straight_line() -> None:
    assert Quantiles.of({0: 0, 1: 100}).at(0.25) == pytest.approx(25)


@pytest.mark.parametrize("table", TABLES)
def test_the_exact_mean_agrees_with_a_fine_sum(table: Quantiles) -> None:
    steps = 200_000
    fine = sum(table.at((step + 0.5) / steps) for step in range(steps)) / steps
    assert table.mean() == pytest.approx(fine, rel=0.01)


def test_scaling_multiplies_every_value() -> None:
    share = random.Random(5).random()
    assert GAPS_S.scaled(3).at(share) == pytest.approx(3 * GAPS_S.at(share))


@pytest.mark.parametrize("table", [{}, {0: 1}, {0: 1, 0.9: 2}, {0.1: 1, 1: 2}, {0: 2, 1: 1}, {0: -1, 1: 1}])
def test_a_table_that_is_not_a_distribution_is_refused(table: dict[float, float]) -> None:
    with pytest.raises(ValueError, match="quantiles"):
        Quantiles.of(table)

"""How large tasks become."""

import pytest

from headrace.slices.pace import Pace
from headrace.slices.tasks import PRODUCTS_MAX


def settle(batches: bool, call_s: float, product_s: float, rounds: int = 60) -> list[int]:
    """The sizes of the last tasks, if there is always enough to do."""
    pace, sizes = Pace(batches), []
    for _ in range(rounds):
        sizes.append(pace.count)
        pace.note(pace.count, 1, call_s + pace.count * product_s)
    return sizes[-8:]


@pytest.mark.parametrize(
    ("call_s", "product_s", "least", "most"),
    [
        (0.0, 1e-6, 4000, PRODUCTS_MAX),
        (0.0, 0.001, 90, 110),
        (0.05, 0.0, PRODUCTS_MAX, PRODUCTS_MAX),  # a transaction: the more at once, the better
        (0.5, 0.001, 1900, 2100),
        (0.01, 0.01, 8, 10),
        (0.0, 2.0, 1, 2),
        (0.0, 0.07, 1, 2),
    ],
)
def test_batches_share_the_cost_of_a_call_and_otherwise_take_a_tenth_of_a_second(
    call_s: float, product_s: float, least: int, most: int
) -> None:
    sizes = settle(True, call_s, product_s)
    assert least <= min(sizes) <= max(sizes) <= most


def test_tasks_of_single_products_take_a_fiftieth_of_a_second_or_have_one_product() -> None:
    assert settle(False, 0.0, 1e-6) == [PRODUCTS_MAX] * 8
    assert settle(False, 0.0, 0.0009) == [22] * 8
    assert settle(False, 0.0, 3.0) == [1] * 8


def test_a_node_begins_with_one_product() -> None:
    assert Pace(True).count == Pace(False).count == 1

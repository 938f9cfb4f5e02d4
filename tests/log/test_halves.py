"""A batch that is refused as a whole is retried in halves, so that only the products at fault are left out."""

import pytest

from headrace.errors import BatchTooLargeError, FeedError, InvalidError
from headrace.log.append import in_halves


@pytest.mark.parametrize("bad", [set(), {0}, {9}, {3, 4}, set(range(10))])
def test_only_the_products_at_fault_are_left_out(bad: set[int]) -> None:
    stored: list[int] = []
    refused: list[int] = []

    def put(start: int, stop: int) -> None:
        if bad & set(range(start, stop)):
            raise InvalidError("bad")
        stored.extend(range(start, stop))

    in_halves(10, put, lambda at, error: refused.append(at))
    assert refused == sorted(bad)
    assert stored == sorted(set(range(10)) - bad), "in order"


def test_a_valid_batch_takes_one_call_and_an_empty_batch_none() -> None:
    calls: list[tuple[int, int]] = []
    in_halves(1000, lambda start, stop: calls.append((start, stop)), lambda at, error: None)
    in_halves(0, lambda start, stop: calls.append((start, stop)), lambda at, error: None)
    assert calls == [(0, 1000)]


def test_other_errors_are_raised() -> None:
    def put(start: int, stop: int) -> None:
        raise FeedError("bad feed")

    with pytest.raises(FeedError):
        in_halves(10, put, lambda at, error: None, BatchTooLargeError)

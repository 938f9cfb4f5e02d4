"""The lag of a station counts what the station selects."""

from collections.abc import Callable

import pytest

from headrace import Queue, Selection
from headrace.station import backlog
from station.handling import put_together, work

FULL = {"capacity": 2, "blocking": True}


def fill(queue: Queue, wanted: int = 10, others: int = 100) -> None:
    """Among many products, a few that the stations below select."""
    feeds = (["wanted"] * wanted + ["other"] * others) * 2
    queue.put_many(
        [b"%d" % number for number in range(len(feeds))], feed=feeds,
        ident=[f"{feed} {number}" for number, feed in enumerate(feeds)], properties=[{"f": feed} for feed in feeds],
    )  # fmt: skip


@pytest.mark.parametrize("selection", ["wanted", "ident ~ ^wanted", "where f = 'wanted'", "wanted where f = 'wanted'"])
def test_products_that_it_does_not_select_do_not_count(make_quick: Callable[..., Queue], selection: str) -> None:
    queue = make_quick(dedup="none")
    station = queue.station("s", selection, **FULL)
    fill(queue)
    lag, now = station.lag(), station.statistics()
    assert (lag.products, lag.at_least) == (20, False)
    assert (now.waiting, now.behind, now.behind_at_least) == (2, 18, False)


def test_a_station_that_is_done_with_its_products_has_no_lag(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(dedup="none")
    first = queue.station("first", "**", **FULL)
    second = queue.station("second", "none", after="first")
    fill(queue)
    assert first.lag().products == 220
    assert (second.lag().products, second.lag().seconds) == (0, 0.0)


def test_a_prescale_divides_what_is_behind(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(dedup="none")
    station = queue.station("s", "wanted", prescale=3, **FULL)
    fill(queue, wanted=30)
    received = 0
    behind = station.lag().products
    with station.attach() as consumer:
        while found := work(consumer):
            received += len(found)
    assert (received, abs(behind - received) <= 1) == (20, True)


def test_a_new_selection_does_not_count_what_was_put_before(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(dedup="none")
    station = queue.station("s", "wanted", **FULL)
    fill(queue)
    station.change(selection="other")
    assert station.lag().products == 20


def test_a_count_that_is_cut_says_so(make_quick: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch) -> None:
    queue = make_quick(dedup="none")
    station = queue.station("s", "wanted", **FULL)
    fill(queue)
    monkeypatch.setattr(backlog, "ROWS_MAX", 50)
    lag = station.lag()
    assert lag.at_least
    assert 2 <= lag.products < 20


def test_the_age_is_that_of_a_product_that_it_selects(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(dedup="none")
    station = queue.station("s", Selection("wanted", function=lambda product: True))
    put_together(queue, "1", "2", feed="other")
    with Queue.open(queue.path) as other:  # which does not have the function, so that it cannot scan
        assert other.station("s").lag().seconds == 0.0
    assert station.lag().products == 0

"""A change of the selection: the old one applies to earlier products, the new one to later products.

A station that is far behind must lose nothing and repeat nothing, however often its selection changes, whichever process
scans the log, and whether index rows decide or records have to be read.
"""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from handling import drain, idents, in_child, put, put_together, work

from headrace import Queue, Selection
from headrace.errors import BlockedError, OptionError, SelectionError
from headrace.station import Station

ROWS, RECORDS = "by rows", "by reading"


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    return make_quick(dedup="none")


def wanting(letter: str, how: str) -> Selection:
    """Products of one letter, which is the feed and the beginning of the ident."""
    return Selection(letter) if how == ROWS else Selection(ident=f"^{letter}")


def put_letters(queue: Queue, *idents: str) -> None:
    for ident in idents:
        put(queue, ident, feed=ident[0])


def got(station: Station) -> list[str]:
    station.statistics()
    return drain(station)


FROM_TO = pytest.mark.parametrize(
    ("before", "after"), [(ROWS, ROWS), (ROWS, RECORDS), (RECORDS, ROWS), (RECORDS, RECORDS)]
)


@FROM_TO
def test_the_old_selection_applies_to_earlier_products_and_the_new_one_to_later_products(
    queue: Queue, before: str, after: str
) -> None:
    station = queue.station("s", wanting("x", before))
    put_letters(queue, "x1", "y2", "x3")
    station.change(selection=wanting("y", after))
    put_letters(queue, "x4", "y5", "y6")
    assert got(station) == ["x1", "x3", "y5", "y6"]
    put_letters(queue, "x7", "y8")
    assert got(station) == ["y8"]


@FROM_TO
def test_a_station_without_a_backlog_uses_the_new_selection(queue: Queue, before: str, after: str) -> None:
    station = queue.station("s", wanting("x", before))
    put_letters(queue, "x1", "y2")
    assert got(station) == ["x1"]
    station.change(selection=wanting("y", after))
    put_letters(queue, "x3", "y4")
    assert got(station) == ["y4"]
    assert station.terms.retired == ()


def test_an_attached_consumer_uses_the_new_selection(queue: Queue) -> None:
    station = queue.station("s", "x")
    consumer = station.attach()
    put_letters(queue, "x1")
    assert work(consumer) == ["x1"]
    put_letters(queue, "x2")
    station.change(selection="y")
    put_letters(queue, "x3", "y4")
    assert work(consumer) == ["x2", "y4"]


@pytest.mark.parametrize("after", [ROWS, RECORDS])
def test_a_waiting_consumer_uses_the_new_selection(queue: Queue, after: str) -> None:
    station = queue.station("s", "x")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(station.attach().get, 1, 20)
        station.change(selection=wanting("y", after))
        put_letters(queue, "x1", "y2")
        assert idents(waiting.result(240)) == ["y2"]


@pytest.mark.parametrize("ways", [[ROWS], [ROWS, RECORDS], [RECORDS]], ids=["by rows", "by both", "by reading"])
def test_many_changes_apply_in_order_to_a_station_that_is_far_behind(queue: Queue, ways: list[str]) -> None:
    chance = random.Random(20261115)
    letters = "xyz"
    station = queue.station("s", wanting("x", ways[0]))
    expected, wanted, number = [], "x", 0
    for _ in range(30):
        for _ in range(chance.randrange(4)):
            ident = f"{chance.choice(letters)}{number}"
            number += 1
            put_letters(queue, ident)
            if ident[0] == wanted:
                expected.append(ident)
        wanted = chance.choice(letters)
        station.change(selection=wanting(wanted, chance.choice(ways)))
    assert got(station) == expected
    assert station.statistics().admitted == len(expected)


def test_changes_without_a_product_between_them_keep_only_the_last(queue: Queue) -> None:
    station = queue.station("s", "x")
    put_letters(queue, "x1", "y2")
    for letter in "yxzy":
        station.change(selection=letter)
    put_letters(queue, "x3", "y4", "z5")
    assert got(station) == ["x1", "y4"]


def test_old_selections_are_dropped_when_the_station_has_caught_up(queue: Queue) -> None:
    station = queue.station("s", "x")
    put_letters(queue, "x1")
    station.change(selection="y")
    put_letters(queue, "y2")
    station.change(selection="z")
    assert len(station.terms.retired) == 2
    put_letters(queue, "z3")
    assert got(station) == ["x1", "y2", "z3"]
    station.change(selection="x")
    assert station.terms.retired == ()


def test_a_change_survives_a_reopening(queue: Queue) -> None:
    station = queue.station("s", "x")
    put_letters(queue, "x1", "y2")
    station.change(selection="y")
    put_letters(queue, "x3", "y4")
    queue.close()
    with Queue.open(queue.path) as again:
        assert got(again.station("s")) == ["x1", "y4"]


@pytest.mark.parametrize("how", [ROWS, RECORDS])
def test_a_change_applies_in_other_openings_of_the_queue(queue: Queue, how: str) -> None:
    station = queue.station("s", wanting("x", how))
    with Queue.open(queue.path) as other:
        consumer = other.station("s").attach()
        put_letters(queue, "x1", "y2")
        station.change(selection=wanting("y", how))
        put_letters(queue, "x3", "y4")
        station.statistics()
        assert work(consumer) == ["x1", "y4"]


def test_a_change_in_another_process_applies_here(queue: Queue) -> None:
    station = queue.station("s", "x")
    consumer = station.attach()
    put_letters(queue, "x1")

    def change() -> None:
        with Queue.open(queue.path) as other:
            other.station("s").change(selection="y")
            put_letters(other, "x2", "y3")

    assert in_child(change) == "None"
    assert work(consumer) == ["x1", "y3"]


@pytest.mark.parametrize("how", [ROWS, RECORDS])
def test_an_opening_that_falls_behind_a_change_repeats_nothing(queue: Queue, how: str) -> None:
    """Two openings scan the log in turn, with room for two products; the first has already scanned past the change."""
    station = queue.station("s", wanting("x", how), blocking=True, capacity=2)
    with Queue.open(queue.path) as other:
        lazy = other.station("s")
        put_together(queue, "x1", "x2", "x3", feed="x")
        station.change(selection=wanting("y", how))
        assert lazy.statistics().waiting == 2  # it knows of the change, and has not reached it
        consumer = station.attach()
        seen = [ident for _ in range(3) for ident in idents(consumer.get(1, timeout=240))]
        later = [f"y{number}" for number in range(4, 10)]
        put_together(queue, *later, feed="y")
        for _ in later:
            seen += idents(consumer.get(1, timeout=240))
            lazy.statistics()
        assert idents(consumer.get_nowait(9)) == []
    assert seen == ["x1", "x2", "x3", *later]


def test_a_change_in_a_series_affects_only_its_station(queue: Queue) -> None:
    first = queue.station("first", "x")
    second = queue.station("second", "**", after="first")
    put_letters(queue, "x1", "y2")
    first.change(selection="y")
    put_letters(queue, "x3", "y4")
    assert drain(first) == ["x1", "y4"]
    assert sorted(drain(second)) == ["x1", "x3", "y2", "y4"]


def test_two_stations_of_a_series_change_at_different_times(queue: Queue) -> None:
    first = queue.station("first", "x")
    second = queue.station("second", "x", after="first")
    put_letters(queue, "x1", "y2")
    first.change(selection="y")
    put_letters(queue, "x3", "y4")
    second.change(selection="y")
    put_letters(queue, "x5", "y6")
    assert drain(first) == ["x1", "y4", "y6"]
    assert drain(second) == ["x3", "x1", "y6"]


def test_prescale_and_capacity_change_with_the_selection(queue: Queue) -> None:
    station = queue.station("s", "x", prescale=2)
    put_letters(queue, "x1", "x2")
    assert got(station) == ["x2"]
    station.change(selection=Selection("y", every=3), capacity=1)
    assert (station.terms.prescale, station.terms.selection, station.terms.capacity) == (3, "y", 1)
    put_letters(queue, *(f"y{number}" for number in range(1, 13)))
    assert len(got(station)) == 1
    assert station.statistics().dropped["flowed_around"] == 3


# --- blocking stations ----------------------------------------------------------------------------


def test_a_blocking_station_loses_nothing_by_a_change(queue: Queue) -> None:
    station = queue.station("s", "x", blocking=True, capacity=2)
    consumer = station.attach()
    put_together(queue, "x1", "x2", "x3", "x4", feed="x")
    station.change(selection="y")
    seen = [work(consumer, 2), work(consumer, 2)]
    put_together(queue, "y5", "y6", "y7", feed="y")
    seen += [work(consumer, 2), work(consumer, 2)]
    assert seen == [["x1", "x2"], ["x3", "x4"], ["y5", "y6"], ["y7"]]


def test_after_a_change_only_producers_of_the_new_feeds_wait(queue: Queue) -> None:
    station = queue.station("s", "x", blocking=True, capacity=1)
    consumer = station.attach()
    put_together(queue, "x1", "x2", feed="x")
    station.change(selection="y")
    with pytest.raises(BlockedError):
        put(queue, "x3", feed="x", timeout=0)
    assert [work(consumer), work(consumer)] == [["x1"], ["x2"]]
    put(queue, "y4", feed="y", timeout=0)
    for ident in ("x5", "x6"):
        put(queue, ident, feed="x", timeout=0)
    with pytest.raises(BlockedError):
        put(queue, "y7", feed="y", timeout=0)
    assert work(consumer) == ["y4"]


# --- functions ------------------------------------------------------------------------------------


def begins_with(letter: str) -> Callable[[Any], bool]:
    return lambda product: bool(product.ident.startswith(letter))


def test_the_old_function_applies_to_earlier_products(queue: Queue) -> None:
    station = queue.station("s", begins_with("x"))
    put(queue, "x1", "y2")
    station.change(selection=begins_with("y"))
    put(queue, "x3", "y4")
    assert got(station) == ["x1", "y4"]


def test_a_function_replaces_a_selection_text(queue: Queue) -> None:
    station = queue.station("s", Selection("x"))
    put_letters(queue, "x1", "y2")
    station.change(selection=begins_with("y"))
    put_letters(queue, "x3", "y4")
    assert got(station) == ["x1", "y4"]
    assert station.terms.local


def test_a_selection_by_record_replaces_a_function(queue: Queue) -> None:
    station = queue.station("s", begins_with("x"))
    put_letters(queue, "x1", "y2")
    station.change(selection=Selection(ident="^y"))
    put_letters(queue, "x3", "y4")
    assert got(station) == ["x1", "y4"]
    assert not station.terms.local


def test_a_process_without_the_new_function_cannot_attach(queue: Queue) -> None:
    station = queue.station("s", "x")
    with Queue.open(queue.path) as other:
        station.change(selection=begins_with("y"))
        with pytest.raises(OptionError, match="function"):
            other.station("s").attach()


def test_an_invalid_selection_changes_nothing(queue: Queue) -> None:
    station = queue.station("s", "x")
    terms = station.terms
    with pytest.raises(SelectionError):
        station.change(selection="x//y")
    assert station.terms == terms

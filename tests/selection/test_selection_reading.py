"""Selections in use: over batches, product by product, and in readers, followers and deletes."""

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from products import NOW_NS, product

from headrace import Product, Queue, Selection
from headrace.log.read import Reader, RowTerms
from headrace.testing import MockClock

ALERTS = [b"<alert severity='%d'><n>%d</n></alert>" % (n % 4, n) for n in range(8)]


def fill(queue: Queue, count: int = 40) -> None:
    """Put products that differ in every field that a selection can test."""
    for n in range(count):
        queue.put(
            ALERTS[n % 8] if n % 2 else b"%d" % n,
            feed=f"wx/{'abc'[n % 3]}",
            ident=f"SA{n:03d}",
            priority=n % 8,
            created=NOW_NS + n * 10**9,
            slice=None if n % 5 == 4 else n % 5,
            origin=f"site{n % 2}",
            origin_sequence=n + 1,
            properties={"tag": n % 4, "level": n / 2, "site": ["KFTG", "KDEN"][n % 2]} if n % 7 else None,
            signature=b"%016d" % n,
        )


SELECTIONS = [
    "**", "wx/a", "priority 5..", "origin site1", "origin nowhere", "slice 0-1,3", "wx/* priority ..3 origin site0 slice 2",
    'ident ~ "7$"', 'ident !~ "[0-4]$"', 'wx/b ident ~ "^SA0" ident !~ "1"', "tag 1,3", "tag tag=1 tag site=\"KDEN\"", "tag nothing=1",
    "created 2027-01-15T08:00:10..2027-01-15T08:00:20", "created ..2027-01-15T08:00:20", "where level > 5 AND site = 'KDEN'", "where level IS NULL",
    "where nothing = 5", "xpath //alert[@severity='3']", "xpath \"//n > 4\"", "wx/c ident ~ 1 tag 1 xpath //alert where level > 3",
    "priority 4.. where slice IN (0, 1) AND feed LIKE 'wx/_' AND origin = 'site0'",
]  # fmt: skip


@pytest.mark.parametrize("text", SELECTIONS)
def test_rows_columns_and_single_products_agree(queue: Queue, text: str) -> None:
    fill(queue)
    selection = Selection.parse(text)
    held = queue.read_batch()
    wanted = [product.sequence for product in held if selection.wants(product, NOW_NS)]
    batch = queue.read_batch("oldest", text)
    assert batch.sequences.tolist() == wanted
    assert (batch.scanned, batch.filtered, batch.next) == (40, 40 - len(wanted), 41)
    by_rows = np.array([selection.wants_feed(p.feed) and selection.wants_origin(p.origin) and bool(selection.priorities >> p.priority & 1)
                        and (selection.slices is None or p.slice in selection.slices) for p in held])  # fmt: skip
    assert held.sequences[selection.mask(held, NOW_NS) & by_rows].tolist() == wanted


@pytest.mark.parametrize("text", SELECTIONS)
@pytest.mark.parametrize("limit", [1, 3])
def test_limited_batches_add_up_to_the_unlimited_batch(queue: Queue, text: str, limit: int) -> None:
    fill(queue)
    whole = queue.read_batch("oldest", text).sequences.tolist()
    position, pieces = 1, []
    while position < queue.next:
        batch = queue.read_batch(position, text, limit=limit)
        assert len(batch) <= limit
        pieces += batch.sequences.tolist()
        assert batch.next > position
        position = batch.next
    assert pieces == whole


def test_delete_accepts_the_whole_language(queue: Queue) -> None:
    fill(queue)
    assert queue.delete("wx/* where level > 5 AND site = 'KDEN'") == len(
        [n for n in range(40) if n % 7 and n / 2 > 5 and n % 2]
    )
    assert len(queue.read_batch("oldest", "where level > 5 AND site = 'KDEN'")) == 0


def test_a_selection_is_cheap_if_index_rows_decide_it() -> None:
    assert Selection.parse("wx/** priority 5.. origin a slice 3 every 10").is_cheap
    for text in ("ident ~ a", "ident !~ a", "tag 1", "where a = 1", "xpath //a", "created 2026-01-01..", "age < 1h"):
        assert not Selection.parse(text).is_cheap
    assert not Selection(function=bool).is_cheap
    assert Selection(priority=(5, 6)).priorities == 0b0110_0000
    assert Selection().priorities == 255


def test_age_is_measured_at_the_time_of_reading(make_queue: Callable[..., Queue]) -> None:
    clock = MockClock(NOW_NS)
    queue = make_queue(clock=clock)
    for n in range(10):
        queue.put(b"%d" % n, feed="a", created=clock.now_ns())
        clock.advance(60)
    assert queue.read_batch("oldest", "age < 5min").sequences.tolist() == [7, 8, 9, 10]
    clock.advance(60)
    assert queue.read_batch("oldest", "age < 5min").sequences.tolist() == [8, 9, 10]
    old, new = product(created_ns=NOW_NS - 300 * 10**9), product(created_ns=NOW_NS - 300 * 10**9 + 1)
    assert not Selection(max_age_s=300).wants(old, NOW_NS)
    assert Selection(max_age_s="5min").wants(new, NOW_NS)
    assert Selection(max_age_s=60).wants(product(created_ns=time.time_ns()))


# --- every ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["every 7", "wx/a every 3", 'ident ~ "[0-5]$" every 4', "every 5 where level > 3", "every 1000"]
)
@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_a_follower_gets_exactly_every_nth(queue: Queue, text: str, limit: int) -> None:
    fill(queue, 200)
    selection = Selection.parse(text)
    wanted = queue.read_batch("oldest", selection.replace(every=1)).sequences.tolist()
    follower = queue.follow("oldest", selection, limit=limit, timeout=0)
    seen = [sequence for batch in follower for sequence in batch.sequences.tolist()]
    assert seen == wanted[selection.every - 1 :: selection.every]


def test_every_continues_its_count_over_later_products(queue: Queue) -> None:
    follower = queue.follow("oldest", "a every 3", timeout=0)
    seen = []
    for _ in range(10):
        queue.put_many([b"%d" % (queue.next + n) for n in range(4)], feed="a")
        while (batch := follower.next_nowait()) is not None:
            seen += batch.sequences.tolist()
    assert seen == list(range(3, 41, 3))


@given(some.integers(1, 9), some.integers(1, 9), some.integers(1, 120), some.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_every_nth_product_is_exact_under_any_limits(
    tmp_path_factory: pytest.TempPathFactory, every: int, limit: int, count: int, bytes_limit: int
) -> None:
    with Queue.create(tmp_path_factory.mktemp("every") / "q", size="1MiB", dedup="none", origin="here") as queue:
        queue.put_many([b"%04d" % n for n in range(count)], feed=[f"wx/{n % 2}" for n in range(count)])
        reader = Reader(queue._log.kernel, queue.path, Selection("wx/1", every=every))
        position, seen = 1, []
        while position < queue.next:
            batch = reader.read(position, limit, bytes_limit, 0)
            seen += batch.sequences.tolist()
            position = batch.next
        assert seen == list(range(2, count + 1, 2))[every - 1 :: every]


# --- names ----------------------------------------------------------------------------------------


def test_an_origin_that_appears_later_is_selected_too(queue: Queue) -> None:
    follower = queue.follow("oldest", "wx/* origin site1,site2", timeout=0)
    queue.put(b"1", feed="wx/a", origin="site1", origin_sequence=1)
    assert next(follower).sequences.tolist() == [1]
    other = Queue.open(queue.path)
    other.put(b"2", feed="wx/b", origin="site3", origin_sequence=1)
    other.put(b"3", feed="wx/c", origin="site2", origin_sequence=1)
    assert next(follower).sequences.tolist() == [3]
    other.close()


def test_row_terms_learn_new_names_and_report_it(queue: Queue) -> None:
    terms = RowTerms(queue._log.kernel, Selection("wx/*", origin="site1"))
    assert terms.learn() is False
    queue.put(b"1", feed="wx/a", origin="site1", origin_sequence=1)
    assert terms.learn() is True
    assert terms.learn() is False
    assert terms.feeds is not None
    assert int(terms.feeds.sum()) == 1
    assert terms.origins is not None
    assert int(terms.origins.sum()) == 1
    assert RowTerms(queue._log.kernel, Selection()).filter is None
    assert RowTerms(queue._log.kernel, Selection(priority=5)).filter is not None


def test_a_reader_stops_at_the_given_sequence(queue: Queue) -> None:
    fill(queue)
    for text in ("wx/a", "ident ~ SA", "where level >= 0", "every 2"):
        batch = Reader(queue._log.kernel, queue.path, Selection.parse(text)).read(1, 1000, 1 << 30, 0, 20)
        assert batch.next == 20
        assert max(batch.sequences.tolist()) < 20


# --- functions ------------------------------------------------------------------------------------


def test_a_function_is_called_only_for_products_that_match_the_other_clauses(queue: Queue) -> None:
    fill(queue)
    asked: list[int] = []

    def even(one: Product) -> bool:
        asked.append(one.sequence)
        return one.sequence % 2 == 0

    batch = queue.read_batch("oldest", Selection("wx/a", priority=">=4", where="level > 3", function=even))
    assert all(sequence % 2 == 0 for sequence in batch.sequences.tolist())
    assert asked == queue.read_batch("oldest", "wx/a priority 4.. where level > 3").sequences.tolist()


def test_a_function_that_raises_matches_nothing_and_is_logged_once(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    fill(queue)

    def fails(one: Product) -> bool:
        return bool(one.properties["level"])

    selection = Selection(function=fails)
    with caplog.at_level(logging.WARNING, "headrace.selection"):
        batch = queue.read_batch("oldest", selection)
    assert len(batch) == len([n for n in range(40) if n % 7 and n])
    assert selection.function_failures == len([n for n in range(40) if n % 7 == 0])
    assert len(caplog.records) == 1
    assert not selection.wants(product())


def test_refused_by_is_the_first_clause_that_does_not_match() -> None:
    one = product("wx/text", "SAUS", b"<a/>", priority=3, slice=2, origin="here", level=5)
    reasons: dict[str, str | None] = {
        "wx/radar": "feed", "priority 5..": "priority", "origin there": "origin", "slice 3": "slices", "created ..2020-01-01": "created",
        "ident ~ X": "ident", "ident !~ S": "not_ident", "tag level=6": "tags", "where level > 5": "where", "xpath //b": "xpath",
        "wx/text priority 3 origin here slice 2 ident ~ SA tag level=5 xpath //a where level = 5": None, "age < 1s": "max_age_s",
        "wx/radar where level > 5": "feed",
    }  # fmt: skip
    for text, refused_by in reasons.items():
        assert Selection.parse(text).refused_by(one, NOW_NS + 10**9) == refused_by, text
    assert Selection(function=lambda _: False).refused_by(one) == "function"


def test_tags_are_compared_by_kind(queue: Queue) -> None:
    rows: list[dict[str, Any]] = [{"x": 1}, {"x": 1.0}, {"x": True}, {"x": "1"}, {}]
    queue.put_many([b"%d" % n for n in range(5)], feed="a", properties=rows)
    assert queue.read_batch("oldest", Selection(tags={"x": 1})).sequences.tolist() == [1, 2]
    assert queue.read_batch("oldest", Selection(tags={"x": True})).sequences.tolist() == [3]
    assert queue.read_batch("oldest", Selection(tags={"x": "1"})).sequences.tolist() == [4]
    assert queue.read_batch("oldest", Selection(tags={"x": [True, "1"]})).sequences.tolist() == [3, 4]

"""Admission: what enters is what was asked for, from who may bring it; by columns, the same as one by one."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from headrace import Queue, Selection
from headrace.link.rights import Rule, sender_rights
from headrace.log.records import Names
from headrace.relay.messages.page import VERSION, Page, PageHead, decode, queue_id, records_of, sequence_bytes
from headrace.relay.receive.admission import ADMITTED, FOREIGN, NO_RIGHT, NOT_ASKED, Admission, Gate

RULES = (Rule(("b", "c"), publish=("wx/**",)), Rule(("r",), publish=("wx/a", "tel/**"), relay=True))
FEEDS = ("wx/a", "wx/b", "tel/x", "secret")
ORIGINS = ("b", "c", "r")


def page_of(queue: Queue, site: str, names: Names) -> Page:
    batch = queue.read_batch("oldest")
    count = len(batch)
    head = PageHead(
        VERSION, site, queue_id(queue), "own", 0, count, count + 1, count, 7, sequences=sequence_bytes(batch.sequences)
    )
    return decode(head, records_of(batch), names)


@pytest.fixture
def page(make_queue: Callable[..., Queue]) -> Callable[..., Page]:
    """Every feed of every origin, in a page of a site."""
    queue = make_queue(origin="q")
    numbers = itertools.count(1)
    for feed, origin in itertools.product(FEEDS, ORIGINS):
        queue.put(b"x", feed=feed, ident=f"{feed} {origin}", origin=origin, origin_sequence=next(numbers), priority=3)
    names = Names()
    return lambda site: page_of(queue, site, names)


def verdicts(gate: Gate, page: Page) -> list[int]:
    found = gate.verdicts(page)
    return [ADMITTED] * len(page.batch) if found is None else found.tolist()


def expected(rules: Sequence[Rule], selection: Selection, page: Page) -> list[int]:
    """By the definition, product by product."""
    site = page.head.site
    rights = sender_rights(rules, site)

    def verdict(product: Any) -> int:
        if not rights.may_send(product.feed, product.origin, site):
            return FOREIGN if product.feed in rights.publish else NO_RIGHT
        return ADMITTED if selection.wants(product) else NOT_ASKED

    return [verdict(product) for product in page.batch]


@pytest.mark.parametrize("site", [*ORIGINS, "unknown"])
@pytest.mark.parametrize("rules", [(), RULES])
@pytest.mark.parametrize(
    "text", ["**", "wx/**", "wx/a origin b", 'wx/** ident ~ "b$"', "** priority 4..", '** where ident = "wx/a c"']
)
def test_a_page_is_judged_as_its_products_are_one_by_one(
    page: Callable[..., Page], site: str, rules: Sequence[Rule], text: str
) -> None:
    gate, selection = Admission(rules).gate(Selection.parse(text)), Selection.parse(text)
    for _ in range(2):  # decided, and remembered
        assert verdicts(gate, page(site)) == expected(rules, selection, page(site))


def test_one_gate_keeps_senders_apart(page: Callable[..., Page]) -> None:
    gate, selection = Admission(RULES).gate(Selection("**")), Selection("**")
    for site in ("b", "c", "r", "b"):
        assert verdicts(gate, page(site)) == expected(RULES, selection, page(site))


def test_new_names_and_names_that_are_counted_anew_are_decided_anew(make_queue: Callable[..., Queue]) -> None:
    queue, names, selection = make_queue(origin="b"), Names(), Selection("**")
    gate = Admission(RULES).gate(selection)
    for feed in ("wx/a", "secret", "wx/b", "tel/x"):
        queue.put(b"x", feed=feed, ident=feed)
        for used in (names, Names()):
            page = page_of(queue, "b", used)
            assert verdicts(gate, page) == expected(RULES, selection, page)


def test_age_is_left_to_the_sender(page: Callable[..., Page]) -> None:
    gate = Admission().gate(Selection("**", max_age_s=1e-9))
    assert verdicts(gate, page("b")) == [ADMITTED] * 12


def test_who_may_publish_a_feed_may_bring_what_is_vouched_for(page: Callable[..., Page]) -> None:
    def vouch(page: Page) -> Any:
        return np.array([product.origin == "c" for product in page.batch])

    gate = Admission(RULES, vouch).gate(Selection("wx/a"))
    of_b = dict(zip([(p.feed, p.origin) for p in page("b").batch], verdicts(gate, page("b")), strict=True))
    assert of_b["wx/a", "b"] == of_b["wx/a", "c"] == ADMITTED
    assert of_b["wx/a", "r"] == of_b["wx/b", "r"] == FOREIGN
    assert of_b["wx/b", "c"] == NOT_ASKED
    assert of_b["secret", "c"] == of_b["tel/x", "c"] == NO_RIGHT


def test_only_relays_hold_products_of_others_unless_something_vouches() -> None:
    everybody = {"b", "c", "r", "unknown"}
    assert Admission(RULES).holders(everybody, "wx/**") == ["r"]
    assert Admission(RULES).holders(everybody, "wx/b") == []
    assert Admission(RULES, lambda page: None).holders(everybody, "wx/b") == ["b", "c"]
    assert set(Admission().holders(everybody, "wx/b")) == everybody

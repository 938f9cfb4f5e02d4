"""Pager: pages have no more than the rules allow, and reveal nothing about the rest."""

from collections.abc import Callable

import pytest

from headrace import Product, Queue
from headrace.errors import FabricMessageError
from headrace.link.rights import Rule, rights_of
from headrace.log.records import Names
from headrace.relay.inventory import list_held
from headrace.relay.messages.page import decode, decode_head
from headrace.relay.messages.query import Inventory, Read
from headrace.relay.serve import Pager

RULES = (
    Rule(("b", "c"), receive=("wx/text/**",)),
    Rule(("c",), receive=("wx/radar/*",)),
    Rule(("*",), receive=("public",)),
)


@pytest.fixture
def queue(make_queue: Callable[..., Queue]) -> Queue:
    queue = make_queue(origin="a")
    for number, feed in enumerate(("wx/text/k", "wx/radar/K", "public", "secret", "wx/text")):
        queue.put(str(number).encode(), feed=feed)
    return queue


def got(queue: Queue, name: str | None, selection: str = "**", products: int = 100) -> tuple[list[str], int]:
    """The feeds that a principal gets from the beginning on, and the sequence up to which it has everything."""
    feeds, upto = list[str](), 0
    pager = Pager(queue, "a", rights_of(RULES, name).receive)
    for head, records in pager.pages(Read(selection, 0, 10, products, 1 << 20)):
        page = decode(decode_head(head), records, Names())
        assert page.head.after == upto
        feeds += page.batch.feeds
        upto = page.head.upto
    return feeds, upto


@pytest.mark.parametrize("products", [1, 2, 100])
def test_each_principal_gets_what_its_rules_allow(queue: Queue, products: int) -> None:
    assert got(queue, "b", products=products) == (["wx/text/k", "public", "wx/text"], 5)
    assert got(queue, "c", products=products) == (["wx/text/k", "wx/radar/K", "public", "wx/text"], 5)
    assert got(queue, None, products=products) == (["public"], 5)
    assert got(queue, "stranger", products=products) == (["public"], 5)


def test_a_selection_narrows_and_never_widens(queue: Queue) -> None:
    assert got(queue, "b", "secret") == ([], 5)
    assert got(queue, "b", "wx/**") == (["wx/text/k", "wx/text"], 5)


def test_without_rules_everybody_gets_everything(queue: Queue) -> None:
    pager = Pager(queue, "a", rights_of((), None).receive)
    ((head, records),) = pager.pages(Read("**", 0, 10, 100, 1 << 20))
    assert len(decode(decode_head(head), records, Names()).batch) == 5


def test_no_selection_reveals_products_that_may_not_be_received(queue: Queue) -> None:
    """A page of one product that ended at the hidden one would reveal it."""
    pager = Pager(queue, "a", rights_of(RULES, "b").receive)
    for hidden in ("secret", "wx/radar/K", "nothing/there"):
        heads = [decode_head(head) for head, _ in pager.pages(Read(hidden, 0, 10, 1, 1 << 20))]
        assert [(head.after, head.upto, head.count) for head in heads] == [(0, 5, 0)], hidden


@pytest.mark.parametrize(("selection", "is_lost"), [("** origin a", False), ("**", True)])
def test_an_evicted_range_that_came_from_elsewhere_had_no_product_that_was_put_here(
    make_queue: Callable[..., Queue], selection: str, is_lost: bool
) -> None:
    queue = make_queue(origin="a", size="4MiB")
    for _ in range(12):
        queue.put(bytes(500_000), feed="x")
    assert queue.oldest > 1
    pager = Pager(queue, "a", rights_of((), None).receive, None, lambda first, last: (last + 1, last))
    first = decode_head(next(pager.pages(Read(selection, 0, 10, 100, 1 << 20)))[0])
    assert bool(first.lost_first) == is_lost
    assert first.upto >= queue.oldest


def test_a_site_calls_no_functions_for_another_one(make_queue: Callable[..., Queue]) -> None:
    called: list[Product] = []
    queue = make_queue(origin="a", functions={"spy": lambda product: bool(called.append(product))})
    queue.put(b"", feed="wx")
    everything = rights_of((), None).receive
    with pytest.raises(FabricMessageError, match="does not call function spy for another"):
        list(Pager(queue, "a", everything).pages(Read("** function spy", 0, 1, 100, 1 << 20)))
    with pytest.raises(FabricMessageError, match="does not call function spy for another"):
        list_held(queue, Inventory("** function spy", 0, 100), everything)
    assert called == []

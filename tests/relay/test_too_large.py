"""A product that no message can carry is named as lost, and everything else arrives."""

import logging

import pytest
from relaying import has_examined, is_live

from headrace import Queue
from headrace.link.rights import Feeds
from headrace.relay import examine
from headrace.relay.messages.page import decode_head
from headrace.relay.messages.query import Read
from headrace.relay.serve import Pager
from support.fleet import Fabric, want
from support.waiting import until

LIMIT = 1 << 20
HUGE = bytes(LIMIT)


@pytest.fixture(autouse=True)
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "PAGE_BYTES_MAX", LIMIT)


def idents(queue: Queue) -> list[str]:
    return [product.ident for product in queue.read("oldest")]


def put(queue: Queue, *idents: str, size: int = 10) -> None:
    for ident in idents:
        queue.put(ident.encode().ljust(size), feed="x", ident=ident)


@pytest.mark.parametrize("is_early", [False, True], ids=["live", "from the log"])
def test_the_link_goes_on_and_the_product_is_named(
    fabric: Fabric, caplog: pytest.LogCaptureFixture, is_early: bool
) -> None:
    caplog.set_level(logging.INFO, "headrace")
    a = fabric.add("a", size="64MiB")
    if not is_early:
        b = fabric.add("b", want("**", "oldest"), near=("a",), size="64MiB")
        until(lambda: is_live(fabric, "b"), "b listens")
    put(a, "1", "2")
    a.put(HUGE, feed="x", ident="huge")
    a.put(HUGE + b"!", feed="y", ident="huge too")
    put(a, "3", "4")
    if is_early:
        b = fabric.add("b", want("**", "oldest"), near=("a",), size="64MiB")
    until(lambda: has_examined(fabric, "b", "a"), "b has everything that can come")
    put(a, "5")
    until(lambda: has_examined(fabric, "b", "a"), "and what is put afterwards")
    assert idents(b) == ["1", "2", "3", "4", "5"]
    (upstream,) = fabric.sites["b"].statistics().upstreams
    assert upstream.counts.lost == [(3, 3, "too large"), (4, 4, "too large")]
    assert upstream.counts.left_out == {"too large": 2}
    assert caplog.text.count("product 3 of feed x has 1.0 MiB") == 1  # at the sender
    assert caplog.text.count("site a: products 3-3 are lost (too large there)") == 1
    assert [problem.kind for problem in fabric.sites["a"].problems()] == ["too large"]
    assert "lost" in [problem.kind for problem in fabric.sites["b"].problems()]


def test_products_that_are_too_large_only_together_come_in_several_pages(fabric: Fabric) -> None:
    a = fabric.add("a", size="64MiB")
    put(a, "small", "large 1", "large 2", size=LIMIT - 1000)
    put(a, "small 2")
    put(a, "large 3", "large 4", size=LIMIT // 2)
    pager = Pager(a, "a", Feeds(["**"]))
    pages = [(decode_head(head), len(records)) for head, records in pager.pages(Read("**", 0, 20, 100, 4 << 20))]
    assert [(head.after, head.upto, head.count) for head, _ in pages] == [
        (0, 1, 1), (1, 2, 1), (2, 4, 2), (4, 5, 1), (5, 6, 1),
    ]  # fmt: skip
    assert all(size <= LIMIT for _, size in pages)
    assert all(not head.left_out and not head.lost_last for head, _ in pages)
    b = fabric.add("b", want("**", "oldest"), near=("a",), size="64MiB")
    until(lambda: has_examined(fabric, "b", "a"), "b has everything")
    assert idents(b) == idents(a)

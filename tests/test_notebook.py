"""What notebooks show: escaped, short, and never an error."""

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from headrace import Queue
from headrace.notebook import CELL_MAX, ROWS_MAX
from headrace.site.map import Link, Map, Node

HOSTILE = "<script>alert(1)</script>\"'&\u202e\x1b[31m"


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def page_of(thing: Any) -> Page:
    """What a notebook shows of it: tables of short, printable text, and nothing else."""
    page = Page(thing._repr_html_())
    assert set(page.tags) <= {"table", "caption", "tr", "th", "td"}
    assert all(text.isprintable() for text in page.texts)
    assert max(map(len, page.texts)) <= 10 * CELL_MAX, "an escaped character may take ten"
    return page


def test_hostile_text_of_products_is_shown_as_text(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    feed = "wx/<b&lt;"
    queue.put(HOSTILE.encode(), feed=feed, ident=HOSTILE, properties={"p": HOSTILE})
    batch = queue.read_batch()
    for thing in (batch, batch[0], batch[0].copy(), queue):
        assert feed in page_of(thing).texts
    shown = page_of(batch[0]).texts
    assert any(text.startswith("<script>") and "\\u202e" in text for text in shown)


def test_large_things_are_shown_in_part(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    queue.put_many([bytes(1000)] * 500, feed=[f"f/{n}" for n in range(500)], ident=["x" * 1000] * 500)
    for thing in (queue, queue.read_batch(), queue.read_batch()[0]):
        page = page_of(thing)
        assert len(thing._repr_html_()) < 10_000
        assert page.tags.count("tr") < 2 * ROWS_MAX + 10
    assert f"… {500 - ROWS_MAX} more products" in page_of(queue.read_batch()).texts
    assert f"… {500 - ROWS_MAX} more feeds" in page_of(queue).texts


def test_stations_and_channels_show_their_terms(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    channel = queue.channel("<i>", "wx/**", order="fifo")
    station = channel.station("<b>", "**/x")
    queue.put(b"", feed="wx/x")
    assert {"Channel <i>", "wx/**", "fifo", "<b>"} <= set(page_of(channel).texts)
    assert {"Station <b>", "wx/**/x"} <= set(page_of(station).texts)


def test_what_is_gone_shows_why(tmp_path: Path) -> None:
    with Queue.create(tmp_path / "q", size="1MiB") as queue:
        station, channel = queue.station("s"), queue.channel("c", "a/**")
        queue.put(b"kept", feed="a", ident="i")
        batch = queue.read_batch()
        station.remove()
        assert "station 's' was removed" in page_of(station).texts
        channel.remove()
        assert any("has no channel 'c'" in text for text in page_of(channel).texts)
    assert any("closed" in text for text in page_of(queue).texts)
    assert any("closed" in text for text in page_of(station).texts)
    assert page_of(channel).tags
    assert "kept" in page_of(batch).texts


def test_an_empty_queue_and_an_empty_batch_are_shown(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    assert page_of(queue).tags.count("table") == 2
    assert "0 products" in page_of(queue.read_batch()).texts


def test_the_map_of_sites_is_shown() -> None:
    nodes = [Node(f"site {n}", "", "away", HOSTILE, None, None) for n in range(30)]
    links = [Link("site 1", HOSTILE, "tcp/[::1]:7447", 0.0012, 5, 0, 0.0)]
    page = page_of(Map(0, tuple(nodes), tuple(links)))
    assert {"site 1", "away", "1.2 ms", f"… {30 - ROWS_MAX} more sites"} <= set(page.texts)

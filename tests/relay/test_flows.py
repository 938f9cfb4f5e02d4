"""Flows: counts and latencies of what arrives, whether it comes singly or in large pages."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Queue
from headrace.relay.flows import FLOWS_MAX, OTHERS, Flows
from headrace.relay.messages.page import VERSION, Page, PageHead

NOW = 2_000_000_000_000_000_000


def moment(seconds: float) -> datetime:
    """So long after NOW."""
    return datetime.fromtimestamp(NOW / 1e9, UTC) + timedelta(seconds=seconds)


def page_of(queue: Queue, first: int, count: int) -> Page:
    batch = queue.read_batch(first, limit=count)
    head = PageHead(VERSION, "a", b"0" * 16, "own", first - 1, first + count - 1, queue.next, count, NOW)
    return Page(head, batch, batch.sequences)


@pytest.fixture
def queue(tmp_path: Path) -> Any:
    with Queue.create(tmp_path / "q", size="8MiB", origin="a") as made:
        yield made


def fill(queue: Queue, count: int) -> None:
    """Products that are 1 ms, 2 ms, ... old at NOW, in two feeds."""
    for number in range(1, count + 1):
        feed = "wx/text" if number % 3 else "wx/radar"
        queue.put(number.to_bytes(8, "big"), feed=feed, created=moment(-number * 0.001))


def test_many_small_pages_are_counted_like_one_large_one(queue: Queue) -> None:
    fill(queue, 300)
    small, large = Flows(), Flows()
    for first in range(1, 301, 5):
        small.add(page_of(queue, first, 5), None, None, NOW)
    large.add(page_of(queue, 1, 300), None, None, NOW)
    assert small.statistics() == large.statistics()
    text = next(flow for flow in large.statistics() if flow.feed == "wx/text")
    assert (text.origin, text.products, text.payload_bytes, text.duplicates) == ("a", 200, 1600, 0)
    assert text.latency_max_s == pytest.approx(0.299)
    assert text.latency_p50_s == pytest.approx(0.150, rel=0.1)
    assert text.latency_p99_s == pytest.approx(0.297, rel=0.1)


def test_duplicates_and_unwanted_products_are_counted_apart(queue: Queue) -> None:
    fill(queue, 6)
    flows = Flows()
    wanted = np.array([1, 1, 0, 1, 1, 0], np.bool_)
    new = np.array([1, 0, 0, 1, 0, 0], np.bool_)
    flows.add(page_of(queue, 1, 6), wanted, new, NOW)
    (text,) = flows.statistics()
    assert (text.feed, text.products, text.duplicates) == ("wx/text", 2, 2)
    flows.add(page_of(queue, 1, 6), None, new, NOW)
    radar, text = flows.statistics()
    assert (radar.products, radar.duplicates, text.products, text.duplicates) == (0, 2, 4, 4)
    assert radar.latency_s is None


def test_a_clock_that_is_ahead_gives_no_negative_latency(queue: Queue) -> None:
    queue.put(b"from tomorrow", feed="wx/text", created=moment(1000))
    flows = Flows()
    flows.add(page_of(queue, 1, 1), None, None, NOW)
    assert flows.statistics()[0].latency_max_s == 0


def test_feeds_beyond_the_limit_are_counted_together(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FLOWS_MAX > 1000
    monkeypatch.setattr("headrace.relay.flows.FLOWS_MAX", 1)
    fill(queue, 6)
    flows = Flows()
    flows.add(page_of(queue, 1, 6), None, None, NOW)
    assert [(flow.feed, flow.products) for flow in flows.statistics()] == [(OTHERS, 2), ("wx/text", 4)]

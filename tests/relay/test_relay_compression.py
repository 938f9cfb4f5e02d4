"""Compressed products between sites: passed on untouched, with their dictionaries; and links that compress pages."""

import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace import Queue
from headrace.errors import FabricMessageError
from headrace.link.rights import Feeds
from headrace.log.records import Names, rows_of
from headrace.payload.compression.link import shrunk, unfolded
from headrace.product.options import Options
from headrace.queue.queue import log_of
from headrace.relay.dictionaries import give_dictionary
from headrace.relay.messages.page import PAGE_BYTES_MAX, decode, decode_head
from headrace.relay.messages.query import Read
from headrace.relay.serve import Pager
from support.fleet import Fabric, held, want
from support.waiting import until

TEXTS = [
    f"SAUS70 KWBC 060000\r\r\nMETAR K{zlib.crc32(b'%d' % n) % 800:03d} 0600{n % 60:02d}Z {n % 36:02d}010KT 10SM "
    f"FEW{n % 250:03d} {n % 30:02d}/{n % 12:02d} A30{n % 99:02d} RMK AO2=\r\r\n".encode()
    for n in range(300)
]


def compress(queue: Queue) -> int:
    """Let a queue compress with a dictionary from now on; the number of the dictionary."""
    channel = queue.channel("text", "wx/text/**", compress="zstd")
    queue.put_many(TEXTS, feed="wx/text/sa")
    training = queue.train_dictionary("wx/text", size="2KiB")
    channel.change(dictionary=training.dictionary.name)
    return training.dictionary.number


def test_a_relay_passes_on_the_stored_bytes_and_fetches_the_dictionary_first(fabric: Fabric) -> None:
    fabric.add("a")
    number = compress(fabric.queues["a"])
    fabric.add("b", want("wx/**", "oldest", "a"), near=("a",))
    fabric.add("c", want("wx/**", "oldest", "b"), near=("b",))
    fabric.queues["a"].put_many(TEXTS[:50], feed="wx/text/sa", ident=[f"second {n}" for n in range(50)])
    for name in "bc":
        queue = fabric.queues[name]
        until(lambda queue=queue: queue.next == 351)
        assert held(queue) == held(fabric.queues["a"])
        assert log_of(queue).dictionaries.numbers() == [number]
        stored = rows_of(queue.read_batch(301)).gather_records()
        assert stored == rows_of(fabric.queues["a"].read_batch(301)).gather_records()


def test_products_wait_for_a_dictionary_that_is_not_to_be_had(fabric: Fabric) -> None:
    fabric.add("a")
    number = compress(fabric.queues["a"])
    first = fabric.queues["a"].put_many(TEXTS[:10], feed="wx/text/sa", ident="again").first
    file = fabric.queues["a"].path / "dictionaries" / f"{number:08x}.dictionary"
    hidden = file.rename(file.with_suffix(".hidden"))
    log_of(fabric.queues["a"]).dictionaries._known.clear()
    fabric.add("b", want("wx/**", "oldest", "a"), near=("a",))
    site = fabric.sites["b"]
    until(lambda: "has no dictionary" in site.statistics().arrivals["r"].waiting, lambda: site.statistics().arrivals)
    assert fabric.queues["b"].next <= first
    hidden.rename(file)
    until(lambda: fabric.queues["b"].next == first + 10)
    assert held(fabric.queues["b"]) == held(fabric.queues["a"])


@pytest.mark.parametrize("begin_at", ["oldest", "next"])
def test_a_request_may_compress_its_link(fabric: Fabric, begin_at: str) -> None:
    fabric.add("a")
    if begin_at == "oldest":
        fabric.queues["a"].put_many(TEXTS, feed="wx/text/sa")
    fabric.add("b", replace(want("wx/**", begin_at), compress="zstd"), near=("a",))
    until(lambda: fabric.sites["b"].statistics().upstreams)
    (upstream,) = fabric.sites["b"].statistics().upstreams
    until(lambda: upstream.counts.state == "live")
    if begin_at == "next":
        fabric.queues["a"].put_many(TEXTS, feed="wx/text/sa")
    until(lambda: fabric.queues["b"].next == 301)
    assert held(fabric.queues["b"]) == held(fabric.queues["a"])
    counts = upstream.counts
    until(lambda: (counts.live if begin_at == "next" else counts.pulled) > 0, "the pages are counted")
    assert 0 < counts.wire_bytes < counts.page_bytes / 2
    described = fabric.sites["b"].describe().upstreams[0]
    assert 0 < described.wire_bytes < described.page_bytes / 2


def test_who_may_receive_some_feeds_of_a_dictionary_gets_their_products_expanded(
    make_quick: Callable[..., Queue],
) -> None:
    queue = make_quick(origin="a")
    compress(queue)
    queue.put_many(TEXTS[:50], feed="wx/text/sa", ident=[f"second {n}" for n in range(50)])
    queue.put(
        TEXTS[0],
        feed="wx/text/sa",
        ident="third",
        created=1 << 60,
        options=Options(bound_us=7),
        expiry=1 << 62,
        properties={"a": 1},
    )
    queue.put(b"short", feed="wx/text/sa", ident="as it is")
    queue.put_many(TEXTS[:9], feed="wx/text/other", ident=[f"other {n}" for n in range(9)])
    pager = Pager(queue, "a", Feeds(["wx/text/sa"]))
    pages = [
        decode(decode_head(head), records, Names()) for head, records in pager.pages(Read("**", 0, 64, 20, 1 << 20))
    ]
    sent = [product for page in pages for product in page.batch]  # without any dictionary
    stored = list(queue.read_batch("oldest", limit=1000, selection="wx/text/sa"))
    assert [
        (each.ident, bytes(each.payload), each.signature, each.origin_sequence, each.properties, each.bound_ns)
        for each in sent
    ] == [
        (each.ident, bytes(each.payload), each.signature, each.origin_sequence, each.properties, each.bound_ns)
        for each in stored
    ]  # fmt: skip
    whole = Pager(queue, "a", Feeds(["**"]))
    assert sum(len(records) for _, records in whole.pages(Read("wx/text/sa", 0, 64, 20, 1 << 20))) < sum(
        len(records) for _, records in pager.pages(Read("wx/text/sa", 0, 64, 20, 1 << 20))
    )


def test_a_stranger_gets_no_dictionary(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    number = compress(queue)
    for patterns, may in (
        ((), False),
        (("ocean/**",), False),
        (("wx/text/sa",), False),
        (("wx/**",), True),
        (("*/*/x",), False),
    ):
        assert bool(give_dictionary(queue, number, Feeds(patterns))) is may, patterns
    assert give_dictionary(queue, number + 1, Feeds(["**"])) == b""


def test_a_message_that_would_expand_beyond_the_limit_is_refused_before_it_expands() -> None:
    bomb = shrunk(bytes(100_000_000))
    assert bomb is not None
    assert len(bomb) < 20_000
    with pytest.raises(FabricMessageError, match="has 100000000 bytes without that; the limit is 1000 bytes"):
        unfolded(bomb, 1000, "a page")
    with pytest.raises(FabricMessageError, match="does not expand"):
        unfolded(bomb[:-5], PAGE_BYTES_MAX, "a page")
    with pytest.raises(FabricMessageError, match="does not expand"):
        unfolded(bomb + b"more", PAGE_BYTES_MAX, "a page")
    with pytest.raises(FabricMessageError):
        unfolded(b"no frame", PAGE_BYTES_MAX, "a page")
    assert unfolded(bomb, PAGE_BYTES_MAX, "a page") == bytes(100_000_000)
    assert shrunk(b"short") is None

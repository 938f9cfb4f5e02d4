"""The oracle detects every kind of fault, and reports none where there is none."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.testing import Draft, FeedGenerator, Oracle, Verdict

SEED = 4_271


def sent_products(count: int = 200, duplicates: float = 0.0) -> tuple[Oracle, list[Draft]]:
    """An oracle that knows the stream, and the stream without its copies."""
    print(f"seed {SEED}")
    oracle, first = Oracle(), []
    feeds = ["metar", "bulletin", "event"]
    for draft in FeedGenerator(seed=SEED, feeds=feeds, products=count, duplicates=duplicates):
        oracle.sent(draft)
        if not draft.copy:
            first.append(draft)
    return oracle, first


def receive(oracle: Oracle, drafts: list[Draft], consumer: str = "watcher") -> None:
    for draft in drafts:
        oracle.received(draft.feed, draft.ident, memoryview(draft.payload), consumer)


def verdict_on(change: Callable[[list[Draft]], list[Draft]]) -> tuple[Verdict, list[Draft]]:
    oracle, drafts = sent_products()
    receive(oracle, change(list(drafts)))
    return oracle.verdict(), drafts


def test_a_consumer_that_received_everything_in_order_passes() -> None:
    oracle, drafts = sent_products(2_000, duplicates=0.05)
    receive(oracle, drafts)
    verdict = oracle.verdict()
    assert verdict.ok, verdict
    assert verdict.sent == verdict.received == len(drafts)
    assert verdict.copies == 2_000 - len(drafts) > 0


def test_a_consumer_that_received_nothing_has_lost_everything() -> None:
    oracle, drafts = sent_products()
    verdict = oracle.verdict("nobody")
    assert (verdict.lost, verdict.received, verdict.ok) == (len(drafts), 0, False)
    assert verdict.lost_idents == tuple(draft.ident for draft in drafts[:5])


def test_a_lost_product_is_named() -> None:
    verdict, drafts = verdict_on(lambda got: got[:50] + got[51:])
    assert (verdict.lost, verdict.lost_idents) == (1, (drafts[50].ident,))
    assert (verdict.duplicated, verdict.out_of_order, verdict.unknown) == (0, 0, 0)
    assert drafts[50].ident in str(verdict)
    assert not verdict.ok


def test_a_product_received_twice_is_named() -> None:
    verdict, drafts = verdict_on(lambda got: [*got, got[7]])
    assert (verdict.duplicated, verdict.duplicated_idents) == (1, (drafts[7].ident,))
    assert (verdict.lost, verdict.out_of_order) == (0, 0)
    assert not verdict.ok


def test_a_product_received_after_a_later_one_is_named() -> None:
    verdict, drafts = verdict_on(lambda got: [*got[:3], got[4], got[3], *got[5:]])
    assert (verdict.out_of_order, verdict.out_of_order_idents) == (1, (drafts[3].ident,))
    assert verdict.lost == 0
    assert not verdict.ok


def test_a_product_that_was_never_sent_is_named() -> None:
    stray = Draft("wx/text/metar", "SAXX99 XXXX 010000 /pMETAR", b"never sent", 0)
    verdict, _ = verdict_on(lambda got: [*got, stray])
    assert (verdict.unknown, verdict.unknown_idents) == (1, (stray.ident,))
    assert not verdict.ok


def test_a_flipped_bit_is_a_mismatch_and_a_loss() -> None:
    def flip(got: list[Draft]) -> list[Draft]:
        payload = bytearray(got[9].payload)
        payload[-1] ^= 1
        got[9] = replace(got[9], payload=bytes(payload))
        return got

    verdict, drafts = verdict_on(flip)
    assert (verdict.mismatched, verdict.mismatched_idents) == (1, (drafts[9].ident,))
    assert verdict.lost == 1
    assert not verdict.ok


@pytest.mark.parametrize("renamed", [lambda draft: replace(draft, feed="x"), lambda draft: replace(draft, ident="x")])
def test_right_content_under_a_wrong_name_is_a_mismatch(renamed: Callable[[Draft], Draft]) -> None:
    def rename(got: list[Draft]) -> list[Draft]:
        got[9] = renamed(got[9])
        return got

    verdict, _ = verdict_on(rename)
    assert (verdict.mismatched, verdict.lost, verdict.ok) == (1, 0, False)


def test_a_consumer_is_judged_only_by_the_products_expected_for_it() -> None:
    def weather(feed: str, ident: str) -> bool:
        del ident
        return feed.startswith("wx/")

    oracle, drafts = sent_products()
    receive(oracle, [draft for draft in drafts if weather(draft.feed, draft.ident)])
    assert oracle.verdict(expect=weather).ok
    assert not oracle.verdict().ok
    unwanted = next(draft for draft in drafts if draft.feed == "daq/events")
    receive(oracle, [unwanted])
    assert oracle.verdict(expect=weather).unknown_idents == (unwanted.ident,)


def test_order_within_each_feed_may_hold_where_total_order_does_not() -> None:
    oracle, drafts = sent_products()
    receive(oracle, sorted(drafts, key=lambda draft: draft.feed))
    assert oracle.verdict(order="feed").ok
    assert oracle.verdict(order="total").out_of_order > 0
    receive(oracle, sorted(drafts, key=lambda draft: draft.feed)[::-1], "backwards")
    assert oracle.verdict("backwards", order="feed").out_of_order > 0


def test_consumers_are_judged_separately() -> None:
    oracle, drafts = sent_products()
    receive(oracle, drafts, "one")
    receive(oracle, drafts[:-1], "other")
    assert oracle.verdict("one").ok
    assert oracle.verdict("other").lost == 1


def test_a_product_may_be_recorded_as_received_before_it_is_recorded_as_sent() -> None:
    oracle = Oracle()
    draft = Draft("daq/events", "one", b"payload", 0)
    receive(oracle, [draft])
    assert oracle.verdict().unknown == 1
    oracle.sent(draft)
    assert oracle.verdict().ok


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_counts_add_up_whatever_was_received(data: st.DataObject) -> None:
    drafts = [Draft(f"feed{n % 3}", f"ident{n}", bytes([n]), 0) for n in range(12)]
    oracle = Oracle()
    for draft in drafts:
        oracle.sent(draft)
    places = data.draw(st.lists(st.integers(0, 11), max_size=30))
    receive(oracle, [drafts[place] for place in places])
    verdict = oracle.verdict()
    late = {place for n, place in enumerate(places) if place not in places[:n] and max(places[: n + 1]) > place}
    assert verdict.lost == 12 - len(set(places))
    assert verdict.duplicated == len(places) - len(set(places))
    assert verdict.out_of_order == len(late)
    assert verdict.ok == (places == list(range(12)))


def test_a_saved_oracle_gives_the_same_verdicts(tmp_path: Path) -> None:
    oracle, drafts = sent_products(300, duplicates=0.05)
    random.Random(SEED).shuffle(drafts)
    receive(oracle, drafts[:-3])
    oracle.save(tmp_path / "oracle.jsonl")
    loaded = Oracle.load(tmp_path / "oracle.jsonl")
    assert loaded.verdict() == oracle.verdict()
    assert loaded.verdict().lost == 3
    assert [path.name for path in tmp_path.iterdir()] == ["oracle.jsonl"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lines: lines[:-1],
        lambda lines: lines[1:],
        lambda lines: [*lines, b'{"type":"sent"}\n'],
        lambda lines: [*lines[:-1], lines[-1][:-9] + b"\n"],
        lambda lines: [lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]],
        lambda lines: [*lines[:-1], lines[-1].replace(b'"size":', b'"size":-')],
        lambda lines: [],
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, spoil: Callable[[list[bytes]], list[bytes]]) -> None:
    oracle, _ = sent_products(20)
    path = tmp_path / "oracle.jsonl"
    oracle.save(path)
    path.write_bytes(b"".join(spoil(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(ValueError, match=r"oracle\.jsonl.*save it again"):
        Oracle.load(path)

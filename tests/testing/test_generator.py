"""The stream as a whole: mix, arrivals, copies, repeatability."""

import os
import statistics
import subprocess
import sys
from collections import Counter
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.testing import Draft, FeedGenerator
from headrace.testing.generator import START_NS
from headrace.testing.profiles import GIANT_BYTES, GIANT_SHARE, PROFILES

SEED = 20_150_615
TEXT = ["metar", "bulletin"]


def stream(**arguments: Any) -> list[Draft]:
    arguments.setdefault("seed", SEED)
    print(f"FeedGenerator({arguments})")
    return list(FeedGenerator(**arguments))


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32), st.sampled_from(sorted(PROFILES)))
def test_the_same_seed_gives_the_same_bytes(seed: int, kind: str) -> None:
    again = FeedGenerator(seed=seed, feeds=[kind], products=60)
    assert list(again) == list(again) == stream(seed=seed, feeds=[kind], products=60)


def test_another_process_gives_the_same_bytes() -> None:
    program = (
        "import hashlib; from headrace.testing import FeedGenerator\n"
        f"drafts = list(FeedGenerator(seed={SEED}, products=300, size_max=5000))\n"
        "print(hashlib.sha256(repr(drafts).encode()).hexdigest())"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", program]
        digests.add(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    assert len(digests) == 1


def test_another_seed_gives_other_products() -> None:
    ours = {draft.payload for draft in stream(feeds=TEXT, products=500)}
    theirs = {draft.payload for draft in stream(seed=SEED + 1, feeds=TEXT, products=500)}
    assert not ours & theirs


@pytest.mark.parametrize("kind", sorted(PROFILES))
def test_distinct_products_have_distinct_payloads(kind: str) -> None:
    products = 300 if kind == "satellite" else 4_000
    first = [d for d in stream(feeds=[kind], products=products, size_max=2_000_000) if not d.copy]
    assert len({draft.payload for draft in first}) == len(first)


def test_very_short_products_are_distinct_too() -> None:
    first = [d for d in stream(products=20_000, size_max=512, rate=1e6) if not d.copy]
    assert len({draft.payload for draft in first}) == len(first)


def test_no_payload_exceeds_the_largest_size() -> None:
    assert max(len(draft.payload) for draft in stream(products=20_000, size_max=512)) <= 512


def test_arrivals_start_at_zero_and_never_decrease() -> None:
    drafts = stream(feeds=TEXT, products=5_000, duplicates=0.1)
    assert drafts[0].at_s == 0
    assert all(a.at_s <= b.at_s for a, b in pairwise(drafts))


def test_arrivals_are_far_burstier_than_poisson() -> None:
    drafts = stream(feeds=["event"], products=20_000, duplicates=0, size_max=512)
    gaps = [b.at_s - a.at_s for a, b in pairwise(drafts)]
    assert statistics.stdev(gaps) / statistics.mean(gaps) > 3
    assert statistics.median(gaps) < statistics.mean(gaps) / 5


@pytest.mark.parametrize("rate", [None, 50.0, 5_000.0])
def test_the_mean_rate_is_the_requested_rate(rate: float | None) -> None:
    drafts = stream(feeds=["event"], products=60_000, rate=rate, duplicates=0, size_max=512)
    expected = PROFILES["event"].products_per_s if rate is None else rate
    assert len(drafts) / drafts[-1].at_s == pytest.approx(expected, rel=0.2)


def test_another_rate_changes_when_products_arrive_and_not_what_they_are() -> None:
    real, fast = stream(feeds=TEXT, products=800), stream(feeds=TEXT, products=800, rate=9_000)
    assert [d.payload for d in real] == [d.payload for d in fast]
    assert real[-1].at_s > 100 * fast[-1].at_s


def test_a_kind_generates_the_same_products_beside_any_other_kinds() -> None:
    alone = {d.ident for d in stream(feeds=["monitor"], products=50)}
    mixed = {d.ident for d in stream(feeds=["event", "monitor"], products=150)}
    assert len(alone & mixed) > 25


def test_the_mix_follows_the_real_rates() -> None:
    drafts = stream(products=30_000, duplicates=0, size_max=512)
    shares = Counter(draft.feed.split("/")[1] for draft in drafts)
    total = sum(profile.products_per_s for profile in PROFILES.values())
    radar = PROFILES["nexrad2"].products_per_s + PROFILES["nexrad3"].products_per_s
    grid = PROFILES["ngrid"].products_per_s + PROFILES["conduit"].products_per_s
    assert shares["radar"] / len(drafts) == pytest.approx(radar / total, rel=0.05)
    assert shares["grid"] / len(drafts) == pytest.approx(grid / total, rel=0.05)


@pytest.mark.parametrize("kind", ["bulletin", "bufr", "nexrad2", "nexrad3", "ngrid", "conduit"])
def test_sizes_follow_the_measured_quantiles(kind: str) -> None:
    drafts = stream(feeds=[kind], products=4_000, duplicates=0, giants=False)
    sizes = sorted(len(draft.payload) for draft in drafts)
    for share in (0.25, 0.5, 0.75, 0.9):
        expected = PROFILES[kind].sizes_bytes.at(share)
        assert sizes[int(share * len(sizes))] == pytest.approx(expected, rel=0.2), share


@pytest.mark.parametrize("share", [0.0, 0.01, 0.03, 0.3])
def test_the_share_of_copies_is_the_requested_share(share: float) -> None:
    drafts = stream(feeds=["event"], products=20_000, duplicates=share, size_max=512)
    copies = sum(draft.copy for draft in drafts)
    assert copies / len(drafts) == pytest.approx(share, rel=0.2)


def test_a_copy_follows_the_one_product_that_it_repeats() -> None:
    earlier: dict[bytes, Draft] = {}
    copies = 0
    for draft in stream(products=6_000, duplicates=0.05, size_max=4_000):
        if draft.copy:
            copies += 1
            original = earlier.pop(draft.payload)
            assert (draft.feed, draft.ident) == (original.feed, original.ident)
            assert draft.created_ns == original.created_ns
            assert 0 < draft.at_s - original.at_s < 5
        else:
            assert draft.payload not in earlier
            earlier[draft.payload] = draft
    assert copies > 100


def test_a_stream_ends_within_its_duration() -> None:
    drafts = stream(feeds=["event"], duration_s=30, rate=100, duplicates=0, size_max=512)
    assert drafts[-1].at_s < 30
    longer = stream(feeds=["event"], duration_s=60, rate=100, duplicates=0, size_max=512)
    assert longer[: len(drafts)] == drafts
    assert longer[len(drafts)].at_s >= 30
    assert stream(feeds=["event"], duration_s=0, rate=100) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("rate", "duration_s", "duplicates"), [(500, 10, 0.02), (500, 10, 0), (7, 10, 0.3), (130, 3, 0.5)]
)
def test_a_rate_over_a_duration_gives_as_many_products(
    seed: int, rate: float, duration_s: float, duplicates: float
) -> None:
    drafts = stream(seed=seed, duration_s=duration_s, rate=rate, duplicates=duplicates, size_max=512)
    assert abs(len(drafts) - rate * duration_s) <= (0 if rate == 500 else 1)
    assert all(a.at_s <= b.at_s < duration_s for a, b in pairwise(drafts))


@pytest.mark.parametrize("seed", range(5))
def test_every_stretch_of_a_long_stream_has_the_rate_asked_for(seed: int) -> None:
    drafts = stream(seed=seed, feeds=["event"], duration_s=60, rate=500, size_max=512)
    minutes = Counter(int(draft.at_s // 10) for draft in drafts)
    assert all(count == pytest.approx(5000, rel=0.2) for count in minutes.values())


def test_a_stream_without_limits_does_not_end() -> None:
    assert len(list(islice(FeedGenerator(seed=SEED, feeds=TEXT), 1_234))) == 1_234


def test_creation_times_start_at_start_ns_and_follow_the_arrivals() -> None:
    drafts = stream(feeds=TEXT, products=100, duplicates=0, start_ns=5_000_000_000)
    assert drafts[0].created_ns == 5_000_000_000
    assert drafts[-1].created_ns == 5_000_000_000 + round(drafts[-1].at_s * 1e9)
    assert stream(feeds=TEXT, products=1)[0].created_ns == START_NS


def test_urgency_ranks_warnings_over_forecasts_over_bulk_grids() -> None:
    drafts = stream(feeds=["bulletin", "conduit"], products=6_000, size_max=4_000)
    warnings = {d.priority for d in drafts if "/pTOR" in d.ident or "/pSVR" in d.ident}
    forecasts = {d.priority for d in drafts if "/pZFP" in d.ident}
    grids = {d.priority for d in drafts if d.feed == "wx/grid/conduit"}
    assert (warnings, forecasts, grids) == ({7}, {4}, {2})


def test_a_giant_is_generated_on_demand_and_is_not_part_of_the_stream() -> None:
    generator = FeedGenerator(seed=SEED, feeds=["ngrid"], products=50)
    giant = generator.giant()
    assert len(giant.payload) == GIANT_BYTES
    assert giant == generator.giant()
    assert giant.payload not in {draft.payload for draft in generator}


def test_giants_are_as_rare_as_measured() -> None:
    assert 1 / 157_976 < GIANT_SHARE < 1 / 28_166


def test_giants_keep_to_the_largest_size_and_can_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.testing.generator.GIANT_SHARE", 1 / 200)

    def giants(**arguments: Any) -> int:
        drafts = stream(feeds=["ngrid"], products=4_000, size_max=4_000_000, **arguments)
        return sum(len(draft.payload) == 4_000_000 for draft in drafts)

    assert 5 < giants(duplicates=0) < 50
    assert giants(duplicates=0, giants=False) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"feeds": []},
        {"feeds": ["metar", "nosuch"]},
        {"products": -1},
        {"duration_s": -1.0},
        {"duration_s": float("nan")},
        {"rate": 0.0},
        {"rate": float("inf")},
        {"duplicates": 0.6},
        {"duplicates": -0.1},
        {"size_max": 511},
    ],
)
def test_a_value_outside_its_bounds_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"choose from|give"):
        FeedGenerator(seed=SEED, **arguments)

"""Subtrees: the feeds of a channel, and the part that a station selects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.channel.subtree import Subtree
from headrace.errors import FeedError, SelectionError
from headrace.product.feed import FeedPattern


@pytest.mark.parametrize("feed", ["wx/radar", "wx/radar/**"])
def test_a_subtree_is_a_feed_and_all_below_it(feed: str) -> None:
    subtree = Subtree.of(feed)
    assert subtree.pattern == "wx/radar/**"
    assert subtree.has("wx/radar")
    assert subtree.has("wx/radar/nexrad2/KFTG")
    assert not subtree.has("wx/radars")
    assert not subtree.has("wx")


def test_all_feeds_are_a_subtree_too() -> None:
    assert Subtree.of("**").pattern == "**"
    assert Subtree.of("**").has("anything/at/all")
    assert Subtree.of("**").narrow("wx/*") == "wx/*"
    assert Subtree.of("**").narrow(None) == "**"


@pytest.mark.parametrize("feed", ["", "wx/*/radar", "wx/**/radar", "*", "wx//radar", "wx/radar/", "wx/+/x", None, 7])
def test_an_invalid_subtree_is_refused(feed: str) -> None:
    with pytest.raises(FeedError):
        Subtree.of(feed)


@pytest.mark.parametrize(
    ("wanted", "within"),
    [
        (None, "wx/radar/**"),
        ("**", "wx/radar/**"),
        ("wx/**", "wx/radar/**"),
        ("wx/radar/**", "wx/radar/**"),
        ("wx/radar", "wx/radar"),
        ("wx/radar/nexrad2/*", "wx/radar/nexrad2/*"),
        ("*/*/nexrad2/**", "wx/radar/nexrad2/**"),
        ("**/KFTG", "wx/radar/**/KFTG"),
        ("wx/**/KFTG", "wx/radar/**/KFTG"),
        ("wx/*", "wx/radar"),
    ],
)
def test_a_station_selects_within_the_subtree(wanted: str | None, within: str) -> None:
    assert Subtree.of("wx/radar/**").narrow(wanted) == within


@pytest.mark.parametrize("wanted", ["wx/text/**", "wx", "radar/**", "wx/radars", "*"])
def test_a_selection_of_nothing_in_the_subtree_is_refused(wanted: str) -> None:
    with pytest.raises(SelectionError, match="selects nothing within the channel's wx/radar/"):
        Subtree.of("wx/radar/**").narrow(wanted)


def test_a_selection_that_requires_two_patterns_becomes_alternatives() -> None:
    """Both wx/radar/KFTG and wx/radar/old/radar/KFTG match."""
    assert Subtree.of("wx/radar").narrow("**/radar/*") == "wx/radar/*|wx/radar/**/radar/*"


def test_alternatives_outside_the_subtree_are_dropped() -> None:
    assert Subtree.of("wx/radar").narrow("wx/text/**|*/radar/KFTG|wx/**/KDEN") == "wx/radar/**/KDEN|wx/radar/KFTG"


LEVEL = st.sampled_from(["a", "b"])
FEED = st.lists(LEVEL, min_size=1, max_size=5).map("/".join)
PATTERN = st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=5).map("/".join)
PATTERNS = st.lists(PATTERN, min_size=1, max_size=3).map("|".join)


@given(st.lists(LEVEL, min_size=1, max_size=3).map("/".join), PATTERNS, FEED)
def test_a_narrowed_pattern_matches_the_intersection(root: str, wanted: str, feed: str) -> None:
    subtree = Subtree.of(root)
    both = subtree.has(feed) and FeedPattern(wanted).matches(feed)
    try:
        narrowed = subtree.narrow(wanted)
    except SelectionError:
        assert not both
        return
    assert FeedPattern(narrowed).matches(feed) == both

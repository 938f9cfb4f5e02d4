"""Feed names and patterns."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import FeedError
from headrace.product import FeedPattern, check_feed


@pytest.mark.parametrize("feed", ["wx", "wx/radar/nexrad2/KFTG", "a.b-c_d", "météo/été", "x" * 255])
def test_a_valid_feed_is_accepted(feed: str) -> None:
    assert check_feed(feed) == feed


@pytest.mark.parametrize(
    "feed", ["", "/", "a/", "/a", "a//b", "a b", "a\tb", "*", "a/**", "a#", "a+b", "a|b", "x" * 256, "a\x00", "\ud800"]
)
def test_an_invalid_feed_is_refused(feed: str) -> None:
    with pytest.raises(FeedError):
        check_feed(feed)


@pytest.mark.parametrize(
    ("pattern", "feed", "wanted"),
    [
        ("wx", "wx", True), ("wx", "wx/a", False), ("wx/*", "wx/a", True), ("wx/*", "wx", False), ("wx/*", "wx/a/b", False),
        ("wx/**", "wx", True), ("wx/**", "wx/a/b", True), ("wx/**", "wxa", False), ("**", "a/b/c", True), ("*", "a", True),
        ("*", "a/b", False), ("**/b", "b", True), ("**/b", "a/x/b", True), ("a/**/d", "a/d", True), ("a/**/d", "a/b/c/d", True),
        ("a/**/d", "a/b/c", False), ("a/**/**/d", "a/d", True), ("**/*/x", "x", False), ("**/*/x", "a/x", True),
    ],
)  # fmt: skip
def test_patterns_match_by_level(pattern: str, feed: str, wanted: bool) -> None:
    assert FeedPattern(pattern).matches(feed) is wanted


def slow(pattern: list[str], feed: list[str]) -> bool:
    """The definition of a match, without optimisation."""
    if not pattern:
        return not feed
    if pattern[0] == "**":
        return slow(pattern[1:], feed) or (bool(feed) and slow(pattern, feed[1:]))
    return bool(feed) and pattern[0] in ("*", feed[0]) and slow(pattern[1:], feed[1:])


@given(
    st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=7),
    st.lists(st.sampled_from("ab"), min_size=1, max_size=7),
)
def test_matching_agrees_with_its_definition(pattern: list[str], feed: list[str]) -> None:
    assert FeedPattern("/".join(pattern)).matches("/".join(feed)) is slow(pattern, feed)


def test_a_pathological_pattern_is_matched_in_bounded_time() -> None:
    assert not FeedPattern("/".join(["**", "a"] * 40)).matches("/".join(["a"] * 100 + ["b"]))


@pytest.mark.parametrize("pattern", ["", "a/b*", "a//b", "#", "a/+", ">", "a b"])
def test_an_invalid_pattern_is_refused_with_a_remedy(pattern: str) -> None:
    with pytest.raises(FeedError, match=re.escape("*")):
        FeedPattern(pattern)

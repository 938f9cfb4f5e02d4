"""Feed patterns: the spelling of MQTT and NATS, and alternatives."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headrace import Selection
from headrace.errors import SelectionError
from headrace.product import FeedPattern


@pytest.mark.parametrize(
    ("spelt", "canonical"),
    [
        ("mqtt:wx/+/#", "wx/*/**"), ("wx/+/#", "wx/*/**"), ("wx/#", "wx/**"), ("+", "*"), ("#", None), ("mqtt:wx/radar", "wx/radar"),
        ("nats:wx.*.>", "wx/*/*/**"), ("nats:wx.radar", "wx/radar"), ("nats:>", "*/**"), ("wx.radar", "wx.radar"),
        ("**", None), ("**/**", None), ("a/**/*/b", "a/*/**/b"), ("**/*/**/a/**", "*/**/a/**"),
    ],
)  # fmt: skip
def test_mqtt_and_nats_patterns_are_translated(spelt: str, canonical: str | None) -> None:
    assert Selection(spelt).feed == canonical
    assert Selection.parse(spelt).feed == canonical


@pytest.mark.parametrize(
    "spelt",
    ["mqtt:a+", "mqtt:#/a", "a/#/b", "a/b+", "mqtt:a*", "mqtt:$share/g/a", "nats:a.>.b", "nats:a>", "nats:a/b", "nats:a..b", "wx.*.>",
     "mqtt:/a", "mqtt:", "nats:", "a>"],
)  # fmt: skip
def test_an_invalid_mqtt_or_nats_pattern_is_refused(spelt: str) -> None:
    with pytest.raises(SelectionError):
        Selection(spelt)


def test_a_translated_pattern_matches_as_in_mqtt_and_nats() -> None:
    assert Selection("wx/#").wants_feed("wx")  # in MQTT the level before # counts
    assert not Selection("nats:wx.>").wants_feed("wx")  # in NATS > stands for one level at least
    assert Selection("nats:wx.>").wants_feed("wx/a/b")


wild = some.lists(some.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=5).map("/".join)
feeds = some.lists(some.sampled_from(["a", "b", "c"]), min_size=1, max_size=5).map("/".join)


@given(wild, feeds)
def test_the_canonical_pattern_matches_the_same_feeds(pattern: str, feed: str) -> None:
    assert Selection(pattern).wants_feed(feed) == FeedPattern(pattern).matches(feed)


# --- alternatives ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelt", "canonical"),
    [
        ("wx/text/**|wx/obs/bufr", "wx/obs/bufr|wx/text/**"), ("b | a", "a|b"), ("a|a", "a"), ("a/b|a/**", "a/**"),
        ("a|**", None), ("wx/+|wx/#", "wx/**"), ("nats:a.>|b", "a/*/**|b"), ("a/*|a/**/b", "a/*|a/**/b"), ("*|a/**", "*|a/**"),
    ],
)  # fmt: skip
def test_alternatives_have_one_form(spelt: str, canonical: str | None) -> None:
    assert Selection(spelt).feed == canonical
    assert Selection.parse(f'{spelt} ident ~ "^S"') == Selection(canonical, ident="^S")
    assert Selection.parse(str(Selection(spelt))) == Selection(spelt)


@pytest.mark.parametrize(
    "spelt", ["a|", "|a", "a||b", "|", "a|b c", "|".join(f"f{n}" for n in range(65)), "a|@b", "a|b/"]
)
def test_invalid_alternatives_are_refused(spelt: str) -> None:
    with pytest.raises(SelectionError):
        Selection(spelt)
    with pytest.raises(SelectionError):
        Selection.parse(spelt)


@given(some.lists(wild, min_size=1, max_size=4), feeds)
def test_alternatives_match_what_one_of_them_matches(patterns: list[str], feed: str) -> None:
    wanted = any(FeedPattern(pattern).matches(feed) for pattern in patterns)
    assert Selection("|".join(patterns)).wants_feed(feed) == wanted
    assert FeedPattern("|".join(patterns)).matches(feed) == wanted

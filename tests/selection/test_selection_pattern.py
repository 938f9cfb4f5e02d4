"""Feed patterns in the spelling of MQTT and NATS."""

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

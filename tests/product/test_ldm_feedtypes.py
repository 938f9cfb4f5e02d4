"""LDM's feed types: their bits, their feeds, and expressions of them."""

from pathlib import Path

import pytest

from headrace import Selection
from headrace.errors import FeedError
from headrace.product.feed import check_feed
from headrace.product.ldm_expression import types_in
from headrace.product.ldm_feedtypes import ALIASES, ANY, FEEDS, FEEDTYPES, UNIONS, feedtype_of, names_in, pattern_of
from headrace.testing.feeds.makers import makers
from headrace.testing.profiles import PROFILES

OF_KINDS = {
    "metar": {"DDS", "IDS"}, "bulletin": {"DDS", "IDS"}, "lightning": {"LIGHTNING"}, "bufr": {"HDS", "NPOINT"},
    "nexrad2": {"NEXRAD2"}, "nexrad3": {"NEXRAD3"}, "ngrid": {"NGRID"}, "conduit": {"CONDUIT"}, "satellite": {"NIMAGE"},
    "event": set(), "monitor": set(),
}  # fmt: skip


def test_the_bits_are_those_of_ldm() -> None:
    """As LDM's protocol numbers them."""
    assert {name: FEEDTYPES[name].bit for name in ("PPS", "DDS", "HDS", "IDS", "UNIWISC", "CONDUIT", "NEXRAD2")} == {
        "PPS": 1, "DDS": 2, "HDS": 4, "IDS": 8, "UNIWISC": 32, "CONDUIT": 4096, "NEXRAD2": 1 << 28,
    }  # fmt: skip
    assert [each.number for each in FEEDTYPES.values()] == list(range(31))
    assert (UNIONS["DDPLUS"], UNIONS["WMO"], UNIONS["UNIDATA"], UNIONS["ANY"]) == (3, 15, 47, 0xFFFFFFFF)
    assert names_in(UNIONS["NPORT"]) == {"NIMAGE", "NTEXT", "NGRID", "NPOINT", "NGRAPH", "NOTHER"}
    assert not set(ALIASES) & (set(FEEDTYPES) | set(UNIONS))


@pytest.mark.parametrize("kind", sorted(PROFILES))
def test_each_generated_feed_is_selected_by_its_types_and_by_no_other(kind: str) -> None:
    (maker,) = makers(7, [kind])
    feeds = {maker.make(1.7e9 + serial, serial, 4000).feed for serial in range(60)}
    for name in FEEDTYPES:
        wanted = Selection(pattern_of([name]))
        assert {wanted.wants_feed(feed) for feed in feeds} == {name in OF_KINDS[kind]}, name
    lowest = min(OF_KINDS[kind], key=lambda name: FEEDTYPES[name].bit, default="EXP")
    assert {feedtype_of(feed).name for feed in feeds} == {lowest}


def test_each_type_selects_its_own_feeds_and_what_is_below_them() -> None:
    for name, feeds in FEEDS.items():
        wanted = Selection(pattern_of([name]))
        for feed in feeds:
            assert wanted.wants_feed(check_feed(feed))
            assert wanted.wants_feed(f"{feed}/KFTG")
        assert feedtype_of(f"{feeds[0]}/x").name == name
        others = {feed for other in FEEDS.values() for feed in other} - set(feeds)
        assert not any(wanted.wants_feed(feed) for feed in others)


@pytest.mark.parametrize("expression", ["WMO", "ANY-NEXRAD2", "IDS|DDPLUS", "~WMO", "NPORT", "UNIDATA"])
def test_the_pattern_of_a_union_selects_the_feeds_of_its_types_and_no_others(expression: str) -> None:
    types = types_in(expression)
    wanted = Selection(pattern_of(types))
    feeds = {feed for name in types for feed in FEEDS[name]}
    for feed in {feed for other in FEEDS.values() for feed in other}:
        assert wanted.wants_feed(f"{feed}/below") == (feed in feeds)


def test_patterns_are_as_short_as_possible() -> None:
    assert pattern_of(FEEDTYPES) == "**"
    assert pattern_of(["PPS", "DDS", "IDS"]) == "wx/text/**"
    assert pattern_of(types_in("WMO")) == "wx/model/hds/**|wx/obs/bufr/**|wx/text/**"
    assert pattern_of(["NEXRAD2"]) == "wx/radar/nexrad2/**"


@pytest.mark.parametrize(
    ("expression", "types"),
    [
        ("ids", {"IDS"}),
        ("DDPLUS", {"PPS", "DDS"}),
        ("IDS | ddplus", {"IDS", "PPS", "DDS"}),
        ("WMO-HDS", {"IDS", "PPS", "DDS"}),
        ("(WMO|NLDN)-(IDS+HDS)", {"PPS", "DDS", "LIGHTNING"}),
        ("WMO&HDS", {"HDS"}),
        ("FT2", {"HDS"}),
        ("FT3", {"IDS"}),
        ("FT28", {"NEXRAD2"}),
        ("15", {"PPS", "DDS", "HDS", "IDS"}),
        ("0x10000000", {"NEXRAD2"}),
        ("604", {"FAA604"}),
        ("NONE", set()),
        ("~ANY", set()),
        (str(ANY), set(FEEDTYPES)),
    ],
)
def test_expressions_of_feed_types(expression: str, types: set[str]) -> None:
    assert types_in(expression) == types


@pytest.mark.parametrize(
    "expression", ["", "|", "IDS|", "(IDS", "IDS)", "IDS HDS", "IDS,HDS", "~", "X", "4294967296", "0x", "|IDS"]
)
def test_invalid_expressions_are_refused(expression: str) -> None:
    with pytest.raises(FeedError):
        types_in(expression)


def test_the_guide_has_the_table() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    section = guide.split("\n### Feed types\n")[1].split("\n## ")[0]
    for each in FEEDTYPES.values():
        names, feeds = (", ".join(f"`{word}`" for word in words) for words in (each.aliases, each.feeds))
        assert f"| `{each.name}` | {each.number} | {names} | {feeds} |" in section
    for name, mask in UNIONS.items():
        members = [f"`{member}`" for member in FEEDTYPES if member in names_in(mask)]
        shown = "all" if mask == ANY else ", ".join(members) or "no type"
        assert f"| `{name}` | {shown} |" in section

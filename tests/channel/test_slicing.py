"""Slices of a channel: terms that are read, compared, refused, and never change."""

from typing import Any

import pytest

from headrace import Queue
from headrace.channel.conflicts import find_conflicts
from headrace.channel.slicing import SLICES_MAX, Assignment, Slicing, parse_assign, read_slicing
from headrace.errors import ChannelExistsError, OptionError, QueueDamagedError, TermsError


@pytest.mark.parametrize(
    ("options", "slices", "assign"),
    [
        ({"slices": 8}, 8, "ident"),
        ({"assign": "ident"}, 256, "ident"),
        ({"slices": SLICES_MAX, "assign": "random"}, 65535, "random"),
        ({"slices": 1, "assign": "round_robin"}, 1, "round_robin"),
        ({"slices": 3, "assign": "given"}, 3, "given"),
        ({"assign": "property:station id"}, 256, "property:station id"),
        ({"assign": "modulo:größe"}, 256, "modulo:größe"),
        ({"assign": "function:by_beam"}, 256, "function:by_beam"),
        ({"assign": "grid:lat,lon"}, 256, "grid:lat,lon,8x32"),
        ({"assign": "grid:lat,lon", "slices": 1}, 1, "grid:lat,lon,1x1"),
        ({"assign": "grid:lat,lon", "slices": 8}, 8, "grid:lat,lon,2x4"),
        ({"assign": "grid:lat,lon", "slices": 7}, 7, "grid:lat,lon,1x7"),
        ({"assign": "grid:lat,lon,3x5"}, 15, "grid:lat,lon,3x5"),
        ({"assign": "grid:lat,lon,90x180", "slices": 64}, 64, "grid:lat,lon,90x180"),
    ],
)  # fmt: skip
def test_slices_are_read_in_one_form(options: dict[str, Any], slices: int, assign: str) -> None:
    assert read_slicing(options) == (Slicing(slices=slices, assign=assign), [])
    assert str(parse_assign(assign)) == assign


def test_the_parts_of_a_function() -> None:
    assert parse_assign("grid:lat,lon,2x4") == Assignment("grid", ("lat", "lon"), 2, 4)
    assert parse_assign("property:a:b") == Assignment("property", ("a:b",))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"slices": 0}, "slices 0 is out of range"),
        ({"slices": 65536}, "slices 65536 is out of range"),
        ({"slices": True}, "slices True is not a whole number"),
        ({"slices": "many"}, "slices 'many' is not a whole number"),
        ({"assign": "idents"}, "assign 'idents' is unknown"),
        ({"assign": "ident:x"}, "assign 'ident:x' is unknown"),
        ({"assign": 5}, "assign 5 is not text"),
        ({"assign": "property:"}, "names no property"),
        ({"assign": "modulo:" + "x" * 256}, "names no property"),
        ({"assign": "function:not a name"}, "'not a name' is not the name of a function"),
        ({"assign": "grid:lat"}, "is not a grid"),
        ({"assign": "grid:lat,lon,3"}, "is not a grid"),
        ({"assign": "grid:lat,lon,0x3"}, "is not a grid"),
        ({"assign": "grid:lat,lon,70000x3"}, "is not a grid"),
        ({"assign": "grid:lat,lon,2x3", "slices": 7}, "has 6 cells, and 1 of 7 slices would never get a product"),
    ],
)
def test_an_invalid_slicing_is_a_conflict(queue: Queue, options: dict[str, Any], problem: str) -> None:
    (conflict,) = find_conflicts(options)
    assert problem in conflict.problem
    with pytest.raises(TermsError, match=r"slices|assign|function|grid"):
        queue.channel("radar", "wx/radar", **options)
    assert queue.channels() == []


def test_slices_are_part_of_the_terms_that_are_compared(queue: Queue) -> None:
    assert queue.channel("radar", "wx/radar", slices=8).definition.slicing == Slicing(slices=8, assign="ident")
    assert queue.channel("radar", "wx/radar", slices=8, assign="ident").feed == "wx/radar/**"
    with pytest.raises(ChannelExistsError, match=r"slices 8, not 9$|it has slices 8, not 9; open"):
        queue.channel("radar", "wx/radar", slices=9)
    with pytest.raises(ChannelExistsError, match="it has slices 8, not none; assign ident, not none; open"):
        queue.channel("radar", "wx/radar")
    queue.channel("text", "wx/text")
    with pytest.raises(ChannelExistsError, match="it has slices none, not 256; assign none, not random; open"):
        queue.channel("text", "wx/text", assign="random")


@pytest.mark.parametrize("options", [{"slices": 9}, {"assign": "random"}, {"slices": None}])
def test_slices_never_change(queue: Queue, options: dict[str, Any]) -> None:
    channel = queue.channel("radar", "wx/radar", slices=8)
    with pytest.raises(OptionError, match=f"the option {next(iter(options))} of a channel cannot change; remove"):
        channel.change(**options)
    channel.change(timeout="1s")
    assert channel.definition.slicing == Slicing(slices=8, assign="ident")


@pytest.mark.parametrize(("one", "other"), [("wx", "wx/radar"), ("wx/radar/x", "wx"), ("**", "wx"), ("wx", "**")])
def test_channels_with_slices_must_not_overlap(queue: Queue, one: str, other: str) -> None:
    queue.channel("one", one, slices=8)
    with pytest.raises(TermsError, match=r"channel 'one' assigns slices to .*, and channel 'other' would to") as told:
        queue.channel("other", other, slices=8)
    assert told.value.conflicts[0].options == ("slices", "assign")
    queue.channel("other", other)
    queue.channel("one").remove()
    queue.channel("third", other, slices=8)


def test_channels_beside_each_other_may_both_have_slices(queue: Queue) -> None:
    queue.channel("one", "wx/a", slices=8)
    queue.channel("other", "wx/ab", slices=9)


def test_a_station_has_no_slices_of_its_own(queue: Queue) -> None:
    channel = queue.channel("radar", "wx/radar", slices=8)
    with pytest.raises(TermsError, match="slices belong to the channel"):
        channel.station("decode", slices=8)  # type: ignore[call-arg]


@pytest.mark.parametrize("assign", ["nonsense", "grid:lat,lon"])
def test_a_document_with_invalid_slices_is_damaged(queue: Queue, assign: str) -> None:
    queue.channel("radar", "wx/radar", slices=8)
    file = queue.path / "channels.json"
    text = file.read_text()
    file.write_text(text.replace('"assign": "ident"', f'"assign": "{assign}"'))
    with pytest.raises(QueueDamagedError, match=r"channels\.json is invalid"):
        queue.channel("radar")
    file.write_text(text)

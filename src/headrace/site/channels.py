"""Channels of a site: the tables [[channel]], which name channels that its queue is to have.

    [[channel]]
    name = "surface"
    feed = "wx/surface/**"
    slices = 256
    assign = "property:station"

The keys are the options of a channel (docs/channels.md). The site creates a channel that does not exist when it starts,
and when it reads its configuration again. One that exists on other terms is an error: to change it is a matter of
`headrace channel change`, because its stations must agree.

Not here: what the options mean and which contradict each other (channel/), and the comparison with the channels that
the queue has (channel_terms.py).
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from headrace.channel.compression import parse_compress
from headrace.channel.conflicts import find_conflicts
from headrace.channel.qos import POLICIES, SUPPLIERS_LIMIT
from headrace.channel.slicing import SLICES_MAX, parse_assign
from headrace.channel.subtree import Subtree
from headrace.errors import ChannelNameError, OptionError
from headrace.kernel import _kernel as kernel
from headrace.log.cursor import check_name
from headrace.log.dictionaries import name_of, parse_name
from headrace.site.kinds import SITE_NAME
from headrace.station.terms import CAPACITY_MAX
from headrace.toml.kinds import Kind, age, choice, count, text_of
from headrace.units import format_time, parse_time

AGE_S_MAX = 10 * 366 * 86400.0


def _name(value: Any, folder: Path) -> str:
    name = text_of(value, "radar")
    check_name(name, "channel", ChannelNameError)
    return name


def _subtree(value: Any, folder: Path) -> str:
    return Subtree.of(text_of(value, "wx/radar/**")).pattern


def _time(value: Any, folder: Path) -> int:
    if isinstance(value, bool | int | float):
        raise OptionError(f"{value!r} is not a time", 'write ISO 8601, such as "2026-11-15T12:00Z"')
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return parse_time(value, "")


def _assign(value: Any, folder: Path) -> str:
    return str(parse_assign(text_of(value, "property:station")))


def _compress(value: Any, folder: Path) -> str:
    return f"zstd:{parse_compress(text_of(value, 'zstd'))}"


def _dictionary(value: Any, folder: Path) -> str:
    return name_of(parse_name(text_of(value, "3f2a91c0")))


NAME = Kind("name of a channel", _name)
SUBTREE = Kind("feed and all below it", _subtree)
TIME = Kind("time", _time, format_time)
ASSIGN = Kind("function that assigns slices", _assign)
COMPRESS = Kind("compression", _compress)
DICTIONARY = Kind("dictionary", _dictionary)
_RENAMED = {"timeout_s": "timeout", "pacing_s": "pacing", "start_time_ns": "start_time", "stop_time_ns": "stop_time"}


class ChannelTable(msgspec.Struct, frozen=True, kw_only=True, rename=_RENAMED):
    """[[channel]]: a channel of the queue; what is not set is left open."""

    name: Annotated[str, NAME]
    feed: Annotated[str, SUBTREE]
    reliability: Annotated[str | None, choice(*POLICIES["reliability"])] = None
    connections: Annotated[str | None, choice(*POLICIES["connections"])] = None
    order: Annotated[str | None, choice(*POLICIES["order"])] = None
    discard: Annotated[str | None, choice(*POLICIES["discard"])] = None
    max_per_consumer: Annotated[int | None, count(1, CAPACITY_MAX)] = None
    max_queue: Annotated[int | None, count(1, 2**62)] = None
    timeout_s: Annotated[float | None, age(0.001, AGE_S_MAX, "10s")] = None
    start_time_ns: Annotated[int | None, TIME] = None
    stop_time_ns: Annotated[int | None, TIME] = None
    batch_max: Annotated[int | None, count(1, kernel.GET_MAX)] = None
    pacing_s: Annotated[float | None, age(0, AGE_S_MAX, "100ms")] = None
    suppliers_max: Annotated[int | None, count(1, SUPPLIERS_LIMIT)] = None
    consumers_max: Annotated[int | None, count(1, kernel.CONSUMERS_MAX)] = None
    home: Annotated[str | None, SITE_NAME] = None
    slices: Annotated[int | None, count(1, SLICES_MAX)] = None
    assign: Annotated[str | None, ASSIGN] = None
    compress: Annotated[str | None, COMPRESS] = None
    dictionary: Annotated[str | None, DICTIONARY] = None

    def options(self) -> dict[str, Any]:
        """As `Queue.channel` takes them."""
        fields = self.__struct_fields__[2:]
        given = {_RENAMED.get(field, field): getattr(self, field) for field in fields}
        return {option: value for option, value in given.items() if value is not None}


def channel_conflicts(channels: tuple[ChannelTable, ...]) -> Iterator[tuple[int, str, str, str]]:
    """Place, key, problem and remedy of each conflict within a channel, or between two of them."""
    for place, channel in enumerate(channels):
        for conflict in find_conflicts(channel.options(), now_ns=0):  # a stop time may have passed since it was created
            yield place, conflict.options[0], conflict.problem, conflict.remedy
        for first, other in enumerate(channels[:place]):
            if other.name == channel.name:
                yield (
                    place,
                    "name",
                    f"{channel.name!r} is the name of [[channel]] {first + 1} already",
                    "choose another",
                )
            elif _both_have_slices(channel, other) and _overlap(channel.feed, other.feed):
                problem = (
                    f"[[channel]] {first + 1} assigns slices to {other.feed}, and this one would to {channel.feed}"
                )
                yield place, "feed", problem, "choose feeds that do not overlap, or leave out slices and assign"
            elif channel.compress and other.compress and _overlap(channel.feed, other.feed):
                problem = f"[[channel]] {first + 1} compresses {other.feed}, and this one would {channel.feed}"
                yield place, "feed", problem, "choose feeds that do not overlap, or leave out compress"


def _both_have_slices(one: ChannelTable, other: ChannelTable) -> bool:
    return all(each.slices is not None or each.assign is not None for each in (one, other))


def _overlap(one: str, other: str) -> bool:
    return Subtree.of(one).overlaps(Subtree.of(other))

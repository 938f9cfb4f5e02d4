"""docs/format.md has every message between sites, with every field, in order where that matters.

The calls of remote clients are in docs/protocol.md (tests/remote/conformance/test_protocol_page.py).
"""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from headrace.relay import flows
from headrace.relay.messages import beat, description, inventory, page, query, source
from headrace.timing.clock import state

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text().partition("\n## Messages between sites\n")[2]
ARRAYS = (page.PageHead, beat.Beat)
NAMED = (
    query.IdentifyReply, query.ResolveReply, inventory.InventoryReply, query.LocateReply,
    query.TraceReply, source.Source, query.ListenReply, query.DictionaryReply, query.MeasureReply, description.Description,
    description.LinkStatus, description.FeedStatus, description.RequestStatus, description.UpstreamStatus,
    description.StreamStatus, description.Problem, flows.FlowStatistics, state.ClockState,
    state.ServerState,
)  # fmt: skip
TAGGED = {"Queries": query.Query}


def section(heading: str) -> str:
    return re.split(r"\n##+ ", PAGE.partition(f"\n### {heading}\n")[2])[0]


def fields_of_the_page(text: str) -> dict[str, list[str]]:
    """The fields in the second column, by the name in the first; a row without a name continues the one above."""
    fields: dict[str, list[str]] = {}
    name = ""
    for first, second in re.findall(r"^\| ([^|]*) ?\| ([^|]*) ?\|", text, re.M):
        name = first.strip().strip("`") or name
        fields.setdefault(name, []).extend(re.findall(r"`(\w+)`", second))
    return fields


@pytest.mark.parametrize("kind", ARRAYS, ids=lambda kind: kind.__name__)
def test_the_page_has_the_fields_of_an_array_in_order(kind: type[msgspec.Struct]) -> None:
    listed = re.findall(r"^\| (\d+) \| `(\w+)` \|", section(kind.__name__), re.M)
    assert listed == [(str(place), name) for place, name in enumerate(kind.__struct_fields__)]


@pytest.mark.parametrize("heading", TAGGED)
def test_the_page_has_every_message_with_every_field(heading: str) -> None:
    listed = fields_of_the_page(section(heading))
    for kind in get_args(TAGGED[heading]):
        assert sorted(listed.pop(str(kind.__struct_config__.tag))) == sorted(kind.__struct_fields__), kind
    assert not {name for name in listed if name.islower()} - {"type", "part"}


@pytest.mark.parametrize("kind", NAMED, ids=lambda kind: kind.__name__)
def test_the_page_has_every_part_of_a_message_with_every_field(kind: type[msgspec.Struct]) -> None:
    assert sorted(fields_of_the_page(PAGE)[kind.__name__]) == sorted(kind.__struct_fields__)


def test_the_limits_have_the_values_on_the_page() -> None:
    assert (page.VERSION, page.PAGE_BYTES_MAX, beat.FEEDS_MAX) == (2, 1 << 30, 4096)
    assert (query.PAGES_MAX, query.PRODUCTS_MAX, query.BYTES_MAX, query.MEASURES_MAX) == (
        64, 100_000, 64 << 20, 10,
    )  # fmt: skip
    assert beat.INTERVAL_S == 0.5
    assert (description.LINKS_MAX, description.UPSTREAMS_MAX, description.STREAMS_MAX) == (1000, 1000, 300)
    assert description.PROBLEMS_MAX == 500
    assert description.FEEDS_MAX == description.FLOWS_MAX == description.REQUESTS_MAX == 200
    assert (query.PATTERNS_MAX, inventory.ROWS_MAX, beat.INTERVAL_S_MIN, beat.INTERVAL_S_MAX) == (
        4096,
        10_000,
        0.01,
        60,
    )

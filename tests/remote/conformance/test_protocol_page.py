"""docs/protocol.md has every call and reply, each field with its type, its range and its default, and nothing else.

A type on the page is a word, which stands here for the type that the field has in the code. A new field, call or reply
fails here until the page has it.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec
import pytest

from headrace import errors
from headrace.channel.channel import ChannelStatistics
from headrace.channel.document import Definition
from headrace.log import weights
from headrace.log.config import QueueConfig
from headrace.log.statistics import Statistics
from headrace.log.weights import Weights
from headrace.product import put
from headrace.queue.members import End, Member
from headrace.relay.messages.page import QueueId, Sequence64, SiteName
from headrace.remote.protocol import calls, envelope, fields, hello, member_calls, replies, share_calls, share_replies
from headrace.remote.protocol.fields import Count, Name, Number64, Options, Seconds, Start, Text, Wait
from headrace.remote.server import clients, consumer, puts
from headrace.share import layout
from headrace.share.interface import Load, ShareTerms
from headrace.station.consumer import GET_MAX
from headrace.station.leases import KEEP_S_MAX
from headrace.station.statistics import ConsumerStatistics, Parked, StationStatistics
from headrace.station.terms import StationTerms

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
TEXT_OF_REPLIES = str  # a client has no limit of its own


class Field(NamedTuple):
    value: str
    default: str


VALUES: dict[str, tuple[Any, ...]] = {  # a word of the page: the types that it stands for
    "text": (Text, TEXT_OF_REPLIES), "name": (Name,), "site": (SiteName,), "start": (Start,), "count": (Count,),
    "ident": (calls.PutOne.__annotations__["ident"],), "sequence": (Sequence64,), "number": (Sequence64,),
    "time": (Sequence64,), "integer": (int, Number64), "seconds": (Seconds,), "seconds or nil": (Seconds | None,), "wait": (Wait,),
    "keep": (calls.Attach.__annotations__["keep_s"],), "boolean": (bool,), "bytes": (bytes,),
    "bytes or nil": (bytes | None,), "options": (Options,), "upload": (fields.UploadId,), "part": (fields.PartBytes,), "Put": (put.Put,), "text or nil": (Text | None,),
    "integer 1 … 100,000": (calls.ReadProducts.__annotations__["limit"],),
    "integer 1 … 4,294,967,295": (calls.GetDictionary.__annotations__["number"],),
    "integer 1 … 16 MiB": (calls.ReadProducts.__annotations__["bytes_limit"],),
    "integer from 1": (calls.Get.__annotations__["n"],), "list of integer, or nil": (list[Number64] | None,),
    "list of integer": (list[int],), "list of text": (list[str],), "map of integer to integer": (dict[int, int],),
    "queue id": (QueueId,), "5 integers": (tuple[int, int, int, int, int],), "Weights": (Weights,),
    "list of Member": (member_calls.MemberChanges.__annotations__["members"],),
    "list of End": (member_calls.MemberChanges.__annotations__["ends"],),
    "map": (dict[str, Any], replies.ErrorDetails, QueueConfig, ShareTerms), "column": (share_calls.Column,),
    "seat": (share_calls.SeatNumber,), "instance": (share_calls.Instance,),
    "list of up to 4,096 integers, or nil": (share_calls.Sequences | None,),
    "Marked or nil": (share_calls.Marked | None,), "Worked or nil": (share_calls.Worked | None,),
    "Load or nil": (Load | None,), "Held or nil": (share_replies.Held | None,),
    "GroupState or nil": (share_replies.GroupState | None,),
    "list of arrays, or nil": (get_type_hints(share_replies.ShareTold, include_extras=True)["history"],),
    "map or nil": (Statistics | None, StationTerms | None, StationStatistics | None, Definition | None, ChannelStatistics | None),
    "list of map, or nil": (
        list[ConsumerStatistics] | None, list[Parked] | None,
        get_type_hints(share_replies.ShareTold, include_extras=True)["parked"],
    ),
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "0": 0, "`\"\"`": "", "nil": None, "false": False, "true": True, "`{}`": {}, "empty": b"", "0 each": (0,) * 5,
    "none": [],
}  # fmt: skip


def section(heading: str) -> str:
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found is not None, heading
    return found[1]


def tables(text: str, columns: str) -> dict[str, dict[str, Field]]:
    """The fields of each message, from the tables with these columns; a row without a name continues the one above."""
    listed: dict[str, dict[str, Field]] = {}
    for table in re.findall(rf"^{re.escape(columns)}\n\|[-|:]+\n((?:\|.*\n)+)", text, re.M):
        name = ""
        for row in table.splitlines():
            first, field, value, default, *_ = (cell.strip() for cell in row.strip("|").split("|"))
            name = first.replace("*n*", "").strip(" `") or name
            members = listed.setdefault(name, {})
            if field:
                members[field.strip("`")] = Field(value, default)
    return listed


CALLS = tables(section("Calls"), "| type | field | value | default | meaning |")
REPLIES = tables(section("Replies"), "| type | field | value | default | meaning |")
FACTS = tables(section("Calls"), "| part | field | value | default | one for each |")
PARTS = tables(section("Calls"), "| part | field | value | default | meaning |")


def choices(value: str) -> str | None:
    """The pattern of a text that is one of some words."""
    words = re.findall(r"`(\w+)`", value)
    return f"^({'|'.join(words)})$" if words and not re.sub(r"`\w+`| or ", "", value) else None


def check_message(kind: type[msgspec.Struct], listed: dict[str, Field]) -> None:
    hints = get_type_hints(kind, include_extras=True)
    assert list(listed) == list(kind.__struct_fields__), f"{kind.__name__}: fields on the page, and in the code"
    for field in msgspec.structs.fields(kind):
        row, hint = listed[field.name], hints[field.name]
        pattern = choices(row.value)
        if pattern is not None:
            assert get_args(hint)[1].pattern == pattern, (kind.__name__, field.name)
        else:
            assert hint in VALUES[row.value], (kind.__name__, field.name, row.value)
        if field.required:
            assert row.default == "", (kind.__name__, field.name)
        else:
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()  # type: ignore[misc,operator]
            default = {} if default == put.PLAIN else default
            assert DEFAULTS[row.default] == default, (kind.__name__, field.name)


@pytest.mark.parametrize("kind", get_args(calls.Call), ids=lambda kind: kind.__name__)
def test_the_page_has_each_call_with_its_fields_types_and_defaults(kind: type[msgspec.Struct]) -> None:
    check_message(kind, CALLS[str(kind.__struct_config__.tag)])


@pytest.mark.parametrize("kind", get_args(replies.Reply), ids=lambda kind: kind.__name__)
def test_the_page_has_each_reply_with_its_fields_types_and_defaults(kind: type[msgspec.Struct]) -> None:
    check_message(kind, REPLIES[str(kind.__struct_config__.tag)])


def test_the_page_has_no_other_calls_and_replies() -> None:
    assert set(CALLS) == {kind.__struct_config__.tag for kind in get_args(calls.Call)}
    assert set(REPLIES) == {kind.__struct_config__.tag for kind in get_args(replies.Reply)} | {
        "End",
        "GroupState",
        "Held",
        "Member",
        "Weights",
    }


@pytest.mark.parametrize(
    "kind",
    [
        put.Put, calls.Columns, End, Member, Weights, share_calls.Marked, share_calls.Worked, Load, share_replies.Held,
        share_replies.GroupState,
    ],
    ids=lambda kind: kind.__name__,
)  # fmt: skip
def test_the_page_has_each_part_with_its_fields(kind: type[msgspec.Struct]) -> None:
    listed = (FACTS | REPLIES | PARTS)[kind.__name__]
    assert list(listed) == list(kind.__struct_fields__)
    for field in msgspec.structs.fields(kind):
        assert bool(listed[field.name].default) != field.required, field.name


@pytest.mark.parametrize(("heading", "kind"), [("Hello", hello.Hello), ("Envelope", envelope.Envelope)])
def test_the_page_has_the_elements_of_an_array_in_order(heading: str, kind: type[msgspec.Struct]) -> None:
    listed = re.findall(r"^\| (\d+) \| `(\w+)` \|", section(heading), re.M)
    assert listed == [(str(place), name) for place, name in enumerate(kind.__struct_fields__)]


def test_the_page_marks_the_calls_that_need_a_number() -> None:
    marked = set(re.findall(r"^\| `(\w+)` \*n\* \|", section("Calls"), re.M))
    assert marked == {kind.__struct_config__.tag for kind in get_args(calls.Numbered)}


def test_the_page_names_the_calls_that_may_have_a_payload() -> None:
    tags = [f"`{kind.__struct_config__.tag}`" for kind in get_args(calls.Bulky)]
    assert f"Only {', '.join(tags[:-1])} and {tags[-1]} may have a payload." in PAGE


def test_each_call_names_its_reply_and_the_reply_exists() -> None:
    for row in re.findall(r"^\| `\w+`(?: \*n\*)? \| \| \| \| .*$", section("Calls"), re.M):
        named = re.search(r"reply `(\w+)`", row)
        assert named is not None, row
        assert named[1] in REPLIES, row


def test_the_page_has_the_details_of_errors() -> None:
    rows = re.findall(r"^\| `(\w+Error)` \| (.*) \|$", section("Replies"), re.M)
    listed = {name: re.findall(r"`(\w+)`", text) for name, text in rows}
    for name, attributes in replies._ATTRIBUTES.items():
        more = ("next",) if name == "ProductDamagedError" else ()
        assert tuple(listed.pop(name))[: len(attributes) + len(more)] == (*attributes, *more), name
    assert not listed
    assert all(hasattr(errors, name) for name in re.findall(r"`(\w+Error)`", PAGE))


def test_the_version_is_that_of_the_page() -> None:
    assert PAGE.startswith(f"# The protocol of remote clients, version {hello.VERSION}\n")
    assert re.findall(r"^\| (\d+) \| ", section("Versions"), re.M)[0] == str(hello.VERSION)
    assert f"This site speaks {hello.spoken()}." in PAGE


def test_the_limits_have_the_values_on_the_page() -> None:
    assert (envelope.HEAD_BYTES_MAX, envelope.CALL_BYTES_MAX, envelope.BUSY) == (256 << 20, 512 << 20, b"busy")
    assert (fields.PAGE_PRODUCTS_MAX, fields.PAGE_BYTES_MAX, fields.WAIT_S_MAX) == (100_000, 16 << 20, 5.0)
    assert (fields.TEXT_MAX, KEEP_S_MAX, replies.PLACE_BYTES) == (65_536, 86_400.0, 24)
    assert (clients.CALLS_MAX, clients.CLIENTS_MAX, clients._FORGET_S, clients.READS_MAX) == (1024, 4096, 900, 64)
    assert (GET_MAX, weights.PRODUCT_BYTES, weights.STRETCH_BYTES) == (65_536, 256, 1 << 20)
    assert (consumer.BATCHES_MAX, puts._FIRST_WAIT_S, puts._WAIT_S) == (20_000, 1.0, 5.0)
    assert (layout.SEATS, share_calls.SLICES_MAX, share_calls.SEQUENCES_MAX) == (4096, 65_536, 4096)
    assert (layout.LOAD_BYTES_MAX, layout.ERROR_BYTES_MAX, layout.NAME_BYTES_MAX) == (1024, 400, 64)

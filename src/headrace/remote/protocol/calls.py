"""Calls: what a remote client asks of a site's queue, as plain data; replies.py has the replies.

envelope.py says how a call travels, hello.py what raises the version of the protocol, fields.py what each type of a
field may contain. Calls about channels are in channel_calls.py, calls about groups of processing nodes in
share_calls.py. docs/protocol.md has every call, with its fields.
"""

from typing import Annotated, Any

import msgspec

from headrace.decoding import Decoder
from headrace.errors import FabricMessageError
from headrace.product import put
from headrace.relay.messages.page import Sequence64
from headrace.remote.protocol.channel_calls import ChannelCall, NumberedChannelCall
from headrace.remote.protocol.fields import (
    PAGE_BYTES_MAX,
    PAGE_PRODUCTS_MAX,
    CallStruct,
    Count,
    Name,
    Number64,
    Options,
    PartBytes,
    Seconds,
    Start,
    Text,
    UploadId,
    Wait,
)
from headrace.remote.protocol.member_calls import WatchMembers
from headrace.remote.protocol.share_calls import NumberedShareCall, ShareCall
from headrace.station.leases import KEEP_S_MAX

# --- the queue --------------------------------------------------------------------------------------


class Identify(CallStruct, frozen=True, tag="who"):
    """Which site and queue is this?"""


class PutOne(CallStruct, frozen=True, tag="put"):
    """One product; the payload is its payload."""

    feed: Name
    ident: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    facts: put.Put = put.PLAIN
    supplier: Sequence64 = 0  # that pushes it; 0: a plain put
    timeout_s: Seconds | None = None
    again: bool = False  # the client has heard for whom it waits
    since: Sequence64 = 0  # an earlier run of the site may have stored it, from this sequence on; 0: it has not
    upload: UploadId = b""  # its payload came in parts before, under this id; empty: with the call


class PutPart(CallStruct, frozen=True):
    """A part of the payload of a put that follows; the payload is that part. The reply says how much has come."""

    upload: UploadId  # 16 bytes that the client has drawn
    offset: Sequence64
    total: Sequence64  # bytes of all parts


class PutMany(CallStruct, frozen=True):
    """Many products as one; the payload is their payloads one after another."""

    lengths: bytes  # of each payload, 4 bytes
    columns: bytes  # Columns, encoded
    supplier: Sequence64 = 0
    timeout_s: Seconds | None = None
    again: bool = False  # the client has heard for whom it waits
    since: Sequence64 = 0  # an earlier run of the site may have stored it, from this sequence on; 0: it has not
    upload: UploadId = b""  # as for PutOne


class PutBatch(CallStruct, frozen=True):
    """Products of another queue as they are; the payload is their records."""

    keep: bytes | None = None  # a byte for each
    timeout_s: Seconds | None = None
    again: bool = False  # the client has heard for whom it waits
    since: Sequence64 = 0  # an earlier run of the site may have stored it, from this sequence on; 0: it has not
    upload: UploadId = b""  # as for PutOne


class ReadProducts(CallStruct, frozen=True, tag="next"):
    """The products from `position` on that the selection wants; if there are none, wait for them."""

    selection: Text
    position: Start
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_PRODUCTS_MAX)]
    bytes_limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_BYTES_MAX)]
    wait_s: Wait = 0.0
    stop: Sequence64 = 0  # read nothing from this sequence on; 0: no end
    follower: Count = 0  # whose count `every` continues; 0: there is no `every`
    expired: bool = False  # expired products are included: for a replay
    part_bytes: PartBytes = 0  # a longer reply comes in parts of this size; 0: in one piece


class ReadPart(CallStruct, frozen=True):
    """The rest of a reply that came in parts."""

    download: Sequence64
    offset: Sequence64
    part_bytes: PartBytes


class Resolve(CallStruct, frozen=True, tag="where"):
    """The sequence that a start means now."""

    start: Start


class Weigh(CallStruct, frozen=True):
    """How the bytes of a range of products are distributed; it ends after `limit` products, unless that is 0."""

    selection: Text
    start: Sequence64
    stop: Sequence64
    limit: Sequence64


class GetBounds(CallStruct, frozen=True, tag="ends"):
    """The oldest sequence and the next."""


class GetStatistics(CallStruct, frozen=True, tag="tell"):
    """The statistics of the queue."""


class ListNames(CallStruct, frozen=True):
    """The names of all cursors, or of all origins."""

    what: Annotated[str, msgspec.Meta(pattern="^(cursors|origins)$")]


class WantedBy(CallStruct, frozen=True):
    """Which readers want products of this feed."""

    feed: Text


class GetDictionary(CallStruct, frozen=True):
    """The dictionary with which products are compressed, as the payload of the reply; empty if there is none."""

    number: Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 1)]


class AddDictionary(CallStruct, frozen=True):
    """Store a dictionary, the payload, for products that follow."""

    number: Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 1)]


class Flush(CallStruct, frozen=True):
    pass


# --- cursors ----------------------------------------------------------------------------------------


class OpenCursor(CallStruct, frozen=True):
    name: Text
    start: Start


class LoadCursor(CallStruct, frozen=True):
    name: Text


class SaveCursor(CallStruct, frozen=True):
    name: Text
    position: Sequence64
    lost_first: Sequence64 = 0
    lost_last: Sequence64 = 0


class RemoveCursor(CallStruct, frozen=True):
    name: Text


# --- stations ---------------------------------------------------------------------------------------


class ListStations(CallStruct, frozen=True):
    """The stations that the client may use."""


class OpenStation(CallStruct, frozen=True):
    name: Text
    start: Start
    options: Options
    create: bool = True  # if it does not exist


class DescribeStation(CallStruct, frozen=True, tag="tellstation"):
    """The terms, statistics, consumers or parked products of a station."""

    name: Text
    what: Annotated[str, msgspec.Meta(pattern="^(terms|statistics|consumers|parked)$")]


class ChangeStation(CallStruct, frozen=True):
    name: Text
    options: Options


class PauseStation(CallStruct, frozen=True):
    name: Text
    paused: bool


class SeekStation(CallStruct, frozen=True):
    name: Text
    start: Start


class RemoveStation(CallStruct, frozen=True):
    name: Text


class Unpark(CallStruct, frozen=True):
    name: Text
    sequences: list[Number64] | None
    retry: bool


# --- consumers --------------------------------------------------------------------------------------


class Attach(CallStruct, frozen=True):
    """Become a consumer, and stay one for `keep_s` if the connection breaks."""

    station: Text
    keep_s: Annotated[float, msgspec.Meta(ge=0, le=KEEP_S_MAX)]


class Get(CallStruct, frozen=True):
    """Products, waiting for the first. Acknowledge first what is left of the batch that call `rest` got.

    `each_s` is how long a product took to arrive lately: the site sends none that would expire on the way.
    """

    attachment: Sequence64
    n: Annotated[int, msgspec.Meta(ge=1)]
    wait_s: Wait
    rest: Sequence64 = 0
    each_s: Seconds = 0.0
    part_bytes: PartBytes = 0  # as for ReadProducts


class Settle(CallStruct, frozen=True):
    """Acknowledge, discard or give back products that call `got` got: all, or those at these places."""

    attachment: Sequence64
    got: Sequence64
    count: Count
    how: Annotated[str, msgspec.Meta(pattern="^(ack|discard|nack|failed)$")]
    places: bytes | None = None  # 4 bytes each


class Revise(CallStruct, frozen=True):
    """Acknowledge products with new payloads, which are the payload of the call."""

    attachment: Sequence64
    got: Sequence64
    places: bytes
    lengths: bytes  # 8 bytes each, signed; -1: unchanged


class Interrupt(CallStruct, frozen=True):
    attachment: Sequence64


class DescribeConsumer(CallStruct, frozen=True, tag="tellconsumer"):
    attachment: Sequence64


class Detach(CallStruct, frozen=True):
    """Leave the station. The leases go back; `failed`: as delivered; `died`: as those of a dead consumer."""

    attachment: Sequence64
    died: bool = False
    failed: bool = False


class Leave(CallStruct, frozen=True):
    """Detach all consumers of this client, as Detach does."""

    died: bool = False
    failed: bool = False


Put = PutOne | PutMany | PutBatch
Bulky = Put | PutPart | Revise | AddDictionary  # these have a payload
Numbered = (
    Put | Revise | SaveCursor | RemoveCursor | OpenStation | ChangeStation | PauseStation | SeekStation | RemoveStation
    | Unpark | Attach | Get | Settle | NumberedChannelCall | NumberedShareCall
)  # fmt: skip
Call = (
    Numbered | PutPart | GetDictionary | AddDictionary
    | Identify | ReadProducts | ReadPart | Resolve | Weigh | GetBounds | GetStatistics | ListNames
    | WantedBy | Flush | OpenCursor | LoadCursor | ListStations | DescribeStation | Interrupt | DescribeConsumer
    | Detach | Leave | ChannelCall | WatchMembers | ShareCall
)  # fmt: skip


COLUMNS_BYTES_MAX = 256 << 20
_VALUES = {str, bytes, int, float, bool, type(None)}  # of a fact; or a list of them


class Columns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The arguments of `put_many` besides the payloads: one value for all, or one for each."""

    feed: str | list[str]
    ident: str | list[str] = ""
    facts: dict[str, Any] = {}  # as log/columns.py packs them, which also checks them


_COLUMNS: Decoder[Columns] = Decoder(Columns, bytes_max=COLUMNS_BYTES_MAX)


def decode_columns(columns: bytes) -> Columns:
    try:
        found = _COLUMNS.decode(columns)
        for name, fact in found.facts.items():
            if not set(map(type, fact if isinstance(fact, list) else [fact])) <= _VALUES:
                raise msgspec.DecodeError(f"{name!r} is not a column")
    except msgspec.DecodeError as error:
        raise FabricMessageError(f"the columns of a put_many are invalid: {error}", "nothing was stored") from None
    return found

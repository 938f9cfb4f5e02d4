"""Calls: what a remote user asks of a site's queue, as plain data; answers.py has what comes back.

A call is one query to `headrace/call/<site>`. Its attachment is an Envelope, its payload is whatever is bulky: payloads
one after another, or records. The answer goes the same way: an Answer as the attachment, records as the payload.

Every call that must not be done twice (`Numbered`) has a number of its own in the Envelope. Asked again, because the
answer did not arrive, it is not done again: the site answers what it has answered before. `oldest` says which calls the
client may still ask again, so that the site remembers those and no others; a Get, which may be asked again much later,
is remembered by its attachment until the next one. Calls that may be repeated without harm have number 0.

Whatever cannot be decoded, or exceeds one of the bounds here, is refused with a word, and nothing else happens.
"""

from typing import Annotated, Any

import msgspec

from headrace.errors import FabricMessageError
from headrace.product import put
from headrace.relay.messages.page import QueueId, Sequence64

VERSION = 1
HEAD_BYTES_MAX = 256 << 20  # of a call without its payload: a batch has an ident for each product
CALL_BYTES_MAX = 512 << 20  # of its payload
PAGE_PRODUCTS_MAX = 100_000  # in one answer
PAGE_BYTES_MAX = 16 << 20  # of payload in one answer, the product that crosses it included
WAIT_S_MAX = 5.0  # for one call; who waits longer calls again
KEEP_S_MAX = 86_400.0
TEXT_MAX = 65_536  # characters

Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=1024)]
ClientId = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 32)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Wait = Annotated[float, msgspec.Meta(ge=0, le=WAIT_S_MAX)]
Number64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Start = Number64 | Annotated[str, msgspec.Meta(max_length=64)]
Value = bool | Number64 | float | Text | None
Options = Annotated[dict[Name, Value], msgspec.Meta(max_length=64)]


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=str.lower, omit_defaults=True):
    pass


# --- the queue --------------------------------------------------------------------------------------


class Who(_Call, frozen=True):
    """Which queue is this?"""


class Put(_Call, frozen=True):
    """One product; the payload is its payload."""

    feed: Name
    ident: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    facts: put.Put = put.PLAIN
    timeout_s: Seconds | None = None


class PutMany(_Call, frozen=True):
    """Many products as one; the payload is their payloads one after another."""

    lengths: bytes  # of each payload, 4 bytes
    columns: bytes  # Columns, encoded
    timeout_s: Seconds | None = None


class PutBatch(_Call, frozen=True):
    """Products of elsewhere as they are; the payload is their records."""

    keep: bytes | None = None  # a byte for each
    timeout_s: Seconds | None = None


class Next(_Call, frozen=True):
    """What the selection wants from `position` on; if there is nothing, wait for it."""

    selection: Text
    position: Start
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_PRODUCTS_MAX)]
    bytes_limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_BYTES_MAX)]
    wait_s: Wait = 0.0
    stop: Sequence64 = 0  # nothing from here on is looked at; 0: there is no end
    follower: Count = 0  # for whom `every` counts; 0: it does not matter, since there is none


class Where(_Call, frozen=True):
    """Which sequence does this start mean?"""

    start: Start


class Weigh(_Call, frozen=True):
    """How are the bytes of these products spread?"""

    selection: Text
    start: Sequence64
    stop: Sequence64


class Ends(_Call, frozen=True):
    """The oldest sequence, and the next."""


class Tell(_Call, frozen=True):
    """The statistics of the queue."""


class ListNames(_Call, frozen=True):
    """All cursors, or origins."""

    what: Annotated[str, msgspec.Meta(pattern="^(cursors|origins)$")]


class WantedBy(_Call, frozen=True):
    """Who wants products of this feed?"""

    feed: Text


class Flush(_Call, frozen=True):
    pass


# --- cursors ----------------------------------------------------------------------------------------


class OpenCursor(_Call, frozen=True):
    name: Text
    start: Start


class LoadCursor(_Call, frozen=True):
    name: Text


class SaveCursor(_Call, frozen=True):
    name: Text
    position: Sequence64
    lost_first: Sequence64 = 0
    lost_last: Sequence64 = 0


class RemoveCursor(_Call, frozen=True):
    name: Text


# --- stations ---------------------------------------------------------------------------------------


class ListStations(_Call, frozen=True):
    """All that whoever asks may use."""


class OpenStation(_Call, frozen=True):
    name: Text
    start: Start
    options: Options


class TellStation(_Call, frozen=True):
    """What of a station: terms, statistics, consumers, or parked?"""

    name: Text
    what: Annotated[str, msgspec.Meta(pattern="^(terms|statistics|consumers|parked)$")]


class ChangeStation(_Call, frozen=True):
    name: Text
    options: Options


class PauseStation(_Call, frozen=True):
    name: Text
    paused: bool


class SeekStation(_Call, frozen=True):
    name: Text
    start: Start


class RemoveStation(_Call, frozen=True):
    name: Text


class Unpark(_Call, frozen=True):
    name: Text
    sequences: list[Number64] | None
    retry: bool


# --- consumers --------------------------------------------------------------------------------------


class Attach(_Call, frozen=True):
    """Become a consumer, who stays one for `keep_s` if the connection breaks."""

    station: Text
    keep_s: Annotated[float, msgspec.Meta(ge=0, le=KEEP_S_MAX)]


class Get(_Call, frozen=True):
    """Products, waiting for the first; before that, put what is left of the batch that call `rest` has got."""

    attachment: Sequence64
    n: Annotated[int, msgspec.Meta(ge=1)]
    wait_s: Wait
    rest: Sequence64 = 0


class Settle(_Call, frozen=True):
    """Put, discard or give back products that call `got` has got: all, or those at these places."""

    attachment: Sequence64
    got: Sequence64
    count: Count
    how: Annotated[str, msgspec.Meta(pattern="^(ack|discard|nack|failed)$")]
    places: bytes | None = None  # 4 bytes each


class Revise(_Call, frozen=True):
    """Put products with other payloads, which are the payload of the call."""

    attachment: Sequence64
    got: Sequence64
    places: bytes
    lengths: bytes  # 8 bytes each, signed; -1: unchanged


class Interrupt(_Call, frozen=True):
    attachment: Sequence64


class TellConsumer(_Call, frozen=True):
    attachment: Sequence64


class Detach(_Call, frozen=True):
    """Leave; `died`: without a word, so that the leases are those of a dead consumer."""

    attachment: Sequence64
    died: bool = False


class Leave(_Call, frozen=True):
    """Detach everything that this client has attached."""


Bulky = Put | PutMany | PutBatch | Revise  # these have a payload
Numbered = (
    Bulky | SaveCursor | RemoveCursor | OpenStation | ChangeStation | PauseStation | SeekStation | RemoveStation
    | Unpark | Attach | Get | Settle
)  # fmt: skip
Call = (
    Numbered | Who | Next | Where | Weigh | Ends | Tell | ListNames | WantedBy | Flush | OpenCursor | LoadCursor
    | ListStations | TellStation | Interrupt | TellConsumer | Detach | Leave
)  # fmt: skip


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A call, and who makes it."""

    version: int
    client: ClientId  # known to nobody else: its token has a digest of it
    queue: QueueId | None  # the queue that is meant; a site may have got another one
    number: Sequence64  # of a Numbered call; 0 for others
    oldest: Sequence64  # no call below this one will be asked again
    call: Call


class Columns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What `put_many` was given beside payloads: one value for all, or one for each."""

    feed: str | list[str]
    ident: str | list[str] = ""
    facts: dict[str, Any] = {}  # as log/columns.py packs them, which also checks them


_ENVELOPE = msgspec.msgpack.Decoder(Envelope)
_COLUMNS = msgspec.msgpack.Decoder(Columns)
encode = msgspec.msgpack.Encoder().encode


def decode_envelope(head: bytes) -> Envelope:
    """The call in an attachment; FabricMessageError says what is wrong with it."""
    if len(head) > HEAD_BYTES_MAX:
        raise FabricMessageError(f"a call of {len(head)} bytes", f"no call has more than {HEAD_BYTES_MAX}")
    try:
        envelope = _ENVELOPE.decode(head)
    except (msgspec.DecodeError, ValueError) as error:
        raise FabricMessageError(f"the call cannot be read: {error}", "call by a Headrace of this version") from None
    if envelope.version != VERSION:
        raise FabricMessageError(
            f"the call has version {envelope.version}; this Headrace knows {VERSION}", "run the same version"
        )
    if bool(envelope.number) != isinstance(envelope.call, Numbered):
        has = "has a number" if envelope.number else "has no number"
        raise FabricMessageError(f"a call {type(envelope.call).__name__} {has}", "call by a Headrace of this version")
    return envelope


def decode_columns(columns: bytes) -> Columns:
    try:
        return _COLUMNS.decode(columns)
    except (msgspec.DecodeError, ValueError) as error:
        raise FabricMessageError(f"the columns of a put_many cannot be read: {error}", "nothing was stored") from None

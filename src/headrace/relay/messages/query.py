"""Queries to a site's log, and the short replies. The reply to `Read` is pages.

A query is sent to `headrace/log/<site>`. Its payload is one of these structs; the first field names its type. A payload
that cannot be decoded is refused with an error text and has no other effect.
"""

from typing import Annotated, Any

import msgspec

from headrace.errors import FabricMessageError
from headrace.relay.messages.description import Description
from headrace.relay.messages.page import QueueId, Sequence64, SiteName, StreamName

SelectionText = Annotated[str, msgspec.Meta(max_length=65536)]
PAGES_MAX = 64
PRODUCTS_MAX = 100_000
BYTES_MAX = 64 << 20
MEASURES_MAX = 10


class Identify(msgspec.Struct, tag="card", frozen=True, forbid_unknown_fields=True):
    """Who are you, and what do you hold?"""


class Resolve(msgspec.Struct, tag="where", frozen=True, forbid_unknown_fields=True):
    """Which sequence of your queue does this start mean: oldest, next, or an age such as 1h?"""

    start: Annotated[str, msgspec.Meta(max_length=64)]


class Read(msgspec.Struct, tag="read", frozen=True, forbid_unknown_fields=True):
    """Pages of what the selection wants behind `after`, in the order of your queue."""

    selection: SelectionText
    after: Sequence64
    pages: Annotated[int, msgspec.Meta(ge=1, le=PAGES_MAX)]
    products: Annotated[int, msgspec.Meta(ge=1, le=PRODUCTS_MAX)]
    payload_bytes: Annotated[int, msgspec.Meta(ge=1, le=BYTES_MAX)]


class Listen(msgspec.Struct, tag="listen", frozen=True, forbid_unknown_fields=True):
    """Which stream has what this selection wants? It is made if it does not exist."""

    selection: SelectionText


class Describe(msgspec.Struct, tag="describe", frozen=True, forbid_unknown_fields=True):
    """Describe yourself. The reply is a Description."""


class Measure(msgspec.Struct, tag="measure", frozen=True, forbid_unknown_fields=True):
    """How long does that site take to reply to you?"""

    site: SiteName
    times: Annotated[int, msgspec.Meta(ge=1, le=MEASURES_MAX)]


class IdentifyReply(msgspec.Struct, frozen=True):
    """The site's name, its queue, and what the queue holds."""

    site: SiteName
    queue: QueueId
    oldest: Sequence64
    next: Sequence64
    started_ns: Sequence64
    products: Sequence64 = 0
    payload_bytes: Sequence64 = 0
    feeds: int = 0
    origins: tuple[SiteName, ...] = ()  # whose products it has had
    zid: Annotated[str, msgspec.Meta(max_length=32)] = ""  # of its Zenoh session


class ResolveReply(msgspec.Struct, frozen=True):
    sequence: Sequence64


class ListenReply(msgspec.Struct, frozen=True):
    stream: StreamName


class MeasureReply(msgspec.Struct, frozen=True):
    seconds: Annotated[tuple[float, ...], msgspec.Meta(max_length=MEASURES_MAX)]  # one for each reply that came


class Unreachable(Exception):  # noqa: N818
    """The site does not reply now."""


Query = Identify | Resolve | Read | Listen | Describe | Measure
_REPLIES = (IdentifyReply, ResolveReply, ListenReply, MeasureReply, Description)
_QUERY_DECODER = msgspec.msgpack.Decoder(Query)
# Made at import: threads that use a msgspec type for the first time at the same moment can crash the interpreter.
_REPLY_DECODERS: dict[type, msgspec.msgpack.Decoder[Any]] = {kind: msgspec.msgpack.Decoder(kind) for kind in _REPLIES}
encode = msgspec.msgpack.Encoder().encode


def decode_query(payload: bytes) -> Query:
    """The query in a message; FabricMessageError if it is invalid."""
    try:
        query: Query = _QUERY_DECODER.decode(payload)
        return query
    except (msgspec.DecodeError, ValueError) as error:
        raise FabricMessageError(f"invalid query: {error}", "run the same Headrace version at both sites") from None


def decode_reply(payload: bytes, kind: type, site: str) -> Any:
    """The short reply of a site, a `kind`; FabricMessageError if it is invalid."""
    try:
        return _REPLY_DECODERS[kind].decode(payload)
    except (msgspec.DecodeError, ValueError) as error:
        raise FabricMessageError(
            f"invalid reply of site {site}: {error}", "run the same Headrace version at both sites"
        ) from None

"""Queries to a site's log, and the short replies. The reply to `Read` is pages.

A query is sent to `headrace/log/<site>`. Its payload is one of these structs; the first field names its type. An
invalid payload is refused with an error text and has no other effect.
"""

from typing import Annotated, Any

import msgspec

from headrace.decoding import Decoder
from headrace.errors import FabricMessageError
from headrace.log.dictionaries import DICTIONARY_BYTES_MAX
from headrace.relay.messages.beat import INTERVAL_S, IntervalMs
from headrace.relay.messages.description import Description
from headrace.relay.messages.inventory import ORIGINS_MAX, ROWS_MAX, InventoryReply
from headrace.relay.messages.page import PAGE_BYTES_MAX, QueueId, Sequence64, SiteName, StreamName
from headrace.relay.messages.source import Source
from headrace.selection import Selection

SelectionText = Annotated[str, msgspec.Meta(max_length=65536)]
PAGES_MAX = 64
PRODUCTS_MAX = 100_000
BYTES_MAX = 64 << 20
MEASURES_MAX = 10
PATTERNS_MAX = 4096
SOURCES_MAX = 256
QUERY_BYTES_MAX = 1 << 20
REPLY_BYTES_MAX = 16 << 20

FeedText = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Identify(msgspec.Struct, tag="card", frozen=True, forbid_unknown_fields=True):
    """Identify the site and its queue."""


class Resolve(msgspec.Struct, tag="where", frozen=True, forbid_unknown_fields=True):
    """Return the sequence that `start` means now: oldest, next, or an age such as 1h."""

    start: Annotated[str, msgspec.Meta(max_length=64)]


class Read(msgspec.Struct, tag="read", frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Return pages of the selected products behind `after`, in the order of the queue.

    `record_bytes`: the client admits no message with a larger record than this; name such products as too large.
    """

    selection: SelectionText
    after: Sequence64
    pages: Annotated[int, msgspec.Meta(ge=1, le=PAGES_MAX)]
    products: Annotated[int, msgspec.Meta(ge=1, le=PRODUCTS_MAX)]
    payload_bytes: Annotated[int, msgspec.Meta(ge=1, le=BYTES_MAX)]
    record_bytes: Annotated[int, msgspec.Meta(ge=1, le=PAGE_BYTES_MAX)] = PAGE_BYTES_MAX


class Inventory(msgspec.Struct, tag="inventory", frozen=True, forbid_unknown_fields=True):
    """Which products, of those that the selection wants, does your log hold behind `after`?"""

    selection: SelectionText
    after: Sequence64
    products: Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)]


class Locate(msgspec.Struct, tag="locate", frozen=True, forbid_unknown_fields=True):
    """Under which sequences does your log hold products with these signatures, of those that the selection wants?"""

    selection: SelectionText
    signatures: Annotated[bytes, msgspec.Meta(max_length=16 * ROWS_MAX)]
    kinds: Annotated[bytes, msgspec.Meta(max_length=ROWS_MAX)]  # of the signatures
    origins: Annotated[tuple[SiteName, ...], msgspec.Meta(max_length=ORIGINS_MAX)]
    origin_numbers: Annotated[bytes, msgspec.Meta(max_length=2 * ROWS_MAX)]  # places in `origins`


class Trace(msgspec.Struct, tag="trace", frozen=True, forbid_unknown_fields=True):
    """From where did the products of this range of your log come, also those that you have evicted?"""

    first: Sequence64
    last: Sequence64


class Listen(msgspec.Struct, tag="listen", frozen=True, forbid_unknown_fields=True):
    """Return the stream for this selection; create it if it does not exist."""

    selection: SelectionText


class GetDictionary(msgspec.Struct, tag="dictionary", frozen=True, forbid_unknown_fields=True):
    """Return the dictionary with which products are compressed."""

    number: Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 1)]


class Describe(msgspec.Struct, tag="describe", frozen=True, forbid_unknown_fields=True):
    """Return the Description of the site."""


class Measure(msgspec.Struct, tag="measure", frozen=True, forbid_unknown_fields=True):
    """Measure the round trip to another site."""

    site: SiteName
    times: Annotated[int, msgspec.Meta(ge=1, le=MEASURES_MAX)]


class IdentifyReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The site's name, its queue, and what the queue holds."""

    site: SiteName
    queue: QueueId
    oldest: Sequence64
    next: Sequence64
    started_ns: Sequence64
    products: Sequence64 = 0
    payload_bytes: Sequence64 = 0
    feeds: int = 0
    origins: tuple[SiteName, ...] = ()  # of the products that the queue has ever held
    zid: Annotated[str, msgspec.Meta(max_length=32)] = ""  # of its Zenoh session
    interval_ms: IntervalMs = int(1000 * INTERVAL_S)  # between its beats
    receivable: Annotated[tuple[FeedText, ...], msgspec.Meta(max_length=PATTERNS_MAX)] = ("**",)  # by you: patterns
    has_own: bool = True  # whether you hear the stream `own`; otherwise listen to one that is made for you


class ResolveReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sequence: Sequence64


class LocateReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    queue: QueueId
    sequences: Annotated[bytes, msgspec.Meta(max_length=8 * ROWS_MAX)]  # 8 bytes for each signature; 0: it is not held


class TraceReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All products of the range came from the sources, but for those from `rest_first` to `rest_last`.

    These were put here, or it is not known from where they came. The rest is empty if its first is the greater one.
    """

    queue: QueueId
    sources: Annotated[tuple[Source, ...], msgspec.Meta(max_length=SOURCES_MAX)]
    rest_first: Sequence64
    rest_last: Sequence64


class DictionaryReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Empty if the site lacks the dictionary, or the client may not receive products of its feed."""

    dictionary: Annotated[bytes, msgspec.Meta(max_length=DICTIONARY_BYTES_MAX + 4096)]  # as log/dictionaries.py has it


class ListenReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stream: StreamName


class MeasureReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seconds: Annotated[tuple[float, ...], msgspec.Meta(max_length=MEASURES_MAX)]  # one for each reply


class Unreachable(Exception):  # noqa: N818
    """The site does not reply now."""


Query = Identify | Resolve | Read | Inventory | Locate | Trace | Listen | GetDictionary | Describe | Measure
REPLIES = (
    IdentifyReply,
    ResolveReply,
    InventoryReply,
    LocateReply,
    TraceReply,
    ListenReply,
    DictionaryReply,
    MeasureReply,
    Description,
)
_QUERY_DECODER: Decoder[Query] = Decoder(Query, bytes_max=QUERY_BYTES_MAX)
_REPLY_DECODERS: dict[type, Decoder[Any]] = {kind: Decoder(kind, bytes_max=REPLY_BYTES_MAX) for kind in REPLIES}
encode = msgspec.msgpack.Encoder().encode


def selection_in(query: "Read | Inventory | Locate | Listen") -> Selection:
    """The selection of another site; FabricMessageError if it names a function, which sites do not call for others."""
    selection = Selection.parse(query.selection)
    if selection.function is not None:
        raise FabricMessageError(
            f"a site does not call function {selection.function} for another one", "use it at a station of its queue"
        )
    return selection


def decode_query(payload: bytes) -> Query:
    """The query in a message; FabricMessageError if it is invalid."""
    try:
        return _QUERY_DECODER.decode(payload)
    except msgspec.DecodeError as error:
        raise FabricMessageError(f"invalid query: {error}", "run the same Headrace version at both sites") from None


def decode_reply(payload: bytes, kind: type, site: str) -> Any:
    """The short reply of a site, a `kind`; FabricMessageError if it is invalid."""
    try:
        return _REPLY_DECODERS[kind].decode(payload)
    except msgspec.DecodeError as error:
        raise FabricMessageError(
            f"invalid reply of site {site}: {error}", "run the same Headrace version at both sites"
        ) from None

"""Questions that sites ask each other's logs, and the short answers. Long answers are pages.

Every question is one query to `headrace/log/<site>`; its payload is one of these structs, told apart by its first
field. Whatever cannot be decoded is refused with a word, and nothing else happens.
"""

from typing import Annotated, Any

import msgspec

from headrace.errors import FabricMessageError
from headrace.relay.description import Description
from headrace.relay.page import QueueId, Sequence64, SiteName, StreamName

SelectionText = Annotated[str, msgspec.Meta(max_length=65536)]
PAGES_MAX = 64
PRODUCTS_MAX = 100_000
BYTES_MAX = 64 << 20
MEASURES_MAX = 10


class Card(msgspec.Struct, tag="card", frozen=True, forbid_unknown_fields=True):
    """Who are you, and what do you have?"""


class Where(msgspec.Struct, tag="where", frozen=True, forbid_unknown_fields=True):
    """Which sequence does this start mean in your queue: oldest, next, or an age such as 1h?"""

    start: Annotated[str, msgspec.Meta(max_length=64)]


class Read(msgspec.Struct, tag="read", frozen=True, forbid_unknown_fields=True):
    """Pages of what the selection wants behind `after`, in the order of your queue."""

    selection: SelectionText
    after: Sequence64
    pages: Annotated[int, msgspec.Meta(ge=1, le=PAGES_MAX)]
    products: Annotated[int, msgspec.Meta(ge=1, le=PRODUCTS_MAX)]
    payload_bytes: Annotated[int, msgspec.Meta(ge=1, le=BYTES_MAX)]


class Listen(msgspec.Struct, tag="listen", frozen=True, forbid_unknown_fields=True):
    """I want a stream of what this selection wants; which is it?"""

    selection: SelectionText


class Describe(msgspec.Struct, tag="describe", frozen=True, forbid_unknown_fields=True):
    """Tell everything about yourself. The answer is a Description."""


class Measure(msgspec.Struct, tag="measure", frozen=True, forbid_unknown_fields=True):
    """How long does that site take to answer you?"""

    site: SiteName
    times: Annotated[int, msgspec.Meta(ge=1, le=MEASURES_MAX)]


class CardAnswer(msgspec.Struct, frozen=True):
    """What a site tells about itself."""

    site: SiteName
    queue: QueueId
    oldest: Sequence64
    next: Sequence64
    started_ns: Sequence64
    products: Sequence64 = 0
    payload_bytes: Sequence64 = 0
    feeds: int = 0
    origins: tuple[SiteName, ...] = ()  # whose products it has had
    zid: Annotated[str, msgspec.Meta(max_length=32)] = ""  # of its session with Zenoh


class WhereAnswer(msgspec.Struct, frozen=True):
    sequence: Sequence64


class ListenAnswer(msgspec.Struct, frozen=True):
    stream: StreamName


class MeasureAnswer(msgspec.Struct, frozen=True):
    seconds: Annotated[tuple[float, ...], msgspec.Meta(max_length=MEASURES_MAX)]  # one for each answer that came


Question = Card | Where | Read | Listen | Describe | Measure
_DECODER = msgspec.msgpack.Decoder(Question)
# Made here and not when they are needed: several threads that make the first one of a kind at once crash in msgspec.
_ANSWERS: dict[type, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (CardAnswer, WhereAnswer, ListenAnswer, MeasureAnswer, Description)
}
encode = msgspec.msgpack.Encoder().encode


def decode_question(payload: bytes) -> Question:
    try:
        question: Question = _DECODER.decode(payload)
        return question
    except (msgspec.DecodeError, ValueError) as error:
        raise FabricMessageError(f"the question cannot be read: {error}", "ask by a Headrace of this version") from None


def decode_answer(payload: bytes, kind: type, site: str) -> Any:
    """The short answer of a site, which is a `kind`."""
    try:
        return _ANSWERS[kind].decode(payload)
    except (msgspec.DecodeError, ValueError) as error:
        raise FabricMessageError(
            f"the answer of site {site} cannot be read: {error}", "run the same version at both sites"
        ) from None

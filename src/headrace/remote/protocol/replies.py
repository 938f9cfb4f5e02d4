"""Replies: what a site replies to the calls of its clients, as plain data; calls.py has the calls.

An error of the site travels as a Failure, and the client raises the same class with the same text: `failure_of` encodes
an error, `error_of` makes it again. An error class that the client does not know, because the site is newer, and an
error that is not one of Headrace's own become a FabricError.
"""

from typing import Any

import msgspec

from headrace import errors
from headrace.channel.channel import ChannelStatistics
from headrace.channel.document import Definition
from headrace.decoding import Decoder
from headrace.errors import FabricError, FabricMessageError, HeadraceError, ProductDamagedError
from headrace.log.config import QueueConfig
from headrace.log.statistics import Statistics
from headrace.log.weights import Weights
from headrace.relay.messages.page import QueueId, Sequence64, SiteName
from headrace.remote.protocol.member_calls import MemberChanges
from headrace.remote.protocol.share_replies import Seated, SeatTold, ShareOpened, ShareTold
from headrace.station.conflicts import Conflict
from headrace.station.statistics import ConsumerStatistics, Parked, StationStatistics
from headrace.station.terms import StationTerms
from headrace.text import visible

PLACE_BYTES = 24
REPLY_BYTES_MAX = 256 << 20  # without the records of products
_Plain = str | int | float | bool | None
ErrorDetails = dict[str, _Plain | list[str | dict[str, _Plain | list[str]]]]  # lists of texts, or of conflicts


class _Reply(msgspec.Struct, frozen=True, tag=str.lower, omit_defaults=True, forbid_unknown_fields=True):
    pass


class Welcome(_Reply, frozen=True, forbid_unknown_fields=False):
    """The reply to a hello: the version of the protocol to use (hello.py). It alone may have unknown members."""

    version: int


class Failure(_Reply, frozen=True):
    """An error, which the client raises."""

    error: str  # the name of its class
    problem: str
    hint: str = ""
    details: ErrorDetails = {}


class StillBlocked(_Reply, frozen=True, tag="again"):
    """A blocking station is full, and nothing was stored; the client has time left and calls again."""

    waits_for: str = ""  # the stations, and how full they are


class NotAttached(_Reply, frozen=True, tag="unattached"):
    """The site has no such attachment: it was restarted, or the client was away for too long."""


class PartsGone(_Reply, frozen=True):
    """The site does not have the parts: it was restarted, or has dropped them; begin again."""


class Part(_Reply, frozen=True):
    """The next part of a reply, which is the payload of the message."""


class Done(_Reply, frozen=True):
    pass


class Number(_Reply, frozen=True):
    """A sequence or a count. For a duplicate, a put replies minus the sequence of the product that is held."""

    value: int


class Identity(_Reply, frozen=True, tag="here"):
    site: SiteName
    queue: QueueId
    config: QueueConfig
    next: Sequence64


class Bounds(_Reply, frozen=True):
    oldest: Sequence64
    next: Sequence64


class PutOutcome(_Reply, frozen=True, tag="received"):
    """The outcome of a PutMany or PutBatch."""

    products: int
    stored: int
    first: int
    outcomes: bytes | None = None  # 8 bytes each, signed


class Products(_Reply, frozen=True):
    """A batch; its records are the payload of the message."""

    next: Sequence64
    head: Sequence64  # the next sequence of the queue
    payload_bytes: int = 0
    places: bytes = b""  # one for each product (kernel/log/place.pxi)
    lost_first: Sequence64 = 0
    lost_last: Sequence64 = 0
    passed_over: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    sent_ns: Sequence64 = 0  # for a consumer: the site's time, and
    waited_ns: Sequence64 = 0  # how long the call had been at the site, and
    timeout_ns: Sequence64 = 0  # the station's timeout, and
    stop_ns: Sequence64 = 0  # its stop time, so that the client does not hand out what expired on the way
    download: Sequence64 = 0  # the payload is the first part of the records: call for the rest; 0: it is all of them
    total_bytes: Sequence64 = 0  # of all parts

    @property
    def count(self) -> int:
        return len(self.places) // PLACE_BYTES


class Weighed(_Reply, frozen=True):
    weights: Weights


class NameList(_Reply, frozen=True, tag="listed"):
    values: list[str]


class CursorPosition(_Reply, frozen=True, tag="cursortold"):
    position: Sequence64
    saved_ns: int
    lost_products: int
    lost_first: Sequence64
    lost_last: Sequence64
    generation: int


class Details(_Reply, frozen=True, tag="told"):
    """The description of a queue, a station, a consumer or a channel; one of these is set."""

    statistics: Statistics | None = None
    terms: StationTerms | None = None
    station: StationStatistics | None = None
    consumers: list[ConsumerStatistics] | None = None
    parked: list[Parked] | None = None
    channel: Definition | None = None
    channel_statistics: ChannelStatistics | None = None


class Attached(_Reply, frozen=True):
    attachment: Sequence64
    place: int


class Supplying(_Reply, frozen=True):
    """A slot of a channel, for pushes below this feed."""

    supplier: Sequence64
    feed: str


Reply = (
    Welcome | Failure | StillBlocked | NotAttached | PartsGone | Part | Done | Number | Identity | Bounds | PutOutcome
    | Products | Weighed | NameList | CursorPosition | Details | Attached | Supplying | MemberChanges | ShareOpened
    | Seated | SeatTold | ShareTold
)  # fmt: skip

_REPLY: Decoder[Reply] = Decoder(Reply, bytes_max=REPLY_BYTES_MAX)


def decode_reply(head: bytes) -> Reply:
    """The reply in an attachment; FabricMessageError names what is invalid."""
    try:
        return _REPLY.decode(head)
    except msgspec.DecodeError as error:
        raise FabricMessageError(f"the reply is invalid: {error}", "run the same version at both ends") from None


# --- errors -----------------------------------------------------------------------------------------

_ATTRIBUTES = {  # arguments of an error class besides problem and hint
    "SelectionError": ("column", "excerpt"),
    "StartAheadError": ("ahead_s",),
    "TermsError": ("conflicts",),
    "ConfigError": ("problems",),
    "BlockedError": ("waits_for",),
    "ProductDamagedError": ("sequence",),
    "ProductsLostError": ("first", "last"),
    "RecordsDamagedError": ("offset",),
}
_NEXT = "next"
_TEXT_MAX = 2000  # characters of an error that another site wrote
_NAME_MAX = 80


def failure_of(error: Exception) -> Failure:
    """An error as it travels."""
    if not isinstance(error, HeadraceError):
        return Failure("FabricError", f"the site failed: {type(error).__name__}: {error}", "read the log of the site")
    name = type(error).__name__
    details = {attribute: _plain(getattr(error, attribute)) for attribute in _ATTRIBUTES.get(name, ())}
    if isinstance(error, ProductDamagedError):
        details[_NEXT] = error.next
    return Failure(name, error.problem, error.hint, details)


def _plain(value: Any) -> Any:
    """Conflicts travel as they are, other values of a tuple as text."""
    return [each if isinstance(each, Conflict) else str(each) for each in value] if isinstance(value, tuple) else value


def _value(value: Any) -> Any:
    """What `_plain` made such."""
    if not isinstance(value, list):
        return value
    return tuple(msgspec.convert(each, Conflict) if isinstance(each, dict) else each for each in value)


def error_of(failure: Failure) -> HeadraceError:
    """The error in a reply, its texts made visible and bounded."""
    kind = getattr(errors, failure.error, None)
    problem, hint = visible(failure.problem, _TEXT_MAX), visible(failure.hint, _TEXT_MAX)
    elsewhere = FabricError(f"{visible(failure.error, _NAME_MAX)} at the site: {problem}", hint)
    if not isinstance(kind, type) or not issubclass(kind, HeadraceError):
        return elsewhere
    details = dict(failure.details)
    behind = details.pop(_NEXT, None)
    try:
        error = kind(problem, hint, **{name: _value(value) for name, value in details.items()})
    except (TypeError, msgspec.ValidationError):  # an argument that this version does not know
        return elsewhere
    if isinstance(error, ProductDamagedError) and isinstance(behind, int):
        error.next = behind
    return error

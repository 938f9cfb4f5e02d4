"""Answers: what a site answers to the calls of remote users, as plain data."""

from typing import Any

import msgspec

from headrace import errors
from headrace.errors import FabricError, FabricMessageError, HeadraceError, ProductDamagedError
from headrace.log.config import QueueConfig
from headrace.log.statistics import Statistics
from headrace.log.weights import Weights
from headrace.relay.messages.page import QueueId, Sequence64, SiteName
from headrace.station.statistics import ConsumerStatistics, Parked, StationStatistics
from headrace.station.terms import StationTerms

PLACE_BYTES = 24


class _Answer(msgspec.Struct, frozen=True, tag=str.lower, omit_defaults=True):
    pass


class Failure(_Answer, frozen=True):
    """An error of the site, to be raised at the client's."""

    error: str  # the name of its class
    problem: str
    hint: str = ""
    details: dict[str, Any] = {}


class Again(_Answer, frozen=True):
    """A put had to wait for a station, and nothing was stored; there is time left."""


class Unattached(_Answer, frozen=True):
    """The site knows no such attachment: it was restarted, or the client was away for too long."""


class Done(_Answer, frozen=True):
    pass


class Number(_Answer, frozen=True):
    """A sequence or a count; of a put, minus the sequence that is held if it is a duplicate."""

    value: int


class Here(_Answer, frozen=True):
    site: SiteName
    queue: QueueId
    config: QueueConfig


class Bounds(_Answer, frozen=True):
    oldest: Sequence64
    next: Sequence64


class Received(_Answer, frozen=True):
    """What became of a `put_many`."""

    products: int
    stored: int
    first: int
    outcomes: bytes | None = None  # 8 bytes each, signed


class Products(_Answer, frozen=True):
    """A batch; its records are the payload."""

    next: Sequence64
    head: Sequence64  # the next sequence of the queue
    payload_bytes: int = 0
    places: bytes = b""  # one for each product (kernel/log/place.pxi)
    lost_first: Sequence64 = 0
    lost_last: Sequence64 = 0
    passed_over: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)

    @property
    def count(self) -> int:
        return len(self.places) // PLACE_BYTES


class Weighed(_Answer, frozen=True):
    weights: Weights


class Listed(_Answer, frozen=True):
    values: list[str]


class CursorTold(_Answer, frozen=True):
    position: Sequence64
    saved_ns: int
    lost_products: int
    lost_first: Sequence64
    lost_last: Sequence64
    generation: int


class Told(_Answer, frozen=True):
    """What a queue, a station or a consumer tells; one of these."""

    statistics: Statistics | None = None
    terms: StationTerms | None = None
    station: StationStatistics | None = None
    consumers: list[ConsumerStatistics] | None = None
    parked: list[Parked] | None = None


class Attached(_Answer, frozen=True):
    attachment: Sequence64
    place: int


Reply = (
    Failure | Again | Unattached | Done | Number | Here | Bounds | Received | Products | Weighed | Listed | CursorTold
    | Told | Attached
)  # fmt: skip

_ANSWER = msgspec.msgpack.Decoder(Reply)


def decode_reply(head: bytes) -> Reply:
    try:
        answer: Reply = _ANSWER.decode(head)
    except (msgspec.DecodeError, ValueError) as error:
        raise FabricMessageError(f"the answer cannot be read: {error}", "run the same version at both ends") from None
    return answer


# --- merged from remote.protocol.failures: Failures: errors
#
# Both ends use this file. A class that the client does not know, because the site is newer, and an error that is not
# Headrace's own become a FabricError.
#


_ATTRIBUTES = {  # arguments of a class beside problem and hint
    "SelectionError": ("column", "excerpt"),
    "TermsError": ("conflicts",),
    "ConfigError": ("problems",),
    "ProductDamagedError": ("sequence",),
    "RecordsDamagedError": ("offset",),
}
_NEXT = "next"


def failure_of(error: Exception) -> Failure:
    """An error as it travels."""
    if not isinstance(error, HeadraceError):
        return Failure("FabricError", f"the site failed: {type(error).__name__}: {error}", "look into the site's log")
    name = type(error).__name__
    details = {attribute: _plain(getattr(error, attribute)) for attribute in _ATTRIBUTES.get(name, ())}
    if isinstance(error, ProductDamagedError):
        details[_NEXT] = error.next
    return Failure(name, error.problem, error.hint, details)


def _plain(value: Any) -> Any:
    return [str(each) for each in value] if isinstance(value, tuple) else value


def error_of(failure: Failure) -> HeadraceError:
    """The error again."""
    kind = getattr(errors, failure.error, None)
    if not isinstance(kind, type) or not issubclass(kind, HeadraceError):
        return FabricError(f"{failure.error} at the site: {failure.problem}", failure.hint)
    details = dict(failure.details)
    behind = details.pop(_NEXT, None)
    arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in details.items()}
    try:
        error = kind(failure.problem, failure.hint, **arguments)
    except TypeError:  # an argument that this version does not know
        return FabricError(f"{failure.error} at the site: {failure.problem}", failure.hint)
    if isinstance(error, ProductDamagedError) and isinstance(behind, int):
        error.next = behind
    return error

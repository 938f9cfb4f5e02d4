"""Quality of service: what a channel agrees on with its suppliers and consumers, as plain data.

A QoS has fourteen options, the keys of `QoSOptions`. Each is set, or left open (`None`, or `any` for a policy);
what a channel leaves open its stations may set. `QoS.of` reads what people write (ages such as "10s", times in ISO
8601); `station_terms` says what a QoS means for a station. docs/channels.md explains every option, its default, and its
name in the CORBA Notification Service.

Not here: which options contradict each other and what a station may change (conflicts.py), how order, discard,
deadlines and pacing are kept at delivery (the stations), slices, which a channel has for its life (slicing.py), and
compression (compression.py).
"""

import difflib
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, get_args

import msgspec

from headrace.channel.compression import COMPRESSION_OPTIONS
from headrace.channel.slicing import SLICING_OPTIONS
from headrace.errors import OptionError
from headrace.log.read import Start
from headrace.station.conflicts import Conflict, terms_error
from headrace.station.terms import Age, Discard, Distribution, Moment, Order, Restore, StationTerms
from headrace.units import format_time, parse_age, parse_time

Reliability = Literal["best_effort", "persistent"]


class QoSOptions(TypedDict, total=False):
    """The options that a channel and its stations have in common, as callers write them; None leaves one open."""

    reliability: Reliability | None
    connections: Reliability | None
    order: Order | None
    discard: Discard | None
    max_per_consumer: int | None
    max_queue: int | None
    timeout: Age | None
    start_time: Moment | None
    stop_time: Moment | None
    batch_max: int | None
    pacing: Age | None
    suppliers_max: int | None
    consumers_max: int | None
    home: str | None


class ChannelOptions(QoSOptions, total=False):
    """The options of a channel that its stations do not have.

    `slices` and `assign` (slicing.py) are given when it is created and never change.
    """

    slices: int | None
    assign: str | None
    compress: str | None
    dictionary: str | None


class StationOnly(TypedDict, total=False):
    """The options of a station that channels do not have."""

    prescale: int
    restore: Restore
    deliveries_max: int
    hung_after: Age
    after: str | None
    group: str | None
    distribution: Distribution
    start: Start


class MemberOptions(QoSOptions, StationOnly, total=False):
    """The options of a station of a channel."""


_DEFAULT = StationTerms(name="")  # what a station does if neither it nor its channel sets an option
SUPPLIERS_LIMIT = 1024  # slots in the file of a channel's suppliers


class QoS(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The terms of a channel, or of one of its stations."""

    reliability: Reliability = "best_effort"  # persistent: suppliers wait, so that a station misses nothing
    connections: Reliability = "persistent"  # best_effort: a station ends with its last consumer
    order: Order = "any"  # of delivery
    discard: Discard = "any"  # what a full station drops first
    max_per_consumer: int | None = None  # products that wait at a station; open: all that the queue holds
    max_queue: int | None = None  # products that may wait for a station before a push is rejected
    timeout_s: float | None = None  # older products are not delivered
    start_time_ns: int | None = None  # nothing is delivered before
    stop_time_ns: int | None = None  # nothing is pushed or delivered from then on
    batch_max: int | None = None  # products that a consumer gets at once
    pacing_s: float | None = None  # how long a delivery waits for its batch to fill
    suppliers_max: int | None = None  # at a time
    consumers_max: int | None = None  # at a time, of each station
    home: str | None = None  # the site whose queue decides the order; never changes

    @classmethod
    def of(cls, **options: Any) -> "QoS":
        """Read options as people write them; TermsError lists every unknown or invalid one."""
        fields, faults = read_options(options)
        if faults:
            raise terms_error(faults)
        return cls(**fields)

    def with_options(self, options: Mapping[str, Any]) -> "QoS":
        """A copy with some options changed; TermsError as for `of`."""
        fields, faults = read_options(options)
        if faults:
            raise terms_error(faults)
        return msgspec.structs.replace(self, **fields)


FIELDS = {name.removesuffix("_ns").removesuffix("_s"): name for name in QoS.__struct_fields__}
OPTIONS = tuple(FIELDS)
DEFAULTS = QoS()
POLICIES: dict[str, tuple[str, ...]] = {
    "reliability": get_args(Reliability), "connections": get_args(Reliability),
    "order": get_args(Order), "discard": get_args(Discard),
}  # fmt: skip
AGES = ("timeout", "pacing")
TIMES = ("start_time", "stop_time")

_KNOWN_ELSEWHERE = {
    "eventreliability": "reliability", "blocking": "reliability", "connectionreliability": "connections",
    "durable": "connections", "orderpolicy": "order", "discardpolicy": "discard", "capacity": "max_per_consumer",
    "maxeventsperconsumer": "max_per_consumer", "maxqueuelength": "max_queue", "rejectnewevents": "max_queue",
    "maximumbatchsize": "batch_max", "pacinginterval": "pacing", "maxsuppliers": "suppliers_max",
    "maxconsumers": "consumers_max",
}  # fmt: skip


# --- reading --------------------------------------------------------------------------------------


def read_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], list[Conflict]]:
    """The fields that the options set, and a conflict for each unknown or invalid option."""
    fields: dict[str, Any] = {}
    faults = []
    for option, value in options.items():
        if option not in FIELDS:
            faults.append(Conflict((option,), f"there is no option {option!r}", _nearest(option), of_values=True))
            continue
        try:
            fields[FIELDS[option]] = _read(option, value)
        except OptionError as error:
            faults.append(Conflict((option,), error.problem, error.hint, of_values=True))
    return fields, faults


def _read(option: str, value: Any) -> Any:
    """One value, in the units of its field. Numbers out of range are left to `validate`."""
    if value is None:
        return getattr(DEFAULTS, FIELDS[option])
    if option in AGES:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else parse_age(value, option)
    return parse_time(value, option) if option in TIMES else value


def _nearest(option: str) -> str:
    """A hint at the option that may be meant; it knows the names of CORBA and of plain stations too."""
    if option in SLICING_OPTIONS:
        return "slices belong to the channel and are the same for all of its stations: leave it out"
    if option in COMPRESSION_OPTIONS:
        return "products are compressed where they enter the queue: set it for the channel"
    plain = option.lower().replace("_", "")
    near = difflib.get_close_matches(option.lower(), OPTIONS, 1, 0.5)
    meant = _KNOWN_ELSEWHERE.get(plain) or (near[0] if near else None)
    return f"did you mean {meant}?" if meant else f"the options are {', '.join(OPTIONS)}"


# --- meaning --------------------------------------------------------------------------------------


def station_terms(qos: QoS) -> dict[str, Any]:
    """The terms of a station under this QoS; always the same keys, so that a change resets what is left open."""
    return {
        "blocking": qos.reliability == "persistent",
        "durable": qos.connections == "persistent",
        "order": order_of(qos),
        "discard": _DEFAULT.discard if qos.discard == "any" else qos.discard,
        "capacity": qos.max_per_consumer,
        "max_queue": qos.max_queue,
        "timeout": qos.timeout_s,
        "start_time": qos.start_time_ns,
        "stop_time": qos.stop_time_ns,
        "batch_max": qos.batch_max,
        "pacing": qos.pacing_s or _DEFAULT.pacing_s,
        "consumers_max": qos.consumers_max,
    }


def order_of(qos: QoS) -> str:
    """The order in which stations without an own one deliver."""
    if qos.order != "any":
        return qos.order
    return "fifo" if qos.home is not None else _DEFAULT.order


def option_text(option: str, value: Any) -> str:
    """A value, for people."""
    if value is None:
        return "open"
    if option in AGES:
        return f"{value:g} s"
    return format_time(value) if option in TIMES else str(value)


def is_open(option: str, value: Any) -> bool:
    """Whether this value leaves the option open."""
    return bool(value == "any") if option in POLICIES else value is None

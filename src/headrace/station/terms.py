"""Terms: everything that is agreed about one station, as plain data.

`StationOptions` is what callers write, `queue.station("s", capacity=100, timeout="30s")`; editors complete it and mypy
checks it. `check_options` turns it into fields of `StationTerms`; an error names the invalid option. A new option is a
key of `StationOptions`, a field of `StationTerms` and a check in `_CHECKS`. The file `stations.json` holds the terms
(document.py), and `for_kernel` translates them for the chain's file.

Not here: which terms contradict each other (conflicts.py), and the terms of channels (channel/qos.py).
"""

import difflib
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import EllipsisType
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

import msgspec

from headrace.errors import OptionError, StationNameError
from headrace.kernel import _kernel as kernel
from headrace.log.cursor import check_name
from headrace.selection import Selection
from headrace.selection.functions import Function
from headrace.units import parse_age, parse_time

CAPACITY_MAX = 131_072
DEADLINE_CAPACITY_MAX = 16_384  # waiting products are kept sorted by deadline, which costs more the more there are
DELIVERIES_MAX = 250


class Retired(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An old selection, which still decides about products that were put before it was changed."""

    until: int  # first sequence that it does not decide about
    selection: str | None  # None: nothing, because the station did not exist yet
    local: bool


Order = Literal["any", "fifo", "priority", "deadline"]
Discard = Literal["any", "fifo", "lifo", "priority", "deadline"]
Restore = Literal["input", "output", "start", "group"]
Distribution = Literal["round_robin", "least_loaded"]
Age = float | str | timedelta  # seconds, or "10s"
Moment = int | str | datetime  # nanoseconds since 1970, or ISO 8601
Chosen: TypeAlias = (
    Selection | str | Mapping[str, Any] | Function | None
)  # a selection as callers write it; None: everything
Given: TypeAlias = Chosen | EllipsisType  # of an argument that may be left out


class ChangeableOptions(TypedDict, total=False):
    """The options that `Station.change` takes too. docs/stations.md explains each; None leaves one open."""

    blocking: bool
    capacity: int | None
    prescale: int
    order: Order
    discard: Discard
    restore: Restore
    deliveries_max: int
    hung_after: Age
    durable: bool
    distribution: Distribution
    timeout: Age | None
    start_time: Moment | None
    stop_time: Moment | None
    batch_max: int | None
    pacing: Age
    consumers_max: int | None
    max_queue: int | None


class StationOptions(ChangeableOptions, total=False):
    """The options of a new station, beside its selection and its start."""

    after: str | None
    group: str | None


class StationChanges(ChangeableOptions, total=False):
    """What `Station.change` takes."""

    selection: Chosen


Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e9)]
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class StationTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The terms of one station. The station gets chain, member and stage when it is created (opening.py)."""

    name: str
    chain: Annotated[int, msgspec.Meta(ge=0)] = 0  # the number of its chain
    member: Annotated[int, msgspec.Meta(ge=0, lt=kernel.MEMBERS_MAX)] = 0  # its number in the chain
    stage: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0  # products go by rising stage; a group shares one
    selection: str = "**"  # canonical text, without the prescale and without a Python function; it may name one
    local: bool = False  # the selection has a Python function, which each process must pass
    prescale: Count = 1
    blocking: bool = False
    capacity: Annotated[int, msgspec.Meta(ge=1, le=CAPACITY_MAX)] | None = None  # None: only the queue limits it
    order: Order = "priority"
    discard: Discard = "lifo"
    restore: Restore = "input"
    deliveries_max: Annotated[int, msgspec.Meta(ge=0, le=DELIVERIES_MAX)] = 5  # 0: no limit
    hung_after_s: Seconds = 30.0  # 0: never
    durable: bool = True
    paused: bool = False
    group: str | None = None
    distribution: Distribution = "round_robin"
    timeout_s: Seconds | None = None
    start_ns: Number | None = None
    stop_ns: Number | None = None
    batch_max: Count | None = None
    pacing_s: Seconds = 0.0
    consumers_max: Count | None = None
    max_queue: Number | None = None
    channel: str | None = None
    retired: tuple[Retired, ...] = ()


GIVEN = ("name", "chain", "member", "stage", "paused", "retired")  # not compared when a station is opened again
_SPELLINGS = {"hung_after": "hung_after_s", "timeout": "timeout_s", "pacing": "pacing_s",
              "start_time": "start_ns", "stop_time": "stop_ns"}  # fmt: skip
OPTIONS = ("selection", *StationOptions.__annotations__)
_ET = {"cue": "capacity", "select": "selection"}  # what ET calls them
CHANGEABLE = ("selection", "local", *(_SPELLINGS.get(name, name) for name in ChangeableOptions.__annotations__))


def check_station_name(name: str) -> str:
    """Return `name` if a station may have it; StationNameError otherwise."""
    return check_name(name, "station", StationNameError)


def check_sequences(sequences: Sequence[int] | None) -> None:
    """OptionError unless these can be sequences of parked products; None: all."""
    if sequences is not None and not all(0 <= sequence < 1 << 63 for sequence in sequences):
        raise OptionError(f"{sequences!r} are not sequences", "give sequences that parked() lists")


def check_options(options: Mapping[str, Any], now_ns: int | None = None) -> dict[str, Any]:
    """Options as callers write them, as fields of StationTerms; OptionError for an unknown or invalid one.

    `now_ns` is what "now" means, by the clock of the queue.
    """
    checked: dict[str, Any] = {}
    for name, given in options.items():
        value = now_ns if now_ns is not None and name in ("start_time", "stop_time") and given == "now" else given
        if name not in OPTIONS:
            near = [_ET[name]] if name in _ET else difflib.get_close_matches(name, OPTIONS, 1)
            raise OptionError(
                f"a station has no option {name!r}",
                f"did you mean {near[0]!r}?" if near else "options are: " + ", ".join(OPTIONS),
            )
        if name == "selection":
            checked.update(_selection(value))
        elif name != "after":
            checked[_SPELLINGS.get(name, name)] = _CHECKS[name](name, value)
    return checked


def _selection(value: Any) -> dict[str, Any]:
    selection = Selection.of(value)
    local = callable(selection.function)
    text = str(selection.replace(every=1, function=None) if local else selection.replace(every=1))
    fields: dict[str, Any] = {"selection": text, "local": local}
    if selection.every > 1:
        fields["prescale"] = selection.every
    return fields


def for_kernel(terms: StationTerms, grouped: bool, later: int) -> dict[str, int]:
    """The terms as the chain's file has them; `later` has a bit for each member of a later stage."""
    return {
        "stage": terms.stage, "grouped": grouped, "distribution": kernel.DISTRIBUTIONS[terms.distribution],
        "blocking": terms.blocking, "paused": terms.paused, "order": kernel.ORDERS[terms.order],
        "discard": kernel.DISCARDS[terms.discard], "restore": kernel.RESTORES[terms.restore],
        "deliveries_max": terms.deliveries_max, "capacity": terms.capacity or 0, "prescale": terms.prescale,
        "hung_after_ns": int(terms.hung_after_s * 1e9), "timeout_ns": int((terms.timeout_s or 0) * 1e9),
        "start_ns": terms.start_ns or 0, "stop_ns": terms.stop_ns or 0, "max_queue": terms.max_queue or 0,
        "later": later,
    }  # fmt: skip


# --- check each option ----------------------------------------------------------------------------


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{name} {value!r} is neither True nor False", "give one of them")
    return value


def _number(low: int, high: int, none: bool = False) -> Any:
    def check(name: str, value: Any) -> int | None:
        if none and value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise OptionError(f"{name} {value!r} is out of range", f"give a whole number from {low} to {high}")
        return value

    return check


def _one_of(known: Mapping[str, int]) -> Any:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise OptionError(f"{name} {value!r} is unknown", "choose one of: " + ", ".join(known))
        return value

    return check


def _seconds(none: bool) -> Any:
    def check(name: str, value: Any) -> float | None:
        if none and value is None:
            return None
        seconds = parse_age(value, name)
        if seconds >= 1e9:
            raise OptionError(f"{name} {value!r} is too long", "give less than 30 years")
        if none and not seconds:
            raise OptionError(f"{name} {value!r} is zero", 'give an age, such as "10s"')
        return seconds

    return check


def _moment(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and value == "now":
        return time.time_ns()
    moment = value if isinstance(value, int) and not isinstance(value, bool) else parse_time(value, name)
    if not 0 <= moment < 1 << 63:
        raise OptionError(f"{name} {value!r} is not a time", "give nanoseconds since 1970, a datetime, or ISO 8601")
    return moment


def _name(name: str, value: Any) -> str | None:
    return None if value is None else check_station_name(value)


_CHECKS: dict[str, Any] = {
    "blocking": _flag, "durable": _flag,
    "capacity": _number(1, CAPACITY_MAX, none=True), "prescale": _number(1, 2**31 - 1),
    "order": _one_of(kernel.ORDERS), "discard": _one_of(kernel.DISCARDS), "restore": _one_of(kernel.RESTORES),
    "distribution": _one_of(kernel.DISTRIBUTIONS), "deliveries_max": _number(0, DELIVERIES_MAX),
    "hung_after": _seconds(False), "timeout": _seconds(True), "pacing": _seconds(False),
    "start_time": _moment, "stop_time": _moment, "batch_max": _number(1, kernel.GET_MAX, none=True),
    "consumers_max": _number(1, kernel.CONSUMERS_MAX, none=True), "max_queue": _number(1, 2**62, none=True),
    "group": _name,
}  # fmt: skip

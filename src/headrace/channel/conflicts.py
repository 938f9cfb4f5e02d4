"""Conflicts: every reason to refuse a QoS, found before anything is created.

Three kinds:

    invalid values     an unknown policy, a limit below 1: wrong whatever the other options are
    contradictions     values that are valid alone, but one has no effect beside the other or breaks its promise; those
                       that stations have too come from station/conflicts.py
    looser terms       a station that promises less than its channel

A station inherits every option of its channel and may only tighten it. What the channel leaves open (`None`, `any`) a
station may set freely; what the channel has set, it may set more narrowly:

    order, discard                          the same policy
    max_per_consumer, batch_max,            at most the channel's
    consumers_max, timeout, pacing
    start_time                              the channel's or later
    stop_time                               the channel's or earlier
    connections                             persistent where the channel has best_effort, not the other way round
    reliability, max_queue, suppliers_max   the channel's alone
    home                                    the channel's alone

Those in the row before the last are promises to suppliers. A station that turned `persistent`, or rejected pushes
earlier than its channel, would hold up suppliers that rely on the channel's promise: for them that is looser, not
tighter.

Every conflict is an error; there are no warnings. So an order by deadline without a timeout is no conflict:
products may have an expiry of their own, and those without one come last. An invalid value takes part in no further
rule, so that one mistake is reported once.
"""

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from headrace.channel.compression import COMPRESSION_OPTIONS, Compression, read_compression
from headrace.channel.qos import (
    AGES,
    DEFAULTS,
    FIELDS,
    POLICIES,
    SUPPLIERS_LIMIT,
    TIMES,
    QoS,
    is_open,
    option_text,
    read_options,
)
from headrace.channel.slicing import SLICING_OPTIONS, Slicing, read_slicing
from headrace.kernel import _kernel as kernel
from headrace.product.put import is_origin
from headrace.station.conflicts import Compared, Conflict, contradictions, terms_error
from headrace.station.terms import CAPACITY_MAX

AGE_S_MAX = 10 * 366 * 86400.0
CHANNEL_ONLY = ("reliability", "max_queue", "suppliers_max", "home")
_COUNTS_MAX = {
    "max_per_consumer": CAPACITY_MAX, "max_queue": 2**62, "batch_max": kernel.GET_MAX,
    "suppliers_max": SUPPLIERS_LIMIT, "consumers_max": kernel.CONSUMERS_MAX,
}  # fmt: skip
_SAME = ("order", "discard")
_AT_MOST = ("max_per_consumer", "timeout", "stop_time", "batch_max", "pacing", "consumers_max")


def agree(options: Mapping[str, Any], now_ns: int | None = None) -> tuple[QoS, Slicing | None, Compression | None]:
    """The terms that the options set; TermsError with every conflict."""
    conflicts = find_conflicts(options, now_ns)
    if conflicts:
        raise terms_error(conflicts)
    return QoS.of(**of_qos(options)), read_slicing(options)[0], read_compression(options)[0]


def find_conflicts(options: Mapping[str, Any], now_ns: int | None = None) -> list[Conflict]:
    """Every conflict of options as people write them: unknown, unreadable, or found by `validate`."""
    fields, unreadable = read_options(of_qos(options))
    of_others = read_slicing(options)[1] + read_compression(options)[1]
    return unreadable + _apart_from(validate(QoS(**fields), now_ns), unreadable) + of_others


def of_qos(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the QoS: without those about slices and compression."""
    others = SLICING_OPTIONS + COMPRESSION_OPTIONS
    return {option: value for option, value in options.items() if option not in others}


def validate(qos: QoS, now_ns: int | None = None) -> list[Conflict]:
    """Every conflict within a QoS; an empty list means that it is valid."""
    faults = list(_invalid_values(qos))
    invalid = {FIELDS[option] for fault in faults for option in fault.options}
    sound = msgspec.structs.replace(qos, **{field: getattr(DEFAULTS, field) for field in invalid})
    now_ns = time.time_ns() if now_ns is None else now_ns
    found = [
        *contradictions(_compared(sound)),
        *_about_suppliers(sound),
        *_about_home(sound),
        *_about_times(sound, now_ns),
    ]
    return faults + _apart_from(found, faults)


def _apart_from(conflicts: list[Conflict], faults: list[Conflict]) -> list[Conflict]:
    """The conflicts that do not involve an invalid option."""
    invalid = {option for fault in faults for option in fault.options}
    return [conflict for conflict in conflicts if not invalid & set(conflict.options)]


# --- invalid values -------------------------------------------------------------------------------


def _invalid_values(qos: QoS) -> Iterator[Conflict]:
    for option, choices in POLICIES.items():
        value = getattr(qos, option)
        if value not in choices:
            yield _fault(option, f"{option} {value!r} is unknown", f"choose one of {', '.join(choices)}")
    for option, most in _COUNTS_MAX.items():
        yield from _invalid_count(option, getattr(qos, option), most)
    if qos.home is not None and not (isinstance(qos.home, str) and is_origin(qos.home)):
        yield _fault(
            "home", f"home {qos.home!r} is not the name of a site", "give the name of the site, such as denver"
        )
    for option in AGES:
        yield from _invalid_age(option, getattr(qos, FIELDS[option]))
    for option in TIMES:
        value = getattr(qos, FIELDS[option])
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63):
            yield _fault(option, f"{option} {value!r} is not a time", 'write ISO 8601, such as "2026-11-15T12:00Z"')


def _invalid_count(option: str, value: Any, most: int) -> Iterator[Conflict]:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        yield _fault(option, f"{option} {value!r} is not a whole number", "give a number, 1 or more")
    elif value < 1:
        yield _fault(option, f"{option} {value} would let no product through", "give at least 1, or leave it open")
    elif value > most:
        yield _fault(option, f"{option} {value} is out of range", f"give at most {most}, or leave it open")


def _invalid_age(option: str, value: Any) -> Iterator[Conflict]:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        yield _fault(option, f"{option} {value!r} is not a length of time", 'write an age, such as "10s"')
    elif value == 0 and option == "timeout":
        yield _fault(option, "timeout 0 would expire every product at once", "give an age, or leave it open for none")
    elif value > AGE_S_MAX:
        yield _fault(option, f"{option} {option_text(option, value)} is out of range", "give at most ten years")


def _fault(option: str, problem: str, remedy: str) -> Conflict:
    return Conflict((option,), problem, remedy, of_values=True)


# --- contradictions -------------------------------------------------------------------------------


def _compared(q: QoS) -> Compared:
    """The terms that a QoS has in common with a station, in the words of a channel."""
    return Compared(
        blocking=q.reliability == "persistent",
        order=q.order,
        discard=None if q.discard == "any" else q.discard,
        capacity=q.max_per_consumer,
        batch_max=q.batch_max,
        pacing_s=q.pacing_s or 0.0,
        start_ns=q.start_time_ns,
        stop_ns=q.stop_time_ns,
        blocking_name="reliability",
        blocking_text="reliability persistent",
        not_blocking_text="reliability best_effort",
        capacity_name="max_per_consumer",
    )


def _about_home(q: QoS) -> Iterator[Conflict]:
    if q.home is not None and q.order not in ("any", "fifo"):
        yield Conflict(
            ("home", "order"),
            f"with a home, all consumers get products in the order of its queue, and order {q.order} is another one",
            "choose order fifo, or leave out home",
        )


def _about_suppliers(q: QoS) -> Iterator[Conflict]:
    if q.reliability == "persistent" and q.connections == "best_effort":
        yield Conflict(
            ("reliability", "connections"),
            "reliability persistent keeps products for stations, and connections best_effort forgets the stations",
            "choose connections persistent, or reliability best_effort",
        )
    if q.max_queue is None or q.max_per_consumer is None:
        return
    if q.reliability == "persistent":
        yield Conflict(
            ("reliability", "max_per_consumer", "max_queue"),
            f"with reliability persistent, suppliers wait at max_per_consumer {q.max_per_consumer} or are rejected at "
            f"max_queue {q.max_queue}: only the lower limit has an effect",
            "give max_per_consumer to make them wait, or max_queue to reject",
        )
    if q.max_queue < q.max_per_consumer:
        yield Conflict(
            ("max_queue", "max_per_consumer"),
            f"pushes are rejected at max_queue {q.max_queue}, before max_per_consumer {q.max_per_consumer} is reached",
            "raise max_queue to max_per_consumer or more, or lower max_per_consumer",
        )


def _about_times(q: QoS, now_ns: int) -> Iterator[Conflict]:
    pacing = option_text("pacing", q.pacing_s)
    if q.pacing_s and q.batch_max == 1:
        yield Conflict(
            ("pacing", "batch_max"),
            f"pacing {pacing} waits for a batch to fill, and batch_max is 1",
            "give a batch_max of 2 or more, or no pacing",
        )
    if q.pacing_s and q.timeout_s is not None and q.pacing_s >= q.timeout_s:
        yield Conflict(
            ("pacing", "timeout"),
            f"products that wait for pacing {pacing} have passed their timeout of "
            f"{option_text('timeout', q.timeout_s)} when they are delivered",
            "choose a pacing well below the timeout",
        )
    if q.stop_time_ns is not None and q.stop_time_ns <= now_ns:
        yield Conflict(
            ("stop_time",),
            f"stop_time {option_text('stop_time', q.stop_time_ns)} is in the past",
            "choose a time in the future, or leave it open",
        )


# --- a station beside its channel -----------------------------------------------------------------


def tighten(channel: QoS, station: QoS) -> QoS:
    """The QoS of a station that asks for `station`: the channel's for every option that it leaves open.

    TermsError names each option in which the station would be looser than the channel.
    """
    conflicts = looser(channel, station)
    if conflicts:
        raise terms_error(conflicts)
    inherited = {
        field: getattr(channel, field) for option, field in FIELDS.items() if is_open(option, getattr(station, field))
    }
    return msgspec.structs.replace(station, **inherited)


def looser(channel: QoS, station: QoS) -> list[Conflict]:
    """Each option in which a station would promise less than its channel does."""
    found: list[Conflict] = []
    for option, field in FIELDS.items():
        limit, own = getattr(channel, field), getattr(station, field)
        if own != limit and not is_open(option, own):
            found += _compare(option, limit, own)
    return found


def _compare(option: str, limit: Any, own: Any) -> Iterator[Conflict]:
    """Nothing if `own`, the station's value, is as tight as `limit`, the channel's."""
    ours, theirs = option_text(option, own), option_text(option, limit)
    if option in CHANNEL_ONLY:
        yield Conflict(
            (option,),
            f"{option} is the channel's alone: it has {theirs}, the station asks for {ours}",
            "leave it out, change the channel, or open another channel on the same feeds",
        )
    elif is_open(option, limit):
        return
    elif option in _SAME:
        yield Conflict(
            (option,),
            f"the channel has {option} {theirs}, the station asks for {ours}",
            f"leave it out, or change the channel to {option} any, so that stations may choose",
        )
    elif option == "connections" and own == "best_effort":
        yield Conflict(
            (option,),
            "the channel keeps connections persistent, the station asks for best_effort",
            "leave it out, or change the channel to connections best_effort, which stations may tighten",
        )
    elif option in _AT_MOST and own > limit:
        remedy = f"choose {theirs} or less, or change the channel"
        yield Conflict((option,), f"{option} {ours} exceeds the channel's {theirs}", remedy)
    elif option == "start_time" and own < limit:
        remedy = f"choose {theirs} or later, or change the channel"
        yield Conflict((option,), f"start_time {ours} is before the channel's {theirs}", remedy)

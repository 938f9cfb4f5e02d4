"""Conflicts: every reason why a QoS cannot be agreed on, found before anything is created.

Two kinds. A *value* may be wrong by itself: a policy that does not exist, a limit below 1. And values may contradict
each *other*: then each is fine alone, and one of them would have no effect or break the promise of another. A rule
either refuses or is not there; there are no warnings. So an order by deadline without a time-out is no conflict:
products may have an expiry of their own, and those without come last.

Values that are wrong by themselves take part in no further rule, so that one slip is told once.
"""

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from headrace.channel.qos import (
    AGES,
    DEFAULTS,
    FIELDS,
    POLICIES,
    TIMES,
    Conflict,
    QoS,
    option_text,
    read_options,
    terms_error,
)
from headrace.kernel import _kernel as kernel
from headrace.station.terms import CAPACITY_MAX, DEADLINE_CAPACITY_MAX

SUPPLIERS_LIMIT = 1024  # places in the file of a channel's suppliers
AGE_S_MAX = 10 * 366 * 86400.0
_COUNTS_MAX = {
    "max_per_consumer": CAPACITY_MAX, "max_queue": 2**62, "batch_max": kernel.GET_MAX, "suppliers_max": SUPPLIERS_LIMIT,
    "consumers_max": kernel.CONSUMERS_MAX,
}  # fmt: skip


def agree(options: Mapping[str, Any], now_ns: int | None = None) -> QoS:
    """The QoS that the options say; TermsError with every conflict."""
    conflicts = find_conflicts(options, now_ns)
    if conflicts:
        raise terms_error(conflicts)
    return QoS.of(**options)


def find_conflicts(options: Mapping[str, Any], now_ns: int | None = None) -> list[Conflict]:
    """All that is wrong with options as people write them: unknown, unreadable, or what `validate` finds."""
    said, unreadable = read_options(options)
    return unreadable + _apart_from(validate(QoS(**said), now_ns), unreadable)


def validate(qos: QoS, now_ns: int | None = None) -> list[Conflict]:
    """Every conflict within a QoS; an empty list means that it can be agreed on."""
    faults = list(_wrong_values(qos))
    wrong = {FIELDS[option] for fault in faults for option in fault.options}
    sound = msgspec.structs.replace(qos, **{field: getattr(DEFAULTS, field) for field in wrong})
    now_ns = time.time_ns() if now_ns is None else now_ns
    found = [*_about_loss(sound), *_about_limits(sound), *_about_batches(sound), *_about_times(sound, now_ns)]
    return faults + _apart_from(found, faults)


def _apart_from(conflicts: list[Conflict], faults: list[Conflict]) -> list[Conflict]:
    """The conflicts that have nothing to do with an option that is wrong by itself."""
    wrong = {option for fault in faults for option in fault.options}
    return [conflict for conflict in conflicts if not wrong & set(conflict.options)]


# --- values wrong by themselves -------------------------------------------------------------------


def _wrong_values(qos: QoS) -> Iterator[Conflict]:
    for option, choices in POLICIES.items():
        value = getattr(qos, option)
        if value not in choices:
            yield _fault(option, f"{option} {value!r} is unknown", f"choose one of {', '.join(choices)}")
    for option, most in _COUNTS_MAX.items():
        yield from _wrong_count(option, getattr(qos, option), most)
    for option in AGES:
        yield from _wrong_age(option, getattr(qos, FIELDS[option]))
    for option in TIMES:
        value = getattr(qos, FIELDS[option])
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63):
            yield _fault(option, f"{option} {value!r} is not a time", 'write ISO 8601, such as "2026-11-15T12:00Z"')


def _wrong_count(option: str, value: Any, most: int) -> Iterator[Conflict]:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        yield _fault(option, f"{option} {value!r} is not a whole number", "give a number from 1 on")
    elif value < 1:
        yield _fault(option, f"{option} {value} would let nothing through", "give at least 1, or leave it open")
    elif value > most:
        yield _fault(option, f"{option} {value} is out of range", f"give at most {most}, or leave it open")


def _wrong_age(option: str, value: Any) -> Iterator[Conflict]:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        yield _fault(option, f"{option} {value!r} is not a length of time", 'write an age, such as "10s"')
    elif value == 0 and option == "timeout":
        yield _fault(option, "timeout 0 would end every product at once", "give an age, or leave it open for no limit")
    elif value > AGE_S_MAX:
        yield _fault(option, f"{option} {option_text(option, value)} is out of range", "give at most ten years")


def _fault(option: str, problem: str, remedy: str) -> Conflict:
    return Conflict((option,), problem, remedy, of_values=True)


# --- values that contradict each other ------------------------------------------------------------


def _about_loss(q: QoS) -> Iterator[Conflict]:
    if q.reliability == "persistent" and q.discard != "any":
        yield Conflict(
            ("reliability", "discard"),
            f"reliability persistent drops nothing, and discard {q.discard} says what to drop",
            "leave discard open, or choose reliability best_effort",
        )
    if q.reliability == "persistent" and q.connections == "best_effort":
        yield Conflict(
            ("reliability", "connections"),
            "reliability persistent keeps products for stations, and connections best_effort forgets the stations",
            "choose connections persistent, or reliability best_effort",
        )
    if q.discard != "any" and q.max_per_consumer is None:
        yield Conflict(
            ("discard", "max_per_consumer"),
            f"discard {q.discard} says what a full station drops, and max_per_consumer does not say when it is full",
            "give max_per_consumer, or leave discard open",
        )


def _about_limits(q: QoS) -> Iterator[Conflict]:
    if q.reliability == "persistent" and q.max_per_consumer is not None and q.max_queue is not None:
        yield Conflict(
            ("reliability", "max_per_consumer", "max_queue"),
            f"under reliability persistent suppliers wait at max_per_consumer {q.max_per_consumer}, or are rejected at "
            f"max_queue {q.max_queue}: only the lower one would count",
            "give max_per_consumer to make them wait, or max_queue to reject",
        )
    if q.max_queue is not None and q.max_per_consumer is not None and q.max_queue < q.max_per_consumer:
        yield Conflict(
            ("max_queue", "max_per_consumer"),
            f"pushes are rejected at max_queue {q.max_queue}, before max_per_consumer {q.max_per_consumer} is reached",
            "raise max_queue to max_per_consumer at least, or lower max_per_consumer",
        )
    for option, policy in (("order", q.order), ("discard", q.discard)):
        if policy == "deadline" and (q.max_per_consumer or 0) > DEADLINE_CAPACITY_MAX:
            yield Conflict(
                (option, "max_per_consumer"),
                f"{option} deadline keeps products sorted, and max_per_consumer {q.max_per_consumer} is too many",
                f"give at most {DEADLINE_CAPACITY_MAX}, or choose another {option}",
            )


def _about_batches(q: QoS) -> Iterator[Conflict]:
    if q.batch_max is not None and q.max_per_consumer is not None and q.batch_max > q.max_per_consumer:
        yield Conflict(
            ("batch_max", "max_per_consumer"),
            f"a batch of {q.batch_max} never fills, because a station holds {q.max_per_consumer}",
            "lower batch_max, or raise max_per_consumer",
        )
    if q.pacing_s and (q.batch_max is None or q.batch_max == 1):
        yield Conflict(
            ("pacing", "batch_max"),
            f"pacing {option_text('pacing', q.pacing_s)} waits for a batch to fill, and batch_max is "
            f"{option_text('batch_max', q.batch_max)}",
            "give a batch_max of 2 or more, or no pacing",
        )
    if q.pacing_s and q.timeout_s is not None and q.pacing_s >= q.timeout_s:
        yield Conflict(
            ("pacing", "timeout"),
            f"products that wait for pacing {option_text('pacing', q.pacing_s)} are past their timeout of "
            f"{option_text('timeout', q.timeout_s)} when they are delivered",
            "choose a pacing well below the timeout",
        )


def _about_times(q: QoS, now_ns: int) -> Iterator[Conflict]:
    start, stop = (option_text("start_time", when) for when in (q.start_time_ns, q.stop_time_ns))
    if q.start_time_ns is not None and q.stop_time_ns is not None and q.start_time_ns >= q.stop_time_ns:
        yield Conflict(
            ("start_time", "stop_time"),
            f"start_time {start} is not before stop_time {stop}, so that nothing would ever be delivered",
            "exchange them, or leave one open",
        )
    if q.stop_time_ns is not None and q.stop_time_ns <= now_ns:
        yield Conflict(
            ("stop_time",),
            f"stop_time {stop} has passed",
            "choose a time in the future, or leave it open",
        )

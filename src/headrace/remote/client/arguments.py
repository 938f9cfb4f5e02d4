"""Putting: from the arguments of `put` and `put_many` to a call.

What is wrong with an argument by itself is found here, by the same functions and in the same words as for a local
queue. What only the queue can tell (too large, blocked, rejected, a full disk) the site finds and says in its own.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from headrace.errors import BatchTooLargeError, HeadraceError, OptionError, PayloadTooLargeError, SelectionError
from headrace.log import columns, puts
from headrace.log.config import PAYLOAD_MAX, check_origin
from headrace.log.read import Start, time_of
from headrace.product.batch import NO_SLICE
from headrace.product.feed import check_feed
from headrace.product.product import IDENT_BYTES_MAX, PRIORITY_MAX, SLICE_MAX
from headrace.remote.protocol.calls import CALL_BYTES_MAX, TEXT_MAX, Column, Columns, Put, PutMany, encode
from headrace.selection import Selection
from headrace.units import format_size, parse_age, parse_time

_TIME_MAX = (1 << 63) - 1
_FAULTS = (TypeError, ValueError, OverflowError, BufferError)


def timeout_of(timeout: float | str | timedelta | None) -> float | None:
    return None if timeout is None else parse_age(timeout, "timeout")


def put_call(where: Any, payload: Any, feed: Any, ident: Any, priority: Any, given: Mapping[str, Any]) -> Put:
    """The call for one product; `given` has the arguments that were not left out."""
    try:
        call = Put(check_feed(feed), ident, priority=puts.check_priority(priority), **_checked(given))
        view = memoryview(payload)
        if not view.c_contiguous or not isinstance(ident, str):
            raise TypeError
        if len(ident.encode()) > IDENT_BYTES_MAX:
            raise ValueError
    except HeadraceError:
        raise
    except _FAULTS as error:
        raise puts.explain_put(error, where, PAYLOAD_MAX, payload, feed, ident, priority) from None
    if view.nbytes > CALL_BYTES_MAX:
        raise PayloadTooLargeError(
            f"a payload of {view.nbytes} bytes exceeds the {format_size(CALL_BYTES_MAX)} that go over the network as "
            "one piece", "put it where the queue is",
        )  # fmt: skip
    return call


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    checks: dict[str, Callable[[Any], Any]] = {
        "created": lambda value: parse_time(value, "created"), "expiry": _expiry, "properties": puts.properties_of,
        "slice": puts.slice_of, "signature": puts.signature_of, "origin": check_origin,
        "origin_sequence": puts.sequence_of, "previous": puts.sequence_of,
    }  # fmt: skip
    return {name: checks[name](value) for name, value in given.items()}


def _expiry(expiry: Any) -> int | str:
    """A time; text such as "10min" counts from now by the clock of the site."""
    if isinstance(expiry, str) and "-" not in expiry:
        parse_age(expiry, "expiry")
        return expiry
    return puts.expiry_of(expiry, 0)


def put_many_call(where: Any, held: list[Any], given: Mapping[str, Any]) -> tuple[PutMany, bytes]:
    """The call for many products, and their payloads in one piece."""
    idents = given.get("ident", "")
    try:
        said = columns_of(len(held), given)
        payload = b"".join(held)
        sizes = map(len, held) if set(map(type, held)) <= {bytes} else (memoryview(each).nbytes for each in held)
        lengths = np.fromiter(sizes, np.uint32, len(held))
        call = PutMany(lengths.tobytes(), encode(said))
    except HeadraceError:
        raise
    except _FAULTS as error:
        raise puts.explain_many(error, where, PAYLOAD_MAX, held, idents) from None
    if len(payload) > CALL_BYTES_MAX:
        raise BatchTooLargeError(
            f"a batch of {len(held)} products with {format_size(len(payload))} is more than the "
            f"{format_size(CALL_BYTES_MAX)} that go over the network as one piece", "put it in several calls",
        )  # fmt: skip
    return call, payload


def columns_of(count: int, given: Mapping[str, Any]) -> Columns:
    """What `put_many` was given, as it travels."""
    feeds = columns.text_column(given["feed"], count, "feed")
    for feed in {feeds} if isinstance(feeds, str) else set(feeds):
        check_feed(feed)
    said: dict[str, Any] = {"feed": feeds, "ident": columns.text_column(given["ident"], count, "ident")}
    said["priority"] = _numbers(given["priority"], count, "priority", np.uint8, PRIORITY_MAX)
    said["created"] = _times(given["created"], count, "created")
    said["expiry"] = _times(given["expiry"], count, "expiry")
    said["properties"] = columns.property_column(given["properties"], count)
    said["slice"] = _numbers(given["slice"], count, "slice", np.uint16, SLICE_MAX, NO_SLICE)
    said["signature"] = puts.signature_column(given["signature"], count)
    if given["origin"] is not None:
        said["origin"] = origins = columns.text_column(given["origin"], count, "origin")
        for origin in {origins} if isinstance(origins, str) else set(origins):
            check_origin(origin)
    for name in ("origin_sequence", "previous"):
        column = puts.sequence_column(given[name], count, name)
        said[name] = None if column is None else Column(column.tobytes())
    return Columns(**said)


def _times(times: Any, count: int, what: str) -> int | str | Column | None:
    if isinstance(times, str | datetime):
        return _expiry(times) if what == "expiry" else parse_time(times, what)
    return _numbers(times, count, what, np.uint64, _TIME_MAX, 0 if what == "expiry" else None)  # 0: never


def _numbers(
    numbers: Any, count: int, what: str, kind: Any, high: int, missing: int | None = None
) -> int | Column | None:
    """One number for all, or a column; `missing` stands for None and null, if they may occur."""
    if numbers is None:
        return None
    column = columns.number_column(numbers, count, what, kind, 0, high, missing)
    return Column(column.tobytes()) if np.ndim(numbers) else int(column[0])


# --- merged from remote.client.starts: Starts and selections, as callers write them and as they travel.
#


def start_text(start: Start) -> int | str:
    """A start as the site reads it; OptionError, as for a local queue, if it cannot be one."""
    if isinstance(start, int) and not isinstance(start, bool):
        if not -(1 << 63) <= start < 1 << 63:
            raise OptionError(f"sequence {start} is out of range", "sequences begin at 1")
        return start
    if start not in ("oldest", "next"):
        time_of(start, 0)
    return value_text(start)  # type: ignore[no-any-return]


def value_text(value: Any) -> Any:
    """A length of time or a time as text; other values as they are."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.6f}s"
    return value.isoformat() if isinstance(value, datetime) else value


def selection_text(wanted: Any) -> str:
    """A selection as text; one with a function, or of great length, stays at home."""
    selection = Selection.of(wanted)
    if selection.function is not None:
        raise SelectionError(
            "a selection with a Python function cannot go to another machine",
            "use where instead of function, or filter what you get",
        )
    text = str(selection)
    if len(text) > TEXT_MAX:
        raise SelectionError(
            f"a selection of {len(text)} characters is too long to go to another machine",
            f"write it in {TEXT_MAX}, or read by several",
        )
    return text

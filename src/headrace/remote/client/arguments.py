"""Putting: from the arguments of `put` and `put_many` to a call.

What is wrong with an argument by itself is found here, by the same functions and in the same words as for a local
queue. What only the queue can tell (too large, blocked, rejected, a full disk) the site finds and says in its own.
"""

from datetime import datetime, timedelta
from typing import Any

import numpy as np

from headrace.errors import BatchTooLargeError, HeadraceError, OptionError, PayloadTooLargeError, SelectionError
from headrace.log.append import distinct
from headrace.log.columns import PutColumns, Texts, columns_of, packed
from headrace.log.config import PAYLOAD_MAX
from headrace.log.explain import explain_many, explain_put
from headrace.log.read import Start, time_of
from headrace.product.feed import check_feed
from headrace.product.product import IDENT_BYTES_MAX
from headrace.product.put import PutFacts, put_of
from headrace.remote.protocol.calls import CALL_BYTES_MAX, TEXT_MAX, Columns, Put, PutMany, encode
from headrace.selection import Selection
from headrace.units import format_size, parse_age

_FAULTS = (TypeError, ValueError, OverflowError, BufferError)


def timeout_of(timeout: float | str | timedelta | None) -> float | None:
    return None if timeout is None else parse_age(timeout, "timeout")


def put_call(where: Any, payload: Any, feed: Any, ident: Any, facts: PutFacts) -> Put:
    """The call for one product."""
    try:
        call = Put(check_feed(feed), ident, put_of(facts))
        view = memoryview(payload)
        if not view.c_contiguous or not isinstance(ident, str):
            raise TypeError
        if len(ident.encode()) > IDENT_BYTES_MAX:
            raise ValueError
    except HeadraceError:
        raise
    except _FAULTS as error:
        raise explain_put(error, where, PAYLOAD_MAX, payload, feed, ident) from None
    if view.nbytes > CALL_BYTES_MAX:
        raise PayloadTooLargeError(
            f"a payload of {view.nbytes} bytes exceeds the {format_size(CALL_BYTES_MAX)} that go over the network as "
            "one piece", "put it where the queue is",
        )  # fmt: skip
    return call


def put_many_call(
    where: Any, held: list[Any], feed: Texts, ident: Texts, facts: PutColumns
) -> tuple[PutMany, bytes]:
    """The call for many products, and their payloads in one piece."""
    try:
        columns = columns_of(len(held), feed, ident, facts)
        for name in distinct(columns.feed):
            check_feed(name)
        payload = b"".join(held)
        sizes = map(len, held) if set(map(type, held)) <= {bytes} else (memoryview(each).nbytes for each in held)
        lengths = np.fromiter(sizes, np.uint32, len(held))
        call = PutMany(lengths.tobytes(), encode(Columns(columns.feed, columns.ident, packed(columns.facts))))
    except HeadraceError:
        raise
    except _FAULTS as error:
        raise explain_many(error, where, PAYLOAD_MAX, held, ident) from None
    if len(payload) > CALL_BYTES_MAX:
        raise BatchTooLargeError(
            f"a batch of {len(held)} products with {format_size(len(payload))} is more than the "
            f"{format_size(CALL_BYTES_MAX)} that go over the network as one piece", "put it in several calls",
        )  # fmt: skip
    return call, payload


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

"""Arguments: as a caller writes them, and as they travel in a call.

An argument that is invalid by itself is refused here, by the same functions and in the same words as for a local queue.
What only the queue can decide (too large, blocked, rejected, a full disk) the site decides, and the client raises its
error. Properties are encoded here, once: the site validates the bytes and stores them as they are (product/put.py).

A product without an ident gets its unique signature here and not at the site: if the site dies before its reply
arrives, the call is repeated, and the queue recognises the product. In a queue without duplicates (`dedup="none"`)
every product gets one, by which the site finds it (server/repeated.py).
"""

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from headrace.errors import BatchTooLargeError, HeadraceError, OptionError, SelectionError
from headrace.kernel import _kernel as kernel
from headrace.log.append import distinct
from headrace.log.columns import PutColumns, Texts, columns_of, packed, uniquely_signed
from headrace.log.config import PAYLOAD_MAX
from headrace.log.explain import explain_many, explain_put
from headrace.log.read import Start, time_of
from headrace.log.seams import Timeout
from headrace.product.feed import check_feed
from headrace.product.product import IDENT_BYTES_MAX
from headrace.product.put import SIGNATURE_BYTES, PutFacts, put_of
from headrace.remote.protocol.calls import Columns, PutMany, PutOne
from headrace.remote.protocol.envelope import CALL_BYTES_MAX, encode
from headrace.remote.protocol.fields import TEXT_MAX
from headrace.selection import Selection
from headrace.units import format_size, parse_age

_FAULTS = (TypeError, ValueError, OverflowError, BufferError)

# --- put --------------------------------------------------------------------------------------------


def put_call(where: Any, payload: Any, feed: Any, ident: Any, facts: PutFacts, dedup: str) -> tuple[PutOne, bool]:
    """The call for one product, and whether it has a signature that no other put has; `dedup` is the queue's rule."""
    try:
        put = put_of(facts)
        is_own = (dedup == "none" or (dedup == "identity" and ident == "")) and not put.origin_sequence
        is_own &= put.signature is None
        if is_own:
            put = msgspec.structs.replace(put, signature=os.urandom(SIGNATURE_BYTES))
        call = PutOne(check_feed(feed), ident, put)
        kernel.check_payload(payload)
        view = memoryview(payload)
        if not view.c_contiguous or not isinstance(ident, str):
            raise TypeError
        if len(ident.encode()) > IDENT_BYTES_MAX:
            raise ValueError
    except HeadraceError:
        raise
    except _FAULTS as error:
        raise explain_put(error, where, PAYLOAD_MAX, payload, feed, ident) from None
    return call, is_own


def put_many_call(
    where: Any, held: list[Any], feed: Texts, ident: Texts, facts: PutColumns, dedup: str
) -> tuple[PutMany, bytes, list[bool]]:  # fmt: skip
    """As `put_call`, for many products; the payloads are in one piece."""
    try:
        columns, is_own = columns_of(len(held), feed, ident, facts), list[bool]()
        if dedup != "payload":
            columns, is_own = uniquely_signed(columns, len(held), all_of_them=dedup == "none")
        for name in distinct(columns.feed):
            check_feed(name)
        if set(map(type, held)) - {bytes}:
            for each in held:
                kernel.check_payload(each)
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
            f"a batch of {len(held)} products with {format_size(len(payload))} exceeds the "
            f"{format_size(CALL_BYTES_MAX)} that one message can carry", "put it in several calls",
        )  # fmt: skip
    return call, payload, is_own


# --- read -------------------------------------------------------------------------------------------


def timeout_of(timeout: Timeout) -> float | None:
    return None if timeout is None else parse_age(timeout, "timeout")


def start_text(start: Start) -> int | str:
    """A start as it travels; OptionError, as for a local queue, if it is invalid."""
    if isinstance(start, int) and not isinstance(start, bool):
        if not -(1 << 63) <= start < 1 << 63:
            raise OptionError(f"sequence {start} is out of range", "sequences begin at 1")
        return start
    if start not in ("oldest", "next"):
        time_of(start, 0)
    return value_text(start)  # type: ignore[no-any-return]


def value_text(value: Any) -> Any:
    """A duration or a time as text; other values unchanged."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.6f}s"
    return value.isoformat() if isinstance(value, datetime) else value


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a channel as they travel; the site validates them."""
    return {name: value_text(value) for name, value in options.items()}


def checked_selection(wanted: Any) -> Selection:
    """The selection; SelectionError, before any call, if it has a Python function."""
    selection = Selection.of(wanted)
    if callable(selection.function):
        raise SelectionError(
            "a Python function cannot be sent to a site",
            "select by tags, where or xpath; or register the function at the site, in [functions] of its site.toml, "
            'and name it: Selection(function="name")',
        )
    return selection


def selection_text(wanted: Any) -> str:
    """A selection as it travels; SelectionError if it has a Python function, or is too long for a call."""
    text = str(checked_selection(wanted))
    if len(text) > TEXT_MAX:
        raise SelectionError(
            f"a selection of {len(text)} characters is too long for a queue on another machine",
            f"the limit is {TEXT_MAX} characters; use several selections",
        )
    return text

"""Putting: checks of what `put` and `put_many` are given, and errors that say which argument is wrong.

The kernel is called first and asked no questions; only when it refuses, the reason is looked for here. So a good call
pays for no check twice.
"""

import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import (
    FeedError,
    HeadraceError,
    IdentError,
    InvalidError,
    OptionError,
    PayloadError,
    PayloadTooLargeError,
)
from headrace.kernel import _kernel as kernel
from headrace.log import columns
from headrace.log.config import check_origin
from headrace.log.explain import explain
from headrace.product.batch import NO_SLICE
from headrace.product.feed import check_feed
from headrace.product.product import IDENT_BYTES_MAX, PRIORITY_MAX, SLICE_MAX
from headrace.product.properties import PropertyValue, encode_properties
from headrace.units import format_size, parse_age, parse_time

When = int | str | datetime

_SEQUENCE_MAX = (1 << 63) - 1
_NORMAL_PRIORITY = np.array([4], np.uint8)


def time_of(when: Any, what: str) -> int:
    """Nanoseconds since 1970; 0 if none is given, so the first one is 1."""
    return 0 if when is None else max(1, parse_time(when, what))


def expiry_of(expiry: Any, now_ns: int) -> int:
    """A time; text such as "10min" counts from now."""
    if expiry is None:
        return 0
    if isinstance(expiry, str) and not isinstance(expiry, datetime) and "-" not in expiry:
        return (now_ns or time.time_ns()) + int(parse_age(expiry, "expiry") * 1e9)
    return max(1, parse_time(expiry, "expiry"))


def check_priority(priority: Any) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= PRIORITY_MAX:
        raise OptionError(
            f"priority {priority!r} is out of range",
            f"choose 0 (can wait) to {PRIORITY_MAX} (most urgent)",
        )
    return priority


def slice_of(number: Any) -> int:
    if number is None:
        return NO_SLICE
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= SLICE_MAX:
        raise OptionError(f"slice {number!r} is out of range", f"slices are numbered 0 to {SLICE_MAX}")
    return number


def properties_of(properties: Mapping[str, PropertyValue] | None) -> bytes | None:
    return encode_properties(properties) if properties else None


def signature_of(signature: Any) -> bytes | None:
    if signature is None:
        return None
    if not isinstance(signature, bytes) or len(signature) != 16:
        raise OptionError(
            f"signature {signature!r} is not 16 bytes",
            "give bytes such as hashlib.md5(payload).digest()",
        )
    return signature


def sequence_of(sequence: Any) -> int:
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= _SEQUENCE_MAX:
        raise OptionError(f"origin sequence {sequence!r} is out of range", "sequences are whole numbers from 1 on")
    return sequence


def origin_of(log: kernel.Log, origin: Any, origin_sequence: Any) -> str | None:
    """The origin with a number of its own; one that is not ours needs a sequence of its own too."""
    if origin is None:
        return None
    check_origin(origin)
    if not origin_sequence and log.origins.get(origin) != log.state["origin"]:
        raise OptionError(
            f"a product of origin {origin!r} came without its origin_sequence",
            "pass both on as they came",
        )
    if origin not in log.origins:
        log.add_name(kernel.NAME_ORIGIN, origin)
    return str(origin)


def learn_feed(log: kernel.Log, feed: Any, error: Exception, path: Path) -> bool:
    """After a KeyError: True if `feed` is valid and has been given a number now."""
    if not isinstance(error, KeyError):
        return False
    try:
        log.add_name(kernel.NAME_FEED, check_feed(feed))
    except kernel.KernelError as trouble:
        raise explain(trouble, path) from None
    return True


def explain_put(
    error: Exception, path: Path, payload_max: int, payload: Any, feed: Any, ident: Any, priority: Any
) -> Exception:
    """What was wrong with the arguments, or what the kernel's number means."""
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, kernel.KernelError) and error.code == kernel.CODES["damaged"]:
        return explain(error, path)
    try:
        check_feed(feed)
        check_priority(priority)
    except InvalidError as problem:
        return problem
    fault = _check_ident(ident) or _check_payload(payload, payload_max)
    if fault is not None:
        return fault
    if isinstance(error, kernel.KernelError):
        return explain(error, path)
    return error


def _check_ident(ident: Any) -> IdentError | None:
    if not isinstance(ident, str):
        return IdentError(f"ident {ident!r} is not text", "give a str; bytes must be decoded first")
    try:
        size = len(ident.encode())
    except UnicodeEncodeError:
        return IdentError(f"ident {ident!r} cannot be written as UTF-8", "remove lone surrogates")
    if size > IDENT_BYTES_MAX:
        return IdentError(
            f"ident {ident[:40]!r}… has {size} bytes, more than {IDENT_BYTES_MAX}",
            "move the bulk into properties or payload",
        )
    return None


def _check_payload(payload: Any, payload_max: int) -> InvalidError | None:
    try:
        view = memoryview(payload)
    except TypeError:
        return PayloadError(f"the payload is a {type(payload).__name__}, not bytes", "encode it first")
    if not view.c_contiguous:
        return PayloadError("the payload is not one run of memory", "copy it first: bytes(payload)")
    if view.nbytes > payload_max:
        return PayloadTooLargeError(
            f"a payload of {view.nbytes} bytes exceeds the {format_size(payload_max)} that this queue takes",
            "a payload may be a quarter of the queue: resize the queue",
        )
    return None


def explain_many(error: Exception, path: Path, payload_max: int, payloads: Any, idents: Any) -> Exception:
    """As `explain_put`, naming the place in the batch."""
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, kernel.KernelError) and error.code != kernel.CODES["payload_too_large"]:
        return explain(error, path)
    idents = idents.to_pylist() if hasattr(idents, "to_pylist") else idents  # Arrow's
    for place, payload in enumerate(payloads):
        ident = idents if isinstance(idents, str) else idents[place]
        problem = _check_ident(ident) or _check_payload(payload, payload_max)
        if problem is not None:
            return type(problem)(f"product {place} of the batch: {problem.problem}", problem.hint)
    return explain(error, path) if isinstance(error, kernel.KernelError) else error


GATES = tuple(kernel.CODES[why] for why in ("stations", "blocked", "rejected", "held"))


def many_columns(
    log: kernel.Log, count: int, feed: Any, ident: Any, created: Any, priority: Any, expiry: Any, properties: Any,
    slice_number: Any, signature: Any, origin: Any, origin_sequence: Any, previous: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The columns of one `put_many`, in the order in which the kernel takes them."""
    feeds = columns.text_column(feed, count, "feed")
    for name in {feeds} if isinstance(feeds, str) else set(feeds):
        if name not in log.feeds:
            learn_feed(log, name, KeyError(name), Path())
    return (
        feeds,
        columns.text_column(ident, count, "ident"),
        _times(created, count, "created"),
        _NORMAL_PRIORITY
        if isinstance(priority, int) and priority == 4
        else columns.number_column(priority, count, "priority", np.uint8, 0, PRIORITY_MAX),
        _times(expiry, count, "expiry"),
        columns.property_column(properties, count),
        None
        if slice_number is None
        else columns.number_column(slice_number, count, "slice", np.uint16, 0, SLICE_MAX, NO_SLICE),
        signature_column(signature, count),
        _origins(log, origin, origin_sequence, count),
        sequence_column(origin_sequence, count, "origin_sequence"),
        sequence_column(previous, count, "previous"),
    )


def _times(times: Any, count: int, what: str) -> Any:
    if times is None:
        return None
    if isinstance(times, str | datetime):
        times = expiry_of(times, 0) if what == "expiry" else parse_time(times, what)
    if what == "expiry":
        return columns.number_column(times, count, what, np.uint64, 0, _SEQUENCE_MAX, 0)  # 0: never
    return np.maximum(columns.number_column(times, count, what, np.uint64, 0, _SEQUENCE_MAX), np.uint64(1))


def signature_column(signatures: Any, count: int) -> list[bytes | None] | None:
    if signatures is None:
        return None
    column = signatures.to_pylist() if hasattr(signatures, "to_pylist") else list(signatures)
    if len(column) != count:
        raise InvalidError(f"signature has {len(column)} values for {count} payloads", "give one for each")
    return [signature_of(signature) for signature in column]


def _origins(log: kernel.Log, origins: Any, origin_sequences: Any, count: int) -> Any:
    if origins is None:
        return None
    column = columns.text_column(origins, count, "origin")
    for origin in {column} if isinstance(column, str) else set(column):
        origin_of(log, origin, 1 if origin_sequences is not None else 0)
    return column


def sequence_column(sequences: Any, count: int, what: str) -> Any:
    if sequences is None:
        return None
    if np.ndim(sequences) == 0:
        raise FeedError(f"{what} is one number for all", "give a column with one for each product")
    return columns.number_column(sequences, count, what, np.uint64, 0, _SEQUENCE_MAX)

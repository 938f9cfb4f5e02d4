"""Put: the optional facts of a product, as a caller may give them and as they are stored.

`PutFacts` is what a caller writes: `queue.put(payload, feed=…, ident=…, priority=6, expiry="10min")`. `Put` holds the
same facts, checked, and in the form in which they travel to another site and enter the kernel: properties are encoded
once, by the program that puts the product. A new fact is a field of both, a check in `_CHECKS`, and an argument of the
kernel.

    PutFacts ──put_of──► Put ──► kernel                    a queue here
                          └────► message ──checked──► kernel   a queue elsewhere

Not here: the columns of `put_many` (log/columns.py); feed, ident and payload, which the kernel checks.
"""

import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, TypedDict

import msgspec

from headrace.errors import OptionError
from headrace.product.options import BLOCK_BYTES_MAX as OPTIONS_BYTES_MAX
from headrace.product.options import Options, check_plain, encode_options, without_compression
from headrace.product.product import NO_SLICE, PRIORITY_DEFAULT, PRIORITY_MAX, SLICE_MAX
from headrace.product.properties import BLOCK_BYTES_MAX, PropertyValue, check_block, encode_properties
from headrace.units import parse_age, parse_time

SEQUENCE_MAX = (1 << 63) - 1
SIGNATURE_BYTES = 16
ORIGIN_BYTES_MAX = 63
_ORIGIN = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{ORIGIN_BYTES_MAX - 1}}}")

When = int | str | datetime

_Number = Annotated[int, msgspec.Meta(ge=0, le=SEQUENCE_MAX)]


class OtherFacts(TypedDict, total=False):
    """The optional facts of a product but for its slice, which `Queue.put` takes by itself to be quick."""

    created: When | None
    priority: int | None
    expiry: When | None
    properties: Mapping[str, PropertyValue] | None
    signature: bytes | None
    origin: str | None
    origin_sequence: int | None
    previous: int | None
    options: Options | None


class PutFacts(OtherFacts, total=False):
    """The optional facts of a product, for `Queue.put`. None is the same as leaving a fact out."""

    slice: int | None


class Put(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The optional facts of one product, as they are stored. Make one with `put_of`."""

    created: _Number = 0  # nanoseconds since 1970, UTC; 0: the moment at which the queue stores the product
    priority: Annotated[int, msgspec.Meta(ge=0, le=PRIORITY_MAX)] = PRIORITY_DEFAULT
    expiry: _Number | Annotated[str, msgspec.Meta(max_length=64)] = 0  # as `created`; 0: never; "10min": from then
    properties: Annotated[bytes, msgspec.Meta(max_length=BLOCK_BYTES_MAX)] = b""  # encoded (properties.py)
    slice: Annotated[int, msgspec.Meta(ge=0, le=NO_SLICE)] = NO_SLICE
    signature: Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)] | None = None
    origin: Annotated[str, msgspec.Meta(max_length=ORIGIN_BYTES_MAX)] | None = None  # None: the queue's own
    origin_sequence: _Number = 0  # 0: the sequence that the queue gives
    previous: _Number = 0  # 0: unknown
    options: Annotated[bytes, msgspec.Meta(max_length=OPTIONS_BYTES_MAX)] = b""  # encoded (options.py)

    def expires_ns(self, now_ns: int) -> int:
        """When the product expires if it is stored at `now_ns` (0: the machine's time); 0 never."""
        return self.expiry if isinstance(self.expiry, int) else expiry_of(self.expiry, now_ns)


PLAIN = Put()


def put_of(facts: PutFacts) -> Put:
    """The facts, checked; an InvalidError names the one that is invalid."""
    if not facts:
        return PLAIN
    made = {}
    try:
        for name, value in facts.items():  # faster than a comprehension, and this is a hot path
            if value is not None:
                made[name] = _CHECKS[name](value)
        put = Put(**made)
        if put.options:
            check_bound(put.created, put.options)
        return put
    except KeyError:
        for name in facts.keys() - _CHECKS.keys():
            raise TypeError(f"put() got an unexpected keyword argument {name!r}") from None
        raise


def checked(put: Put) -> Put:
    """Return a Put that came from elsewhere if every fact in it is valid.

    Decoding the message has checked ranges and sizes already (the limits stand at the fields of `Put`).
    """
    if put.origin is not None:
        check_origin(put.origin)
    if isinstance(put.expiry, str):
        expiry_of(put.expiry, 0)
    check_block(put.properties)
    check_plain(put.options)
    check_bound(put.created, put.options)
    return put


# --- one fact ---------------------------------------------------------------------------------------


def time_of(when: Any, what: str) -> int:
    """Nanoseconds since 1970; 0 for None. Because 0 means none, the first moment of 1970 becomes 1."""
    return 0 if when is None else max(1, parse_time(when, what))


def expiry_of(expiry: Any, now_ns: int) -> int:
    """Nanoseconds since 1970; 0 for None. Text such as "10min" counts from `now_ns`, or from now if that is 0."""
    if isinstance(expiry, str) and "-" not in expiry:
        return (now_ns or time.time_ns()) + int(parse_age(expiry, "expiry") * 1e9)
    return time_of(expiry, "expiry")


def check_expiry(expiry: Any) -> int | str:
    """As `expiry_of`, but an age stays text: the clock of the queue that stores the product decides."""
    if isinstance(expiry, str) and "-" not in expiry:
        parse_age(expiry, "expiry")
        return expiry
    return max(1, parse_time(expiry, "expiry"))


def check_priority(priority: Any) -> int:
    """Return `priority` if it is 0 to 7."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= PRIORITY_MAX:
        raise OptionError(
            f"priority {priority!r} is out of range",
            f"choose 0 (can wait) to {PRIORITY_MAX} (most urgent)",
        )
    return priority


def slice_of(number: Any) -> int:
    """Return `number` if it is the number of a slice; NO_SLICE for None."""
    if number is None:
        return NO_SLICE
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= SLICE_MAX:
        raise OptionError(f"slice {number!r} is out of range", f"slices are numbered 0 to {SLICE_MAX}")
    return number


def signature_of(signature: Any) -> bytes | None:
    """Return `signature` if it is 16 bytes, or None."""
    if signature is None:
        return None
    if not isinstance(signature, bytes) or len(signature) != SIGNATURE_BYTES:
        raise OptionError(
            f"signature {signature!r} is not {SIGNATURE_BYTES} bytes",
            "give bytes such as hashlib.md5(payload).digest()",
        )
    return signature


def sequence_of(sequence: Any) -> int:
    """Return `sequence` if it can be a sequence, or 0."""
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= SEQUENCE_MAX:
        raise OptionError(f"origin sequence {sequence!r} is out of range", "sequences are whole numbers from 1 on")
    return sequence


def is_origin(name: str) -> bool:
    """Whether a site can have this name."""
    return _ORIGIN.fullmatch(name) is not None


def check_origin(origin: str) -> str:
    """Return `origin` if it is a valid site id."""
    if not isinstance(origin, str) or not is_origin(origin):
        raise OptionError(
            f"origin {origin!r} is not a site id",
            f"use 1 to {ORIGIN_BYTES_MAX} letters, digits, dots, dashes or underscores; begin with a letter or digit",
        )
    return origin


def options_block(options: Any) -> bytes:
    """The options, encoded."""
    if not isinstance(options, Options):
        raise OptionError(f"options {options!r} are not Options", "give headrace.product.options.Options(…)")
    return encode_options(without_compression(options))


def check_bound(created: Any, options: bytes) -> None:
    """OptionError if options have the error bound of a time stamp that the queue itself will give."""
    if options[:1] == b"\1" and (created is None or (isinstance(created, int) and created == 0)):
        raise OptionError("a bound came without the time of creation", "give both, or neither")


def _created(when: Any) -> int:
    return parse_time(when, "created") or 1


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "created": _created,
    "priority": check_priority,
    "expiry": check_expiry,
    "properties": encode_properties,
    "slice": slice_of,
    "signature": signature_of,
    "origin": check_origin,
    "origin_sequence": sequence_of,
    "previous": sequence_of,
    "options": options_block,
}

"""Columns: what `put_many` accepts, brought into the few shapes that the kernel takes.

Texts become one str or a list of str, numbers an array of one or n values, payloads a list of bytes-like objects,
properties encoded blocks. NumPy and Arrow columns are taken without copying their payloads. A column of the wrong
length or with an invalid value raises an InvalidError that names it.

    PutColumns ──columns_of──► Columns ──► kernel                            a queue here
                                 └─packed──► message ──unpacked──► kernel    a queue elsewhere

`Columns` is to `put_many` what `Put` (product/put.py) is to `put`, with the same facts under the same names.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypedDict

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import InvalidError, OptionError, PayloadError
from headrace.product.options import EncodedOptions, Options, check_plain
from headrace.product.product import NO_SLICE, PRIORITY_DEFAULT, PRIORITY_MAX, SLICE_MAX
from headrace.product.properties import PropertyValue, check_block, encode_properties
from headrace.product.put import (
    SEQUENCE_MAX,
    SIGNATURE_BYTES,
    Put,
    check_bound,
    check_expiry,
    check_origin,
    options_block,
    signature_of,
)
from headrace.units import parse_time


class ArrowColumn(Protocol):
    """`pyarrow.Array` or `pyarrow.ChunkedArray`, named without loading Arrow."""

    @property
    def null_count(self) -> int: ...
    def to_pylist(self) -> list[Any]: ...
    def to_numpy(self) -> npt.NDArray[Any]: ...


Texts: TypeAlias = str | Sequence[str] | npt.NDArray[Any] | ArrowColumn
Numbers: TypeAlias = int | Sequence[int] | npt.NDArray[Any] | ArrowColumn
Times: TypeAlias = str | datetime | Numbers | Sequence[int | None]
Blocks: TypeAlias = Mapping[str, PropertyValue] | Iterable[Mapping[str, PropertyValue] | None]

FACTS = Put.__struct_fields__  # in the order in which the kernel takes their columns
_DEFAULT_PRIORITY = np.array([PRIORITY_DEFAULT], np.uint8)
_NUMBERS: dict[str, tuple[Any, int]] = {  # type and largest value of each column of numbers
    "created": (np.uint64, SEQUENCE_MAX), "priority": (np.uint8, PRIORITY_MAX), "expiry": (np.uint64, SEQUENCE_MAX),
    "slice": (np.uint16, NO_SLICE), "origin_sequence": (np.uint64, SEQUENCE_MAX), "previous": (np.uint64, SEQUENCE_MAX),
}  # fmt: skip


class PutColumns(TypedDict, total=False):
    """The optional facts of many products, for `Queue.put_many`: one value for all, or one for each payload.

    Times in columns are nanoseconds since 1970. Sequences and signatures have one value for each.
    """

    created: Times | None
    priority: Numbers | None
    expiry: Times | None
    properties: Blocks | None
    slice: Numbers | Sequence[int | None] | None
    signature: Iterable[bytes | None] | None
    origin: Texts | None
    origin_sequence: Numbers | None
    previous: Numbers | None
    options: Options | Iterable[Options | None] | None


class Columns(msgspec.Struct, frozen=True):
    """Everything but the payloads of one `put_many`, checked. Make one with `columns_of`."""

    feed: str | list[str]
    ident: str | list[str]
    facts: dict[str, Any]  # by name; a fact that was not given is left out

    def arguments(
        self, now_ns: int, boot_ns: int, assigned: int = 0, contents: list[Any] | None = None
    ) -> tuple[Any, ...]:
        """In the order in which the kernel takes them, for a batch that is stored at these times.

        `assigned` is the number of the channels for which functions of users have assigned its slices. `contents`
        are the payloads as they were before they were compressed.
        """
        facts = {"priority": _DEFAULT_PRIORITY, **self.facts}
        return (self.feed, self.ident, *map(facts.get, FACTS), now_ns, boot_ns, assigned, contents)


def columns_of(count: int, feed: Texts, ident: Texts, facts: PutColumns) -> Columns:
    """The columns for `count` payloads. Whether the feeds are valid is not checked here."""
    made = {}
    for name, value in facts.items():
        if name not in _COLUMNS:
            raise TypeError(f"put_many() got an unexpected keyword argument {name!r}")
        if value is not None:
            made[name] = _COLUMNS[name](value, count)
    _check_bounds(made)
    return Columns(text_column(feed, count, "feed"), text_column(ident, count, "ident"), made)


def uniquely_signed(columns: Columns, count: int, *, all_of_them: bool = False) -> tuple[Columns, list[bool]]:
    """The same columns, with a signature of its own for each product that has neither ident nor signature; and which.

    The kernel makes such signatures too; here they are made for products whose put may be repeated. With `all_of_them`
    products with an ident get one, too.
    """
    idents = itertools.repeat(columns.ident, count) if isinstance(columns.ident, str) else columns.ident
    sequences = columns.facts.get("origin_sequence", itertools.repeat(0))
    given = columns.facts.get("signature", itertools.repeat(None))
    bare = [
        signature is None and (all_of_them or not ident) and not sequence
        for ident, sequence, signature in zip(idents, sequences, given, strict=False)
    ]
    if not any(bare):
        return columns, bare
    drawn = os.urandom(count * SIGNATURE_BYTES)
    signatures = [
        drawn[place * SIGNATURE_BYTES : (place + 1) * SIGNATURE_BYTES] if is_bare else signature
        for place, (is_bare, signature) in enumerate(zip(bare, given, strict=False))
    ]
    return msgspec.structs.replace(columns, facts={**columns.facts, "signature": signatures}), bare


def packed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of Columns for a message: columns of numbers as bytes, the rest as it is."""
    return {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in facts.items()}


def unpacked(count: int, feed: str | list[str], ident: str | list[str], facts: Mapping[str, Any]) -> Columns:
    """Columns from a message, after `packed`; an InvalidError names what is wrong with them."""
    made: dict[str, Any] = {}
    for name, value in facts.items():
        if name not in _COLUMNS:
            raise InvalidError(f"{name!r} is not a fact of products", f"known are {', '.join(FACTS)}")
        if isinstance(value, bytes) and name in _NUMBERS:
            made[name] = _number_column_of(value, count, name)
        elif name == "properties":
            made[name] = _checked_blocks(value, count)
        elif name == "options":
            made[name] = _checked_options(value, count)
        elif (
            (name == "signature" and isinstance(value, list))
            or name == "origin"
            or (name == "expiry" and isinstance(value, str))
        ):
            made[name] = _COLUMNS[name](value, count)
        else:
            raise InvalidError(f"{name} is a {type(value).__name__}", "send a column")
    _check_bounds(made)
    return Columns(text_column(feed, count, "feed"), text_column(ident, count, "ident"), made)


def _number_column_of(data: bytes, count: int, name: str) -> npt.NDArray[Any]:
    kind, high = _NUMBERS[name]
    if len(data) % np.dtype(kind).itemsize:
        raise InvalidError(f"column {name} is cut short", "send whole numbers")
    column = np.frombuffer(data, kind)
    if len(column) != 1 or name in ("origin_sequence", "previous"):
        _check_length(column, count, name)
    if len(column) and int(column.max()) > high:
        raise OptionError(f"{name} holds values outside 0 to {high}", "check the column")
    return column


def _checked_blocks(blocks: Any, count: int) -> bytes | list[bytes]:
    if isinstance(blocks, bytes):
        return check_block(blocks)
    if not isinstance(blocks, list) or not all(isinstance(block, bytes) for block in blocks):
        raise InvalidError("properties are not encoded", "send one block, or one for each product")
    _check_length(blocks, count, "properties")
    return [check_block(block) for block in blocks]


def _checked_options(blocks: Any, count: int) -> bytes | list[bytes | None]:
    if isinstance(blocks, bytes):
        return check_plain(blocks)
    if not isinstance(blocks, list) or not all(block is None or isinstance(block, bytes) for block in blocks):
        raise InvalidError("options are not encoded", "send one block, or one for each product")
    _check_length(blocks, count, "options")
    return [None if block is None else check_plain(block) for block in blocks]


def _check_bounds(facts: Mapping[str, Any]) -> None:
    """OptionError if a product has the error bound of a time stamp that it does not bring with it."""
    blocks = facts.get("options", ())
    for block in (blocks,) if isinstance(blocks, bytes) else blocks:
        if block and "created" not in facts:
            check_bound(None, block)


# --- payloads, texts and numbers ---------------------------------------------------------------------


def _is_arrow(column: Any, *kinds: str) -> bool:
    """Whether it is an Arrow column of one of these kinds. A program that has not loaded Arrow has none."""
    arrow = sys.modules.get("pyarrow.lib")
    return arrow is not None and isinstance(column, tuple(getattr(arrow, kind, ()) for kind in kinds))


def payload_column(payloads: Any) -> list[Any]:
    """One bytes-like object for each payload."""
    if _is_arrow(payloads, "ChunkedArray"):
        return [payload for chunk in payloads.chunks for payload in payload_column(chunk)]
    if _is_arrow(payloads, "Array"):
        return _arrow_payloads(payloads)
    if isinstance(payloads, np.ndarray):
        return _numpy_payloads(payloads)
    if isinstance(payloads, bytes | bytearray | memoryview | str) or not isinstance(payloads, Iterable):
        raise PayloadError(
            f"payloads are one {type(payloads).__name__}",
            "give a list of bytes, or call put() for a single product",
        )
    return list(payloads)


def _arrow_payloads(array: Any) -> list[Any]:
    import pyarrow as pa  # loaded already, by the caller

    if array.null_count:
        raise PayloadError("the payload column has nulls", "fill or drop them first")
    kind = array.type
    if kind in (pa.binary(), pa.string()):
        width: Any = np.int32
    elif kind in (pa.large_binary(), pa.large_string()):
        width = np.int64
    elif pa.types.is_fixed_size_binary(kind):
        return list(array.to_pylist())
    else:
        raise PayloadError(f"the payload column has type {kind}", "use a binary or string column")
    _, offsets_buffer, data_buffer = array.buffers()
    if not len(array):
        return []
    offsets = np.frombuffer(offsets_buffer, width)[array.offset : array.offset + len(array) + 1].tolist()
    data = memoryview(data_buffer) if data_buffer is not None else memoryview(b"")
    return [data[a:b] for a, b in itertools.pairwise(offsets)]


def _numpy_payloads(array: npt.NDArray[Any]) -> list[Any]:
    """Object and byte-string arrays hold one payload in each place; others one in each row."""
    if array.dtype == object or array.dtype.kind in "SV":
        return list(array.tolist()) if array.dtype.names is None else [row.tobytes() for row in array]
    if array.ndim < 2:
        raise PayloadError(
            f"a NumPy array of shape {array.shape} and type {array.dtype} does not say where a payload ends",
            "give an array with one payload in each row",
        )
    return [memoryview(row).cast("B") for row in np.ascontiguousarray(array)]


def text_column(texts: Any, count: int, what: str) -> str | list[str]:
    """One text for all, or a list of `count`."""
    if isinstance(texts, str):
        return texts
    if _is_arrow(texts, "Array", "ChunkedArray"):
        column: list[str] = arrow_values(texts, what)
    elif isinstance(texts, np.ndarray):
        column = texts.tolist()
    elif isinstance(texts, Sequence) and not isinstance(texts, bytes):
        column = list(texts)
    else:
        raise InvalidError(f"{what} is a {type(texts).__name__}", "give text, or a column of texts")
    _check_length(column, count, what)
    for place, text in enumerate(column):
        if not isinstance(text, str):
            raise InvalidError(f"{what}[{place}] is {text!r}, not text", f"give a str for each {what}")
    return column


def arrow_values(array: Any, what: str) -> list[Any]:
    """The values of an Arrow column; Spark and others let any bytes be a text there."""
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError as error:
        raise InvalidError(
            f"{what} {error.object[:60]!r} is not UTF-8", "decode it first, or give the bytes as payload"
        ) from None


def number_column(
    numbers: Any, count: int, what: str, kind: Any, low: int, high: int, missing: int | None = None
) -> npt.NDArray[Any]:
    """An array of one or `count` numbers in [low, high]; `missing` stands for None and null, if they may occur."""
    absent, numbers = (None, numbers) if missing is None else _without_nulls(numbers, low)
    if _is_arrow(numbers, "Array"):
        numbers = numbers.to_numpy(zero_copy_only=False)
    elif _is_arrow(numbers, "ChunkedArray"):
        numbers = numbers.to_numpy()
    try:
        column = np.atleast_1d(np.asarray(numbers))
    except (ValueError, OverflowError):
        column = np.empty(0, object)
    if column.dtype.kind == "M":
        column = _nanoseconds(column, what)
    if column.ndim != 1 or column.dtype.kind not in "iu":
        raise OptionError(f"{what} {str(numbers)[:60]} is not a column of whole numbers", "give int values")
    if np.ndim(numbers):
        _check_length(column, count, what)
    if len(column) and (int(column.min()) < low or int(column.max()) > high):
        raise OptionError(f"{what} holds values outside {low} to {high}", "check the column")
    column = np.ascontiguousarray(column, dtype=kind)
    return column if absent is None else np.where(absent, kind(missing), column)


def _nanoseconds(times: npt.NDArray[Any], what: str) -> npt.NDArray[np.int64]:
    """Since 1970; the first one is 1, because 0 is no time."""
    column = times.astype("datetime64[ns]")
    numbers = column.view(np.int64)
    wrong = np.flatnonzero((column.astype(times.dtype) != times) | (numbers < 0))
    if len(wrong):
        place = int(wrong[0])
        raise OptionError(f"{what}[{place}] is {times[place]}", "times are from 1970 to 2262-04-11, in nanoseconds")
    return np.where(numbers == 0, 1, numbers)


def _without_nulls(numbers: Any, instead: int) -> tuple[npt.NDArray[np.bool_] | None, Any]:
    """Where there is no number, and the numbers with another one there."""
    if isinstance(numbers, list | tuple) and None in numbers:
        absent = np.array([number is None for number in numbers])
        return absent, [instead if number is None else number for number in numbers]
    if _is_arrow(numbers, "Array", "ChunkedArray") and numbers.null_count:
        absent = np.asarray(numbers.is_null().to_numpy(zero_copy_only=False), np.bool_)
        return absent, numbers.fill_null(instead)
    return None, numbers


# --- facts ------------------------------------------------------------------------------------------


def _created(times: Any, count: int) -> npt.NDArray[Any]:
    if isinstance(times, str | datetime):
        times = parse_time(times, "created")
    column = number_column(times, count, "created", np.uint64, 0, SEQUENCE_MAX)
    return np.where(column == 0, np.uint64(1), column)  # 0 means none


def _expiry(times: Any, count: int) -> npt.NDArray[Any] | str:
    """A column, in which 0 means never, or an age for all."""
    if isinstance(times, str | datetime):
        times = check_expiry(times)
        if isinstance(times, str):
            return times
    return number_column(times, count, "expiry", np.uint64, 0, SEQUENCE_MAX, 0)


def _priority(numbers: Any, count: int) -> npt.NDArray[Any]:
    if isinstance(numbers, int) and numbers == PRIORITY_DEFAULT:
        return _DEFAULT_PRIORITY
    return number_column(numbers, count, "priority", np.uint8, 0, PRIORITY_MAX)


def _slice(numbers: Any, count: int) -> npt.NDArray[Any]:
    return number_column(numbers, count, "slice", np.uint16, 0, SLICE_MAX, NO_SLICE)


def _properties(properties: Any, count: int) -> bytes | list[bytes] | None:
    """Property blocks: none, one for all, or a list of `count`."""
    if isinstance(properties, Mapping):
        return encode_properties(properties) if properties else None
    column = [encode_properties(one or {}) for one in properties]
    _check_length(column, count, "properties")
    return column


def _options(options: Any, count: int) -> bytes | list[bytes | None]:
    """Blocks of options: one for all, or a list of `count`."""
    if isinstance(options, Options):
        return options_block(options)
    if isinstance(options, EncodedOptions):
        _check_length(options, count, "options")
        return list(options)
    column = [None if one is None else options_block(one) for one in options]
    _check_length(column, count, "options")
    return column


def _signature(signatures: Any, count: int) -> list[bytes | None]:
    column = signatures.to_pylist() if hasattr(signatures, "to_pylist") else list(signatures)
    _check_length(column, count, "signature")
    return [signature_of(signature) for signature in column]


def _origin(origins: Any, count: int) -> str | list[str]:
    column = text_column(origins, count, "origin")
    for origin in {column} if isinstance(column, str) else set(column):
        check_origin(origin)
    return column


def _sequences(sequences: Any, count: int, what: str) -> npt.NDArray[Any]:
    if np.ndim(sequences) == 0:
        raise OptionError(f"{what} is one number for all", "give a column with one for each product")
    return number_column(sequences, count, what, np.uint64, 0, SEQUENCE_MAX)


_COLUMNS: dict[str, Callable[[Any, int], Any]] = {
    "created": _created,
    "priority": _priority,
    "expiry": _expiry,
    "properties": _properties,
    "slice": _slice,
    "signature": _signature,
    "origin": _origin,
    "origin_sequence": lambda sequences, count: _sequences(sequences, count, "origin_sequence"),
    "previous": lambda sequences, count: _sequences(sequences, count, "previous"),
    "options": _options,
}


def _check_length(column: Any, count: int, what: str) -> None:
    if len(column) != count:
        raise InvalidError(
            f"{what} has {len(column)} values for {count} payloads",
            "give one value, or one for each",
        )

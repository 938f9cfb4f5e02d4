"""Columns: what `put_many` accepts, brought into the few shapes that the kernel takes.

Texts become one str or a list of str, numbers an array of one or n values, payloads a list of bytes-like objects.
NumPy and Arrow columns are taken without copying their payloads. A column of the wrong length is an error that names
it.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import InvalidError, OptionError, PayloadError
from headrace.product.properties import encode_properties

Texts = str | Sequence[str] | npt.NDArray[Any] | pa.Array | pa.ChunkedArray
Numbers = int | Sequence[int] | npt.NDArray[Any] | pa.Array | pa.ChunkedArray


def payload_column(payloads: Any) -> list[Any]:
    """One bytes-like object for each payload."""
    if isinstance(payloads, pa.ChunkedArray):
        return [payload for chunk in payloads.chunks for payload in payload_column(chunk)]
    if isinstance(payloads, pa.Array):
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
    if isinstance(texts, pa.Array | pa.ChunkedArray):
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
    if isinstance(numbers, pa.Array | pa.ChunkedArray):
        numbers = numbers.to_numpy(zero_copy_only=False) if isinstance(numbers, pa.Array) else numbers.to_numpy()
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
    if isinstance(numbers, pa.Array | pa.ChunkedArray) and numbers.null_count:
        absent = np.asarray(numbers.is_null().to_numpy(zero_copy_only=False), np.bool_)
        return absent, numbers.fill_null(instead)
    return None, numbers


def property_column(properties: Any, count: int) -> bytes | list[bytes] | None:
    """Property blocks: none, one for all, or a list of `count`."""
    if properties is None or isinstance(properties, Mapping):
        return encode_properties(properties) if properties else None
    column = [encode_properties(one or {}) for one in properties]
    _check_length(column, count, "properties")
    return column


def _check_length(column: Any, count: int, what: str) -> None:
    if len(column) != count:
        raise InvalidError(
            f"{what} has {len(column)} values for {count} payloads",
            "give one value, or one for each",
        )

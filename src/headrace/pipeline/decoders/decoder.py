"""What a decoder is: a function from a batch of products to a table of what is in them.

    products (RecordBatch) ──► Decoder.decode ──► Decoded(rows, errors)

`rows` begins with the column `place`, the number of the product in the input, and continues with the columns of the
decoder's schema. `errors` has the place of each product that is invalid, and the reason; such a product has no
rows. A product may also be valid and empty: no rows and no error.

Promises
    - Bad data never raises, however hostile. If a decoder fails on a batch, it gets halves of the batch, until the
      product is found that it fails on; that one becomes an error (`contained`).
    - Time and memory are bounded by the size of the input. Each format has a limit of its own for what a small product
      may expand to.
    - A decoder keeps no state between batches, so that a repeated batch gives the same rows.

Decoders read the columns `payload`, `created` and `ident` only. They run in Spark's executors, or in any program that
has a RecordBatch.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PLACE = pa.field("place", pa.int32())
TIME = pa.timestamp("us", tz="UTC")
ERROR, PAYLOAD = "_error", "_payload"  # extra columns, for products that are invalid
NO_PRODUCT = (
    "a fragment of something larger: read this feed with a program that joins (headrace.joined), or put smaller "
    "products"
)
ERROR_CHARS_MAX = 300
_COPIED = 100  # payloads of a batch that exist twice

_NUMBER = re.compile(r"\b[0-9](?:[0-9,.]*[0-9])?\b")

Errors = list[tuple[int, str]]


class Decoded(NamedTuple):
    rows: pa.RecordBatch  # `place`, then the columns of the decoder
    errors: Errors  # place and reason of each product that is invalid


Decode = Callable[[pa.RecordBatch], Decoded]


@dataclass(frozen=True, slots=True)
class Decoder:
    name: str
    schema: pa.Schema  # of its rows, without `place`
    decode: Decode


def make_decoder(name: str, schema: pa.Schema, decode: Decode) -> Decoder:
    """A decoder whose failures affect only the product that caused them."""
    return Decoder(name, schema, partial(contained, decode, schema))


def contained(decode: Decode, schema: pa.Schema, products: pa.RecordBatch) -> Decoded:
    """Decode. If that raises, decode halves of the batch, down to the products that fail."""
    try:
        return decode(products)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - no error of a decoder may stop the stream
        count = products.num_rows
        if count <= 1:
            return Decoded(no_rows(schema), [(place, reason(error)) for place in range(count)])
    half = count // 2
    first = contained(decode, schema, products.slice(0, half))
    second = contained(decode, schema, products.slice(half))
    return joined(schema, [(0, first), (half, second)])


def joined(schema: pa.Schema, parts: Sequence[tuple[int, Decoded]]) -> Decoded:
    """One result from the results of parts, each with the place at which its part begins."""
    batches, errors = [no_rows(schema)], Errors()
    for start, part in parts:
        moved = pa.array(part.rows.column(0).to_numpy() + start, pa.int32())
        batches.append(pa.RecordBatch.from_arrays([moved, *part.rows.columns[1:]], schema=with_place(schema)))
        errors += [(start + place, why) for place, why in part.errors]
    return Decoded(pa.concat_batches(batches), errors)


def with_place(schema: pa.Schema) -> pa.Schema:
    return pa.schema([PLACE, *schema])


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return rows_of(schema, [])


def rows_of(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows, each with its place first, as a batch."""
    whole = with_place(schema)
    columns: Sequence[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(whole)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, whole, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=whole)


def reason(error: BaseException) -> str:
    """The error as text, short enough for a table of dead letters."""
    return brief(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def brief(text: str) -> str:
    """Valid UTF-8 of limited length, for a table."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= ERROR_CHARS_MAX else text[: ERROR_CHARS_MAX - 1] + "…"


def cause(reason: str) -> str:
    """A reason without its numbers, so that products that fail for the same cause can be counted together."""
    return _NUMBER.sub("N", reason)


# --- columns that decoders read ---------------------------------------------------------------------


def payloads(products: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
    """Place and payload of each product; a payload that is null is empty."""
    column = products.column("payload")
    for begin in range(0, len(column), _COPIED):  # a list costs a fraction of as many scalars
        for place, payload in enumerate(column.slice(begin, _COPIED).to_pylist(), begin):
            yield place, payload or b""


def payload_buffers(products: pa.RecordBatch) -> Iterator[tuple[int, memoryview]]:
    """As `payloads`, without a copy: views that are valid as long as the batch."""
    for place, payload in enumerate(products.column("payload")):
        buffer = payload.as_buffer()
        yield place, memoryview(b"") if buffer is None else memoryview(buffer)


def created_us(products: pa.RecordBatch) -> list[int]:
    """When each product was created, in µs since 1970; 0 if unknown."""
    created = products.column("created").cast(TIME).cast(pa.int64())
    values: npt.NDArray[Any] = np.nan_to_num(created.to_numpy(zero_copy_only=False)).astype(np.int64)
    return values.tolist()  # type: ignore[no-any-return]


def idents(products: pa.RecordBatch) -> list[str]:
    return [ident or "" for ident in products.column("ident").to_pylist()]

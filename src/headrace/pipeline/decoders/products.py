"""The columns of products that decoders read, as plain Python values."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.pipeline.decoders.decoder import TIME


def payloads(products: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
    """Place and payload of each product; a payload that is null is empty."""
    for place, payload in enumerate(products.column("payload")):
        yield place, payload.as_py() or b""


def payload_buffers(products: pa.RecordBatch) -> Iterator[tuple[int, memoryview]]:
    """The same without a copy: views that live as long as the batch does."""
    for place, payload in enumerate(products.column("payload")):
        buffer = payload.as_buffer()
        yield place, memoryview(b"") if buffer is None else memoryview(buffer)


def created_us(products: pa.RecordBatch) -> list[int]:
    """When each product was created, µs since 1970; 0 if that is not known."""
    created = products.column("created").cast(TIME).cast(pa.int64())
    values: npt.NDArray[Any] = np.nan_to_num(created.to_numpy(zero_copy_only=False)).astype(np.int64)
    return values.tolist()  # type: ignore[no-any-return]


def idents(products: pa.RecordBatch) -> list[str]:
    return [ident or "" for ident in products.column("ident").to_pylist()]

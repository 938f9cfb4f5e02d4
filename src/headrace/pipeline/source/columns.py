"""Columns: a product as a row of a table, in Arrow and in Spark.

Spark takes Arrow batches unchanged if every type is exactly the expected one: no dictionaries, no large or view types,
timestamps in microseconds, UTC. `COLUMNS` has the names in their order, and `DEFAULT` those that a DataFrame has unless
its user asks for others: what most queries need, and cheap to build. `arrow_of` converts a batch of products.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.product.batch import Batch
from headrace.product.product import NO_SLICE

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([
    pa.field("sequence", pa.int64(), nullable=False),
    pa.field("feed", pa.string(), nullable=False),
    pa.field("ident", pa.string(), nullable=False),
    pa.field("payload", pa.binary(), nullable=False),
    pa.field("signature", pa.binary()),
    pa.field("origin", pa.string(), nullable=False),
    pa.field("origin_sequence", pa.int64(), nullable=False),
    pa.field("created", TIME, nullable=False),
    pa.field("inserted", TIME, nullable=False),
    pa.field("priority", pa.int32(), nullable=False),
    pa.field("expiry", TIME),
    pa.field("slice", pa.int32()),
    pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
])  # fmt: skip
COLUMNS = tuple(SCHEMA.names)
DEFAULT = ("sequence", "feed", "ident", "created", "payload")


def schema_of(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in columns])


def arrow_of(batch: Batch, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
    """The products as an Arrow batch of these columns; payloads and texts are copied."""
    return pa.RecordBatch.from_arrays([_column(batch, name) for name in columns], schema=schema_of(columns))


def _column(batch: Batch, name: str) -> Any:
    rows = batch.columns
    if name in ("feed", "origin"):
        return batch.name_column(name)
    if name == "ident":
        return batch.ident_column()
    if name == "payload":
        return batch.payload_column()
    if name == "signature":
        return _signatures(rows)
    if name in ("created", "inserted"):
        return _times(rows[f"{name}_ns"])
    if name == "expiry":
        return _times(rows["expires_ns"], rows["expires_ns"] == 0)
    if name == "slice":
        return pa.array(rows["slice"].astype(np.int32), mask=rows["slice"] == NO_SLICE)
    if name == "properties":
        return batch.property_column().cast(SCHEMA.field("properties").type)
    return pa.array(rows[name].astype(np.int32 if name == "priority" else np.int64))


def _times(nanoseconds: Any, missing: Any = None) -> Any:
    return pa.array((nanoseconds.view(np.int64) // 1000).view("datetime64[us]"), TIME, mask=missing)


def _signatures(rows: Any) -> Any:
    """Sixteen bytes each; null where a product has none."""
    offsets = np.arange(0, 16 * len(rows) + 1, 16, dtype=np.int32)
    mask = pa.array(rows["kind"] != 0).buffers()[1]
    return pa.Array.from_buffers(
        pa.binary(), len(rows), [mask, pa.py_buffer(offsets), pa.py_buffer(rows["signature"].tobytes())]
    )

"""Columns: a product as a row of a table, in Arrow and in Spark.

Spark takes Arrow batches unchanged if every type is exactly the expected one: no dictionaries, no large or view types,
timestamps in microseconds, UTC. `COLUMNS` has the names in their order, and `DEFAULT` those that a DataFrame has unless
its user asks for others: what most queries need, and cheap to build. `arrow_of` converts a batch of products.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.product.batch import Batch, rows_behind

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
_TEXTS = ("feed", "origin", "ident", "payload")  # as `Rows.gather_texts` has them
_NUMBERS = frozenset({"sequence", "origin_sequence", "created", "inserted", "expiry", "priority", "slice", "signature"})
FRAGMENT = "fragment"  # a column that only readers of fragments have: which part of something larger a row is, or null
DEFAULT = ("sequence", "feed", "ident", "created", "payload")


def schema_of(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    return pa.schema([pa.field(FRAGMENT, pa.string()) if name == FRAGMENT else SCHEMA.field(name) for name in columns])


def arrow_of(batch: Batch, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
    """The products as an Arrow batch of these columns; payloads and texts are copied.

    The kernel builds all texts in one pass over the records, and all numbers in one pass over the rows.
    """
    made: dict[str, Any] = {}
    if not _NUMBERS.isdisjoint(columns):
        made.update(_numbers(batch))
    if FRAGMENT in columns:
        made[FRAGMENT] = _fragments(batch)
    if not made.keys() >= set(columns):
        made.update(_texts(batch, columns))
    if "properties" in columns:
        made["properties"] = _properties(batch)
    return pa.RecordBatch.from_arrays([made[name] for name in columns], schema=schema_of(columns))


def _texts(batch: Batch, columns: Sequence[str]) -> dict[str, Any]:
    made = rows_behind(batch).gather_texts(bytes(name in columns for name in _TEXTS))
    return {
        name: pa.Array.from_buffers(SCHEMA.field(name).type, len(batch), [None, *map(pa.py_buffer, buffers)])
        for name, buffers in zip(_TEXTS, made, strict=True)
        if buffers is not None
    }


def _numbers(batch: Batch) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, buffers in rows_behind(batch).gather_numbers().items():
        validity, values = buffers if isinstance(buffers, tuple) else (None, buffers)
        rest = [_signature_offsets(len(batch))] if name == "signature" else []
        parts = [None if validity is None else pa.py_buffer(validity), *rest, pa.py_buffer(values)]
        made[name] = pa.Array.from_buffers(SCHEMA.field(name).type, len(batch), parts)
    return made


def _properties(batch: Batch) -> Any:
    if batch.columns["properties_bytes"].any():
        return batch.property_column().cast(SCHEMA.field("properties").type)
    return _no_properties(len(batch))


def _fragments(batch: Batch) -> Any:
    parts = batch.fragments()
    if not parts:
        return pa.nulls(len(batch), pa.string())
    return pa.array([str(parts[place]) if place in parts else None for place in range(len(batch))], pa.string())


@lru_cache(maxsize=4)
def _no_properties(count: int) -> Any:
    """Empty maps: most feeds have no properties, and to look for them costs the way through all records."""
    offsets = pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(bytes(4 * (count + 1)))])
    empty = pa.nulls(0, pa.string())
    return pa.MapArray.from_arrays(offsets, empty, empty).cast(SCHEMA.field("properties").type)


@lru_cache(maxsize=4)
def _signature_offsets(count: int) -> Any:
    """Sixteen bytes each."""
    return pa.py_buffer(np.arange(0, 16 * count + 1, 16, dtype=np.int32))

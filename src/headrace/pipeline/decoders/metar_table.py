"""The table of METAR reports: its columns, and a batch of them from rows.

Lists are made flat and then divided: one conversion for a column, instead of one for each row.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.pipeline.decoders.decoder import TIME, with_place

LAYER = pa.struct({"cover": pa.string(), "base_m": pa.float64(), "type": pa.string()})
SCHEMA = pa.schema(
    {
        "report": pa.int32(),
        "station": pa.string(),
        "kind": pa.string(),
        "observed": TIME,
        "auto": pa.bool_(),
        "corrected": pa.bool_(),
        "missing": pa.bool_(),
        "wind_direction": pa.int32(),
        "wind_variable": pa.bool_(),
        "wind_from": pa.int32(),
        "wind_to": pa.int32(),
        "wind_speed": pa.float64(),
        "wind_gust": pa.float64(),
        "visibility": pa.float64(),
        "visibility_limit": pa.string(),
        "weather": pa.list_(pa.string()),
        "sky": pa.list_(LAYER),
        "temperature": pa.float64(),
        "dewpoint": pa.float64(),
        "altimeter": pa.float64(),
        "sea_level_pressure": pa.float64(),
        "trend": pa.string(),
        "remarks": pa.string(),
        "unread": pa.list_(pa.string()),
        "text": pa.string(),
    }
)

_LISTS = {"weather": pa.string(), "unread": pa.string(), "sky": LAYER}


def table_of(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows, each with its place first, as a batch."""
    schema = with_place(SCHEMA)
    columns: Sequence[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [
        _list_array(column, _LISTS[field.name]) if field.name in _LISTS else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _list_array(lists: Sequence[Sequence[Any]], kind: pa.DataType) -> pa.Array:
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([len(values) for values in lists], out=offsets[1:])
    flat = list(chain.from_iterable(lists))
    if kind == LAYER:
        parts: Sequence[Any] = list(zip(*flat, strict=True)) if flat else [()] * len(LAYER)
        fields = [pa.array(part, LAYER[at].type) for at, part in enumerate(parts)]
        return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(fields, fields=list(LAYER)))
    return pa.ListArray.from_arrays(offsets, pa.array(flat, kind))

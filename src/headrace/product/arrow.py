"""The columns of a batch as Arrow arrays, without a Python loop.

`Batch.to_arrow` and its siblings call these functions, and so do readers that match idents a column at a time. They are
apart from batch.py because loading Arrow takes as long as loading NumPy, and most commands need no Arrow column. The
modules that need one only in some calls therefore import this module there.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.product.batch import Batch, rows_behind
from headrace.product.product import NO_SLICE

_TIME = pa.timestamp("ns", tz="UTC")


def record_batch(batch: Batch) -> pa.RecordBatch:
    """See `Batch.to_arrow`."""
    columns = batch.columns
    arrays = [
        pa.array(columns["sequence"]),
        name_column(batch, "feed"),
        ident_column(batch),
        payload_column(batch),
        pa.Array.from_buffers(
            pa.binary(16),
            len(batch),
            [_validity(columns["kind"] != 0), pa.py_buffer(columns["signature"].tobytes())],
        ),
        name_column(batch, "origin"),
        pa.array(columns["origin_sequence"]),
        pa.array(columns["created_ns"].view("<i8").astype("datetime64[ns]"), type=_TIME),
        pa.array(columns["inserted_ns"].view("<i8").astype("datetime64[ns]"), type=_TIME),
        pa.array(columns["priority"]),
        pa.array(columns["expires_ns"].astype("datetime64[ns]"), type=_TIME, mask=columns["expires_ns"] == 0),
        pa.array(columns["slice"], mask=columns["slice"] == NO_SLICE),
        property_column(batch),
    ]
    names = [
        "sequence", "feed", "ident", "payload", "signature", "origin", "origin_sequence",
        "created", "inserted", "priority", "expiry", "slice", "properties",
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, names=names)


def pandas_frame(batch: Batch) -> Any:
    """See `Batch.to_pandas`. One block for each column: pandas would copy columns of one type together."""
    import pandas as pd

    nullable = {pa.uint16(): pd.UInt16Dtype()}
    return record_batch(batch).to_pandas(
        split_blocks=True, maps_as_pydicts="strict", types_mapper=nullable.get, date_as_object=False
    )


def polars_frame(batch: Batch) -> Any:
    """See `Batch.to_polars`."""
    import polars as pl

    return pl.from_arrow(record_batch(batch))


def name_column(batch: Batch, field: str) -> Any:
    """Feeds or origins, dictionary-encoded."""
    numbers = pa.array(np.ascontiguousarray(batch.columns[field])).dictionary_encode()
    texts = pa.array([batch.names[number] for number in numbers.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(numbers.indices, texts)


def ident_column(batch: Batch) -> Any:
    return text_column(len(batch), *rows_behind(batch).gather_idents())


def payload_column(batch: Batch) -> Any:
    """Payloads, copied; `large_binary` from 2 GiB on."""
    wide = batch.payload_bytes >= 1 << 31
    offsets, data = rows_behind(batch).gather_payloads(wide)
    kind = pa.large_binary() if wide else pa.binary()
    return pa.Array.from_buffers(kind, len(batch), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def property_column(batch: Batch) -> Any:
    """Maps from name to the value as text."""
    places, name_ends, names, value_ends, values = map(pa.py_buffer, rows_behind(batch).gather_properties())
    entries = name_ends.size // 4 - 1
    keys = pa.Array.from_buffers(pa.string(), entries, [None, name_ends, names])
    items = pa.Array.from_buffers(pa.string(), entries, [None, value_ends, values])
    offsets = pa.Array.from_buffers(pa.int32(), len(batch) + 1, [None, places])
    return pa.MapArray.from_arrays(offsets, keys, items)


def text_column(count: int, offsets: bytes, data: bytes) -> Any:
    """Texts as the kernel gathers them."""
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def truths(array: Any) -> npt.NDArray[np.bool_]:
    """A Boolean array without nulls. Its `to_numpy` would do, but imports pandas where that is installed."""
    if not len(array):
        return np.zeros(0, np.bool_)
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)].view(np.bool_)


def _validity(present: npt.NDArray[np.bool_]) -> Any:
    """An Arrow validity bitmap, or None if all are present."""
    if present.all():
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little").tobytes())

"""GRIB editions 1 and 2 by ecCodes: one row for each field, with its parameter, level, time, grid and statistics.

`grib` has no values; `grib-values` has them too, in the scanning order of the message. If one field of a product is
unreadable, the whole product is an error. ecCodes runs in a child process, because a damaged message can crash it.

The editions name a parameter differently: 1 by a number in a table of the centre, 2 by discipline, category and number.
`short_name`, `name` and `units` are the same for both.
"""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.pipeline.decoders.child_process import decode_in_child
from headrace.pipeline.decoders.decoder import TIME, Decoder, make_decoder
from headrace.pipeline.decoders.messages import grib_fields, grib_messages

SCHEMA = pa.schema(
    {
        "message": pa.int32(),
        "field": pa.int32(),
        "edition": pa.int32(),
        "center": pa.string(),
        "table_version": pa.int32(),
        "discipline": pa.int32(),
        "category": pa.int32(),
        "parameter": pa.int32(),
        "short_name": pa.string(),
        "name": pa.string(),
        "units": pa.string(),
        "level_type": pa.string(),
        "level": pa.float64(),
        "reference": TIME,
        "valid": TIME,
        "forecast_h": pa.float64(),
        "member": pa.int32(),
        "grid": pa.string(),
        "ni": pa.int32(),
        "nj": pa.int32(),
        "north": pa.float64(),
        "west": pa.float64(),
        "south": pa.float64(),
        "east": pa.float64(),
        "packing": pa.string(),
        "points": pa.int64(),
        "missing": pa.int64(),
        "min": pa.float64(),
        "max": pa.float64(),
        "mean": pa.float64(),
        "std": pa.float64(),
    }
)
VALUES_SCHEMA = SCHEMA.append(pa.field("values", pa.list_(pa.float32())))
VALUES_MAX = 64 << 20  # of one product

_MISSING = 1e36
_REFERENCE = ("year", "month", "day", "hour", "minute", "second")


def read(payload: memoryview) -> pa.RecordBatch | str:
    return _read(bytes(payload), SCHEMA)


def read_values(payload: memoryview) -> pa.RecordBatch | str:
    return _read(bytes(payload), VALUES_SCHEMA)


def _read(payload: bytes, schema: pa.Schema) -> pa.RecordBatch | str:
    rows, fields, total = list[tuple[Any, ...]](), list[pa.Array](), 0
    try:
        for number, message in enumerate(grib_messages(payload)):
            for field, single in enumerate(grib_fields(message)):
                row, values = _field(single)
                total += len(values)
                if total > VALUES_MAX:
                    return f"more than {VALUES_MAX:,} values in one product"
                rows.append((number, field, *row))
                fields += [_nullable(values)] if schema is VALUES_SCHEMA else []
    except ValueError as error:
        return str(error)
    return _batch(rows, fields, schema) if rows else "no GRIB message"


def _batch(rows: list[tuple[Any, ...]], fields: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    if schema is VALUES_SCHEMA:
        offsets = pa.array(np.cumsum([0, *map(len, fields)]), pa.int32())
        columns.append(pa.ListArray.from_arrays(offsets, pa.concat_arrays(fields)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _nullable(values: npt.NDArray[np.float64]) -> pa.Array:
    return pa.array(values.astype(np.float32), mask=values == _MISSING)


def _field(message: bytes) -> tuple[tuple[Any, ...], npt.NDArray[np.float64]]:
    import eccodes

    from headrace.pipeline.decoders import eccodes_handle as ecc

    with ecc.opened(message) as handle:
        eccodes.codes_set(handle, "missingValue", _MISSING)
        values = eccodes.codes_get_values(handle)
        return (*_what(handle), *_when(handle), *_where(handle), *_statistics(values)), values


def _what(handle: int) -> tuple[Any, ...]:
    from headrace.pipeline.decoders.eccodes_handle import number, text, whole

    edition = whole(handle, "edition")
    return (
        edition,
        text(handle, "centre"),
        whole(handle, "table2Version") if edition == 1 else None,
        whole(handle, "discipline"),
        whole(handle, "parameterCategory"),
        whole(handle, "indicatorOfParameter" if edition == 1 else "parameterNumber"),
        text(handle, "shortName"),
        text(handle, "name"),
        text(handle, "units"),
        text(handle, "typeOfLevel"),
        number(handle, "level"),
    )


def _when(handle: int) -> tuple[Any, ...]:
    """Reference time, valid time, and the hours between them."""
    from headrace.pipeline.decoders.eccodes_handle import moment, whole

    reference = moment(handle, *_REFERENCE)
    valid = _valid(whole(handle, "validityDate"), whole(handle, "validityTime"))
    hours = (valid - reference) / timedelta(hours=1) if valid is not None and reference is not None else None
    return reference, valid, hours, _member(handle)


def _member(handle: int) -> int | None:
    """The number in an ensemble. Edition 1 has a number 0 also where there is no ensemble."""
    from headrace.pipeline.decoders.eccodes_handle import whole

    if whole(handle, "edition") == 1 and not whole(handle, "numberOfForecastsInEnsemble"):
        return None
    return whole(handle, "perturbationNumber")


def _valid(day: int | None, time: int | None) -> datetime | None:
    """From 20200106 and 1830."""
    if day is None or time is None:
        return None
    try:
        return datetime(day // 10_000, day // 100 % 100, day % 100, time // 100, time % 100, tzinfo=UTC)
    except ValueError:
        return None


def _where(handle: int) -> tuple[Any, ...]:
    from headrace.pipeline.decoders.eccodes_handle import number, text, whole

    first, last = (number(handle, f"latitudeOf{which}GridPointInDegrees") for which in ("First", "Last"))
    left, right = (number(handle, f"longitudeOf{which}GridPointInDegrees") for which in ("First", "Last"))
    if whole(handle, "iScansNegatively"):
        left, right = right, left
    latitudes = () if first is None or last is None else (first, last)
    box = (max(latitudes), left, min(latitudes), right) if latitudes else (None, None, None, None)
    return (
        text(handle, "gridType"),
        whole(handle, "Ni"),
        whole(handle, "Nj"),
        *box,
        text(handle, "packingType"),
    )


def _statistics(values: npt.NDArray[np.float64]) -> tuple[Any, ...]:
    """Number of points and of missing ones; minimum, maximum, mean and standard deviation of the others."""
    present = values[values != _MISSING]
    missing = len(values) - len(present)
    if not len(present):
        return (len(values), missing, None, None, None, None)
    figures = (present.min(), present.max(), present.mean(), present.std())
    return (len(values), missing, *map(float, figures))


DECODER: Decoder = make_decoder("grib", SCHEMA, partial(decode_in_child, f"{__name__}:read", SCHEMA))
VALUES_DECODER: Decoder = make_decoder(
    "grib-values", VALUES_SCHEMA, partial(decode_in_child, f"{__name__}:read_values", VALUES_SCHEMA)
)

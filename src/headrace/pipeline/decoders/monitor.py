"""Monitor frames of a telescope: floats by name, one row for each point.

Little endian:

    offset  0  4s   `HRMF`
            4  u16  points
            6  u16  subsystem
            8  u64  frame number, counted in each subsystem
           16  u64  time, ns since 1970
           24  for each point: 24s name padded with NUL, f64 value

Frames of a subsystem repeat the same names, so each set of names in a batch is decoded once, and everything else is
done by column. Bytes after the last point are an error, as are names that are not UTF-8.
"""

import struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.pipeline.decoders.decoder import (
    TIME,
    Decoded,
    Decoder,
    Errors,
    make_decoder,
    no_rows,
    payload_buffers,
    with_place,
)

SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "value": pa.float64(),
        "time": TIME,
        "frame": pa.int64(),
        "subsystem": pa.int32(),
    }
)

_HEADER = struct.Struct("<4sHHQQ")
_MAGIC = b"HRMF"
_POINT = np.dtype([("name", "S24"), ("value", "<f8")])
_FRAME_MAX = (1 << 63) - 1


class _Frame(NamedTuple):
    place: int
    number: int
    subsystem: int
    time_us: int
    names: pa.Array
    values: Any


def decode(products: pa.RecordBatch) -> Decoded:
    frames, errors = list[_Frame](), Errors()
    known: dict[bytes, pa.Array] = {}
    for place, payload in payload_buffers(products):
        frame = _frame(place, payload, known)
        if isinstance(frame, str):
            errors.append((place, frame))
        else:
            frames.append(frame)
    return Decoded(_rows(frames), errors)


def _frame(place: int, payload: memoryview, known: dict[bytes, pa.Array]) -> _Frame | str:
    """The frame, or the reason why it is invalid."""
    if len(payload) < _HEADER.size or bytes(payload[:4]) != _MAGIC:
        return "not a monitor frame: it does not begin with HRMF and a header of 24 bytes"
    _, count, subsystem, number, time_ns = _HEADER.unpack_from(payload)
    size = _HEADER.size + count * _POINT.itemsize
    if len(payload) != size:
        return f"{len(payload)} bytes, but a frame of {count} points has {size}"
    if number > _FRAME_MAX:
        return f"frame number {number} is out of range"
    points = np.frombuffer(payload, _POINT, count, _HEADER.size)
    key = points["name"].tobytes()
    if key not in known:
        try:
            known[key] = pa.array([name.decode() for name in points["name"].tolist()], pa.string())
        except UnicodeDecodeError:
            return "a name that is not UTF-8"
    return _Frame(place, number, subsystem, time_ns // 1000, known[key], points["value"])


def _rows(frames: list[_Frame]) -> pa.RecordBatch:
    if not frames:
        return no_rows(SCHEMA)
    counts = [len(frame.values) for frame in frames]

    def repeated(values: list[int], kind: str) -> Any:
        return np.repeat(np.array(values, kind), counts)

    arrays = [
        pa.array(repeated([frame.place for frame in frames], "i4")),
        pa.concat_arrays([frame.names for frame in frames]),
        pa.array(np.concatenate([frame.values for frame in frames])),
        pa.array(repeated([frame.time_us for frame in frames], "M8[us]"), TIME),
        pa.array(repeated([frame.number for frame in frames], "i8")),
        pa.array(repeated([frame.subsystem for frame in frames], "i4")),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=with_place(SCHEMA))


DECODER: Decoder = make_decoder("monitor", SCHEMA, decode)

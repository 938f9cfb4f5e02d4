"""Events of a detector: histograms of the hits of a batch, or a summary of each event.

Little endian:

    offset  0  u64  event number
            8  u64  time, ns since 1970
           16  u32  hits
           20  for each hit: u16 channel, u16 ADC value, both under 4096

`events` counts the hits of all events of a batch by channel and by ADC value in 16 steps of 256: at most 65,536 rows,
regardless of the number of events. The rows of several batches can be added: sum `count` by channel and step. `place`
is the first event of the batch with such a hit; `first_event` and `last_event` are the events that were counted.
`events-summary` has one row for each event.
"""

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.pipeline.decoders.decoder import (
    TIME,
    Decoded,
    Decoder,
    Errors,
    make_decoder,
    no_rows,
    payload_buffers,
    rows_of,
    with_place,
)

HISTOGRAM_SCHEMA = pa.schema(
    {
        "channel": pa.int32(),
        "adc_low": pa.int32(),
        "adc_high": pa.int32(),
        "count": pa.int64(),
        "adc_sum": pa.int64(),
        "first_event": pa.int64(),
        "last_event": pa.int64(),
        "time": TIME,
    }
)
SUMMARY_SCHEMA = pa.schema(
    {
        "event": pa.int64(),
        "time": TIME,
        "hits": pa.int32(),
        "channels": pa.int32(),
        "adc_min": pa.int32(),
        "adc_max": pa.int32(),
        "adc_sum": pa.int64(),
        "adc_mean": pa.float64(),
    }
)
CHANNELS = 4096
STEP = 256

_STEPS = CHANNELS // STEP
_HEADER = struct.Struct("<QQI")
_HIT = np.dtype([("channel", "<u2"), ("adc", "<u2")])
_EVENT_MAX = (1 << 63) - 1


class _Event(NamedTuple):
    place: int
    number: int
    time_us: int
    hits: npt.NDArray[Any]


def decode_histogram(products: pa.RecordBatch) -> Decoded:
    events, errors = _read(products)
    return Decoded(_histogram(events), errors)


def decode_summary(products: pa.RecordBatch) -> Decoded:
    events, errors = _read(products)
    return Decoded(rows_of(SUMMARY_SCHEMA, [_summary(event) for event in events]), errors)


def _read(products: pa.RecordBatch) -> tuple[list[_Event], Errors]:
    events, errors = list[_Event](), Errors()
    for place, payload in payload_buffers(products):
        event = _event(place, payload)
        if isinstance(event, str):
            errors.append((place, event))
        else:
            events.append(event)
    return events, errors


def _event(place: int, payload: memoryview) -> _Event | str:
    """The event, or the reason why it is invalid."""
    if len(payload) < _HEADER.size:
        return f"{len(payload)} bytes, but an event has a header of {_HEADER.size}"
    number, time_ns, count = _HEADER.unpack_from(payload)
    size = _HEADER.size + count * _HIT.itemsize
    if len(payload) != size:
        return f"{len(payload)} bytes, but an event of {count} hits has {size}"
    if number > _EVENT_MAX:
        return f"event number {number} is out of range"
    values = np.frombuffer(payload, "<u2", 2 * count, _HEADER.size)
    if count and int(values.max()) >= CHANNELS:
        return f"a channel or ADC value of {values.max()}, not below {CHANNELS}"
    return _Event(place, number, time_ns // 1000, values.view(_HIT))


def _summary(event: _Event) -> tuple[Any, ...]:
    adc = event.hits["adc"]
    if not len(adc):
        return (event.place, event.number, event.time_us, 0, 0, None, None, 0, None)
    channels = int(np.count_nonzero(np.bincount(event.hits["channel"])))
    total = int(adc.sum(dtype=np.int64))
    values = (int(adc.min()), int(adc.max()), total, total / len(adc))
    return (event.place, event.number, event.time_us, len(adc), channels, *values)


def _histogram(events: list[_Event]) -> pa.RecordBatch:
    if not any(len(event.hits) for event in events):
        return no_rows(HISTOGRAM_SCHEMA)
    counts, sums = np.zeros(CHANNELS * _STEPS, np.int64), np.zeros(CHANNELS * _STEPS, np.int64)
    first = np.full(CHANNELS * _STEPS, -1, np.int32)
    for event in events:
        adc = event.hits["adc"].astype(np.int64)
        bins = event.hits["channel"].astype(np.int64) * _STEPS + adc // STEP
        np.add.at(counts, bins, 1)
        np.add.at(sums, bins, adc)
        new = bins[first[bins] < 0]
        first[new] = event.place
    return _histogram_rows(events, counts, sums, first)


def _histogram_rows(
    events: list[_Event], counts: npt.NDArray[np.int64], sums: npt.NDArray[np.int64], first: npt.NDArray[np.int32]
) -> pa.RecordBatch:
    used = np.flatnonzero(counts)
    low = used % _STEPS * STEP
    numbers = [event.number for event in events]
    times = [event.time_us for event in events]
    arrays = [
        pa.array(first[used]),
        pa.array((used // _STEPS).astype(np.int32)),
        pa.array(low.astype(np.int32)),
        pa.array((low + STEP).astype(np.int32)),
        pa.array(counts[used]),
        pa.array(sums[used]),
        pa.array(np.full(len(used), min(numbers), np.int64)),
        pa.array(np.full(len(used), max(numbers), np.int64)),
        pa.array(np.full(len(used), min(times), "M8[us]"), TIME),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=with_place(HISTOGRAM_SCHEMA))


DECODER: Decoder = make_decoder("events", HISTOGRAM_SCHEMA, decode_histogram)
SUMMARY_DECODER: Decoder = make_decoder("events-summary", SUMMARY_SCHEMA, decode_summary)

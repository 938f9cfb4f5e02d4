"""Payloads as lines of text, for formats without a decoder of their own.

A payload is UTF-8 if all of it is valid, else Latin-1, in which all bytes are text. Lines end in LF, CR LF or CR CR LF.
The line end is not part of the line, and the last one does not start another line. Arrow splits a whole payload at
once.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.decoders.decoder import Decoded, Decoder, Errors, make_decoder, no_rows, payloads, with_place

SCHEMA = pa.schema({"line": pa.int32(), "text": pa.string(), "encoding": pa.string()})
TEXT_BYTES_MAX = 64 << 20


def decode(products: pa.RecordBatch) -> Decoded:
    batches, errors = [no_rows(SCHEMA)], Errors()
    for place, payload in payloads(products):
        if len(payload) > TEXT_BYTES_MAX:
            errors.append((place, f"{len(payload):,} bytes, more than the limit of {TEXT_BYTES_MAX:,} for text"))
        else:
            batches.append(_lines(place, payload))
    return Decoded(pa.concat_batches(batches), errors)


def _lines(place: int, payload: bytes) -> pa.RecordBatch:
    encoding, text = _text(payload)
    lines = pc.utf8_rtrim(pc.split_pattern(pa.array([text]), "\n").flatten(), "\r")
    if len(lines) and lines[-1].as_py() == "":
        lines = lines.slice(0, len(lines) - 1)
    count = len(lines)
    arrays = [
        pa.array(np.full(count, place, np.int32)),
        pa.array(np.arange(count, dtype=np.int32)),
        lines,
        pa.repeat(encoding, count),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=with_place(SCHEMA))


def _text(payload: bytes) -> tuple[str, str]:
    try:
        return "utf-8", payload.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1", payload.decode("latin-1")


DECODER: Decoder = make_decoder("text", SCHEMA, decode)

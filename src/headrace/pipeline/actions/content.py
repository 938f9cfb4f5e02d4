"""Content: the bytes of a row that go into a file, a product or a program.

    payload, or another column   its bytes; a text as UTF-8; missing: none
    json                         the row as an object: times in ISO 8601, bytes in base64
    none                         nothing

`remove` takes off what surrounds a bulletin, as LDM does: `wmo` the heading (SOH, transmission number, TTAAii CCCC
YYGGgg BBB, AWIPS identifier, each with its line end) and, where it began with SOH, the CR CR LF ETX behind; `controls`
all control characters but line feeds.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.pipeline.decoders.wmo import find_heading
from headrace.pipeline.rules.rule import JSON, NOTHING, Removed

_HEAD_BYTES = 400
_CONTROLS = bytes({*range(32), 127} - {10})
_encoder = msgspec.json.Encoder(enc_hook=str)


def contents(rows: pa.RecordBatch, content: str, remove: Sequence[Removed] = (), ends_lines: bool = False) -> Any:
    """A binary column. With `ends_lines`, texts and JSON end with a line feed. Rows for JSON are sound and showable."""
    if content == NOTHING:
        return pa.array([b""] * rows.num_rows, pa.binary())
    if content == JSON:
        end = b"\n" if ends_lines else b""
        return pa.array([json_of(row) + end for row in row_dicts(rows)], pa.binary())
    if content not in rows.schema.names:
        raise PipelineError(f"the rows have no column {content!r}", f"columns are: {', '.join(rows.schema.names)}")
    column = rows.column(content)
    made = column if pa.types.is_binary(column.type) else pc.cast(pc.cast(column, pa.string()), pa.binary())
    made = pc.fill_null(made, b"")
    if ends_lines and not pa.types.is_binary(column.type):
        return pa.array([_line(text) for text in made.to_pylist()], pa.binary())
    return pa.array([without(data, remove) for data in made.to_pylist()], pa.binary()) if remove else made


def row_dicts(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="lossy")
    return made


def json_of(row: dict[str, Any]) -> bytes:
    return _encoder.encode(row)


def without(data: bytes, remove: Sequence[Removed]) -> bytes:
    """The payload without what is to be removed."""
    if "wmo" in remove:
        data = _without_wmo(data)
    return data.translate(None, _CONTROLS) if "controls" in remove else data


def _without_wmo(data: bytes) -> bytes:
    heading = find_heading(data[:_HEAD_BYTES].decode("latin-1"))
    if heading is None:
        return data
    body = data[heading.end :].lstrip(b"\r").removeprefix(b"\n")
    if data.startswith(b"\x01"):
        body = body.removesuffix(b"\x03").removesuffix(b"\n").removesuffix(b"\r").removesuffix(b"\r")
    return body


def _line(text: bytes) -> bytes:
    return text if not text or text.endswith(b"\n") else text + b"\n"

"""NEXRAD Level II: the headers of a volume, or of a chunk of one.

    AR2V0006.  312  day, ms of the day  KFTG      volume header, 24 bytes, in the first chunk only
    length     bzip2 stream of messages           a record; length is negative in the last one

One row for each product. Values that the volume header lacks (later chunks have none) come from the ident, if it has
the form `L2-BZIP2/KFTG/20150430141912/312/17/I/V06/0`. nexrad2_radial.py reads the coverage pattern and the first
radial. Volumes of before 2008 have messages without compression instead of records, and archives compress whole volumes
with gzip; both are read.

What is damaged or missing is named in `problem`, so that a null in the other columns never hides it.

Layout: ICD 2620010.
"""

import re
import struct
import zlib
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.pipeline.decoders.decoder import (
    TIME,
    Decoded,
    Decoder,
    Errors,
    idents,
    make_decoder,
    payload_buffers,
    rows_of,
)
from headrace.pipeline.decoders.nexrad2_radial import (
    UNPACKED_BYTES_MAX,
    Found,
    Radial,
    moment_us,
    search_messages,
    search_records,
)

SCHEMA = pa.schema(
    {
        "station": pa.string(),
        "version": pa.string(),
        "volume": pa.int32(),
        "time": TIME,
        "chunk": pa.int32(),
        "chunk_type": pa.string(),
        "records": pa.int32(),
        "vcp": pa.int32(),
        "latitude": pa.float64(),
        "longitude": pa.float64(),
        "radial_time": TIME,
        "elevation_number": pa.int32(),
        "elevation": pa.float64(),
        "azimuth": pa.float64(),
        "problem": pa.string(),
    }
)
VOLUME_BYTES_MAX = 64 << 20  # of a volume in gzip
RECORDS_MAX = 10_000

_VOLUME = struct.Struct(">9s3sII4s")
_VERSION = re.compile(rb"(?:AR2V00[0-9]{2}|ARCHIVE2)\.")
_IDENT = re.compile(r"L2-[A-Z0-9]+/([A-Z0-9]{4})/([0-9]{14})/([0-9]{1,4})/([0-9]{1,5})/([SIE])/(V[0-9]{2})/[0-9]+")
_LENGTH = struct.Struct(">i")
_GZIP = b"\x1f\x8b"
_SPARE_BYTES = 1 << 16  # after the last record, that may be zeros


class _Volume(NamedTuple):
    station: str | None = None
    version: str | None = None
    volume: int | None = None
    time_us: int | None = None


def decode(products: pa.RecordBatch) -> Decoded:
    rows, errors = list[tuple[Any, ...]](), Errors()
    names = idents(products)
    for place, payload in payload_buffers(products):
        row = _row(payload, names[place])
        if row is None:
            errors.append((place, "it begins neither with a volume header (AR2V) nor with a bzip2 record of Level II"))
        else:
            rows.append((place, *row))
    return Decoded(rows_of(SCHEMA, rows), errors)


def _row(payload: memoryview, ident: str) -> tuple[Any, ...] | None:
    payload, cut = _without_gzip(payload)
    head = _volume(payload)
    start = _VOLUME.size if head.version is not None else 0
    records, damage = _records(payload, start)
    if head.version is None and not records:
        return None
    if records:
        found = search_records(records)
    else:
        found, damage = _plain(payload[start:]), None
    named, chunk, chunk_type = _from_ident(ident)
    volume = [said if said is not None else known for said, known in zip(head, named, strict=True)]
    problem = "; ".join(each for each in (cut, found.problem, damage) if each) or None
    return (*volume, chunk, chunk_type, len(records), found.vcp, *(found.radial or Radial()), problem)


def _without_gzip(payload: memoryview) -> tuple[memoryview, str | None]:
    """The volume, decompressed if all of it is in gzip, and what is wrong with that."""
    if bytes(payload[:2]) != _GZIP:
        return payload, None
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(payload, VOLUME_BYTES_MAX)
    except zlib.error:
        return payload, None
    if unpacker.eof:
        return memoryview(data), None
    cause = f"longer than {VOLUME_BYTES_MAX:,} bytes" if len(data) == VOLUME_BYTES_MAX else "truncated"
    return memoryview(data), f"the gzip stream is {cause}"


def _plain(data: memoryview) -> Found:
    """The first radial of messages without compression."""
    vcp, radial = search_messages(bytes(data[:UNPACKED_BYTES_MAX]))
    return Found(vcp, radial, None if radial else "no record and no radial after the volume header")


def _volume(payload: memoryview) -> _Volume:
    if len(payload) < _VOLUME.size:
        return _Volume()
    version, number, day, ms, station = _VOLUME.unpack_from(payload)
    if _VERSION.fullmatch(version) is None:
        return _Volume()
    volume = int(number) if number.isdigit() else None
    return _Volume(_station(station), version[:-1].decode(), volume, moment_us(day, ms))


def _station(raw: bytes) -> str | None:
    return raw.decode("ascii") if raw.isalnum() else None


def _from_ident(ident: str) -> tuple[_Volume, int | None, str | None]:
    match = _IDENT.fullmatch(ident)
    if match is None:
        return _Volume(), None, None
    station, start, volume, chunk, kind, version = match.groups()
    try:
        time_us = int(datetime.strptime(start, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()) * 1_000_000
    except ValueError:
        time_us = None
    return _Volume(station, f"AR2V00{version[1:]}", int(volume), time_us), int(chunk), kind


def _records(payload: memoryview, at: int) -> tuple[list[memoryview], str | None]:
    """The compressed records, and what is wrong after the last one of them."""
    records = list[memoryview]()
    while len(payload) > at:
        size = abs(_LENGTH.unpack_from(payload, at)[0]) if len(payload) - at >= _LENGTH.size else 0
        record = payload[at + _LENGTH.size : at + _LENGTH.size + size]
        if size < 4 or bytes(record[:3]) != b"BZh":
            spare = bytes(payload[at : at + _SPARE_BYTES]).strip(b"\0")
            return (
                records,
                f"{len(payload) - at:,} bytes after record {len(records)} are not a record" if spare else None,
            )
        if len(records) == RECORDS_MAX:
            return records, f"more than {RECORDS_MAX:,} records"
        records.append(record)
        if len(record) < size:
            return records, f"record {len(records)} is truncated to {len(record):,} of {size:,} bytes"
        at += _LENGTH.size + size
    return records, None


DECODER: Decoder = make_decoder("nexrad2", SCHEMA, decode)

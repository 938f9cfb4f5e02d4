"""WMO bulletins: the heading, and each report of a bulletin.

    ^A                           start of heading, optional
    00417                        transmission number, optional
    FPUS55 KBOU 060000 AAA       TTAAii CCCC YYGGgg BBB
    ZFPBOU                       AWIPS identifier, optional
    ...

If the data type has reports that end in `=` (METAR, TAF, SYNOP, AIREP, SIGMET …), each report is a row. A line before
them that applies to all (`METAR`, `AAXX 06004`) is prefixed to each. METAR, TAF and Canadian SA reports are found, too,
where a `=` is missing (metar_opening.py). Every other bulletin is one row.

Lines of `text` end in LF. A bulletin with a binary body (GRIB, BUFR, radar) has a row without `text`. The meaning of
reports is not here: see metar.py.
"""

import re
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from headrace.pipeline.decoders.day_of_month import resolve_us
from headrace.pipeline.decoders.decoder import (
    TIME,
    Decoded,
    Decoder,
    Errors,
    created_us,
    make_decoder,
    payloads,
    rows_of,
)
from headrace.pipeline.decoders.metar_opening import separated

SCHEMA = pa.schema(
    {
        "report": pa.int32(),
        "data_type": pa.string(),
        "area": pa.string(),
        "number": pa.int32(),
        "center": pa.string(),
        "time": TIME,
        "indicator": pa.string(),
        "awips": pa.string(),
        "text": pa.string(),
    }
)
BULLETIN_BYTES_MAX = 4 << 20  # eight times the limit of the GTS
REPORTS_MAX = 10_000

_HEAD_CHARS = 300
_HEAD_LINES = 5
_LINE = re.compile(r"[^\x01\r\n]+")
_HEADING = re.compile(r"([A-Z]{2})([A-Z0-9]{2})([0-9]{1,2})? ([A-Z0-9]{4}) ([0-9]{6})Z?(?: ([A-Z]{3}))? *")
_AWIPS = re.compile(r"[A-Z0-9]{4,6} *")
_SHARED = re.compile(r"((?:METAR|SPECI|TAF)(?: COR| AMD)?|(?:AAXX|BBXX|OOXX) [0-9]{5}) *")
_CODE_WORDS = frozenset({
    "METAR", "SPECI", "SYNOP", "AAXX", "BBXX", "OOXX", "TTAA", "TTBB", "TTCC", "TTDD", "PPAA", "PPBB", "PPCC", "PPDD",
    "UUAA", "UUBB", "ZZYY", "CLIMAT", "TEMP", "PILOT", "SHIP", "BUOY", "AIREP", "AMDAR", "SIGMET", "AIRMET", "NIL",
})  # fmt: skip
_REPORT_TYPES = frozenset({
    "SA", "SP", "SI", "SM", "SN", "SH", "FC", "FT", "UA", "UB", "UD", "UE", "UF", "UG", "UH", "UI", "UK", "UL", "UM",
    "UP", "UQ", "UR", "US", "UX", "UY", "WA", "WC", "WS", "WV",
})  # fmt: skip
_SEPARATED_TYPES = frozenset({"SA", "SP", "FC", "FT"})  # where a report is found without the `=` before it
_BINARY = ("BUFR", "GRIB")  # how such a body begins; the next bytes may look like the rest of an identifier
_TEXT_BYTES = bytes({3, *range(0x09, 0x0E), 0x1B, 0x1E, 0x1F, *range(0x20, 0x100)})


class Heading(NamedTuple):
    data_type: str  # TT
    area: str  # AA
    number: int | None  # ii
    center: str  # CCCC
    time: str  # YYGGgg
    indicator: str | None  # BBB
    awips: str | None
    end: int  # where the body begins


class Bulletin(NamedTuple):
    heading: Heading | None  # None: there is none, and everything is body
    shared: str  # a line that applies to all reports, or empty
    reports: list[str]


def find_heading(text: str) -> Heading | None:
    """The heading at the beginning of `text`, after transmission numbers."""
    for line in islice(_LINE.finditer(text, 0, _HEAD_CHARS), _HEAD_LINES):
        match = _HEADING.fullmatch(line[0])
        if match is not None:
            tt, aa, ii, center, time, indicator = match.groups()
            awips, end = _awips(text, line.end())
            return Heading(tt, aa, int(ii) if ii else None, center, time, indicator, awips, end)
        start = line[0].strip()
        if start and not start.isdecimal() and not start.startswith("ZCZC"):
            return None
    return None


def _awips(text: str, end: int) -> tuple[str | None, int]:
    """The identifier on the next line and where it ends, if there is one."""
    line = _LINE.search(text, end, end + _HEAD_CHARS)
    if line is None or _AWIPS.fullmatch(line[0]) is None:
        return None, end
    word = line[0].strip()
    return (None, end) if word in _CODE_WORDS or word.startswith(_BINARY) else (word, line.end())


def read_bulletin(text: str, *, reports: bool | None = None) -> Bulletin:
    """Heading and reports. `reports` tells whether to split the body; None: the data type decides."""
    heading = find_heading(text)
    body = plain(text[heading.end :] if heading else text)
    if reports is None:
        reports = heading is not None and heading.data_type in _REPORT_TYPES
    if not reports:
        return Bulletin(heading, "", [body])
    shared = ""
    first, _, rest = body.partition("\n")
    match = _SHARED.fullmatch(first)
    if match is not None:
        shared, body = match[1], rest
    parts = [stripped for part in body.split("=") if (stripped := part.strip())]
    if heading is not None and heading.data_type in _SEPARATED_TYPES:
        parts = [report for part in parts for report in separated(part)]
    return Bulletin(heading, shared, parts)


def plain(body: str) -> str:
    """A body with LF line ends and without the marks at the end of a transmission."""
    body = body.replace("\r", "").rstrip("\x03 \n")
    return body.removesuffix("NNNN").strip("\x03 \n")


def check_size(payload: bytes) -> str | None:
    """Why a payload is too large for a text bulletin; None if it is not."""
    if len(payload) > BULLETIN_BYTES_MAX:
        return f"{len(payload):,} bytes, more than the limit of {BULLETIN_BYTES_MAX:,} for a bulletin"
    if payload.count(b"=") > REPORTS_MAX:
        return f"more than {REPORTS_MAX:,} reports in one bulletin"
    return None


def decode(products: pa.RecordBatch) -> Decoded:
    rows, errors = list[tuple[object, ...]](), Errors()
    created = created_us(products)
    for place, payload in payloads(products):
        heading = find_heading(payload[:_HEAD_CHARS].decode("latin-1"))
        if heading is None:
            errors.append((place, "no WMO heading (TTAAii CCCC YYGGgg) at the beginning"))
            continue
        problem, texts = _texts(payload, heading)
        if problem is not None:
            errors.append((place, problem))
        what = (heading.data_type, heading.area, heading.number, heading.center)
        when = (resolve_us(heading.time, created[place]), heading.indicator, heading.awips)
        rows += [(place, number, *what, *when, text) for number, text in enumerate(texts)]
    return Decoded(rows_of(SCHEMA, rows), errors)


def _texts(payload: bytes, heading: Heading) -> tuple[str | None, list[str | None]]:
    """The problem, or the text of each row."""
    if payload[heading.end :].translate(None, _TEXT_BYTES):
        return None, [None]
    problem = check_size(payload)
    if problem is not None:
        return problem, []
    bulletin = read_bulletin(payload.decode("latin-1"))
    code = bulletin.shared.partition(" ")[0]
    texts = [
        report if not code or report.startswith(code) else f"{bulletin.shared} {report}" for report in bulletin.reports
    ]
    return None, [*texts] or [""]


DECODER: Decoder = make_decoder("wmo", SCHEMA, decode)

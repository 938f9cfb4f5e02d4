"""An independent interpreter of pqact.conf: which files LDM's pqact would leave, byte for byte.

It handles one product after the other, and for each the entries in their order, as pqact does; it shares no code with
the product. It knows what `pqact_samples.py` writes: FILE and STDIOFILE with their options, PIPE to `tee -a PATH`, EXEC
of `sh log.sh PATH WORDS`, feed types with | and -, `_ELSE_`, groups, dates and sequence numbers.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

BITS = {
    "PPS": 0, "DDS": 1, "HDS": 2, "IDS": 3, "CONDUIT": 12, "LIGHTNING": 14, "NIMAGE": 21, "NGRID": 23, "NPOINT": 24,
    "NEXRAD3": 27, "NEXRAD2": 28, "EXP": 30,
}  # fmt: skip
UNIONS = {"DDPLUS": {"PPS", "DDS"}, "WMO": {"PPS", "DDS", "HDS", "IDS"}, "ANY": set(BITS)}
FEEDS = {  # the types of what the generator sends
    "wx/text/metar": {"DDS", "IDS"}, "wx/text/bulletin": {"DDS", "IDS"}, "wx/obs/bufr": {"HDS", "NPOINT"},
    "wx/radar/nexrad2": {"NEXRAD2"}, "wx/radar/nexrad3": {"NEXRAD3"}, "wx/grid/ngrid": {"NGRID"},
    "wx/grid/conduit": {"CONDUIT"}, "wx/lightning": {"LIGHTNING"}, "wx/satellite/goes16": {"NIMAGE"},
}  # fmt: skip
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]


@dataclass(frozen=True)
class Sent:
    """A product, as LDM has it."""

    feed: str
    ident: str
    payload: bytes
    signature: bytes
    created_us: int
    sequence: int
    origin: str

    @property
    def created(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.created_us)

    @property
    def types(self) -> set[str]:
        return next(types for root, types in FEEDS.items() if self.feed == root or self.feed.startswith(root + "/"))


def files_of(conf: str, products: Iterable[Sent]) -> dict[str, bytes]:
    """The files after all products, by path."""
    entries = [(_types(feedtype), pattern, re.compile(pattern), *rest) for feedtype, pattern, *rest in _entries(conf)]
    files: dict[str, bytes] = {}
    of_types: dict[str, list[Any]] = {}
    for product in products:
        is_matched = False
        if product.feed not in of_types:
            of_types[product.feed] = [each for each in entries if each[0] & product.types]
        for _, pattern, regex, action, arguments in of_types[product.feed]:
            match = regex.search(product.ident)
            is_else = pattern == "^_ELSE_$" and not is_matched and not product.ident.startswith("_")
            if match is None and not is_else:
                continue
            is_matched = True
            words = _words(_substituted(arguments, match, product))
            _act(action, words, product, files)
    return files


def _entries(conf: str) -> Iterator[tuple[str, str, str, str]]:
    whole: list[str] = []
    for line in conf.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line[0] in " \t":
            whole[-1] += "\t" + line.strip()
        else:
            whole.append(line.rstrip())
    for entry in whole:
        feedtype, pattern, action, *arguments = re.split(r"\t+", entry, maxsplit=3)
        yield feedtype, pattern, action, arguments[0] if arguments else ""


def _types(expression: str) -> set[str]:
    found: set[str] = set()
    for sign, name in re.findall(r"([|-]?)(\w+)", expression):
        types = UNIONS.get(name) or {name}
        found = found - types if sign == "-" else found | types
    return found


def _substituted(text: str, match: re.Match[str] | None, product: Sent) -> str:
    def group(found: re.Match[str]) -> str:
        if found[0] in (r"\&", r"\\"):
            return found[0][1]
        number = 0 if found[0] == "&" else int(found[0].strip("\\()"))
        assert match is not None
        return match[number] or ""

    text = re.sub(r"\\[\\&]|&|\\[0-9]|\\\([0-9]+\)", group, text)
    text = re.sub(r"%[YmdHMj]", lambda found: product.created.strftime(found[0]), text)
    text = re.sub(r"\(([0-9]{2}):([a-z]+)\)", lambda found: _date(int(found[1]), found[2], product.created), text)
    return text.replace("(seq)", str(product.sequence))


def _date(day: int, item: str, created: datetime) -> str:
    """The latest such day that is less than a day and a half ahead; the samples have no days that a month lacks."""
    limit = created + timedelta(hours=36)
    months = [(created.year + (created.month + ahead - 1) // 12, (created.month + ahead - 1) % 12 + 1)
              for ahead in (1, 0, -1)]  # fmt: skip
    candidates = [created.replace(year=year, month=month, day=day) for year, month in months]
    at = next((each for each in candidates if each < limit), candidates[-1])
    items = {"yyyy": f"{at.year}", "yy": f"{at.year % 100:02}", "mm": f"{at.month:02}", "mmm": MONTHS[at.month - 1],
             "dd": f"{at.day:02}", "ddd": f"{at.timetuple().tm_yday:03}", "hh": f"{at.hour:02}"}  # fmt: skip
    return items[item]


def _words(text: str) -> list[str]:
    return [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|([^\s"]+)', text)]


def _act(action: str, words: list[str], product: Sent, files: dict[str, bytes]) -> None:
    options = {word[:3] for word in words if word.startswith("-") and word not in ("-a",)}
    rest = [word for word in words if word[:3] not in options]
    if action == "NOOP":
        return
    if action == "EXEC":
        path, *said = rest[2:]
        files[path] = files.get(path, b"") + " ".join(said).encode() + b"\n"
        return
    data = product.payload
    if "-st" in options:
        data = bytes(byte for byte in data if byte == 10 or 32 <= byte < 127)
    if "-me" in options or "-no" in options:
        data = _metadata(product, len(data)) + (b"" if "-no" in options else data)
    path = rest[-1]
    files[path] = data if "-ov" in options else files.get(path, b"") + data


def _metadata(product: Sent, size: int) -> bytes:
    ident, origin = product.ident.encode(), product.origin.encode()
    bit = 1 << min(BITS[name] for name in product.types)
    seconds, microseconds = divmod(product.created_us, 10**6)
    return (
        struct.pack("<I", 52 + len(ident) + len(origin)) + product.signature
        + struct.pack("<IQiII", size, seconds, microseconds, bit, product.sequence & 0xFFFFFFFF)
        + struct.pack("<I", len(ident)) + ident + struct.pack("<I", len(origin)) + origin
    )  # fmt: skip

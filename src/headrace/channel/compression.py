"""Compression of a channel: how its products are compressed where they enter the queue.

    queue.channel("surface", "wx/surface/**", compress="zstd:9", dictionary="3f2a91c0")

Both are terms of the channel that may change at any time: products that are stored already stay as they are, and each
one says by itself how it is compressed. `Compression` is what the definition of a channel holds.

Not here: the compression itself (payload/compression), and dictionaries (log/dictionaries.py).
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.errors import OptionError
from headrace.log.dictionaries import parse_name
from headrace.station.conflicts import Conflict

COMPRESSION_OPTIONS = ("compress", "dictionary")
LEVEL_DEFAULT, LEVEL_MIN, LEVEL_MAX = 3, 1, 19
_FORM = re.compile(r"zstd(?::([1-9][0-9]?))?")
_FORMS = f"choose zstd, or zstd:LEVEL with a level from {LEVEL_MIN} (fast) to {LEVEL_MAX} (small)"


class Compression(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a channel compresses; make one with `read_compression`."""

    level: int
    dictionary: str | None = None  # its name: 8 hexadecimal digits


def read_compression(options: Mapping[str, Any]) -> tuple[Compression | None, list[Conflict]]:
    """The compression that the options ask for, None if they ask for none; and every conflict."""
    compress, dictionary = options.get("compress"), options.get("dictionary")
    faults = []
    level = LEVEL_DEFAULT
    if compress is not None:
        try:
            level = parse_compress(compress)
        except OptionError as error:
            faults.append(Conflict(("compress",), error.problem, error.hint, of_values=True))
    if dictionary is not None:
        try:
            parse_name(dictionary)
        except OptionError as error:
            faults.append(Conflict(("dictionary",), error.problem, error.hint, of_values=True))
        if compress is None:
            remedy = "give compress, too, or leave out dictionary"
            faults.append(Conflict(COMPRESSION_OPTIONS, "a dictionary has no effect without compress", remedy))
    if faults or compress is None:
        return None, faults
    return Compression(level=level, dictionary=dictionary), []


def parse_compress(text: Any) -> int:
    """The level in what people write; OptionError says what is wrong."""
    form = _FORM.fullmatch(text) if isinstance(text, str) else None
    level = int(form[1] or LEVEL_DEFAULT) if form else 0
    if not LEVEL_MIN <= level <= LEVEL_MAX:
        raise OptionError(f"compress {str(text)[:40]!r} is unknown", _FORMS)
    return level


def compression_options(compression: Compression | None) -> dict[str, str]:
    """The options that ask for this compression, as people write them; empty for none."""
    if compression is None:
        return {}
    texts = {"compress": f"zstd:{compression.level}"}
    return texts if compression.dictionary is None else {**texts, "dictionary": compression.dictionary}

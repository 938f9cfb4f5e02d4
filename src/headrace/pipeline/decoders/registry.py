"""Decoders by name: those that come with Headrace, and users' own as "module:function".

The module of a format is imported on first use, so that you need no libraries for formats that you do not use.
"""

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import NamedTuple

from headrace.errors import OptionError
from headrace.extras import require
from headrace.pipeline.decoders.decoder import Decoder
from headrace.pipeline.decoders.user_function import own_decoder


class _Source(NamedTuple):
    module: str
    attribute: str = "DECODER"
    extra: str = ""  # that must be installed


_SOURCES: Mapping[str, _Source] = MappingProxyType(
    {
        "bufr": _Source("bufr", extra="grib"),
        "events": _Source("events"),
        "events-summary": _Source("events", "SUMMARY_DECODER"),
        "grib": _Source("grib", extra="grib"),
        "grib-values": _Source("grib", "VALUES_DECODER", "grib"),
        "metar": _Source("metar"),
        "monitor": _Source("monitor"),
        "nexrad2": _Source("nexrad2"),
        "nexrad3": _Source("nexrad3"),
        "text": _Source("text"),
        "wmo": _Source("wmo"),
    }
)

DECODERS: tuple[str, ...] = tuple(_SOURCES)


def decoder(name: str, schema: str | None = None) -> Decoder:
    """The decoder of a name.

    name: one of `DECODERS`, or "module:function".
    schema: a Spark DDL string, for a function that takes one product and yields dicts.

    Raises OptionError: there is no such decoder, its function is invalid, or the schema is invalid or not allowed;
    MissingExtraError: its library is not installed.
    """
    if ":" in name:
        return own_decoder(name, schema)
    source = _SOURCES.get(name)
    if source is None:
        raise OptionError(f"there is no decoder {name!r}", _advice(name))
    if schema is not None:
        raise OptionError(f"the decoder {name!r} has a schema of its own", "remove schema from the rule")
    if source.extra:
        require(source.extra)
    module = importlib.import_module(f"headrace.pipeline.decoders.{source.module}")
    found: Decoder = getattr(module, source.attribute)
    return found


def _advice(name: str) -> str:
    close = get_close_matches(name, DECODERS, 1)
    known = f"choose from {', '.join(DECODERS)}, or name your own function as module:function"
    return f"did you mean {close[0]!r}? {known}" if close else known

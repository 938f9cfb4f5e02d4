"""Model output as GRIB edition 2, from two sources.

A message is sections in a row, each with its length in front, between `GRIB` with the total
length and `7777`:

    0 indicator   1 identification   2 local use    3 grid   4 product
    5 representation   6 bit map     7 data         8 end

The message is well formed: the field has as many values as the grid has points, one byte each.
The values are random. The local section carries a number that is unique in the stream, and the
bytes that are left over when the size is not a whole grid.

ngrid are the grids of the broadcast, named by WMO heading; conduit are the fields of model files,
named by file.
"""

import random
import struct
import time
from dataclasses import dataclass
from math import isqrt
from string import ascii_uppercase

from headrace.product.ldm_feedtypes import FEEDS
from headrace.testing.feeds.content import S_PER_MINUTE, Content, Noise, cycle
from headrace.testing.feeds.headings import Heading

NGRID_FEED = FEEDS["NGRID"][0]
CONDUIT_FEED = FEEDS["CONDUIT"][0]

_INDICATOR = struct.Struct(">4s2xBBQ")
_IDENTIFICATION = struct.Struct(">IBHHBBBH5BBB")
_LOCAL = struct.Struct(">IBQ")
_GRID = struct.Struct(">IBBIBBHBBIBIBIIIIIIIBIIIIB")
_PRODUCT = struct.Struct(">IBHHBBBBBHBBIBbIBbI")
_REPRESENTATION = struct.Struct(">IBIHfhhBB")
_BIT_MAP = struct.Struct(">IBB")
_DATA = struct.Struct(">IB")
_END = b"7777"
_SECTIONS = (_INDICATOR, _IDENTIFICATION, _LOCAL, _GRID, _PRODUCT, _REPRESENTATION, _BIT_MAP, _DATA)
_FIXED_BYTES = sum(section.size for section in _SECTIONS) + len(_END)
_NEGATIVE = 1 << 31  # GRIB writes sign and magnitude
_RUN_HOURS = 6
_HEADING_LETTERS = "TRUH"  # second letter of the heading, by category of the parameter
_MODELS = (("GFS", "0p25"), ("NAM", "12km"), ("RAP", "13km"), ("HRRR", "3km"), ("SREF", "16km"))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A field on a level, by name and by its numbers in the code tables."""

    name: str
    category: int
    number: int
    level_name: str
    level_type: int
    level: int


PARAMETERS: tuple[Parameter, ...] = (
    Parameter("TMPK", 0, 0, "500 hPa PRES", 100, 50_000),
    Parameter("TMPK", 0, 0, "2 m HGHT", 103, 2),
    Parameter("RELH", 1, 1, "700 hPa PRES", 100, 70_000),
    Parameter("UREL", 2, 2, "250 hPa PRES", 100, 25_000),
    Parameter("VREL", 2, 3, "250 hPa PRES", 100, 25_000),
    Parameter("HGHT", 3, 5, "500 hPa PRES", 100, 50_000),
    Parameter("PRES", 3, 0, "0 - NONE", 1, 0),
    Parameter("PMSL", 3, 1, "0 - MSL", 101, 0),
    Parameter("P06M", 1, 8, "0 - NONE", 1, 0),
)


@dataclass(frozen=True, slots=True)
class Field:
    """What a message is about."""

    parameter: Parameter
    run: time.struct_time
    forecast_h: int


def encode(field: Field, serial: int, size: int, noise: Noise) -> bytes:
    """A GRIB message of `size` bytes, or the smallest one if `size` is below that."""
    points = max(size - _FIXED_BYTES, 1)
    rows = isqrt(points)
    columns = points // rows
    spare = points - rows * columns
    total = _FIXED_BYTES + points
    head = _INDICATOR.pack(b"GRIB", 0, 2, total) + _identification(field.run)
    local = _LOCAL.pack(_LOCAL.size + spare, 2, serial) + bytes(spare)
    points -= spare
    body = _grid(rows, columns) + _product(field) + _representation(points)
    data = _DATA.pack(_DATA.size + points, 7)
    return noise.between(head + local + body + data, total, _END)


def _identification(run: time.struct_time) -> bytes:
    moment = (run.tm_mon, run.tm_mday, run.tm_hour, run.tm_min, run.tm_sec)
    return _IDENTIFICATION.pack(_IDENTIFICATION.size, 1, 7, 0, 2, 1, 1, run.tm_year, *moment, 0, 1)


def _grid(rows: int, columns: int) -> bytes:
    """A latitude-longitude grid over the globe, in millionths of a degree."""
    missing = 0xFFFFFFFF
    shape = (6, 0, 0, 0, 0, 0, 0, columns, rows, 0, missing)
    corners = (90_000_000, 0, 48, _NEGATIVE | 90_000_000, 359_000_000)
    steps = (359_000_000 // max(columns - 1, 1), 180_000_000 // max(rows - 1, 1))
    return _GRID.pack(_GRID.size, 3, 0, rows * columns, 0, 0, 0, *shape, *corners, *steps, 0)


def _product(field: Field) -> bytes:
    parameter = field.parameter
    what = (parameter.category, parameter.number, 2, 0, 96, 0, 0, 1, field.forecast_h)
    level = (parameter.level_type, 0, parameter.level)
    return _PRODUCT.pack(_PRODUCT.size, 4, 0, 0, *what, *level, 255, 0, 0)


def _representation(points: int) -> bytes:
    packing = _REPRESENTATION.pack(_REPRESENTATION.size, 5, points, 0, 220.0, 0, 0, 8, 0)
    return packing + _BIT_MAP.pack(_BIT_MAP.size, 6, 255)


class _Fields:
    """Draws what the next message is about."""

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def draw(self, time_s: float) -> tuple[str, str, Field]:
        """Model, resolution and field of the run that is being sent."""
        model, resolution = _MODELS[int(self._random.random() * len(_MODELS))]
        parameter = PARAMETERS[int(self._random.random() * len(PARAMETERS))]
        forecast_h = int(self._random.random() * 61) * 3
        return model, resolution, Field(parameter, cycle(time_s, _RUN_HOURS), forecast_h)


class NgridMaker:
    """Grids of the broadcast."""

    def __init__(self, source: random.Random, noise: Noise) -> None:
        self._noise = noise
        self._fields = _Fields(source)

    def make(self, time_s: float, serial: int, size: int) -> Content:
        model, _, field = self._fields.draw(time_s)
        subject = _HEADING_LETTERS[field.parameter.category]
        hours = ascii_uppercase[field.forecast_h // 12]
        name = f"Y{subject}Q{hours}{field.parameter.level % 89 + 10}"
        line = Heading(name, "KWBC", int(time_s) // S_PER_MINUTE).text("")
        what = _describe(model, field)
        payload = encode(field, serial, size, self._noise)
        return Content(NGRID_FEED, f"{line} !grib2/ncep/{what}", payload, 3)


class ConduitMaker:
    """Fields of model files."""

    def __init__(self, source: random.Random, noise: Noise) -> None:
        self._noise = noise
        self._fields = _Fields(source)

    def make(self, time_s: float, serial: int, size: int) -> Content:
        model, resolution, field = self._fields.draw(time_s)
        lower, run = model.lower(), field.run
        folder = f"data/nccf/com/{lower}/prod/{lower}.{time.strftime('%Y%m%d', run)}"
        file = f"{lower}.t{run.tm_hour:02d}z.pgrb2.{resolution}.f{field.forecast_h:03d}"
        ident = f"{folder}/{file} !grib2/ncep/{_describe(model, field)}! {serial % 1_000_000:06d}"
        return Content(CONDUIT_FEED, ident, encode(field, serial, size, self._noise), 2)


def _describe(model: str, field: Field) -> str:
    run = time.strftime("%Y%m%d%H%M", field.run)
    parameter = field.parameter
    return f"{model}/#000/{run}F{field.forecast_h:03d}/{parameter.name}/{parameter.level_name}"

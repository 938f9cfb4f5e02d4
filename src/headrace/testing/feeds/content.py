"""What every kind of feed shares: a maker that turns a moment and a size into content, bulk bytes, and times.

    generator ── (time, serial, size) ──► maker ── Content ──► generator ──► Draft

A maker owns a random source of its own, so the same seed gives the same content whatever other
kinds are in the stream. It is called in the order of arrival and may keep state: stations whose
weather moves on, radar volumes that are half sent.

Every maker promises that two calls never give equal payloads, and that no payload is larger than
the requested size or `SIZE_FLOOR_BYTES`, whichever is more.
"""

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

SIZE_FLOOR_BYTES = 512  # each shape has headers; below this a size is only a wish


@dataclass(frozen=True, slots=True)
class Content:
    """A product without its arrival."""

    feed: str
    ident: str
    payload: bytes
    priority: int


class Maker(Protocol):
    """One kind of feed."""

    def make(self, time_s: float, serial: int, size: int) -> Content:
        """The next product.

        time_s: when the product is about, seconds since 1970; never goes back between calls.
        serial: a number that no other call of this stream gets, below 2**63.
        size: bytes that the payload should have; shapes made of whole reports or hits come near it.
        """
        ...


# --- bulk bytes -----------------------------------------------------------------------------------
#
# Compressed fields and images look random to the systems that carry them. Drawing megabytes of random numbers for each
# product would be slower than anything under test, so one pool is drawn per stream and payloads are slices of it. A
# slice alone would repeat: each maker puts something unique in front. The pool comes from `random.Random.randbytes`,
# whose output for a seed does not change between releases.

POOL_BYTES = 4 << 20


def draw_pool(source: random.Random) -> memoryview:
    return memoryview(source.randbytes(POOL_BYTES))


class Noise:
    """Slices of a pool that kinds of feed share; where they are cut is each kind's own."""

    __slots__ = ("_pool", "_random")

    def __init__(self, pool: memoryview, source: random.Random) -> None:
        self._pool = pool
        self._random = source

    def between(self, head: bytes, size: int, tail: bytes = b"") -> bytes:
        """`head`, then as many random bytes as make the whole `size` long, then `tail`.

        A size that is too small for head and tail gives just these.
        """
        return b"".join((head, *self._slices(size - len(head) - len(tail)), tail))

    def _slices(self, size: int) -> Iterable[memoryview]:
        half = len(self._pool) // 2
        while size > 0:
            start = int(self._random.random() * half)
            part = self._pool[start : start + min(size, half)]
            size -= len(part)
            yield part


# --- times, as headings and file names write them -------------------------------------------------
#
# All times are UTC. Most products of a burst fall into the same minute, so the notations of a minute are cached.

S_PER_MINUTE = 60
S_PER_DAY = 86_400

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


@lru_cache(maxsize=4096)
def day_hour_minute(minute: int) -> str:
    """YYGGgg of a WMO heading, day of the month to minute; `minute` counts from 1970."""
    return time.strftime("%d%H%M", time.gmtime(minute * S_PER_MINUTE))


@lru_cache(maxsize=4096)
def issued(minute: int) -> str:
    """The line that dates a text product: `0653Z MON JAN 06 2020`."""
    moment = time.gmtime(minute * S_PER_MINUTE)
    day = f"{_DAYS[moment.tm_wday]} {_MONTHS[moment.tm_mon - 1]} {moment.tm_mday:02d}"
    return f"{moment.tm_hour:02d}{moment.tm_min:02d}Z {day} {moment.tm_year}"


def stamp(time_s: float) -> str:
    """`20200106005312`, as in the names of radar volumes."""
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(time_s))


def day_of_year_stamp(time_s: float) -> str:
    """`20200060053124`, with tenths of a second, as in the names of satellite images."""
    return time.strftime("%Y%j%H%M%S", time.gmtime(time_s)) + str(int(time_s * 10) % 10)


def cycle(time_s: float, hours: int) -> time.struct_time:
    """The model run that is on the wire: the last whole multiple of `hours` before `time_s`."""
    step_s = hours * 3600
    return time.gmtime(time_s // step_s * step_s)

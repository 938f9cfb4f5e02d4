"""What every kind of feed has in common: a maker that turns a moment and a size into content.

    generator ── (time, serial, size) ──► maker ── Content ──► generator ──► Draft

A maker owns a random source of its own, so the same seed gives the same content whichever other
kinds are in the stream. It is asked in the order of arrival and may keep state: stations whose
weather moves on, radar volumes that are half sent.

Every maker promises that two calls never give equal payloads, and that no payload is larger than
the size asked for or `SIZE_FLOOR_BYTES`, whichever is more.
"""

from dataclasses import dataclass
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

"""A product as a source hands it over, before any queue has seen it.

The feed generator yields drafts, a producer puts them, the oracle remembers them. A draft has
neither signature nor sequence: those are given by what is under test.
"""

from dataclasses import dataclass

PRIORITY_DEFAULT = 4
PRIORITY_MAX = 7


@dataclass(frozen=True, slots=True)
class Draft:
    """One product that is ready to be put, and when it arrives."""

    feed: str
    ident: str
    payload: bytes
    created_ns: int  # since 1970-01-01T00:00:00Z; a copy keeps the time of its first sending
    priority: int = PRIORITY_DEFAULT  # 0 least urgent, 7 most
    at_s: float = 0.0  # arrival, in seconds from the start of the stream
    copy: bool = False  # the same product again, as from a second source

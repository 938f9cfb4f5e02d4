"""Draft: a product that is not stored yet, with a writable payload; see `Consumer.new`.

Local and remote consumers share these functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import OptionError
from headrace.product.product import PRIORITY_DEFAULT
from headrace.product.properties import PropertyValue


@dataclass(slots=True)
class Draft:
    """Fill it in, then `Consumer.put` it. All drafts of one put are stored as one batch."""

    feed: str
    payload: bytearray
    ident: str = ""
    priority: int = PRIORITY_DEFAULT
    properties: dict[str, PropertyValue] = field(default_factory=dict)


def new_drafts(count: int, size: int, feed: str, ident: str) -> list[Draft]:
    """`count` drafts with `size` zero bytes each."""
    if not isinstance(count, int) or count < 1 or not isinstance(size, int) or size < 0:
        raise OptionError(f"new({count!r}, {size!r}) is invalid", "give the number of drafts, and the bytes of each")
    return [Draft(feed, bytearray(size), ident) for _ in range(count)]


def draft_columns(drafts: Sequence[Draft]) -> dict[str, Any]:
    """Drafts as the arguments of `put_many`."""
    return {
        "payloads": [draft.payload for draft in drafts],
        "feed": [draft.feed for draft in drafts],
        "ident": [draft.ident for draft in drafts],
        "priority": [draft.priority for draft in drafts],
        "properties": [draft.properties for draft in drafts] if any(draft.properties for draft in drafts) else None,
    }

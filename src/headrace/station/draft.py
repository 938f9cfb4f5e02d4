"""Draft: a product to be, with a payload that can still be written to; see `Consumer.new`."""

from dataclasses import dataclass, field

from headrace.product.product import PRIORITY_DEFAULT
from headrace.product.properties import PropertyValue


@dataclass(slots=True)
class Draft:
    """Fill in, then `put`. All drafts of one put are stored as one batch."""

    feed: str
    payload: bytearray
    ident: str = ""
    priority: int = PRIORITY_DEFAULT
    properties: dict[str, PropertyValue] = field(default_factory=dict)

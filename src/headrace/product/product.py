"""Product: one immutable, named piece of data.

Reading a queue makes products, with their sequence and times filled in; to send one, call `Queue.put` (put.py has its
optional facts). The payload is a read-only view into the queue's memory, valid as long as it exists;
`bytes(product.payload)` copies it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.product.properties import NO_PROPERTIES, PropertyValue

IDENT_BYTES_MAX = 1024
PRIORITY_MAX = 7
PRIORITY_DEFAULT = 4
SLICE_MAX = 65534
NO_SLICE = SLICE_MAX + 1  # how a record and a column say that a product has no slice


@dataclass(frozen=True, slots=True)
class Product:
    """A data product and everything known about it."""

    feed: str
    ident: str
    payload: memoryview
    sequence: int  # in the queue that it was read from
    signature: bytes  # 16 bytes that identify the content; empty without duplicate check
    origin: str  # id of the site where it was created
    origin_sequence: int  # its sequence there
    previous: int | None  # origin sequence of the feed's product before it; None if unknown
    created_ns: int  # UTC
    inserted_ns: int  # UTC, into the queue it was read from
    priority: int = PRIORITY_DEFAULT  # 0 can wait … 7 most urgent
    expiry_ns: int | None = None  # UTC; readers skip it from then on
    slice: int | None = None
    properties: Mapping[str, PropertyValue] = field(default_factory=lambda: NO_PROPERTIES)

    @property
    def size(self) -> int:
        """Bytes of payload."""
        return self.payload.nbytes

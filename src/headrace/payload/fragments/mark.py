"""The mark of a fragment: which transfer it belongs to, its number, and how many there are.

Every product of a transfer has one. The manifest of a transfer has the number `count`, which no fragment has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.product.product import Product

_TRANSFER, _NUMBER, _COUNT = "transfer", "number", "count"


@dataclass(frozen=True, slots=True)
class Mark:
    transfer: str  # hexadecimal
    number: int
    count: int

    @property
    def is_manifest(self) -> bool:
        return self.number == self.count


def mark_of(product: Product) -> Mark | None:
    """The mark of a product; None if it is no fragment."""
    properties: Mapping[str, Any] = product.properties
    transfer, number, count = (properties.get(name) for name in (_TRANSFER, _NUMBER, _COUNT))
    if not isinstance(transfer, str) or not isinstance(number, int) or not isinstance(count, int):
        return None
    return Mark(transfer, number, count)


def facts_of(marks: Sequence[Mark]) -> dict[str, Any]:
    """What `put_many` takes so that each product has its mark."""
    return {"properties": [{_TRANSFER: m.transfer, _NUMBER: m.number, _COUNT: m.count} for m in marks]}

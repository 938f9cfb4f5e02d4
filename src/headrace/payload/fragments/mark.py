"""The mark of a fragment: which transfer it belongs to, its number, and how many there are.

Every product of a transfer has one, as its option `fragment`. That counts the manifest, too: of a transfer with n
fragments these are 0 to n-1, the manifest is number n, and the option says n+1 parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.product.options import Fragment, Options
from headrace.product.product import Product


@dataclass(frozen=True, slots=True)
class Mark:
    transfer: str  # hexadecimal
    number: int
    count: int  # of fragments, without the manifest

    @property
    def is_manifest(self) -> bool:
        return self.number == self.count


def mark_of(product: Product) -> Mark | None:
    """The mark of a product; None if it is no fragment."""
    part = product.options.fragment
    return None if part is None else Mark(part.transfer.hex(), part.number, part.count - 1)


def facts_of(marks: Sequence[Mark]) -> dict[str, Any]:
    """What `put_many` takes so that each product has its mark."""
    parts = [Fragment(bytes.fromhex(mark.transfer), mark.number, mark.count + 1) for mark in marks]
    return {"options": [Options(fragment=part) for part in parts]}

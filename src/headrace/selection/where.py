"""Where: a SQL condition over the header fields and properties of products.

    Where("level > 3 AND site IN ('KFTG', 'KDEN')")

Read once, evaluated for one product or for a batch. Only what is true is wanted: a product without the property, or
with one of another kind, is neither wanted by a condition nor by its opposite (`IS NULL` asks for what is missing).

Not here: the language (sql.py), its meaning for one product (scalar.py) and for many (vector.py).
"""

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from headrace.product.batch import Batch
from headrace.product.product import Product
from headrace.selection.columns import Fields
from headrace.selection.expression import Constant, equalities_of, names_in, text_of
from headrace.selection.scalar import Evaluate, compiled
from headrace.selection.sql import parse_condition
from headrace.selection.vector import is_true


class Where:
    """A condition; equal to another one with the same canonical text."""

    def __init__(self, text: str) -> None:
        self.expression = parse_condition(text)
        self.text = text_of(self.expression)

    @cached_property
    def _evaluate(self) -> Evaluate:
        return compiled(self.expression)

    def test(self, product: Product) -> bool:
        """Whether the condition is true for one product."""
        return self._evaluate(product) is True

    def mask(self, batch: Batch, now_ns: int = 0) -> npt.NDArray[np.bool_]:
        """Whether it is true, for each product of a batch. No condition depends on `now_ns`."""
        return self.mask_of(Fields(batch, np.arange(len(batch))))

    def mask_of(self, fields: Fields) -> npt.NDArray[np.bool_]:
        """The same for some products of a batch."""
        return is_true(self.expression, fields)

    @cached_property
    def equalities(self) -> Mapping[str, Constant]:
        """Constants that fields and properties must be equal to for the condition to be true, so far as AND tells.

        A property that is called as a field is comes as `properties.NAME`. True is not equal to 1 here, though Python
        says so: whoever looks values up must tell the types apart.
        """
        return MappingProxyType(equalities_of(self.expression))

    @cached_property
    def names(self) -> frozenset[str]:
        """Fields and properties that it asks for, spelt as in `equalities`."""
        return frozenset(name.key for name in names_in(self.expression))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Where) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Where({self.text!r})"

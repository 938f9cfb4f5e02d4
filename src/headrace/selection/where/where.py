"""Where: a SQL condition over the header fields and properties of products.

    Where("level > 3 AND site IN ('KFTG', 'KDEN')")

Parsed once, evaluated for one product or for a batch. A product is selected only if the condition is true: a product
without the property, or with a property of another kind, matches neither a condition nor its opposite (`IS NULL` finds
what is missing).

Not here: the language (sql.py), its meaning for one product (scalar.py) and for many (vector.py).
"""

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from headrace.product.batch import Batch
from headrace.product.product import Product
from headrace.selection.where.columns import Fields
from headrace.selection.where.expression import Constant, equalities_of, names_in, text_of
from headrace.selection.where.scalar import Evaluate, compiled
from headrace.selection.where.sql import parse_condition
from headrace.selection.where.vector import is_true


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
        """As `mask`, for some products of a batch."""
        return is_true(self.expression, fields)

    @cached_property
    def equalities(self) -> Mapping[str, Constant]:
        """Constants that fields and properties must equal for the condition to be true, as far as AND determines them.

        A property that has the name of a field is listed as `properties.NAME`. True does not equal 1 here, although
        it does in Python: a look-up by value must compare the types too.
        """
        return MappingProxyType(equalities_of(self.expression))

    @cached_property
    def names(self) -> frozenset[str]:
        """Fields and properties that the condition uses, spelled as in `equalities`."""
        return frozenset(name.key for name in names_in(self.expression))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Where) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Where({self.text!r})"

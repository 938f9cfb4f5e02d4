"""Guarded: a user's function that decides about products, and must not stop anybody else.

A product for which the function raises is not wanted. The first exception of a selection is logged with its traceback
to the logger `headrace.selection`; all are counted.
"""

import logging
from collections.abc import Callable

from headrace.errors import SelectionError
from headrace.product.product import Product

_log = logging.getLogger("headrace.selection")


class Guarded:
    """The function, and how often it failed."""

    __slots__ = ("_function", "failures")

    def __init__(self, function: Callable[[Product], bool]) -> None:
        if not callable(function):
            raise SelectionError(f"function {function!r} cannot be called", "give a function of a product")
        self._function = function
        self.failures = 0

    def test(self, product: Product) -> bool:
        try:
            return bool(self._function(product))
        except Exception:  # noqa: BLE001 - whatever it is, it concerns nobody else
            self.failures += 1
            if self.failures == 1:
                _log.exception("the function %r of a selection failed; its product is not wanted", self._function)
            return False

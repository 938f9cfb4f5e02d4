"""Pace: how many products a task should have, from the time that earlier ones took.

Work on single products: as many as take a fiftieth of a second. The first is done alone; then the estimate may halve
with each task, because the first one may have loaded something.

Work on batches: a call may have a cost of its own, however many products it has, such as a transaction. Time is taken
as cost of the call + cost of a product × products, and both are fitted to what was measured, recent calls more than
earlier ones. A batch takes a tenth of a second, or is so large that the cost of the call is at most a fifth of the
whole. It grows at most twofold at a time, and so finds out what it does not know.
"""

import math

from headrace.slices.tasks import PRODUCTS_MAX, TASK_S

BATCH_S = 0.1
_KEPT = 0.8  # of the weight of earlier calls
_CALL_SHARE = 4  # products take at least so many times the cost of their call


class Pace:
    """The pace of one node."""

    def __init__(self, batches: bool) -> None:
        self._batches = batches
        self._product_s = math.inf  # not known: one at a time
        self._sums: tuple[float, ...] = (0.0,) * 5  # of weights, products, seconds, products², products × seconds
        self.count = 1  # products of the next task

    def note(self, products: int, calls: int, seconds: float) -> None:
        """So many products took so long, in so many calls if they were batches."""
        if not products:
            return
        if self._batches:
            self.count = self._next_batch(products / max(1, calls), seconds / max(1, calls))
            return
        each_s = seconds / products
        before_s = each_s if math.isinf(self._product_s) else self._product_s
        self._product_s = max(each_s, before_s / 2, 1e-7)
        self.count = max(1, min(PRODUCTS_MAX, int(TASK_S / self._product_s)))

    def _next_batch(self, size: float, seconds: float) -> int:
        new = (1.0, size, seconds, size * size, size * seconds)
        self._sums = tuple(_KEPT * old + more for old, more in zip(self._sums, new, strict=True))
        weight, sizes, times, squares, both = self._sums
        spread = squares * weight - sizes * sizes
        doubled = min(PRODUCTS_MAX, 2 * max(self.count, int(size)))
        if spread <= 1e-6 * squares * weight:  # all were of one size: see what another one takes
            return doubled
        product_s = max((both * weight - sizes * times) / spread, 0.0)
        call_s = max((times - product_s * sizes) / weight, 0.0)
        if product_s <= 1e-9:
            return doubled
        wanted = max((BATCH_S - call_s) / product_s, _CALL_SHARE * call_s / product_s)
        return max(1, min(doubled, int(wanted)))

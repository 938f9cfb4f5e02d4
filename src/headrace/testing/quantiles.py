"""A distribution given by a few of its quantiles.

The feed profiles know sizes and gaps only as quantiles of what was measured. `Quantiles` joins
them into an inverse distribution function: straight lines over the logarithm of the value,
because sizes and gaps span many powers of ten, and straight lines over the value itself where a
segment starts at zero.

Nothing is drawn here: the caller passes a share in [0, 1), usually a uniform random number, which
keeps the one source of randomness in the caller's hands.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Self


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Ascending values at ascending shares; the first share is 0 and the last is 1."""

    shares: tuple[float, ...]
    values: tuple[float, ...]

    @classmethod
    def of(cls, table: Mapping[float, float]) -> Self:
        """Build from `{share: value}`. Raises ValueError unless both ascend, shares from 0 to 1."""
        shares, values = tuple(table), tuple(table.values())
        if len(shares) < 2 or shares[0] != 0 or shares[-1] != 1:
            raise ValueError(f"quantiles must run from share 0 to share 1, not {shares}")
        if any(b <= a for a, b in pairwise(shares)) or any(b < a for a, b in pairwise(values)):
            raise ValueError(f"quantiles must ascend: {dict(table)}")
        if values[0] < 0:
            raise ValueError(f"quantiles must not be negative: {values[0]}")
        return cls(shares, values)

    def at(self, share: float) -> float:
        """The value below which `share` of the distribution lies; `share` is in [0, 1]."""
        shares = self.shares
        above = bisect_right(shares, share, 1, len(shares) - 1)
        left, low, high = shares[above - 1], self.values[above - 1], self.values[above]
        part = (share - left) / (shares[above] - left)
        if low == 0.0:
            return high * part
        return float(low * (high / low) ** part)

    def mean(self) -> float:
        """The exact mean of the joined-up distribution."""
        segments = zip(pairwise(self.shares), pairwise(self.values), strict=True)
        return sum((b - a) * _segment_mean(low, high) for (a, b), (low, high) in segments)

    def scaled(self, factor: float) -> Self:
        """The same shape with every value multiplied by `factor`."""
        return type(self)(self.shares, tuple(value * factor for value in self.values))


def _segment_mean(low: float, high: float) -> float:
    if low == 0.0:
        return high / 2
    if low == high:
        return low
    return (high - low) / math.log(high / low)

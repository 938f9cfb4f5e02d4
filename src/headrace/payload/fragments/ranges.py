"""Sets of fragment numbers, as a receipt and a manifest write them: ranges [first, last] in order, without overlap."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.errors import FabricMessageError

Ranges = Sequence[tuple[int, int]]
Numbers = npt.NDArray[np.bool_]  # one for each fragment


def ranges_of(numbers: Numbers, most: int | None = None) -> list[tuple[int, int]]:
    """The true places as ranges; the first `most` of them."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], numbers, [False])).astype(np.int8)))
    pairs = edges.reshape(-1, 2)[:most]
    return [(int(first), int(behind) - 1) for first, behind in pairs]


def numbers_of(ranges: Ranges, count: int) -> Numbers:
    """The places in these ranges; FabricMessageError if one is not below `count`, or they are not in order."""
    numbers, behind = np.zeros(count, np.bool_), 0
    for first, last in ranges:
        if not behind <= first <= last < count:
            raise FabricMessageError(f"range {first} to {last} of {count} fragments is invalid", "it is ignored")
        numbers[first : last + 1] = True
        behind = last + 1
    return numbers

"""What a put answers."""

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Nothing was stored: the queue holds a product with this signature, at sequence `of`."""

    of: int

    def __bool__(self) -> bool:
        return False


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What became of each product of a `put_many`, in their order."""

    products: int  # in the call
    stored: int  # new ones, now readable
    first: int  # sequence of the first one stored; the others follow without a gap; 0 if none was
    _outcomes: tuple[int, ...] | None = None  # with duplicates: sequence, or minus that of the held copy

    def __len__(self) -> int:
        return self.products

    @property
    def sequences(self) -> npt.NDArray[np.uint64]:
        """The sequence of each product; for a duplicate that of the copy that is held."""
        if self._outcomes is None:
            return np.arange(self.first, self.first + self.products, dtype=np.uint64)
        return np.abs(np.array(self._outcomes, dtype=np.int64)).astype(np.uint64)

    @property
    def duplicates(self) -> npt.NDArray[np.bool_]:
        """True for each product that was not stored because a copy is held."""
        if self._outcomes is None:
            return np.zeros(self.products, dtype=np.bool_)
        return np.array(self._outcomes, dtype=np.int64) < 0

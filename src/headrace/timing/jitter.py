"""Jitter: how unevenly products arrive or leave, by the formula of RTP (RFC 3550, section 6.4.1).

For two products in a row, sent at S and received at R,

    D = (R2 - R1) - (S2 - S1)            how much their spacing has changed
    J = J + (|D| - J) / 16               the jitter, a moving mean

`created_ns` is S. The clocks of S and R need not agree; only differences count. Batches are taken whole: the moving
mean is a weighted sum, in which products far back no longer count.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_GAIN = 1 / 16
_TERMS = 1024  # the weight of one further back is below 10**-28
_WEIGHTS = _GAIN * (1 - _GAIN) ** np.arange(_TERMS)[::-1]

Times = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class JitterStatistics:
    """The jitter so far, in nanoseconds."""

    products: int
    jitter_ns: float  # J after the last product
    mean_ns: float  # the mean of |D|
    largest_ns: int  # the largest |D|


class Jitter:
    """Jitter of one stream."""

    def __init__(self) -> None:
        self._products, self._jitter, self._sum, self._largest = 0, 0.0, 0, 0
        self._transit = 0  # of the last product

    def note(self, sent_ns: Times, received_ns: Times | int) -> None:
        """Products in the order in which they were received."""
        if not len(sent_ns):
            return
        transits = np.asarray(received_ns, np.int64) - sent_ns.astype(np.int64)
        if not self._products:
            self._transit = int(transits[0])
        changes = np.abs(np.diff(transits, prepend=self._transit))
        if not self._products:
            changes = changes[1:]
        self._products += len(sent_ns)
        self._transit = int(transits[-1])
        if len(changes):
            self._jitter = jitter_after(self._jitter, changes)
            self._sum += int(changes.sum())
            self._largest = max(self._largest, int(changes.max()))

    def statistics(self) -> JitterStatistics:
        mean_ns = self._sum / (self._products - 1) if self._products > 1 else 0.0
        return JitterStatistics(self._products, self._jitter, mean_ns, self._largest)


def jitter_after(jitter: float, changes: npt.NDArray[np.int64]) -> float:
    """J after so many |D| more."""
    last = changes[-_TERMS:]
    before = jitter * (1 - _GAIN) ** len(changes) if len(changes) <= _TERMS else 0.0
    return float(before + _WEIGHTS[_TERMS - len(last) :] @ last)


def jitter_of_each(sent_ns: Times, received_ns: Times) -> npt.NDArray[np.float64]:
    """J after each product, for plots; the first has none."""
    changes = np.abs(np.diff(received_ns.astype(np.int64) - sent_ns.astype(np.int64)))
    found, jitter = np.empty(len(changes)), 0.0
    for place, change in enumerate(changes.tolist()):
        jitter += (change - jitter) * _GAIN
        found[place] = jitter
    return found

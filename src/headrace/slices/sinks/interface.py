"""What a sink promises to the nodes of a group.

A node works on a product, stores what came of it, and then confirms the product in the table of its group. It may be
killed between any two of these steps, or be stopped for so long that another node owns its slices when it wakes up. A
sink makes each result count once all the same, by storing results and positions together:

    claim    the new owner of slices writes its epochs into the sink, and learns where the results of each slice end
    store    results, and the positions behind them, in one transaction, unless a later epoch has claimed a slice

After `claim` returns, an earlier owner stores nothing of these slices any more. The results of a slice end exactly at
its position in the sink; the owner works from there on, whatever position the table has.

    position in the sink above that of the table    the node was killed between store and confirm: skip ahead
    position in the sink below that of the table    the sink was restored from a backup: work again from there
    the sink does not know the slice                begin at the position of the table

`store` may be repeated with the same arguments after any error, also if it is unknown whether it took effect: results
below the position in the sink are dropped. All results of one product are in one call, and the positions pass them.

The name of a group is the `id` of its terms, not the name that people gave it: epochs begin again when a group is made
again, and so does the id.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from headrace.share.interface import Marks, Positions


class Result(NamedTuple):
    """What came of one product. A list is several results, None is none; anything else is one."""

    slice: int
    sequence: int
    value: Any


class SinkStatistics(msgspec.Struct, frozen=True):
    """What one sink object has done since it was made."""

    claims: int = 0
    stores: int = 0
    results: int = 0  # stored
    repeated: int = 0  # not stored, because they were stored before
    fenced: int = 0  # calls in vain, because a later owner had claimed a slice
    refused: int = 0  # calls in vain, because a result cannot be stored


class Sink(Protocol):
    """Where results go. Threads may share one; each call waits until its work survives a power failure."""

    def claim(self, group: str, marks: Marks) -> Positions:
        """Make the owner of these slices, in these epochs, the only one that stores; return where to begin, for each.

        SinkFencedError: a later owner has claimed some; nothing was claimed. SinkUnavailableError: try again.
        """

    def store(self, group: str, results: Sequence[Result], marks: Marks) -> None:
        """Store results and positions, completely or not at all.

        SinkFencedError names slices that others own now: leave these out, and call again. SinkRefusedError names a
        product whose result can never be stored: leave it out, and call again. SinkUnavailableError: try again.
        """

    def statistics(self) -> SinkStatistics: ...
    def close(self) -> None: ...


def values_of(result: Result) -> list[Any]:
    """The single results of a product."""
    if isinstance(result.value, list):
        return result.value
    return [] if result.value is None else [result.value]

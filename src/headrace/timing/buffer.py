"""ReleaseBuffer: products of one or many sources, in the order of their time stamps.

    with queue.station("display", "lab/**").attach() as consumer:
        with ReleaseBuffer(consumer, hold="200ms") as buffer:
            for batch in buffer:                    # acknowledged when the loop asks for the next one
                show(batch)

A queue has its products in the order in which they arrived. Products of several origins, or of one origin over several
paths, arrive in another order than they were created in. The buffer holds them for a while, so that those that are
behind can come in between, and releases the oldest first. release.py says when, and what happens to late ones.

It works on consumers and followers, local and remote ones, also mixed. What consumers gave is leased while it is held
and acknowledged after it was released, so a program that dies loses nothing. With a follower of a cursor, commit each
batch: `batch.next` is the first product that was not released yet.

Not here: even spacing (pacer.py).
"""

from dataclasses import dataclass
from datetime import timedelta

from headrace.timing.intake import Bounds, Source
from headrace.timing.release import Criteria, Releasing
from headrace.timing.stream import OrderedStream

_REST_SHARE = 0.1  # of `hold`: how long a slow stream gathers before it is asked again
_REST_S_MAX = 0.02


@dataclass(frozen=True, slots=True)
class BufferStatistics:
    """A release buffer since it was made; `held` and `held_bytes` are those of now."""

    held: int
    held_bytes: int
    received: int
    released: int
    late: int  # of the released, or raised as LateError
    dropped_late: int
    repeated: int  # copies of products that were held already; not released
    restarts: int  # how often the order was reset, because all products were late
    releases: dict[str, int]  # by what was met: products, bytes, hold, end


class ReleaseBuffer(OrderedStream):
    """An iterator of batches in the order of time, for `for` and `async for`."""

    def __init__(
        self, *sources: Source, hold: float | str | timedelta = "200ms", products_max: int = 100_000,
        bytes_max: int | str = "64MiB", factor: float = 0.5, late: str = "release",
        timeout: float | str | timedelta | None = None,
    ) -> None:  # fmt: skip
        """`timeout` ends the loop after so long without a product of a consumer; a follower has its own.

        `hold`, `products_max`, `bytes_max` and `factor` say when products are released, `late` what happens to products
        that arrive too late for that (release.py). OptionError if one of them is invalid.
        """
        criteria = Criteria.of(hold, products_max, bytes_max, factor, late)
        self._releasing = Releasing(len(sources), criteria)
        rest_s = min(_REST_S_MAX, _REST_SHARE * criteria.hold_ns / 1e9)
        bounds = Bounds(criteria.products_max, criteria.bytes_max)
        super().__init__(sources, self._releasing, bounds, rest_s, timeout)

    def statistics(self) -> BufferStatistics:
        held, counts = self._releasing.held, self._releasing.counts
        return BufferStatistics(
            len(held), held.bytes, counts.received, counts.released, counts.late, counts.dropped_late, counts.repeated,
            counts.restarts, dict(self._releasing.causes),
        )  # fmt: skip

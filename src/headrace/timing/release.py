"""Criteria and Releasing: when a release buffer hands out what it holds.

A release happens when one of these is met:

    products_max   so many products are held
    bytes_max      their payloads have so many bytes
    hold           the product that is held for the longest time has been held for so long
    end            all sources have ended: everything is released

Then the oldest products are released: at least `factor` times the number held, and more if that takes to get below
`bytes_max`, or for products to leave that were held for `hold`. So nothing is held for longer than `hold`, and what is
kept back gives products that arrive next the chance to come in between. A factor of 1 keeps nothing back.

Late products, created before products that were released already, leave at once, by the policy `late`:

    release   they are released, apart from the others, and count as late
    drop      they are acknowledged and not released
    error     LateError, with the products

If everything that arrives has been late for a second, the clock of the origins was set back: the order is reset.

Pure logic: time is an argument, and nothing here waits or acknowledges.
"""

import math
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from headrace.errors import LateError, OptionError
from headrace.product.batch import Batch
from headrace.product.joined import JoinedBatch
from headrace.timing.held import Held, time_stamps
from headrace.units import exact_age, format_latency, parse_age, parse_size

NS = 1_000_000_000
LATE = ("release", "drop", "error")
HOLD_S_MAX = 3600.0
PRODUCTS_MAX = 10_000_000
FACTOR_MIN = 0.5
ANEW_NS = NS  # of late products only


@dataclass(frozen=True, slots=True)
class Criteria:
    """When to release, and how much."""

    hold_ns: int
    products_max: int
    bytes_max: int
    factor: float
    late: str

    @classmethod
    def of(
        cls, hold: float | str | timedelta, products_max: int, bytes_max: int | str, factor: float, late: str
    ) -> "Criteria":
        """OptionError names the one that is invalid."""
        hold_ns = check_span(hold, "hold", HOLD_S_MAX)
        check_products(products_max)
        size = check_bytes(bytes_max)
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not FACTOR_MIN <= factor <= 1:
            raise OptionError(f"factor {factor!r} is invalid", "give a number from 0.5 to 1.0")
        return cls(hold_ns, products_max, size, float(factor), check_choice(late, "late", LATE))


def check_span(value: float | str | timedelta, what: str, s_max: float, s_min: float = 1e-6) -> int:
    """A time in nanoseconds; OptionError if it is too short or too long."""
    seconds = parse_age(value, what)
    if not s_min <= seconds <= s_max:
        raise OptionError(
            f"{what} of {exact_age(seconds)} is out of range", f"give {format_latency(s_min)} to {exact_age(s_max)}"
        )
    return round(seconds * NS)


def check_products(products_max: Any) -> None:
    if isinstance(products_max, bool) or not isinstance(products_max, int) or not 1 <= products_max <= PRODUCTS_MAX:
        raise OptionError(f"products_max {products_max!r} is invalid", f"give a number from 1 to {PRODUCTS_MAX:,}")


def check_bytes(bytes_max: int | str) -> int:
    size = parse_size(bytes_max, "bytes_max")
    if size < 1:
        raise OptionError(f"bytes_max {bytes_max!r} is invalid", "give one byte or more")
    return size


def check_choice(value: Any, what: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise OptionError(f"{what} {value!r} is invalid", f"give one of: {', '.join(choices)}")
    return str(value)


@dataclass(slots=True)
class Counts:
    """What became of the products."""

    received: int = 0
    released: int = 0
    late: int = 0  # arrived after later ones were released; released all the same
    dropped_late: int = 0
    repeated: int = 0  # copies of products that were held already
    restarts: int = 0  # how often the order was reset


class Holding:
    """What is held, and the policy for late products; what a release buffer and a pacer have in common."""

    def __init__(self, sources: int, late: str) -> None:
        self.held, self.counts = Held(sources), Counts()
        self.dropped: deque[JoinedBatch] = deque()  # to be acknowledged: nobody gets them
        self._late = late
        self._late_since_ns: int | None = None  # all that has arrived since then is late

    def add(self, batch: Batch, source: int, now_ns: int) -> None:
        """Hold a batch that arrived at this moment."""
        self.counts.received += len(batch)
        if len(batch):
            self._look_for_a_clock_set_back(int(time_stamps(batch).max()), now_ns)
        self.held.add(batch, source, now_ns)

    def __len__(self) -> int:
        return len(self.held)

    def take_back(self) -> list[JoinedBatch]:
        """Everything that is held, to be given back."""
        return [self.held.take_all()] if len(self.held) else []

    def _look_for_a_clock_set_back(self, newest_ns: int, now_ns: int) -> None:
        """If everything has been late for a while, reset the order."""
        if newest_ns >= self.held.released_ns:
            self._late_since_ns = None
            return
        self._late_since_ns = now_ns if self._late_since_ns is None else self._late_since_ns
        if now_ns - self._late_since_ns >= ANEW_NS:
            self.held.released_ns, self._late_since_ns = 0, None
            self.counts.restarts += 1

    def _sort_in(self) -> None:
        repeated = self.held.sort_in()
        if repeated is not None:
            self.counts.repeated += len(repeated)
            self.dropped.append(repeated)

    def _take_late(self) -> JoinedBatch | None:
        """Late products, if there are some and they are to be released. LateError by the policy."""
        if not self.held.has_late:
            return None
        self._sort_in()
        if not self.held.late:
            return None
        batch = self.held.take(self.held.late)
        if self._late == "drop":
            self.counts.dropped_late += len(batch)
            self.dropped.append(batch)
            return None
        self.counts.late += len(batch)
        if self._late == "error":
            raise late_error(batch, self.held.released_ns)
        self.counts.released += len(batch)
        return batch


class Releasing(Holding):
    """The release buffer without its sources. `add` and `poll` in turn."""

    def __init__(self, sources: int, criteria: Criteria) -> None:
        super().__init__(sources, criteria.late)
        self.criteria = criteria
        self.causes = dict.fromkeys(("products", "bytes", "hold", "end"), 0)  # releases by what was met

    def due_ns(self) -> int | None:
        """When something is due, if nothing else arrives."""
        arrived_ns = self.held.oldest_arrival_ns
        return None if arrived_ns is None else arrived_ns + self.criteria.hold_ns

    def poll(self, now_ns: int, has_ended: bool = False) -> JoinedBatch | None:
        """What is due now, if anything. LateError by the policy."""
        late = self._take_late()
        if late is not None:
            return late
        cause = self._met(now_ns, has_ended)
        if cause is None:
            return None
        self._sort_in()
        batch = self.held.take(self._count(now_ns, has_ended))
        self.causes[cause] += 1
        self.counts.released += len(batch)
        return batch

    def _met(self, now_ns: int, has_ended: bool) -> str | None:
        if not len(self.held):
            return None
        if len(self.held) >= self.criteria.products_max:
            return "products"
        if self.held.bytes >= self.criteria.bytes_max:
            return "bytes"
        due_ns = self.due_ns()
        if due_ns is not None and now_ns >= due_ns:
            return "hold"
        return "end" if has_ended else None

    def _count(self, now_ns: int, has_ended: bool) -> int:
        """How many to release."""
        held, criteria = self.held, self.criteria
        if has_ended:
            return len(held)
        count = math.ceil(criteria.factor * len(held) - 1e-9)
        if held.bytes >= criteria.bytes_max:
            left = held.bytes - np.cumsum(held.sizes, dtype=np.int64)
            count = max(count, int(np.argmax(left < criteria.bytes_max)) + 1)
        return max(count, held.arrived_until(now_ns - criteria.hold_ns))


def late_error(batch: JoinedBatch, released_ns: int) -> LateError:
    """The error of the policy `error`."""
    first = batch[0]
    behind_s = (released_ns - first.created_ns) / NS
    return LateError(
        f"{len(batch)} late: product {first.sequence} of {first.feed} was created {behind_s:.3g} s before a product "
        "that was released already",
        "hold products for longer, or choose late='release' or 'drop'; error.batch has the products",
        batch,
    )

"""A stream of products as real feeds deliver it, the same for the same seed.

    profiles ─ rates, sizes, gaps ─┐
                                   ├─► originals ──► copies mixed in ──► cut to length ──► Draft
    feeds ──── makers of content ──┘

The mix follows the real rates of the chosen kinds. Arrivals are bursty: gaps have the measured
distribution, scaled to the mean rate. A few long gaps make up most of the time, so gaps that were
drawn freely would give another rate in every minute; every thousand of them last exactly as long
as a thousand mean gaps. A stream asked for at another rate than the real one is the
real stream with time compressed or stretched: `at_s` and `created_ns` follow the rate asked for,
while what the products are about (times of observation in headings and names) goes on at the real
pace.

Promises
    - Iterating twice, or in two processes, with the same arguments gives byte-identical streams.
    - Distinct products have distinct payloads; only drafts with `copy` repeat one, soon after it.
    - `at_s` never decreases, and stays below `duration_s`.
    - A stream with a rate and a duration has their product of drafts, copies included.
    - A replaced bulletin (BBB group CCx or AAx) comes before its replacement.

Nothing here sleeps or puts: a producer paces itself by `at_s`, or ignores it.
"""

import heapq
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, count, islice

from headrace.errors import OptionError
from headrace.testing.clock import NS_PER_S
from headrace.testing.draft import Draft
from headrace.testing.feeds.content import SIZE_FLOOR_BYTES, Content
from headrace.testing.feeds.makers import makers
from headrace.testing.profiles import GAPS_S, GIANT_BYTES, GIANT_SHARE, PROFILES

START_NS = 1_578_268_800 * NS_PER_S  # 2020-01-06T00:00:00Z
DUPLICATES_MAX = 0.5

_GIANT_KIND = "ngrid"
_GIANT_SERIAL = (1 << 63) - 1  # no stream gets that far
_LAG_MIN_S, _LAG_MAX_S = 0.02, 3.0  # of a copy behind its product, at the real rate
_GAPS = 1000  # that last as long as so many mean gaps


class FeedGenerator:
    """An iterable of drafts. Each iteration starts the stream from its beginning.

    seed: everything that is drawn follows from it.
    feeds: kinds of feed, names of `PROFILES`; all of them if None.
    products: how many drafts, copies included; endless if None.
    duration_s: as many drafts as arrive in this time, at their mean rate; endless if None.
    rate: mean drafts per second, copies included; if None, the sum of the real rates, and copies in addition.
    duplicates: share of copies among the drafts, 0 to 0.5.
    start_ns: time of the first product, since 1970; a fixed day if None.
    size_max: no payload is larger, at least 512 bytes.
    giants: let one grid in some 93,000 have 54 MB (or `size_max`).

    Raises ValueError for a value outside these bounds.
    """

    def __init__(
        self,
        *,
        seed: int,
        feeds: Sequence[str] | None = None,
        products: int | None = None,
        duration_s: float | None = None,
        rate: float | None = None,
        duplicates: float = 0.02,
        start_ns: int | None = None,
        size_max: int | None = None,
        giants: bool = True,
    ) -> None:
        self._kinds = _checked_kinds(feeds)
        _check_bounds(products, duration_s, rate, duplicates, size_max)
        self._seed = seed
        self._products = products
        self._duration_s = duration_s
        self._duplicates = duplicates
        self._start_ns = START_NS if start_ns is None else start_ns
        self._size_max = GIANT_BYTES if size_max is None else size_max
        self._giant_share = GIANT_SHARE if giants else 0.0
        self._real_rate = sum(PROFILES[kind].products_per_s for kind in self._kinds)
        originals_per_s = self._real_rate if rate is None else rate * (1 - duplicates)
        self._pace = self._real_rate / originals_per_s  # asked seconds per real second
        self._originals_max: int | None = None
        self._end_s = math.inf  # the last moment before the end
        if duration_s is not None and duration_s < math.inf:
            self._originals_max = round(originals_per_s * duration_s)
            self._end_s = math.nextafter(duration_s, 0)

    def __iter__(self) -> Iterator[Draft]:
        lags = random.Random(f"{self._seed}/copies")
        stream = _with_copies(self._originals(), self._duplicates, self._pace, self._end_s, lags)
        return stream if self._products is None else islice(stream, self._products)

    def giant(self) -> Draft:
        """The largest product that a stream of this seed may have, arriving at the start.

        It is equal to no product of the stream.
        """
        (maker,) = makers(self._seed, [_GIANT_KIND])
        size = min(GIANT_BYTES, self._size_max)
        return self._draft(maker.make(self._start_ns / NS_PER_S, _GIANT_SERIAL, size), 0.0)

    def _originals(self) -> Iterator[Draft]:
        """The stream without copies."""
        source = random.Random(f"{self._seed}/arrivals")
        sizes = [PROFILES[kind].sizes_bytes for kind in self._kinds]
        weights = list(accumulate(PROFILES[kind].products_per_s for kind in self._kinds))
        chosen = range(len(self._kinds))
        made_by = makers(self._seed, self._kinds)
        arrivals = _arrivals(self._originals_max, random.Random(f"{self._seed}/gaps"))
        start_s = self._start_ns / NS_PER_S
        for serial, mean_gaps in enumerate(arrivals):
            real_s = mean_gaps / self._real_rate
            kind = source.choices(chosen, cum_weights=weights)[0]
            size = min(int(sizes[kind].at(source.random())), self._size_max)
            if self._kinds[kind] == _GIANT_KIND and source.random() < self._giant_share:
                size = min(GIANT_BYTES, self._size_max)
            content = made_by[kind].make(start_s + real_s, serial, size)
            yield self._draft(content, min(real_s * self._pace, self._end_s))

    def _draft(self, content: Content, at_s: float) -> Draft:
        created_ns = self._start_ns + round(at_s * NS_PER_S)
        return Draft(content.feed, content.ident, content.payload, created_ns, content.priority, at_s)


def _arrivals(products: int | None, source: random.Random) -> Iterator[float]:
    """When each product arrives, in mean gaps since the first; without end if `products` is None."""
    before = 0
    while products is None or before < products:
        gaps = _GAPS if products is None else min(_GAPS, products - before)
        drawn = [GAPS_S.at((place + source.random()) / gaps) for place in range(gaps)]
        source.shuffle(drawn)
        scale = gaps / (sum(drawn) or 1.0)
        for passed in accumulate(drawn[:-1], initial=0.0):
            yield before + passed * scale
        before += gaps


def _with_copies(
    originals: Iterable[Draft], share: float, pace: float, end_s: float, source: random.Random
) -> Iterator[Draft]:
    """Mix in copies, each a short lag behind its product; `share` of all drafts are copies."""
    copied = _copied(share, source)
    next_copied = next(copied)
    waiting: list[tuple[float, int, Draft]] = []
    for number, draft in enumerate(originals):
        while waiting and waiting[0][0] <= draft.at_s:
            yield heapq.heappop(waiting)[2]
        yield draft
        if number == next_copied:
            next_copied = next(copied)
            lag_s = _LAG_MIN_S * (_LAG_MAX_S / _LAG_MIN_S) ** source.random()
            at_s = min(draft.at_s + lag_s * pace, end_s)
            heapq.heappush(waiting, (at_s, number, replace(draft, at_s=at_s, copy=True)))
    while waiting:
        yield heapq.heappop(waiting)[2]


def _copied(share: float, source: random.Random) -> Iterator[int]:
    """Which products are copied: one in each stretch of equal length, anywhere in it."""
    latest = -1
    for number in count():
        if share:
            latest = max(latest + 1, int((number + source.random()) * (1 - share) / share))
        yield latest


def _checked_kinds(feeds: Sequence[str] | None) -> tuple[str, ...]:
    if feeds is None:
        return tuple(PROFILES)
    unknown = [kind for kind in feeds if kind not in PROFILES]
    if unknown or not feeds:
        names = ", ".join(PROFILES)
        raise OptionError(f"no feed kind {unknown or 'at all'} to generate", f"choose from: {names}")
    return tuple(dict.fromkeys(feeds))


def _check_bounds(
    products: int | None,
    duration_s: float | None,
    rate: float | None,
    duplicates: float,
    size_max: int | None,
) -> None:
    if products is not None and products < 0:
        raise OptionError(f"products is {products}", "give 0 or more")
    if duration_s is not None and not duration_s >= 0:
        raise OptionError(f"duration_s is {duration_s}", "give 0 or more")
    if rate is not None and not 0 < rate < float("inf"):
        raise OptionError(f"rate is {rate} products per second", "give more than 0")
    if not 0 <= duplicates <= DUPLICATES_MAX:
        raise OptionError(f"duplicates is {duplicates}", f"give a share from 0 to {DUPLICATES_MAX}")
    if size_max is not None and size_max < SIZE_FLOOR_BYTES:
        raise OptionError(f"size_max is {size_max}", f"give {SIZE_FLOOR_BYTES} or more")

"""Flows: how the products of each origin and feed arrive here.

For each flow: products, bytes, duplicates, and the latency from creation to arrival, by the clocks of the two sites.
Latencies are counted in logarithmic classes, each 8 % wide. So a percentile is known to that accuracy at any scale, and
memory does not grow with the number of products. Feeds beyond a limit are counted together.
"""

import math
import threading
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.product.batch import Batch
from headrace.relay.messages.page import Page

FLOWS_MAX = 10_000
OTHERS = "(other feeds)"
_CLASSES = 400
_PER_DOUBLING = 9  # 2 ** (1/9) is 1.08
_LEAST_NS = 1_000.0
_FEW = 16
_ONE = np.uint64(1)

Mask = npt.NDArray[np.bool_]


class FlowStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One origin's feed since the start. Latencies are in seconds, None if nothing has come."""

    origin: str
    feed: str
    products: int
    payload_bytes: int
    duplicates: int
    latency_s: float | None  # of the last product
    latency_p50_s: float | None
    latency_p99_s: float | None
    latency_max_s: float | None


class _Flow:
    __slots__ = ("classes", "duplicates", "last_ns", "max_ns", "payload_bytes", "products")

    def __init__(self) -> None:
        self.products = self.payload_bytes = self.duplicates = 0
        self.last_ns = self.max_ns = 0
        self.classes = np.zeros(_CLASSES, np.uint64)

    def add(self, latencies_ns: npt.NDArray[np.int64], payload_bytes: int) -> None:
        self.products += len(latencies_ns)
        self.payload_bytes += payload_bytes
        self.last_ns = int(latencies_ns[-1])
        self.max_ns = max(self.max_ns, int(latencies_ns.max()))
        places = np.log2(np.maximum(latencies_ns, _LEAST_NS) / _LEAST_NS) * _PER_DOUBLING
        counts = np.bincount(np.minimum(places.astype(np.int64), _CLASSES - 1), minlength=_CLASSES)
        self.classes += counts.astype(np.uint64)

    def add_one(self, latency_ns: int, payload_bytes: int) -> None:
        self.products += 1
        self.payload_bytes += payload_bytes
        self.last_ns = latency_ns
        self.max_ns = max(self.max_ns, latency_ns)
        place = int(math.log2(max(latency_ns, _LEAST_NS) / _LEAST_NS) * _PER_DOUBLING)
        self.classes[min(place, _CLASSES - 1)] += _ONE

    def percentile_s(self, share: float) -> float | None:
        if not self.products:
            return None
        place = int(np.searchsorted(np.cumsum(self.classes), share * self.products))
        return float(min(_LEAST_NS * 2 ** ((place + 0.5) / _PER_DOUBLING), max(self.max_ns, _LEAST_NS))) / 1e9


class Flows:
    """All flows into one site. Threads may share it."""

    def __init__(self) -> None:
        self._flows: dict[tuple[str, str], _Flow] = {}
        self._lock = threading.Lock()

    def add(self, page: Page, wanted: Mask | None, new: Mask | None, now_ns: int) -> None:
        """Count a stored page: which of its products were wanted, and which were new; None means all."""
        if wanted is None and new is None and len(page.batch) <= _FEW:
            self._add_few(page.batch, page.columns, now_ns)
            return
        wanted = np.ones(len(page.batch), np.bool_) if wanted is None else wanted
        new = wanted if new is None else new
        columns = page.columns
        kinds = columns["feed"].astype(np.uint64) << np.uint64(32) | columns["origin"].astype(np.uint64)
        for kind in sorted(set(kinds[wanted].tolist())):
            places = np.flatnonzero((kinds == kind) & wanted)
            self._add(page, columns, places, new[places], now_ns)

    def _add_few(self, batch: Batch, columns: Any, now_ns: int) -> None:
        """Without arrays, which cost more than they save for a few products."""
        created, sizes = columns["created_ns"].tolist(), columns["payload_bytes"].tolist()
        with self._lock:
            for place in range(len(batch)):
                flow = self._flow(batch.origin(place), batch.feed(place))
                flow.add_one(max(0, now_ns - created[place]), sizes[place])

    def _add(self, page: Page, columns: Any, places: npt.NDArray[np.intp], is_new: Any, now_ns: int) -> None:
        new, place = places[is_new], int(places[0])
        with self._lock:
            flow = self._flow(page.batch.origin(place), page.batch.feed(place))
            flow.duplicates += len(places) - len(new)
            if len(new):
                latencies = np.int64(now_ns) - columns["created_ns"][new].astype(np.int64)
                flow.add(np.maximum(latencies, 0), int(columns["payload_bytes"][new].sum(dtype=np.uint64)))

    def _flow(self, origin: str, feed: str) -> _Flow:
        flow = self._flows.get((origin, feed))
        if flow is None:
            key = (origin, feed) if len(self._flows) < FLOWS_MAX else ("", OTHERS)
            flow = self._flows.setdefault(key, _Flow())
        return flow

    def statistics(self) -> list[FlowStatistics]:
        with self._lock:
            return [_statistics(origin, feed, flow) for (origin, feed), flow in sorted(self._flows.items())]


def _statistics(origin: str, feed: str, flow: _Flow) -> FlowStatistics:
    seen = flow.products > 0
    return FlowStatistics(
        origin, feed, flow.products, flow.payload_bytes, flow.duplicates,
        flow.last_ns / 1e9 if seen else None, flow.percentile_s(0.5), flow.percentile_s(0.99),
        flow.max_ns / 1e9 if seen else None,
    )  # fmt: skip

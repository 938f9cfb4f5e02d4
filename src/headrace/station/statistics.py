"""Statistics of stations and consumers, and parked products, as plain data.

The monitor, the command line and remote clients read only these. Counters run from the creation of the station, those
of a consumer from its attachment.
"""

import msgspec

from headrace.product.cause import Cause
from headrace.units import format_age


class StationStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One station now. Products that it did not deliver are counted by cause."""

    name: str
    chain: int
    stage: int
    group: str | None
    channel: str | None
    selection: str
    blocking: bool
    durable: bool
    paused: bool
    prescale: int
    capacity: int | None
    position: int  # the log is scanned up to here
    behind: int  # products of the log that it selects and that are not scanned yet
    behind_at_least: bool  # there are more than could be counted
    waiting: int
    leased: int
    parked: int
    retries: int  # of those waiting or leased: delivered before
    consumers: int
    admitted: int  # taken in from the log
    delivered: int  # repetitions included
    acknowledged: int
    discarded: int  # by a consumer
    expired: int
    evicted: int  # left the queue before they were delivered
    evicted_at_most: bool  # some left before they were scanned: of these, all count, whether selected or not
    evicted_ago_s: float | None  # since the last of them was counted
    damaged: int
    restored: int  # taken back from dead or hung consumers
    redelivered: int
    parked_total: int
    rejected: int  # puts refused because of max_queue
    dropped: dict[str, int]  # by the station's policy: flowed_around, fifo, priority, deadline, parking_full
    oldest_age_s: float | None  # of the unacknowledged products

    @property
    def left_out(self) -> dict[Cause, int]:
        """Products that no consumer has finished and none will, by cause; causes without products are left out."""
        counts: dict[Cause, int] = {
            "expired": self.expired, "evicted": self.evicted, "damaged": self.damaged,
            "discarded": self.discarded + sum(self.dropped.values()),
        }  # fmt: skip
        return {cause: count for cause, count in counts.items() if count}


class ConsumerStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One consumer now."""

    station: str
    place: int  # its slot in the chain
    pid: int
    attached_ns: int
    beat_age_s: float  # since its last heartbeat
    leased: int
    delivered: int
    acknowledged: int
    alive: bool


class Lag(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a station is behind."""

    products: int  # unacknowledged, retries included
    retries: int
    seconds: float  # age of the oldest of them
    at_least: bool = False  # there are more products than could be counted
    parked: int = 0  # set aside after too many deliveries; not among `products`
    evicted: int = 0  # lost since the station was created, because they left the queue before they were delivered
    evicted_at_most: bool = False  # products that the station does not select may be among them
    evicted_ago_s: float | None = None  # since the last of them was counted

    @classmethod
    def of(cls, now: StationStatistics) -> "Lag":
        products = now.waiting + now.leased + now.behind
        return cls(
            products, now.retries, now.oldest_age_s or 0.0, now.behind_at_least, now.parked, now.evicted,
            now.evicted_at_most, now.evicted_ago_s,
        )  # fmt: skip


class Parked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A product that was parked after too many deliveries."""

    sequence: int
    deliveries: int
    held: bool  # still in the queue
    feed: str
    ident: str
    size: int


def table_of_station(told: StationStatistics) -> str:
    """What it selects, who works, and what waits."""
    from headrace.notebook import facts_table  # notebook.py says why it is imported here

    behind = f"{'at least ' if told.behind_at_least else ''}{told.behind:,}"
    return facts_table(f"Station {told.name}", [
        ("selection", told.selection), ("channel", told.channel), ("group", told.group),
        ("capacity", told.capacity), ("blocking", told.blocking), ("paused", True if told.paused else None),
        ("consumers", told.consumers), ("waiting", f"{told.waiting:,}, and {behind} not looked at yet"),
        ("leased", f"{told.leased:,}"), ("parked", f"{told.parked:,}" if told.parked else None),
        ("acknowledged", f"{told.acknowledged:,}"),
        ("oldest", None if told.oldest_age_s is None else format_age(told.oldest_age_s)),
        ("left out", ", ".join(f"{count:,} {cause}" for cause, count in told.left_out.items()) or None),
    ])  # fmt: skip

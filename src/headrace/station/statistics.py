"""Statistics: what a station, its consumers and its parking place tell of themselves, as plain data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StationStatistics:
    """One station at one moment. Products that were not handed out are counted by cause."""

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
    position: int  # the log has been looked at up to here
    behind: int  # rows of the log not looked at yet
    waiting: int
    leased: int
    parked: int
    retries: int  # of those waiting or leased: handed out before
    consumers: int
    admitted: int  # taken into the capacity
    delivered: int  # handed out, repetitions included
    acknowledged: int
    discarded: int  # by a consumer
    expired: int
    evicted: int  # left the queue before they were handed out
    damaged: int
    restored: int  # taken back from dead or hung consumers
    redelivered: int
    parked_total: int
    rejected: int  # puts refused because of max_queue
    dropped: dict[str, int]  # by the station's policy: flowed_around, fifo, priority, deadline, parking_full
    oldest_age_s: float | None  # of what is not acknowledged yet


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """One attachment."""

    station: str
    place: int
    pid: int
    attached_ns: int
    beat_age_s: float
    leased: int
    delivered: int
    acknowledged: int
    alive: bool


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a station is behind."""

    products: int  # not acknowledged yet, retries included
    retries: int
    seconds: float  # age of the oldest of them

    @classmethod
    def of(cls, told: StationStatistics) -> "Lag":
        return cls(told.waiting + told.leased + told.behind, told.retries, told.oldest_age_s or 0.0)


@dataclass(frozen=True, slots=True)
class Parked:
    """A product laid aside after too many deliveries."""

    sequence: int
    deliveries: int
    held: bool  # still in the queue
    feed: str
    ident: str
    size: int

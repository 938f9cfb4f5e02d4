"""Accounts of a channel: what its suppliers pushed and its consumers received, product by product.

The ledgers of the processes are compared with what the queue has stored and with the counters of the stations. Each
product has one fate, and everything adds up:

    ticks      =  stored + refused + unknown + skipped               by the ledgers of the suppliers
    stored     =  known to be stored + those of the unknown that were stored, each product once
    stored     =  acknowledged + expired + dropped + waiting          by the counters of each station
    received   =  acknowledged, each product once                     by the ledger of its consumer

A push is unknown if no reply came until its timeout: the product was stored, or it was not. The queue is read with a
clock that stands still in the past, so that products count that have expired since.
"""

from collections import Counter
from pathlib import Path

import msgspec

from headrace.bench.channel_roles import ConsumerLedger, SupplierLedger
from headrace.queue import Queue
from headrace.testing.clock import MockClock
from headrace.units import format_count


class SupplierAccount(msgspec.Struct, frozen=True):
    """All suppliers of a channel together."""

    ticks: int
    stored: int  # in the queue
    refused: int
    timed_out: int  # without a reply, and not stored
    unconfirmed: int  # without a reply, and stored; these are among `stored`
    skipped: int


class StationAccount(msgspec.Struct, frozen=True):
    """One station and its consumer."""

    station: str
    received: int
    expired: int
    dropped: dict[str, int]  # by cause, products that were evicted included
    waiting: int  # leased and parked ones included
    late: int  # received after their expiry, by the clock of the consumer


class Accounts(msgspec.Struct, frozen=True):
    """A channel; `faults` says in words what does not add up."""

    channel: str
    suppliers: SupplierAccount
    stations: list[StationAccount]
    faults: list[str]


def settle_accounts(
    path: Path, channel: str, suppliers: list[SupplierLedger], consumers: dict[str, ConsumerLedger]
) -> Accounts:
    """The accounts of a channel whose suppliers have ended; `consumers` are the ledgers by station."""
    faults: list[str] = []
    with Queue.open(path, clock=MockClock(1)) as queue:
        feed = queue.channel(channel).feed
        stored = {product.sequence: product.ident for product in queue.read(queue.oldest, feed)}
        if queue.oldest != 1:
            faults.append("the queue has evicted products: it is too small for the accounts")
    with Queue.open(path) as queue:
        told = queue.channel(channel).statistics()
        account = _supplied(suppliers, stored, faults)
        if told.pushed != len(stored):
            faults.append(f"the channel counts {told.pushed} products pushed, and {len(stored)} are stored")
        if told.rejected != account.refused:
            faults.append(f"the channel counts {told.rejected} products rejected, its suppliers {account.refused}")
        stations = [_consumed(queue, name, ledger, stored, faults) for name, ledger in sorted(consumers.items())]
    return Accounts(channel, account, stations, faults)


def _supplied(suppliers: list[SupplierLedger], stored: dict[int, str], faults: list[str]) -> SupplierAccount:
    """Compare the ledgers of the suppliers with what the queue has stored."""
    pushed = [each for ledger in suppliers for each in ledger.pushed]
    fates = Counter(each.fate for each in pushed)
    unknown = {each.ident for each in pushed if each.fate == "unknown"}
    left = Counter(stored.values())
    for ident, count in left.items():
        if count > 1:
            faults.append(f"{ident} is stored {count} times")
    for each in pushed:
        if each.fate == "stored" and stored.get(each.sequence) != each.ident:
            faults.append(f"{each.ident} was stored at {each.sequence}, where {stored.get(each.sequence)} is")
        if each.fate == "rejected" and each.ident in left:
            faults.append(f"{each.ident} was refused, and is stored")
    for ident in left.keys() - {each.ident for each in pushed}:
        faults.append(f"{ident} is stored, and no supplier pushed it")
    unconfirmed = len(unknown & left.keys())
    skipped = sum(ledger.skipped for ledger in suppliers)
    return SupplierAccount(
        ticks=len(pushed) + skipped, stored=len(stored), refused=fates["rejected"],
        timed_out=len(unknown) - unconfirmed, unconfirmed=unconfirmed, skipped=skipped,
    )  # fmt: skip


def _consumed(
    queue: Queue, name: str, ledger: ConsumerLedger, stored: dict[int, str], faults: list[str]
) -> StationAccount:
    """Compare the ledger of a consumer with the counters of its station."""
    told = queue.station(name, create=False).statistics()
    times = Counter(each.sequence for each in ledger.received)
    for each in ledger.received:
        if stored.get(each.sequence) != each.ident:
            faults.append(f"station {name}: received {each.ident}, which is not stored")
    if repeated := sum(count > 1 for count in times.values()):
        faults.append(f"station {name}: {format_count(repeated, 'product')} received more than once")
    if told.acknowledged != len(times):
        faults.append(f"station {name}: {told.acknowledged} products acknowledged, and {len(times)} received")
    dropped = {cause: count for cause, count in told.dropped.items() if count}
    dropped |= {cause: count for cause, count in told.left_out.items() if cause in ("evicted", "damaged")}
    waiting = told.waiting + told.leased + told.parked + told.behind
    ended = told.acknowledged + told.discarded + told.expired + sum(dropped.values()) + waiting
    if ended != len(stored):
        faults.append(f"station {name}: {len(stored)} products stored, and {ended} accounted for: {told}")
    late = sum(each.late_ns > 0 for each in ledger.received)
    return StationAccount(name, len(times), told.expired, dropped, waiting, late)

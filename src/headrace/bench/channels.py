"""`headrace bench channels`: the monitor system of the CARMA array, over the network, through one site.

CARMA memorandum 22 (2004) measured a CORBA notification service with 50 suppliers that push 34 kB twice a second, at
the same time or 5 ms apart, to one to three consumers, and with 16 suppliers of 13 kB beside them. The same experiments
here, with each supplier, each consumer and the site in a process of its own, on loopback, on the terms of the memo:
order fifo, timeout 1 s, no limit of products that wait, best effort. A consumer has a station of its own, so that each
consumer receives everything.

Two more experiments have a link that carries less than the suppliers push or the consumers want: the memo says that
events are then lost, and does not count them. Here the fate of each product is known (channel_accounts.py).
"""

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from headrace.bench.carma_memo import MemoTable
from headrace.bench.channel_accounts import Accounts, settle_accounts
from headrace.bench.channel_roles import (
    Carry,
    Consume,
    ConsumerLedger,
    Part,
    Serve,
    SupplierLedger,
    Supply,
    Workers,
    receive,
    worker_processes,
)
from headrace.queue import Queue

PERIOD_S = 0.5
TIMEOUT = "1s"
STAGGER_S = 0.005
BATCH = 50
SECONDS = 20.0
QUICK_SECONDS = 3.0
QUICK_SUPPLIERS = 6  # of 50
NARROW = 0.6  # share of the demand that a narrow link carries
_SETTLE_S = 30.0
_LEAD_S = 0.5  # between the signal to begin and the first tick

Progress = Callable[[str], None]
Side = Literal["", "suppliers", "consumers"]
Ledger = TypeVar("Ledger", SupplierLedger, ConsumerLedger)


class System(msgspec.Struct, frozen=True):
    """Suppliers of one channel, and their consumers."""

    channel: str
    suppliers: int
    size: int
    consumers: int = 1
    stagger_s: float = STAGGER_S

    @property
    def bytes_per_s(self) -> float:
        return self.suppliers * self.size / PERIOD_S


class Case(msgspec.Struct, frozen=True):
    """One experiment."""

    name: str
    what: str
    systems: tuple[System, ...]
    narrow: Side = ""  # the side whose link carries less than the demand

    @property
    def demand(self) -> float:
        """Bytes per second that suppliers push."""
        return sum(system.bytes_per_s for system in self.systems)


class RoleCosts(msgspec.Struct, frozen=True):
    """Processor time while products flowed, in percent of one core."""

    suppliers_pct: float  # all of them
    site_pct: float
    consumer_pct: float  # each, on average


class Latency(msgspec.Struct, frozen=True):
    """From before the push to after the get, of products that were received."""

    p50_ms: float
    p99_ms: float
    max_ms: float


class Result(msgspec.Struct, frozen=True):
    """What an experiment found, by channel."""

    case: Case
    seconds: float
    link_bytes_per_s: float | None  # of the narrow link, if there is one
    costs: dict[str, RoleCosts]  # by channel; the site is the same in all
    latency: dict[str, Latency]
    accounts: list[Accounts]

    @property
    def faults(self) -> list[str]:
        return [fault for accounts in self.accounts for fault in accounts.faults]


class ChannelsReport(msgspec.Struct, frozen=True):
    """A run of the benchmark, with the memo's tables."""

    command: str
    machine: str
    commit: str
    place: str
    yardstick_us: float
    memo_machines: str
    memo: tuple[MemoTable, ...]
    results: list[Result]
    faults: list[str]  # what does not add up, in words
    not_measured: list[str]


def cases(suppliers: int, pipeline_suppliers: int) -> list[Case]:
    """The experiments of the memo's tables 1 to 4, and the two with a narrow link."""
    monitor = System("monitor", suppliers, 34_000)
    pipeline = System("pipeline", pipeline_suppliers, 13_000, stagger_s=0.0)

    def of(**changes: object) -> tuple[System, ...]:
        return (msgspec.structs.replace(monitor, **changes),)

    return [
        Case("staggered", "suppliers staggered by 5 ms", of()),
        Case("together", "suppliers not staggered", of(stagger_s=0.0)),
        Case("consumers-2", "2 consumers", of(consumers=2)),
        Case("consumers-3", "3 consumers", of(consumers=3)),
        Case("size-23", "products of 23 kB", of(size=23_000)),
        Case("pipeline", "pipeline only", (pipeline,)),
        Case("both", "pipeline and monitor", (pipeline, monitor)),
        Case("narrow-suppliers", "narrow link of the suppliers", of(stagger_s=0.0), "suppliers"),
        Case("narrow-consumers", "narrow link of the consumer", of(stagger_s=0.0), "consumers"),
    ]


def run(place: Path, quick: bool, progress: Progress) -> Iterator[Result]:
    """All experiments; with `quick`, fewer suppliers for a shorter time."""
    chosen = cases(QUICK_SUPPLIERS, 2) if quick else cases(50, 16)
    with worker_processes() as workers:
        most = max(sum(system.suppliers + system.consumers for system in case.systems) for case in chosen)
        progress(f"starting {most + 2} processes")
        workers.grow(most + 2)
        for number, case in enumerate(chosen, 1):
            progress(f"{case.what} ({number} of {len(chosen)})")
            yield run_case(place / case.name, case, QUICK_SECONDS if quick else SECONDS, workers)


# --- one experiment -------------------------------------------------------------------------------


def run_case(path: Path, case: Case, seconds: float, workers: Workers) -> Result:
    """Run one experiment with a queue and a site of its own."""
    _create(path, case, seconds)
    (site,) = workers.begin([Serve(path)])
    endpoint: str = site.recv()
    link = _link(workers, case, endpoint)
    narrow = endpoint if link is None else link.recv()
    suppliers = _begin_suppliers(workers, case, narrow if case.narrow == "suppliers" else endpoint, seconds)
    consumers = _begin_consumers(workers, case, narrow if case.narrow == "consumers" else endpoint)

    begun_s, before_s = time.monotonic() + _LEAD_S, _spent(site)
    for _, pipe in suppliers:
        pipe.send(begun_s)
    supplied = [(channel, _ledger(pipe, SupplierLedger)) for channel, pipe in suppliers]
    _wait_until_drained(path, case)
    site_s, took_s = _spent(site) - before_s, time.monotonic() - begun_s
    for _, _, pipe in consumers:
        pipe.send("end")
    consumed = [(channel, station, _ledger(pipe, ConsumerLedger)) for channel, station, pipe in consumers]
    if link is not None:
        link.send("end")
        link.recv()
    site.send(None)
    site.recv()
    workers.release([site, *([] if link is None else [link]), *(pipe for _, pipe in suppliers)])
    workers.release([pipe for _, _, pipe in consumers])
    result = _result(path, case, seconds, took_s, site_s, supplied, consumed)
    shutil.rmtree(path)
    return result


def _create(path: Path, case: Case, seconds: float) -> None:
    """A queue that holds all products of the experiment, with its channels and stations."""
    with Queue.create(
        path, size=(64 << 20) + int(1.5 * case.demand * seconds), durability="memory", origin="bench"
    ) as queue:
        for system in case.systems:
            channel = queue.channel(
                system.channel, f"carma/{system.channel}/**", order="fifo", timeout=TIMEOUT,
                suppliers_max=system.suppliers,
            )  # fmt: skip
            for number in range(system.consumers):
                channel.station(_station(system, number))


def _station(system: System, number: int) -> str:
    return f"{system.channel}-{number}"


def _link(workers: Workers, case: Case, endpoint: str) -> Connection | None:
    if not case.narrow:
        return None
    return workers.begin([Carry(endpoint, case.demand * NARROW)])[0]


def _begin_suppliers(workers: Workers, case: Case, endpoint: str, seconds: float) -> list[tuple[str, Connection]]:
    parts: list[Part] = []
    channels: list[str] = []
    for system in case.systems:
        for number in range(system.suppliers):
            parts.append(
                Supply(
                    endpoint, system.channel, f"carma/{system.channel}/{number}", f"{system.channel}{number}",
                    system.size, int(seconds / PERIOD_S), PERIOD_S, number * system.stagger_s, timeout_s=PERIOD_S,
                )
            )  # fmt: skip
            channels.append(system.channel)
    return list(zip(channels, workers.begin(parts), strict=True))


def _begin_consumers(workers: Workers, case: Case, endpoint: str) -> list[tuple[str, str, Connection]]:
    names = [(each.channel, _station(each, number)) for each in case.systems for number in range(each.consumers)]
    pipes = workers.begin([Consume(endpoint, channel, station, BATCH) for channel, station in names])
    return [(channel, station, pipe) for (channel, station), pipe in zip(names, pipes, strict=True)]


def _spent(site: Connection) -> float:
    """Processor time of the site so far."""
    site.send("spent")
    return float(receive(site))


def _ledger(pipe: Connection, kind: type[Ledger]) -> Ledger:
    ledger = receive(pipe)
    assert isinstance(ledger, kind)
    return ledger


def _wait_until_drained(path: Path, case: Case) -> None:
    """Wait until nothing waits at any station; products that do not end in time stay among those that wait."""
    end_s = time.monotonic() + _SETTLE_S
    with Queue.open(path) as queue:
        stations = [
            queue.station(_station(each, n), create=False) for each in case.systems for n in range(each.consumers)
        ]
        while any(station.lag().products for station in stations) and time.monotonic() < end_s:
            time.sleep(0.1)


# --- results --------------------------------------------------------------------------------------


def _result(
    path: Path, case: Case, seconds: float, took_s: float, site_s: float,
    supplied: list[tuple[str, SupplierLedger]], consumed: list[tuple[str, str, ConsumerLedger]],
) -> Result:  # fmt: skip
    costs, latency, accounts = dict[str, RoleCosts](), dict[str, Latency](), list[Accounts]()
    for system in case.systems:
        suppliers = [ledger for channel, ledger in supplied if channel == system.channel]
        consumers = {station: ledger for channel, station, ledger in consumed if channel == system.channel}
        costs[system.channel] = RoleCosts(
            suppliers_pct=100 * sum(ledger.processor_s for ledger in suppliers) / seconds,
            site_pct=100 * site_s / seconds,
            consumer_pct=100 * statistics.fmean(ledger.processor_s for ledger in consumers.values()) / took_s,
        )
        latency[system.channel] = _latency(list(consumers.values()))
        accounts.append(settle_accounts(path, system.channel, suppliers, consumers))
    return Result(case, seconds, case.demand * NARROW if case.narrow else None, costs, latency, accounts)


def _latency(consumers: list[ConsumerLedger]) -> Latency:
    taken = sorted(each.latency_ns / 1e6 for ledger in consumers for each in ledger.received) or [0.0]
    return Latency(statistics.median(taken), taken[int(len(taken) * 0.99)], taken[-1])

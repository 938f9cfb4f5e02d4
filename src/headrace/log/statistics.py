"""Statistics: the state and the counters of a queue at one moment, as plain data.

Monitor, metrics and command line read only these. Reading takes no lock, so that numbers of a queue in use may differ
from each other by a few products.
"""

import time
from pathlib import Path
from typing import Any

import msgspec

from headrace.kernel import _kernel as kernel
from headrace.log.attach import list_attachments
from headrace.log.clock_words import NO_SOURCE, SOURCES, read_clock
from headrace.log.config import QueueConfig
from headrace.log.cursor import CursorFile
from headrace.units import format_age, format_size


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Per second, over the last `window_s` seconds."""

    window_s: float
    products: float
    bytes: float
    duplicates: float


class CursorStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One cursor: its position, its lag, and what it lost."""

    name: str
    position: int
    behind: int  # products between it and the head
    lost_products: int
    lost_first: int | None  # latest lost range
    lost_last: int | None


class FeedStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that was ever put into one feed of this queue."""

    feed: str
    products: int
    bytes: int
    last: int


class ClockReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The clock of the queue: how far it is from that of the system, and how far it may be from the truth."""

    source: str  # none, system, ntp
    offset_s: float  # UTC by this clock minus the clock of the system, when it was last corrected
    bound_s: float | None  # None: unknown


class Statistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A queue at one moment."""

    oldest: int  # sequence of the oldest product held
    next: int  # sequence that the next product will get
    held_products: int
    held_bytes: int  # payload bytes of these
    file_bytes: int  # segment files and duplicate memory
    size: int  # the limit for segment files
    oldest_age_s: float | None  # since the oldest product held was inserted
    inserted_products: int  # since creation, like the following
    inserted_bytes: int
    duplicates: int
    evicted_products: int
    evicted_bytes: int
    deleted_products: int
    segments: int
    pinned_evictions: int  # segments that were evicted while a reader held a view of them
    recoveries: int  # writers that died while holding the lock, after which others cleaned up
    undurable: int  # products that a power failure now would lose; 0 under `memory`, where it would lose all
    rates: list[Rate]
    readers: int
    writers: int
    attached: list[int]  # process ids
    cursors: list[CursorStatistics]
    feeds: list[FeedStatistics]
    flush_failure: str | None
    clock: ClockReading = ClockReading("none", 0.0, None)


def gather(log: kernel.Log, cursors: CursorFile, oldest_ns: int | None, now_ns: int, flush_failure: Any) -> Statistics:
    """Read everything once."""
    state = log.state
    entries = [log.entry(n) for n in range(state["segment_oldest"], state["segment_newest"] + 1)]
    ends = [e["end"] or state["tail"] for e in entries]
    held = sum(end - e["first"] - e["deleted_products"] for e, end in zip(entries, ends, strict=True))
    attached = list_attachments(log)
    return Statistics(
        oldest=state["oldest"],
        next=state["head"],
        held_products=held,
        held_bytes=sum(e["payload_bytes"] - e["deleted_bytes"] for e in entries),
        file_bytes=state["bytes_total"] + state["dedup_bytes"],
        size=state["size_bytes"],
        oldest_age_s=None if oldest_ns is None else max(0.0, (now_ns - oldest_ns) / 1e9),
        inserted_products=state["inserted_products"],
        inserted_bytes=state["inserted_bytes"],
        duplicates=state["duplicates"],
        evicted_products=state["evicted_products"],
        evicted_bytes=state["evicted_bytes"],
        deleted_products=state["deleted_products"],
        segments=len(entries),
        pinned_evictions=state["unlinked_pinned"],
        recoveries=state["recoveries"],
        undurable=max(0, state["tail"] - state["synced"]) if state["durability"] else 0,
        rates=[rate(log, window_s) for window_s in (1, 10, 60)],
        readers=sum(found.reads for found in attached),
        writers=sum(found.writes for found in attached),
        attached=sorted({found.pid for found in attached}),
        cursors=[_cursor(cursors, name, slot, state["head"]) for name, slot in sorted(cursors.names().items())],
        feeds=[FeedStatistics(f, products, size, last) for f, last, products, size in sorted(log.feed_totals())],
        flush_failure=str(flush_failure) if flush_failure else None,
        clock=read_clock_of(log),
    )


def read_clock_of(log: kernel.Log) -> ClockReading:
    words, (_, bound_ns) = read_clock(log), log.now_and_bound()
    if words is None:
        return ClockReading(SOURCES[NO_SOURCE], 0.0, None)
    return ClockReading(SOURCES[words.source], words.offset_ns / 1e9, bound_ns / 1e9 if bound_ns else None)


def _cursor(file: CursorFile, name: str, slot: int, head: int) -> CursorStatistics:
    state = file.load(slot)
    first, last = (state.lost.first, state.lost.last) if state.lost else (None, None)
    return CursorStatistics(name, state.position, max(0, head - state.position), state.lost_products, first, last)


def rate(log: kernel.Log, window_s: int) -> Rate:
    """From the samples that writers leave at the first put of each second."""
    now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    samples = sorted(log.samples())
    if not samples or samples[-1][0] < now_ns - (window_s + 1) * 10**9:
        return Rate(window_s, 0.0, 0.0, 0.0)
    before = [sample for sample in samples if sample[0] <= now_ns - window_s * 10**9]
    start = before[-1] if before else samples[0]
    span_s = max((now_ns - start[0]) / 1e9, 0.05)
    state = log.state
    return Rate(
        window_s,
        max(0, state["inserted_products"] - start[1]) / span_s,
        max(0, state["inserted_bytes"] - start[2]) / span_s,
        max(0, state["duplicates"] - start[3]) / span_s,
    )


def table_of_queue(path: Path, statistics: Statistics, config: QueueConfig) -> str:
    """What it holds, its limits, and the feeds with the most products."""
    from headrace.notebook import facts_table, rows_table  # notebook.py says why it is imported here

    age = None if statistics.oldest_age_s is None else format_age(statistics.oldest_age_s)
    facts = facts_table(f"Queue {path}", [
        ("products", f"{statistics.held_products:,}, {format_size(statistics.held_bytes)}"),
        ("sequences", f"{statistics.oldest} to {statistics.next - 1}" if statistics.held_products else None),
        ("oldest", age), ("size", format_size(statistics.size)),
        ("age", None if config.age_s is None else format_age(config.age_s)), ("durability", config.durability),
        ("duplicates", f"{statistics.duplicates:,} refused, by {config.dedup}"),
    ])  # fmt: skip
    feeds = sorted(statistics.feeds, key=lambda each: -each.products)
    rows = ((each.feed, f"{each.products:,}", format_size(each.bytes)) for each in feeds)
    return facts + rows_table(
        "Feeds, since the queue was created", ("feed", "products", "bytes"), rows, len(feeds), "feed"
    )

"""`headrace queue info`: everything that a queue tells of itself, as tables or as one JSON object."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from headrace.cli.opening import open_here
from headrace.cli.options import json_option
from headrace.cli.output import echo_json, many, show_table, show_terms
from headrace.log.config import QueueConfig
from headrace.log.statistics import Statistics
from headrace.units import format_age, format_size

BUSIEST = 20
CURSOR_HEADER = ("name", "position", "behind", "lost", "latest lost range")


@click.command()
@click.argument("path")
@click.option("--all-feeds", is_flag=True, help=f"Show all feeds, not only the {BUSIEST} busiest.")
@json_option
def info(path: str, all_feeds: bool, as_json: bool) -> None:
    """Show the terms of the queue at PATH, what it holds, its rates, cursors, feeds and attached processes.

    \b
    Example:
      headrace queue info wx.queue
      headrace queue info wx.queue --json | jq .statistics.held_products
    """
    with open_here(path) as queue:
        config, statistics = queue.config, queue.statistics()
    others = [_process(pid) for pid in statistics.attached if pid != os.getpid()]
    if as_json:
        echo_json({"path": str(queue.path), "terms": config, "statistics": statistics, "processes": others})
        return
    show_terms(str(queue.path), terms_of(config))
    show_terms("holds", _holdings(statistics))
    _show_rates(statistics)
    _show_cursors(statistics)
    _show_feeds(statistics, all_feeds)
    if others:
        show_table("attached processes", ("pid", "command"), [(p["pid"], p["command"]) for p in others], right=[0])


def terms_of(config: QueueConfig) -> dict[str, object]:
    """What the queue was created with, in words."""
    return {
        "size": format_size(config.size),
        "age": "any" if config.age_s is None else format_age(config.age_s),
        "durability": config.durability,
        "dedup": config.dedup,
        "origin": config.origin,
        "largest payload": format_size(config.payload_bytes_max),
        "id": config.uuid,
    }


def _holdings(statistics: Statistics) -> Mapping[str, object]:
    s = statistics
    span = f"{s.oldest} to {s.next - 1}" if s.next > s.oldest else f"none; the next is {s.next}"
    age = "" if s.oldest_age_s is None else f", the oldest {format_age(s.oldest_age_s)} old"
    rows = {
        "products": f"{s.held_products:,}{age}",
        "sequences": span,
        "payload": format_size(s.held_bytes),
        "files": f"{format_size(s.file_bytes)} of {format_size(s.size)} in {many(s.segments, 'segment')}",
        "ever put": f"{s.inserted_products:,} ({format_size(s.inserted_bytes)})",
        "duplicates": f"{s.duplicates:,} rejected",
        "evicted": f"{s.evicted_products:,} ({format_size(s.evicted_bytes)})",
        "deleted": f"{s.deleted_products:,}",
        "not yet on disk": f"{s.undurable:,}",
        "readers, writers": f"{s.readers}, {s.writers}",
    }
    if s.recoveries:
        rows["recoveries"] = f"{s.recoveries:,} writers died while putting"
    if s.pinned_evictions:
        rows["pinned"] = f"{s.pinned_evictions:,} segments were evicted while somebody looked at them"
    if s.flush_failure:
        rows["flush failed"] = s.flush_failure
    return rows


def _show_rates(statistics: Statistics) -> None:
    rows = [
        (f"last {rate.window_s:.0f} s", f"{rate.products:,.1f}", format_size(rate.bytes), f"{rate.duplicates:,.1f}")
        for rate in statistics.rates
    ]
    show_table("rates per second", ("", "products", "payload", "duplicates"), rows, right=[1, 2, 3])


def _show_cursors(statistics: Statistics) -> None:
    if statistics.cursors:
        show_table("cursors", CURSOR_HEADER, cursor_rows(statistics), right=[1, 2, 3])


def cursor_rows(statistics: Statistics) -> list[tuple[object, ...]]:
    """One row for each cursor, under CURSOR_HEADER."""
    return [
        (c.name, c.position, c.behind, c.lost_products, "" if c.lost_first is None else f"{c.lost_first}-{c.lost_last}")
        for c in statistics.cursors
    ]


def _show_feeds(statistics: Statistics, everything: bool) -> None:
    feeds = sorted((f for f in statistics.feeds if f.products), key=lambda f: f.products, reverse=True)
    shown = feeds if everything else feeds[:BUSIEST]
    rows = [(f.feed, f"{f.products:,}", format_size(f.bytes), f.last) for f in shown]
    if rows:
        show_table("feeds, all that was ever put", ("feed", "products", "payload", "latest"), rows, right=[1, 2, 3])
    if len(shown) < len(feeds):
        click.echo(f"and {many(len(feeds) - len(shown), 'feed')} more: --all-feeds")


def _process(pid: int) -> dict[str, Any]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        words = []
    return {"pid": pid, "command": b" ".join(words).decode(errors="replace")}

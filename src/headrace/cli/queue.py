"""`headrace queue`: what an operator does with a queue as a whole: create, info, train, check, repair, resize, delete.

All but `info` need the files of the queue, so they accept a directory and no endpoint.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from headrace.cli.failure import NEGATIVE, OK, confirm
from headrace.cli.group import Group, QueueArgument
from headrace.cli.options import (
    AGE,
    SIZE,
    directory_of,
    json_option,
    open_local_queue,
    open_queue,
    selection_of,
    selection_options,
)
from headrace.cli.output import echo_json, progress_bar, show_fields, show_table
from headrace.cli.queue_train import train
from headrace.errors import NotAQueueError, OptionError, QueueDamagedError
from headrace.log.check import Finding
from headrace.log.config import CONFIG_FILE, DEDUPS, DURABILITIES, HASHES, QueueConfig
from headrace.log.directory import check_path
from headrace.log.statistics import Statistics
from headrace.queue import Queue
from headrace.queue.request_files import has_site
from headrace.text import visible
from headrace.units import format_age, format_count, format_latency, format_size

BUSIEST = 20
_queue = click.argument("path", cls=QueueArgument, metavar="QUEUE")
_WHY_LOCAL = "only a program on its machine may change or check the files"
CURSOR_HEADER = ("name", "position", "behind", "lost", "latest lost range")


@click.group(cls=Group)
def queue() -> None:
    """Create, inspect, check, repair and delete queues.

    \b
    Example:
      headrace queue create wx.queue --size 2GiB --age 1h
      headrace queue info wx.queue
    """


# --- create and resize ----------------------------------------------------------------------------


@queue.command(short_help="Create an empty queue.")
@click.argument("path", cls=QueueArgument)
@click.option("--size", type=SIZE, default="1GiB", show_default=True, help="Bytes that the queue may hold.")
@click.option("--age", type=AGE, help="Evict products that are older, such as 1h. [default: no age limit]")
@click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    default="process",
    show_default=True,
    help="memory: kept in /dev/shm until a reboot; process: survives a crash; disk: survives a power failure.",
)
@click.option(
    "--dedup",
    type=click.Choice(DEDUPS),
    default="identity",
    show_default=True,
    help="Duplicates have equal feed, ident and payload (identity), or equal payloads, as in LDM; none: keep all.",
)
@click.option(
    "--hash",
    type=click.Choice(HASHES),
    default="blake3",
    show_default=True,
    help="The hash of the signatures; xxh3: for trusted sources only.",
)
@click.option("--origin", metavar="ID", help="The id of this site. [default: the host name]")
@click.option(
    "--mode",
    metavar="MODE",
    default="0640",
    show_default=True,
    help="Of its files, now and later: 0600, 0640 (the group reads), 0660 (the group puts, too), 0644 (all read).",
)
@click.option("--group", metavar="GROUP", help="The group of its files. [default: that of the process]")
@json_option
def create(
    path: str,
    size: int,
    age: float | None,
    durability: str,
    dedup: str,
    hash: str,
    origin: str | None,
    mode: str,
    group: str | None,
    as_json: bool,
) -> None:
    """Create an empty queue at PATH, a directory that does not exist yet.

    \b
    Example:
      headrace queue create wx.queue --size 2GiB --age 1h
    """
    path = directory_of(path, _WHY_LOCAL)
    with Queue.create(
        path, size=size, age=age, durability=durability, dedup=dedup, hash=hash, origin=origin, mode=mode, group=group
    ) as queue:
        if as_json:
            echo_json({"path": str(queue.path), "terms": queue.config})
            return
        terms = _terms(queue.config)
        click.echo(f"created {queue.path}: {format_size(size)}, age {terms['age']}, {durability}, dedup {dedup}")


@queue.command(short_help="Change the limits of size and age.")
@_queue
@click.option("--size", type=SIZE, help="Bytes that the queue may hold, such as 2GiB.")
@click.option("--age", type=AGE, help="Evict products that are older, such as 1h; 0 removes the limit.")
@json_option
def resize(path: str, size: int | None, age: float | None, as_json: bool) -> None:
    """Change the limits of QUEUE. Products that no longer fit are evicted at once, the oldest first.

    \b
    Example:
      headrace queue resize wx.queue --size 4GiB --age 0
    """
    if size is None and age is None:
        raise OptionError("there is nothing to change", "give --size, --age or both")
    with open_local_queue(path, _WHY_LOCAL) as queue:
        before = queue.statistics().evicted_products
        queue.resize(size=size, age=age)
        evicted = queue.statistics().evicted_products - before
        if as_json:
            echo_json({"path": str(queue.path), "terms": queue.config, "evicted": evicted})
            return
        terms = _terms(queue.config)
        click.echo(f"{path}: size {terms['size']}, age {terms['age']}; {format_count(evicted, 'product')} evicted")
        if has_site(queue.path):
            click.echo(
                "if [queue] of the configuration of the site names size or age, write the same there: with another "
                "value the site does not start again"
            )


# --- info -----------------------------------------------------------------------------------------


@queue.command(short_help="Show configuration, contents, rates, cursors and feeds.")
@_queue
@click.option("--all-feeds", is_flag=True, help=f"Show all feeds, not only the {BUSIEST} busiest.")
@json_option
def info(path: str, all_feeds: bool, as_json: bool) -> None:
    """Show the configuration of QUEUE, its contents, rates, cursors, feeds and attached processes.

    \b
    Example:
      headrace queue info wx.queue
      headrace queue info site:denver
      headrace queue info wx.queue --json | jq .statistics.held_products
    """
    with open_queue(path) as queue:
        config, statistics = queue.config, queue.statistics()
    is_here = isinstance(queue, Queue)  # the ids of processes elsewhere mean nothing here
    others = [_process(pid) for pid in statistics.attached if is_here and pid != os.getpid()]
    if as_json:
        echo_json({"path": str(queue.path), "terms": config, "statistics": statistics, "processes": others})
        return
    show_fields(str(queue.path), _terms(config))
    show_fields("contents", _contents(statistics))
    _show_rates(statistics)
    if statistics.cursors:
        show_cursors(statistics)
    _show_feeds(statistics, all_feeds)
    if others:
        show_table("attached processes", ("pid", "command"), [(p["pid"], p["command"]) for p in others], right=[0])


def _terms(config: QueueConfig) -> dict[str, object]:
    return {
        "size": format_size(config.size),
        "age": "any" if config.age_s is None else format_age(config.age_s),
        "durability": config.durability,
        "dedup": config.dedup if config.dedup == "none" else f"{config.dedup}, by {config.hash}",
        "origin": config.origin,
        "largest payload": format_size(config.payload_bytes_max),
        "id": config.uuid,
    }


def _contents(statistics: Statistics) -> Mapping[str, object]:
    s = statistics
    span = f"{s.oldest} to {s.next - 1}" if s.next > s.oldest else f"none; the next is {s.next}"
    age = "" if s.oldest_age_s is None else f", the oldest is {format_age(s.oldest_age_s)} old"
    rows = {
        "products": f"{s.held_products:,}{age}",
        "sequences": span,
        "payload": format_size(s.held_bytes),
        "files": f"{format_size(s.file_bytes)} of {format_size(s.size)} in {format_count(s.segments, 'segment')}",
        "put since creation": f"{s.inserted_products:,} ({format_size(s.inserted_bytes)})",
        "duplicates": f"{s.duplicates:,} rejected",
        "evicted": f"{s.evicted_products:,} ({format_size(s.evicted_bytes)})",
        "deleted": f"{s.deleted_products:,}",
        "not yet on disk": f"{s.undurable:,}",
        "readers, writers": f"{s.readers}, {s.writers}",
        "clock": _clock(s),
    }
    if s.recoveries:
        rows["recoveries"] = f"{format_count(s.recoveries, 'writer')} died during a put"
    if s.pinned_evictions:
        verb = "was" if s.pinned_evictions == 1 else "were"
        rows["pinned"] = f"{format_count(s.pinned_evictions, 'segment')} {verb} evicted while a reader held a view"
    if s.flush_failure:
        rows["flush failed"] = s.flush_failure
    return rows


def _clock(statistics: Statistics) -> str:
    clock = statistics.clock
    if clock.source == "none":
        return "that of the system, bound unknown"
    bound = "unknown" if clock.bound_s is None else format_latency(clock.bound_s)
    return f"{clock.source}, {clock.offset_s:+.6f} s from that of the system, bound {bound}"


def _show_rates(statistics: Statistics) -> None:
    rows = [
        (f"last {rate.window_s:.0f} s", f"{rate.products:,.1f}", format_size(rate.bytes), f"{rate.duplicates:,.1f}")
        for rate in statistics.rates
    ]
    show_table("rates per second", ("", "products", "payload", "duplicates"), rows, right=[1, 2, 3])


def show_cursors(statistics: Statistics) -> None:
    """A table with one row for each cursor."""
    rows = [
        (c.name, c.position, c.behind, c.lost_products, "" if c.lost_first is None else f"{c.lost_first}-{c.lost_last}")
        for c in statistics.cursors
    ]
    show_table("cursors", CURSOR_HEADER, rows, right=[1, 2, 3])


def _show_feeds(statistics: Statistics, everything: bool) -> None:
    feeds = sorted((f for f in statistics.feeds if f.products), key=lambda f: f.products, reverse=True)
    shown = feeds if everything else feeds[:BUSIEST]
    rows = [(f.feed, f"{f.products:,}", format_size(f.bytes), f.last) for f in shown]
    if rows:
        show_table("feeds, since creation", ("feed", "products", "payload", "latest"), rows, right=[1, 2, 3])
    if len(shown) < len(feeds):
        click.echo(f"and {format_count(len(feeds) - len(shown), 'feed')} more: --all-feeds")


def _process(pid: int) -> dict[str, Any]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        words = []
    return {"pid": pid, "command": b" ".join(words).decode(errors="replace")}


queue.add_command(train)


# --- check and repair -----------------------------------------------------------------------------


@queue.command(short_help="Read the whole queue and list every inconsistency.")
@_queue
@json_option
def check(path: str, as_json: bool) -> int:
    """Read the whole QUEUE and list every inconsistency. Exit code 1 if there is any.

    The check changes nothing and may run while the queue is in use. `headrace queue repair` fixes what it finds.

    \b
    Example:
      headrace queue check wx.queue && echo intact
    """
    findings = _findings(path)
    if as_json:
        echo_json({"path": path, "ok": not findings, "findings": findings})
        return NEGATIVE if findings else OK
    for finding in findings:
        click.echo(visible(str(finding)))
    if not findings:
        click.echo(f"{path} is intact")
        return OK
    click.echo(f"{format_count(len(findings), 'finding')}; to repair: headrace queue repair {path}", err=True)
    return NEGATIVE


def _findings(path: str) -> list[Finding]:
    """All inconsistencies; a queue that is too damaged to open is one finding."""
    try:
        with open_local_queue(path, _WHY_LOCAL) as queue, progress_bar("checking segments") as bar:
            return queue.check(bar.set)
    except QueueDamagedError as error:
        return [Finding(path, error.problem)]


@queue.command(short_help="Repair a damaged queue that no process has open.")
@_queue
@json_option
def repair(path: str, as_json: bool) -> None:
    """Repair the damaged QUEUE, keep every intact product, and list the steps.

    No process may have the queue open.

    \b
    Example:
      headrace queue repair wx.queue
    """
    path = directory_of(path, _WHY_LOCAL)
    done = Queue.repair(path)
    if as_json:
        echo_json({"path": path, "done": done})
        return
    for step in done:
        click.echo(visible(step))
    if not done:
        click.echo(f"{path}: nothing to repair")


# --- delete ---------------------------------------------------------------------------------------


@queue.command(short_help="Delete products, or the whole queue.")
@click.argument("path", cls=QueueArgument, metavar="QUEUE", explicit=True)
@selection_options
@click.option("--yes", is_flag=True, help="Delete the whole queue without asking.")
@json_option
def delete(path: str, select: str | None, ident: str | None, yes: bool, as_json: bool) -> int:
    """Delete the products that --select and --ident choose; without these options, the whole QUEUE.

    Readers skip deleted products at once, and an equal product may be put again; the space is reclaimed later. The
    whole queue can only be deleted while no process has it open. QUEUE must be written here: neither HEADRACE_QUEUE nor
    a context replaces it. Exit code 1 if you answer no.

    \b
    Example:
      headrace queue delete wx.queue --select 'wx/text/**' --ident '^SAUS'
      headrace queue delete wx.queue --yes
    """
    if select is not None or ident is not None:
        return _delete_products(path, select, ident, as_json)
    return _delete_queue(path, yes, as_json)


def _delete_products(path: str, select: str | None, ident: str | None, as_json: bool) -> int:
    selection = selection_of(select, ident)
    with open_local_queue(path, _WHY_LOCAL) as queue:
        deleted = queue.delete(selection)
    if as_json:
        echo_json({"path": path, "deleted_products": deleted})
    else:
        click.echo(f"deleted {format_count(deleted, 'product')} of {path}")
    return OK


def _delete_queue(path: str, yes: bool, as_json: bool) -> int:
    path = directory_of(path, _WHY_LOCAL)
    _check_is_queue(Path(path).absolute())
    if not yes and not confirm(f"Delete the queue {path} with all its products?"):
        click.echo("nothing was deleted", err=True)
        return NEGATIVE
    Queue.remove(path)
    if as_json:
        echo_json({"path": path, "deleted": True})
    else:
        click.echo(f"deleted the queue {path}")
    return OK


def _check_is_queue(path: Path) -> None:
    """A typing error must not delete another directory."""
    check_path(path)
    if not (path / CONFIG_FILE).exists():
        raise NotAQueueError(f"{path} has no {CONFIG_FILE}: it is not a queue", "give the directory of a queue")

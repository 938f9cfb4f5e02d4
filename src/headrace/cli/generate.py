"""`headrace generate`: a seeded stream of products like those of real feeds, put into a queue or only listed."""

import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click

from headrace.cli.failure import OK
from headrace.cli.group import Command
from headrace.cli.options import AGE, SIZE, json_option, open_queue
from headrace.cli.output import echo_json, progress_bar
from headrace.cli.stream import PatientPuts
from headrace.errors import OptionError
from headrace.queue import AnyQueue
from headrace.testing import Draft, FeedGenerator, Oracle
from headrace.testing.pacing import BATCH_BYTES_MAX, due_batches, put_drafts
from headrace.testing.profiles import PROFILES
from headrace.units import format_count, format_size


@click.command(cls=Command)
@click.argument("queue_path", metavar="[QUEUE]", required=False)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same products.")
@click.option("--products", type=click.IntRange(min=0), help="End after this many products, copies included.")
@click.option("--duration", type=AGE, help="End after this much time of the stream, such as 10s.")
@click.option("--rate", type=float, help="Mean products per second. [default: as the real feeds]")
@click.option("--real-time/--fast", "paced", default=True, help="Put each product at its time, or as fast as possible.")
@click.option("--feeds", metavar="KIND,…", help=f"Only these kinds of feed: {', '.join(PROFILES)}.")
@click.option("--duplicates", type=float, default=0.02, show_default=True, help="Share of copies among the products.")
@click.option("--size-max", type=SIZE, help="Largest payload. [default: the limit of the queue]")
@click.option("--no-giants", is_flag=True, help="Leave out the rare products of 54 MB.")
@click.option("--oracle", "oracle_path", metavar="FILE", help="Save what was sent, for `headrace verify`.")
@json_option
def generate(
    queue_path: str | None, seed: int, products: int | None, duration: float | None, rate: float | None, paced: bool,
    feeds: str | None, duplicates: float, size_max: int | None, no_giants: bool, oracle_path: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Generate products like those of real weather feeds and detectors, and put them into QUEUE at their times.

    Without QUEUE they are only listed, as fast as possible; write @ for the default queue. Without --products and
    --duration it runs until Ctrl-C.

    \b
    Example:
      headrace generate wx.queue --duration 10s --rate 500 --oracle sent.jsonl
      headrace verify wx.queue --oracle sent.jsonl
      headrace generate --products 5 --feeds metar,nexrad2
    """
    with ExitStack() as stack:
        queue = stack.enter_context(open_queue(queue_path)) if queue_path is not None else None
        limit = size_max if queue is None else min(size_max or sys.maxsize, queue.config.payload_bytes_max)
        generator = _generator(seed, products, duration, rate, feeds, duplicates, limit, not no_giants)
        oracle = Oracle() if oracle_path is not None else None
        if oracle is not None and oracle_path is not None:
            _check_writable(oracle_path)
            stack.callback(oracle.save, oracle_path)
        if queue is None:
            _list(generator, oracle, as_json)
        else:
            _put(generator, queue, oracle, paced, products, as_json)
    return OK


def _generator(
    seed: int, products: int | None, duration: float | None, rate: float | None, feeds: str | None, duplicates: float,
    size_max: int | None, giants: bool,
) -> FeedGenerator:  # fmt: skip
    """The generator; OptionError if an option is out of range."""
    kinds = None if feeds is None else [kind.strip() for kind in feeds.split(",") if kind.strip()]
    return FeedGenerator(
        seed=seed, feeds=kinds, products=products, duration_s=duration, rate=rate, duplicates=duplicates,
        size_max=size_max, giants=giants,
    )  # fmt: skip


def _check_writable(path: str) -> None:
    """Fail before the run, not after it."""
    folder = Path(path).absolute().parent
    if not folder.is_dir() or Path(path).is_dir():
        raise OptionError(f"--oracle {path!r} is not a writable file", "give a file in a directory that exists")


def _list(generator: FeedGenerator, oracle: Oracle | None, as_json: bool) -> None:
    for draft in generator:
        if oracle is not None:
            oracle.sent(draft)
        if as_json:
            echo_json(_values(draft))
            continue
        copy = "  (copy)" if draft.copy else ""
        click.echo(f"{draft.at_s:10.4f} s  {format_size(len(draft.payload)):>9}  {draft.feed}  {draft.ident}{copy}")


def _values(draft: Draft) -> dict[str, object]:
    return {
        "at_s": draft.at_s, "feed": draft.feed, "ident": draft.ident, "size": len(draft.payload),
        "priority": draft.priority, "copy": draft.copy,
    }  # fmt: skip


def _put(
    generator: FeedGenerator, queue: AnyQueue, oracle: Oracle | None, paced: bool, products: int | None, as_json: bool
) -> None:
    """Put everything. The totals are also shown when Ctrl-C ends it."""
    started_s, sent, stored, size = time.monotonic(), 0, 0, 0
    bytes_max, puts = min(BATCH_BYTES_MAX, queue.config.size // 8), PatientPuts(queue)
    try:
        with progress_bar("generating", products) as bar:
            for batch in due_batches(generator, not paced, bytes_max):
                with puts:  # totals and oracle match the queue
                    receipt = puts.put(partial(put_drafts, queue, batch))
                    if oracle is not None:
                        for draft in batch:
                            oracle.sent(draft)
                    sent, stored = sent + len(batch), stored + receipt.stored
                    size += sum(len(draft.payload) for draft in batch)
                bar.set(sent, products)
    finally:
        _show_totals(sent, stored, size, time.monotonic() - started_s, as_json)


def _show_totals(sent: int, stored: int, size: int, took_s: float, as_json: bool) -> None:
    if as_json:
        echo_json({"sent": sent, "stored": stored, "duplicates": sent - stored, "bytes": size, "took_s": took_s})
        return
    rate = sent / max(took_s, 1e-9)
    click.echo(
        f"sent {format_count(sent, 'product')} ({format_size(size)}) in {took_s:.1f} s, {rate:,.0f} products/s; "
        f"{format_count(sent - stored, 'duplicate')} rejected"
    )

"""`headrace slices parked`: products that were given up after too many attempts: list them, work on them, forget them.

A parked product is in the queue, as all others, and its slice has gone on behind it. Here it can be worked on again,
without its place in the order of the slice.
"""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failure import NEGATIVE, OK, notice
from headrace.cli.group import Command
from headrace.cli.options import FEED, completes, json_option, open_queue, queue_argument
from headrace.cli.output import echo_json, show_table
from headrace.cli.slices_group import group_options, name_of, open_group
from headrace.cli.slices_objects import load_here
from headrace.errors import HeadraceError, OptionError, ShareError
from headrace.text import visible
from headrace.units import format_count, format_time

if TYPE_CHECKING:
    from headrace.product import Product
    from headrace.queue import AnyQueue
    from headrace.share.interface import AnyShare, Parked


@click.command(cls=Command, short_help="List products that were given up, try them again, or forget them.")
@queue_argument
@click.option(
    "--sequence",
    "sequences",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="Only this product; may be repeated.",
)
@click.option("--retry", metavar="MODULE:FUNCTION", help="Work on them here; those that succeed leave the list.")
@click.option(
    "--publish",
    type=FEED,
    shell_complete=completes("feed"),
    help="With --retry, put the results into this feed, once, as `run --publish` does.",
)
@click.option("--forget", is_flag=True, help="Take them off the list.")
@group_options
@json_option
def parked(
    queue_path: str, sequences: tuple[int, ...], retry: str | None, publish: str | None, forget: bool,
    stream: str | None, group: str | None, as_json: bool,
) -> int:  # fmt: skip
    """List the products that nodes of a group have given up, with the error of the last attempt.

    --retry calls a function with each of them, here and now, one after the other. What it returns is put into the feed
    of --publish, or else shown; a sink would refuse it, because its slice has gone on. A product that fails again stays
    on the list. Exit code 1 if one fails, or is no longer in the queue.

    \b
    Example:
      headrace slices parked wx.queue
      headrace slices parked wx.queue --retry decode:work
      headrace slices parked wx.queue --sequence 4711 --forget
    """
    if retry is not None and forget:
        raise OptionError("--retry contradicts --forget", "give one of them")
    if publish is not None and retry is None:
        raise OptionError("--publish has no effect without --retry", "leave it out, or give --retry")
    work = load_here(retry, "function") if retry is not None else None
    with open_queue(queue_path) as queue:
        share = open_group(queue, stream, group)
        chosen = _chosen(share, sequences)
        if work is not None:
            failed = sum(not each for each in _Retry(queue, share, work, publish, as_json).all(chosen))
            return NEGATIVE if failed else OK
        if forget:
            chosen = share.unpark([each.sequence for each in chosen])
        _show(queue, share, chosen, forget, as_json)
    return OK


def _chosen(share: "AnyShare", sequences: tuple[int, ...]) -> "list[Parked]":
    listed = share.parked()
    missing = set(sequences) - {each.sequence for each in listed}
    if missing:
        raise ShareError(
            f"product {min(missing)} is not parked in {name_of(share)}", "list those that are: headrace slices parked"
        )
    return [each for each in listed if not sequences or each.sequence in sequences]


def _show(queue: "AnyQueue", share: "AnyShare", chosen: "list[Parked]", forget: bool, as_json: bool) -> None:
    if as_json:
        for each in chosen:
            found = product_at(queue, each.sequence)
            more = {"feed": found.feed, "ident": found.ident} if found else {"feed": None, "ident": None}
            echo_json({**_values(each), **more, "forgotten": forget})
    elif forget:
        click.echo(f"forgot {format_count(len(chosen), 'product')}")
    elif not chosen:
        click.echo(visible(f"{name_of(share)} has no parked products"))
    else:
        rows = [
            (each.sequence, each.slice, _name(product_at(queue, each.sequence)), format_time(each.time_ns), each.node,
             each.tries, each.error)
            for each in chosen
        ]  # fmt: skip
        show_table("parked", ("sequence", "slice", "product", "time", "node", "tries", "error"), rows, (0, 1, 5))


def _values(each: "Parked") -> dict[str, Any]:
    return {"sequence": each.sequence, "slice": each.slice, "tries": each.tries, "error": each.error,
            "node": each.node, "time": format_time(each.time_ns)}  # fmt: skip


def product_at(queue: "AnyQueue", sequence: int) -> "Product | None":
    """A product by its sequence; None if it is not in the queue any more, or damaged."""
    try:
        batch = queue.read_batch(sequence, limit=1, stop=sequence + 1)
    except HeadraceError:
        return None
    return batch[0] if len(batch) and int(batch.sequences[0]) == sequence else None


def _name(product: "Product | None") -> str:
    return f"{product.feed} {product.ident}".rstrip() if product else "no longer in the queue"


class _Retry:
    """Works on parked products, one after the other."""

    def __init__(self, queue: "AnyQueue", share: "AnyShare", work: Any, publish: str | None, as_json: bool) -> None:
        from headrace.slices import QueueSink
        from headrace.slices.workers import is_async

        if not callable(work):
            raise OptionError("--retry names no function", "name a function of a product: MODULE:FUNCTION")
        self._queue, self._share, self._as_json = queue, share, as_json
        self._work, self._is_async = work, is_async(work)
        self._sink = QueueSink(queue, publish) if publish is not None else None

    def all(self, chosen: "list[Parked]") -> list[bool]:
        """Whether each has succeeded."""
        done = [self._one(each) for each in chosen]
        if not self._as_json:
            count = format_count(len(done), "product")
            click.echo(f"{count} tried: {done.count(True):,} done, {done.count(False):,} still parked")
        return done

    def _one(self, each: "Parked") -> bool:
        product = product_at(self._queue, each.sequence)
        if product is None:
            return self._fail(each, "it is no longer in the queue; --forget takes it off the list")
        try:
            result = self._result(product)
            if self._sink is not None and result is not None:
                self._store(each, result)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            return self._fail(each, f"{type(error).__name__}: {error}")
        self._share.unpark([each.sequence])
        if self._as_json:
            echo_json({"sequence": each.sequence, "done": True, "result": None if result is None else repr(result)})
        else:
            shown = f": {result!r:.200}" if result is not None and self._sink is None else ""
            click.echo(visible(f"product {each.sequence} done{shown}"))
        return True

    def _result(self, product: "Product") -> Any:
        if not self._is_async:
            return self._work(product)
        import asyncio

        return asyncio.run(self._work(product))

    def _store(self, each: "Parked", result: Any) -> None:
        from headrace.share.interface import NO_MARKS
        from headrace.slices.sinks.interface import Result

        assert self._sink is not None
        self._sink.store(self._share.terms.id, [Result(each.slice, each.sequence, result)], NO_MARKS)

    def _fail(self, each: "Parked", why: str) -> bool:
        notice(f"product {each.sequence}: {why}", self._as_json, sequence=each.sequence, done=False, problem=why)
        return False

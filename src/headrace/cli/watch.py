"""`headrace watch`: follow a queue, one line per product."""

import sys
import time
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failure import NEGATIVE, OK, json_line
from headrace.cli.group import Command
from headrace.cli.options import AGE, POSITION, json_option, open_queue, queue_argument, selection_of, selection_options
from headrace.cli.ordering import ordered, ordering_options
from headrace.cli.output import PAYLOAD_BYTES_MAX, payload_lines, product_text, product_values
from headrace.cli.stream import GapReports, follow, stop_when_unread
from headrace.product.joined import JoinedBatch

if TYPE_CHECKING:
    from headrace.product import Batch
    from headrace.queue import AnyCursor, AnyQueue

_BATCH_PRODUCTS = 1000  # few enough that the first line of a long backlog appears at once


@click.command(cls=Command)
@queue_argument
@selection_options
@click.option(
    "--from",
    "start",
    type=POSITION,
    default="next",
    show_default=True,
    metavar="next|oldest|SEQUENCE|AGE|TIME",
    help="Where to start; with --cursor, where a new cursor starts.",
)
@click.option("--count", type=click.IntRange(min=1), help="End after this many products.")
@click.option("--timeout", type=AGE, help="End when no selected product has arrived for this long, such as 5s.")
@click.option("--payload", is_flag=True, help="Show the beginning of each payload too, as text or in hexadecimal.")
@ordering_options
@click.option("--cursor", "cursor_name", metavar="NAME", help="Continue where the last watch with this cursor ended.")
@json_option
def watch(
    queue_path: str,
    select: str | None,
    ident: str | None,
    start: int | str,
    count: int | None,
    timeout: float | None,
    payload: bool,
    in_order: float | None,
    pace: float | None,
    cursor_name: str | None,
    as_json: bool,
) -> int:
    """Follow QUEUE and show each product: sequence, time of insertion, size, age, feed and ident.

    The time is UTC. The age is the time since the insertion into this queue, not since the creation at the origin. With
    --in-order and --pace, the time is that of the creation, and products that came too late for that are marked.

    Products that were evicted before they were read are reported on standard error, as an exact range. A cursor moves
    after its products have been written. Ctrl-C ends it (exit code 130). Exit code 1 if a damaged product was skipped.
    --payload shows up to 2 KiB of each payload, text with control characters escaped; with --json, in Base64.

    \b
    Example:
      headrace watch wx.queue --select 'wx/radar/**'
      headrace watch wx.queue --payload --select 'wx/text/**'
      headrace watch wx.queue --from 1h --ident '^SA' --timeout 5s --json
      headrace watch wx.queue --in-order 200ms
    """
    selection = selection_of(select, ident)
    with open_queue(queue_path, waits=True) as queue:
        cursor = None if cursor_name is None else queue.cursor(cursor_name, start)
        position = start if cursor is None else cursor.position
        limit = min(_BATCH_PRODUCTS, count or _BATCH_PRODUCTS)
        follower = queue.follow(position, selection, limit=limit, timeout=timeout)
        gaps, unread = GapReports(as_json), stop_when_unread(follower.stop)
        left = count
        with ordered(follower, in_order, pace) or nullcontext() as stream:
            for batch in follow(follower, gaps, stream):
                shown = len(batch) if left is None else min(left, len(batch))
                show_batch(batch, shown, payload, as_json, _time_of(queue))
                _commit(cursor, batch, shown)
                left = None if left is None else left - shown
                if left == 0:
                    break
            else:
                if cursor is not None:
                    cursor.save(follower.position)  # past products that were not selected
        if unread.is_set():
            raise BrokenPipeError
        return NEGATIVE if gaps.damaged_products else OK


def _time_of(queue: "AnyQueue") -> int:
    """The time by the clock of the queue; 0 if it is elsewhere."""
    from headrace.queue import Queue
    from headrace.queue.queue import log_of

    return log_of(queue).now_ns() if isinstance(queue, Queue) else 0


def show_batch(batch: "Batch", shown: int, payload: bool, as_json: bool, now_ns: int = 0) -> None:
    """Write the first products of a batch with one call. `now_ns` is the time of their queue, if it is known."""
    now_ns, late = now_ns or time.time_ns(), getattr(batch, "late", None)
    lines = []
    for place, product in enumerate(islice(batch, shown)):
        age_s = max(0.0, (now_ns - product.inserted_ns) / 1e9)
        if as_json:
            more: dict[str, Any] = {"payload": bytes(product.part[:PAYLOAD_BYTES_MAX])} if payload else {}
            more |= {} if late is None else {"late": place < late}
            lines.append(json_line(product_values(product, age_s=age_s, **more)))
            continue
        line = product_text(product, age_s, product.inserted_ns if late is None else product.created_ns)
        lines.append(f"{line}  (late)" if late and place < late else line)
        if payload:
            lines += payload_lines(product.part)
    if lines:
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


def _commit(cursor: "AnyCursor | None", batch: "Batch", shown: int) -> None:
    if cursor is None:
        return
    if shown == len(batch):
        cursor.commit(batch)
    elif isinstance(batch, JoinedBatch):  # in another order than that of the queue
        cursor.save(min(batch.next, int(batch.sequences[shown:].min())))
    else:
        cursor.save(int(batch.sequences[shown - 1]) + 1)

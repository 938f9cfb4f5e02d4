"""`headrace cat`: write the payloads in a queue to standard output or to files."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import click

from headrace.cli.failure import NEGATIVE, OK, notice
from headrace.cli.group import Command
from headrace.cli.options import POSITION, json_option, open_queue, queue_argument, selection_of, selection_options
from headrace.cli.output import echo_json, product_values
from headrace.cli.stream import GapReports, read_range
from headrace.payload.fragments.join import Joiner
from headrace.product import Product
from headrace.queue import AnyQueue
from headrace.selection import Selection
from headrace.units import format_count, format_size

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS_MAX = 120
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\0": "\0", r"\\": "\\"}
_ESCAPE = re.compile(r"\\[ntr0\\]")

Write = Callable[[Product, bytes | memoryview], int]  # writes one product and its content; returns the bytes


@click.command(cls=Command)
@queue_argument
@selection_options
@click.option(
    "--from", "start", type=POSITION, default="oldest", show_default=True,
    metavar="oldest|SEQUENCE|AGE|TIME", help="Where to start.",
)  # fmt: skip
@click.option(
    "--to", "end", type=POSITION, default="next", show_default=True,
    metavar="next|SEQUENCE|AGE|TIME", help="Where to end; the product there is not written.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), help="End after this many products.")
@click.option("--output", metavar="DIR", help="Write each payload to a file of its own in DIR.")
@click.option("--record", is_flag=True, help="Write whole records, as on disk and on the wire, instead of payloads.")
@click.option("--separator", default="", metavar="TEXT", help=r"Between payloads on standard output, such as '\n'.")
@json_option
def cat(
    queue_path: str, select: str | None, ident: str | None, start: int | str, end: int | str, count: int | None,
    output: str | None, record: bool, separator: str, as_json: bool,
) -> int:  # fmt: skip
    """Write the payloads that QUEUE holds to standard output, unchanged, and end.

    With --output, each payload goes to a file named after its sequence and ident. With --json, each product is one JSON
    object, with its payload in Base64 or, with --output, its file. A large product that the queue stores as fragments
    is joined, and written once; with --record, each part is a record. Exit code 1 if a damaged product was skipped, or
    parts of a large product are missing.

    \b
    Example:
      headrace cat wx.queue --select wx/text/metar --count 10 --separator '\\n'
      headrace cat wx.queue --from 1h --output products/
    """
    selection, gaps = selection_of(select, ident), GapReports(as_json)
    with open_queue(queue_path) as queue:
        write = writer(output, record, separator, as_json)
        products = size = 0
        joiner = None if record else Joiner()
        for product, content in islice(_wanted(queue, selection, start, end, gaps, joiner), count):
            size += write(product, content)
            products += 1
    is_short = joiner is not None and products != count and _report_missing(joiner, as_json)
    if output is not None and not as_json:
        click.echo(f"wrote {format_count(products, 'file')} ({format_size(size)}) to {output}")
    return NEGATIVE if gaps.damaged_products or is_short else OK


def _wanted(
    queue: AnyQueue, selection: Selection, start: int | str, end: int | str, gaps: GapReports, joiner: Joiner | None
) -> Iterator[tuple[Product, bytes | memoryview]]:
    """Each product between the two positions, with its payload; without a joiner, with its record."""
    first = queue.resolve(start)
    stop = min(end if isinstance(end, int) else queue.resolve(end), queue.next)
    for batch in read_range(queue, first, stop, selection, gaps):
        inside = int((batch.sequences < stop).sum())
        if inside < len(batch):
            batch = batch.take(range(inside))
        if joiner is None:
            yield from ((batch[index], batch.record(index)) for index in range(inside))
        else:
            yield from ((product, product.payload) for product in joiner.join(batch))


def _report_missing(joiner: Joiner, as_json: bool) -> bool:
    """Name what could not be joined on standard error; whether there is any."""
    incomplete, told = joiner.incomplete(), joiner.statistics
    for each in incomplete:
        notice(
            f"product {each.ident!r} of feed {each.feed} is not written: {each.missing:,} of its {each.parts:,} parts, "
            f"which begin at {each.first}, are not in what was read; read a longer range, or put it again",
            as_json,
            incomplete={"feed": each.feed, "ident": each.ident, "first": each.first, "missing": each.missing,
                        "parts": each.parts},
        )  # fmt: skip
    dropped = told.dropped + told.early_dropped
    if dropped:
        what = f"{format_count(dropped, 'large product or part')} that came incomplete, and too many to keep"
        notice(f"{what}: not written; read a shorter range", as_json, dropped=dropped)
    of_files = told.files + told.file_manifests
    if of_files:
        what = format_count(of_files, "fragment")
        notice(f"{what} of files: not written; headrace receive joins them", as_json, fragments_of_files=of_files)
    return bool(incomplete or dropped or of_files)


def writer(output: str | None, record: bool, separator: str, as_json: bool) -> Write:
    """Writes payloads, or whole records, to files in the directory `output`, as JSON, or to standard output."""
    if output is not None:
        return _file_writer(Path(output), ".record" if record else "", as_json)
    if as_json:
        return lambda product, content: _write_json(product, content, record)
    return _stream_writer(_unescape(separator))


def _write_json(product: Product, content: bytes | memoryview, record: bool) -> int:
    echo_json(product_values(product, **{"record" if record else "payload": bytes(content)}))
    return len(content)


def _stream_writer(separator: bytes) -> Write:
    stream = sys.stdout.buffer
    between = iter([b""])

    def write(product: Product, content: bytes | memoryview) -> int:
        stream.write(next(between, separator))
        return stream.write(content)

    return write


def _file_writer(directory: Path, suffix: str, as_json: bool) -> Write:
    directory.mkdir(parents=True, exist_ok=True)

    def write(product: Product, content: bytes | memoryview) -> int:
        file = directory / (file_name(product.sequence, product.ident) + suffix)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with open(descriptor, "wb") as out:
            size = out.write(content)
        if as_json:
            echo_json(product_values(product, file=str(file)))
        return size

    return write


def file_name(sequence: int, ident: str) -> str:
    """A name that sorts by sequence, contains the ident, and stays inside its directory."""
    tail = _UNSAFE.sub("_", ident).strip("_.")[-_NAME_CHARACTERS_MAX:]
    return f"{sequence:012d}-{tail}" if tail else f"{sequence:012d}"


def _unescape(text: str) -> bytes:
    return _ESCAPE.sub(lambda found: _ESCAPES[found[0]], text).encode(errors="surrogateescape")

"""`headrace cat`: write the payloads in a queue to standard output or to files."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.group import Command
from headrace.cli.options import POSITION, json_option, open_queue, queue_argument, selection_of, selection_options
from headrace.cli.output import echo_json, product_values
from headrace.cli.stream import GapReports, read_range
from headrace.product import Batch
from headrace.queue import AnyQueue
from headrace.selection import Selection
from headrace.units import format_count, format_size

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS_MAX = 120
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\0": "\0", r"\\": "\\"}
_ESCAPE = re.compile(r"\\[ntr0\\]")

Write = Callable[[Batch, int], int]  # writes one product; returns its bytes


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
    object, with its payload in Base64 or, with --output, its file. Exit code 1 if a damaged product was skipped.

    \b
    Example:
      headrace cat wx.queue --select wx/text/metar --count 10 --separator '\\n'
      headrace cat wx.queue --from 1h --output products/
    """
    selection, gaps = selection_of(select, ident), GapReports(as_json)
    with open_queue(queue_path) as queue:
        write = writer(output, record, separator, as_json)
        products = size = 0
        for batch, index in _wanted(queue, selection, start, end, count, gaps):
            size += write(batch, index)
            products += 1
    if output is not None and not as_json:
        click.echo(f"wrote {format_count(products, 'file')} ({format_size(size)}) to {output}")
    return NEGATIVE if gaps.damaged_products else OK


def _wanted(
    queue: AnyQueue, selection: Selection, start: int | str, end: int | str, count: int | None, gaps: GapReports
) -> Iterator[tuple[Batch, int]]:
    """Each product between the two positions: its batch, and its index there."""
    first, given = queue.resolve(start), 0
    stop = min(end if isinstance(end, int) else queue.resolve(end), queue.next)
    for batch in read_range(queue, first, stop, selection, gaps):
        for index, sequence in enumerate(batch.sequences.tolist()):
            if sequence >= stop or given == count:
                return
            given += 1
            yield batch, index


def writer(output: str | None, record: bool, separator: str, as_json: bool) -> Write:
    """Writes payloads, or whole records, to files in the directory `output`, as JSON, or to standard output."""

    def content(batch: Batch, index: int) -> bytes | memoryview:
        return batch.record(index) if record else batch.payload(index)

    if output is not None:
        return _file_writer(Path(output), content, ".record" if record else "", as_json)
    if as_json:
        return lambda batch, index: _write_json(batch, index, content(batch, index), record)
    return _stream_writer(content, _unescape(separator))


def _write_json(batch: Batch, index: int, content: bytes | memoryview, record: bool) -> int:
    echo_json(product_values(batch[index], **{"record" if record else "payload": bytes(content)}))
    return len(content)


def _stream_writer(content: Callable[[Batch, int], bytes | memoryview], separator: bytes) -> Write:
    stream = sys.stdout.buffer
    between = iter([b""])

    def write(batch: Batch, index: int) -> int:
        stream.write(next(between, separator))
        return stream.write(content(batch, index))

    return write


def _file_writer(
    directory: Path, content: Callable[[Batch, int], bytes | memoryview], suffix: str, as_json: bool
) -> Write:
    directory.mkdir(parents=True, exist_ok=True)

    def write(batch: Batch, index: int) -> int:
        product = batch[index]
        file = directory / (file_name(product.sequence, product.ident) + suffix)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with open(descriptor, "wb") as out:
            size = out.write(content(batch, index))
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

"""`headrace cat`: payloads out of a queue, to standard output or into files."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.opening import open_queue
from headrace.cli.options import POSITION, json_option, queue_argument, selection_of, selection_options
from headrace.cli.output import echo_json, many, product_values
from headrace.cli.stream import Told, read_range
from headrace.product import Batch
from headrace.queue import AnyQueue
from headrace.selection import Selection
from headrace.units import format_size

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS_MAX = 120
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\0": "\0", r"\\": "\\"}
_ESCAPE = re.compile(r"\\[ntr0\\]")

Write = Callable[[Batch, int], int]  # one product out; how many bytes


@click.command()
@queue_argument
@selection_options
@click.option(
    "--from", "start", type=POSITION, default="oldest", show_default=True,
    metavar="oldest|SEQUENCE|AGE|TIME", help="Where to begin.",
)  # fmt: skip
@click.option(
    "--to", "end", type=POSITION, default="next", show_default=True,
    metavar="next|SEQUENCE|AGE|TIME", help="Where to end; the product there is not written.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), help="End after so many products.")
@click.option("--output", metavar="DIR", help="Write each payload into a file of its own in DIR.")
@click.option("--record", is_flag=True, help="Write whole records, as on disk and wire, instead of payloads.")
@click.option("--separator", default="", metavar="TEXT", help=r"Between payloads on standard output, such as '\n'.")
@json_option
def cat(
    queue_path: str, select: str | None, ident: str | None, start: int | str, end: int | str, count: int | None,
    output: str | None, record: bool, separator: str, as_json: bool,
) -> int:  # fmt: skip
    """Write the payloads that QUEUE holds to standard output, as they are; it does not wait for more.

    With --output each goes into a file named by sequence and ident, and the files are told. With --json every product
    is one JSON object, its payload in Base64 (or, with --output, its file).

    \b
    Example:
      headrace cat wx.queue --select wx/text/metar --count 10 --separator '\\n'
      headrace cat wx.queue --from 1h --output products/
    """
    selection, told = selection_of(select, ident), Told(as_json)
    with open_queue(queue_path) as queue:
        write = _writer(output, record, _unescape(separator), as_json)
        products = size = 0
        for batch, place in _wanted(queue, selection, start, end, count, told):
            size += write(batch, place)
            products += 1
    if output is not None and not as_json:
        click.echo(f"wrote {many(products, 'file')} ({format_size(size)}) into {output}")
    return NEGATIVE if told.damaged_products else OK


def _wanted(
    queue: AnyQueue, selection: Selection, start: int | str, end: int | str, count: int | None, told: Told
) -> Iterator[tuple[Batch, int]]:
    """Batch and place of each product between the two positions."""
    first, stop, given = queue.resolve(start), min(queue.resolve(end), queue.next), 0
    for batch in read_range(queue, first, stop, selection, told):
        for place, sequence in enumerate(batch.sequences.tolist()):
            if sequence >= stop or given == count:
                return
            given += 1
            yield batch, place


def _writer(output: str | None, record: bool, separator: bytes, as_json: bool) -> Write:
    def content(batch: Batch, place: int) -> bytes | memoryview:
        return batch.record(place) if record else batch.payload(place)

    if output is not None:
        return _file_writer(Path(output), content, ".record" if record else "", as_json)
    if as_json:
        return lambda batch, place: _write_json(batch, place, content(batch, place), record)
    return _stream_writer(content, separator)


def _write_json(batch: Batch, place: int, content: bytes | memoryview, record: bool) -> int:
    echo_json(product_values(batch[place], **{"record" if record else "payload": bytes(content)}))
    return len(content)


def _stream_writer(content: Callable[[Batch, int], bytes | memoryview], separator: bytes) -> Write:
    stream = sys.stdout.buffer
    between = iter([b""])

    def write(batch: Batch, place: int) -> int:
        stream.write(next(between, separator))
        return stream.write(content(batch, place))

    return write


def _file_writer(
    directory: Path, content: Callable[[Batch, int], bytes | memoryview], suffix: str, as_json: bool
) -> Write:
    directory.mkdir(parents=True, exist_ok=True)

    def write(batch: Batch, place: int) -> int:
        product = batch[place]
        file = directory / (file_name(product.sequence, product.ident) + suffix)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with open(descriptor, "wb") as out:
            size = out.write(content(batch, place))
        if as_json:
            echo_json(product_values(product, file=str(file)))
        return size

    return write


def file_name(sequence: int, ident: str) -> str:
    """A name that sorts by sequence, tells the ident, and cannot lead out of a directory."""
    tail = _UNSAFE.sub("_", ident).strip("_.")[-_NAME_CHARACTERS_MAX:]
    return f"{sequence:012d}-{tail}" if tail else f"{sequence:012d}"


def _unescape(text: str) -> bytes:
    return _ESCAPE.sub(lambda found: _ESCAPES[found[0]], text).encode(errors="surrogateescape")

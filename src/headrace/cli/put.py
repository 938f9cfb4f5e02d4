"""`headrace put`: files, standard input or lines of text become products."""

import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from headrace.cli.lines import Line, line_batches
from headrace.cli.opening import open_queue
from headrace.cli.options import AGE, EXPIRY, FEED, json_option, queue_argument
from headrace.cli.progress import progress_bar
from headrace.cli.receipts import Receipts
from headrace.errors import InvalidError, OptionError, PayloadError, PropertyError
from headrace.product.product import PRIORITY_DEFAULT, PRIORITY_MAX, SLICE_MAX
from headrace.product.properties import PropertyValue, encode_properties
from headrace.queue import AnyQueue, Duplicate

MANY_FILES = 20  # more are summed up, under a progress bar
STDIN = "-"
_FIELDS = {"name", "path", "line"}


@dataclass(frozen=True, slots=True)
class Terms:
    """What all products of one command have in common."""

    ident: str  # template
    options: Mapping[str, Any]  # for Queue.put and Queue.put_many

    def ident_of(self, path: str, line: int) -> str:
        name = "stdin" if path == STDIN else Path(path).name
        return self.ident.format(name=name, path=path, line=line)


@click.command()
@queue_argument
@click.argument("files", nargs=-1)
@click.option("--feed", type=FEED, required=True, help="The feed of the products, such as wx/text/metar.")
@click.option("--ident", "template", metavar="TEMPLATE", help="May have {name}, {path} and {line}. [default: {name}]")
@click.option("--priority", type=click.IntRange(0, PRIORITY_MAX), default=PRIORITY_DEFAULT, show_default=True)
@click.option("--expiry", type=EXPIRY, help="No reader gets it from then on: 10min from now, or a time.")
@click.option("--property", "pairs", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("--slice", "slice_number", type=click.IntRange(0, SLICE_MAX), help="The slice of the products.")
@click.option(
    "--timeout", type=AGE,
    help="How long to wait for a blocking station whose capacity is full, such as 10s. [default: for ever]",
)  # fmt: skip
@click.option("--lines", is_flag=True, help="Every line that is not empty is a product. [ident: {name}:{line}]")
@json_option
def put(
    queue_path: str, files: tuple[str, ...], feed: str, template: str | None, priority: int, expiry: str | None,
    pairs: tuple[str, ...], slice_number: int | None, timeout: float | None, lines: bool, as_json: bool,
) -> int:  # fmt: skip
    """Put FILES into QUEUE, one product each; standard input if there are none, or for the file "-".

    A duplicate of a product that is held is told and is no error. A file that cannot be read is an error (exit code
    2), and the others are put all the same. If a blocking station has no room for --timeout, the command ends (exit
    code 3); what was told as put is put. The value of a property is a number, true, false or quoted text if it
    reads as one in JSON, and otherwise text.

    \b
    Example:
      headrace put wx.queue *.grib2 --feed wx/grid/ngrid --property run=06
      tail -f log | headrace put wx.queue --lines --feed site/log --ident 'log {line:06d}'
    """
    options = {
        "feed": feed, "priority": priority, "expiry": expiry, "slice": slice_number,
        "properties": properties_of(pairs) if pairs else None, "timeout": timeout,
    }  # fmt: skip
    if template is None:
        template = "{name}:{line}" if lines else "{name}"
    terms = Terms(_checked_template(template), options)
    paths = files or (STDIN,)
    receipts = Receipts(feed, as_json, one_by_one=not lines and len(paths) <= MANY_FILES)
    with open_queue(queue_path) as queue, progress_bar("putting", len(paths), len(paths) > MANY_FILES) as bar:
        for done, path in enumerate(paths, 1):
            try:
                with _opened(path) as stream:
                    (_put_lines if lines else _put_whole)(queue, path, stream, terms, receipts)
            except (InvalidError, _UnreadableError) as error:
                receipts.refused(_shown(path), error.cause if isinstance(error, _UnreadableError) else error)
            bar.set(done)
    return receipts.end()


# --- one product, or one for each line ------------------------------------------------------------


def _put_whole(queue: AnyQueue, path: str, stream: IO[bytes], terms: Terms, receipts: Receipts) -> None:
    """All of the stream as one product; no more is read than the queue can take."""
    with _reading():
        payload = stream.read(queue.config.payload_bytes_max + 1)
    if not payload and path == STDIN:
        raise PayloadError("it is empty, nothing was put", "look at the command that writes into the pipe")
    ident = terms.ident_of(path, 1)
    outcome = queue.put(payload, ident=ident, **terms.options)
    duplicate = isinstance(outcome, Duplicate)
    receipts.put(ident, len(payload), outcome.of if isinstance(outcome, Duplicate) else outcome, duplicate)


def _put_lines(queue: AnyQueue, path: str, stream: IO[bytes], terms: Terms, receipts: Receipts) -> None:
    batches = line_batches(stream, queue.config.payload_bytes_max)  # type: ignore[arg-type]
    while True:
        with _reading():
            batch = next(batches, None)
        if batch is None:
            return
        _put_batch(queue, path, batch, terms, receipts)


def _put_batch(queue: AnyQueue, path: str, batch: Sequence[Line], terms: Terms, receipts: Receipts) -> None:
    """Many lines with one call. If something is wrong with the batch, its halves are tried, down to the one line."""
    idents = [terms.ident_of(path, number) for number, _ in batch]
    try:
        receipt = queue.put_many([line for _, line in batch], ident=idents, **terms.options)
    except InvalidError as error:
        if len(batch) == 1:
            receipts.refused(f"{_shown(path)}, line {batch[0][0]}", error)
            return
        middle = len(batch) // 2
        _put_batch(queue, path, batch[:middle], terms, receipts)
        _put_batch(queue, path, batch[middle:], terms, receipts)
        return
    outcomes = zip(receipt.sequences.tolist(), receipt.duplicates.tolist(), strict=True)
    for ident, (_, line), (sequence, duplicate) in zip(idents, batch, outcomes, strict=True):
        receipts.put(ident, len(line), sequence, duplicate)


# --- input that cannot be read --------------------------------------------------------------------


class _UnreadableError(Exception):
    """An input failed; told apart from an OSError of the queue or of the output."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _UnreadableError(error) from error


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == STDIN:
        yield sys.stdin.buffer
        return
    with _reading():
        stream = Path(path).open("rb")  # noqa: SIM115 - only the opening counts as reading here
    with stream:
        yield stream


def _shown(path: str) -> str:
    return "standard input" if path == STDIN else path


# --- options --------------------------------------------------------------------------------------


def _checked_template(template: str) -> str:
    """OptionError if the template has other fields than it may have."""
    try:
        fields = {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}
        template.format(name="", path="", line=1)
    except (ValueError, KeyError, IndexError, AttributeError):
        fields = {""}
    if not fields <= _FIELDS:
        raise OptionError(
            f"ident template {template!r} cannot be filled in",
            "its fields are {name}, {path} and {line}; write {{ for a brace",
        )
    return template


def properties_of(pairs: Sequence[str]) -> dict[str, PropertyValue]:
    """The properties that options NAME=VALUE mean."""
    properties = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise PropertyError(f"property {pair!r} has no value", "write it as NAME=VALUE")
        properties[name] = _value_of(text)
    encode_properties(properties)
    return properties


def _value_of(text: str) -> PropertyValue:
    try:
        return msgspec.json.decode(text, type=bool | int | float | str)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text

"""`headrace put`: files, standard input or lines of text become products.

Lines are put in batches: the lines that have arrived form one batch, so that a slow stream is not delayed. A batch that
the queue refuses is retried in halves, so that only the invalid line is left out.
"""

import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

import click
import msgspec

from headrace.cli import failure
from headrace.cli.group import Command
from headrace.cli.options import AGE, EXPIRY, FEED, completes, json_option, open_queue, queue_argument
from headrace.cli.output import echo_json, progress_bar
from headrace.cli.stream import put_patiently
from headrace.decoding import Decoder
from headrace.errors import HeadraceError, InvalidError, OptionError, PayloadError, PropertyError
from headrace.log.append import in_halves
from headrace.product.product import PRIORITY_DEFAULT, PRIORITY_MAX, SLICE_MAX
from headrace.product.properties import PropertyValue, encode_properties
from headrace.queue import AnyQueue, Duplicate
from headrace.text import visible
from headrace.units import format_count, format_size

MANY_FILES = 20  # more files are summed up, with a progress bar
STDIN = "-"
CHUNK_BYTES = 1 << 20
BATCH_LINES_MAX = 4096
_VALUES: Decoder[PropertyValue] = Decoder(bool | int | float | str, encoding="json")
_FIELDS = {"name", "path", "line"}

Line = tuple[int, bytes]  # its number, from 1 on, and its bytes without the line feed


@dataclass(frozen=True, slots=True)
class PutOptions:
    """What all products of one command have in common."""

    template: str | None  # of the ident; None: the default
    lines: bool
    arguments: Mapping[str, Any]  # of Queue.put and Queue.put_many
    timeout_s: float | None

    def ident_of(self, path: str, line: int) -> str:
        """The ident of a product. By default standard input gives none: two readings from it may be equal.

        Standard input has no name, and as one product no lines: its ident is taken as it is, whatever is in it.
        """
        template = self.template
        if path == STDIN and not self.lines:
            return template or ""
        if template is None:
            template = "" if path == STDIN else "{name}:{line}" if self.lines else "{name}"
        return template.format(name=Path(path).name, path=path, line=line)


@click.command(cls=Command)
@queue_argument
@click.argument("files", nargs=-1)
@click.option(
    "--feed",
    type=FEED,
    shell_complete=completes("feed"),
    required=True,
    help="The feed of the products, such as wx/text/metar.",
)
@click.option("--ident", "template", metavar="TEMPLATE",
              help="May use {name} and {path} of the file, and {line}; write {{ and }} for braces. Standard input "
                   "without --lines takes it as it is. [default: {name}; none for standard input]")  # fmt: skip
@click.option("--priority", type=click.IntRange(0, PRIORITY_MAX), default=PRIORITY_DEFAULT, show_default=True,
              help="The priority of the products.")  # fmt: skip
@click.option("--expiry", type=EXPIRY, help="No reader gets the product after this: 10min from now, or a time.")
@click.option("--property", "pairs", multiple=True, metavar="NAME=VALUE", help="A property; may be repeated.")
@click.option("--slice", "slice_number", type=click.IntRange(0, SLICE_MAX), help="The slice of the products.")
@click.option(
    "--timeout",
    type=AGE,
    help="How long to wait for a blocking station that is full, such as 10s, and for the connection to a site, there "
    "2s to 10s, also if it is lost. [default: no limit; 10s for the connection]",
)
@click.option("--lines", is_flag=True, help="Each line that is not empty is a product. [--ident: {name}:{line}]")
@json_option
def put(
    queue_path: str, files: tuple[str, ...], feed: str, template: str | None, priority: int, expiry: str | None,
    pairs: tuple[str, ...], slice_number: int | None, timeout: float | None, lines: bool, as_json: bool,
) -> int:  # fmt: skip
    """Put FILES into QUEUE, one product each. Without FILES, or for the file "-", read standard input.

    A duplicate of a product in the queue is reported and is not an error; a product without an ident is never one. A
    file that is not readable is an error (exit code 2), but the other files are put. If a blocking station stays full
    for --timeout, the command ends (exit code 3); products that were reported as put, or counted, are in the queue. A
    property is a number, true, false or quoted text if its value is valid JSON, and otherwise text.

    \b
    Example:
      headrace put wx.queue *.grib2 --feed wx/grid/ngrid --ident 'run06/{name}' --property run=06
      tail -f log | headrace put wx.queue --lines --feed site/log --ident 'log {line}'
      cat report | headrace put wx.queue --feed wx/text/metar --ident 'SAUS70 KWBC 061300'
    """
    arguments = {
        "feed": feed, "priority": priority, "expiry": expiry, "slice": slice_number,
        "properties": properties_of(pairs) if pairs else None,
    }  # fmt: skip
    paths = files or (STDIN,)
    if template is not None:
        _check_template(template, paths, lines)
    options = PutOptions(template, lines, arguments, timeout)
    report = PutReport(feed, as_json, one_by_one=not lines and len(paths) <= MANY_FILES)
    try:
        with (
            open_queue(queue_path, within_s=timeout) as queue,
            progress_bar("putting", len(paths), len(paths) > MANY_FILES) as bar,
        ):
            for done, path in enumerate(paths, 1):
                try:
                    with _opened(path) as stream:
                        (_put_lines if lines else _put_whole)(queue, path, stream, options, report)
                except (InvalidError, _UnreadableError) as error:
                    report.refused(_shown(path), error.cause if isinstance(error, _UnreadableError) else error)
                bar.set(done)
    except HeadraceError:  # the error speaks of the last product or batch; the others are in the queue
        if report.has_any:
            report.end()
        raise
    return report.end()


# --- one product, or one for each line ------------------------------------------------------------


def _put_whole(queue: AnyQueue, path: str, stream: IO[bytes], options: PutOptions, report: "PutReport") -> None:
    """Put the whole stream as one product; read no more than the queue accepts."""
    with _reading():
        payload = stream.read(queue.config.put_bytes_max + 1)
    if not payload and path == STDIN:
        raise PayloadError("it is empty, nothing was put", "check the command that writes to the pipe")
    ident = options.ident_of(path, 1)
    outcome = put_patiently(partial(queue.put, payload, ident=ident, **options.arguments), options.timeout_s)
    duplicate = isinstance(outcome, Duplicate)
    report.put(ident, len(payload), outcome.of if isinstance(outcome, Duplicate) else outcome, duplicate)


def _put_lines(queue: AnyQueue, path: str, stream: IO[bytes], options: PutOptions, report: "PutReport") -> None:
    batches = line_batches(stream, queue.config.payload_bytes_max)  # type: ignore[arg-type]
    while True:
        with _reading():
            batch = next(batches, None)
        if batch is None:
            return
        _put_batch(queue, path, batch, options, report)


def _put_batch(queue: AnyQueue, path: str, batch: Sequence[Line], options: PutOptions, report: "PutReport") -> None:
    """Put many lines with one call. If the batch is invalid, retry in halves, down to the one invalid line."""

    def put(start: int, stop: int) -> None:
        lines = batch[start:stop]
        idents = [options.ident_of(path, number) for number, _ in lines]
        attempt = partial(queue.put_many, [line for _, line in lines], ident=idents, **options.arguments)
        receipt = put_patiently(attempt, options.timeout_s)
        outcomes = zip(receipt.sequences.tolist(), receipt.duplicates.tolist(), strict=True)
        for ident, (_, line), (sequence, duplicate) in zip(idents, lines, outcomes, strict=True):
            report.put(ident, len(line), sequence, duplicate)

    in_halves(len(batch), put, lambda at, error: report.refused(f"{_shown(path)}, line {batch[at][0]}", error))


class BufferedInput(Protocol):
    """A buffered binary stream: `read1` returns what has arrived, and waits only if there is nothing."""

    def read1(self, size: int = ..., /) -> bytes: ...


def line_batches(source: BufferedInput, line_bytes_max: int) -> Iterator[list[Line]]:
    """The lines that are not empty, in batches.

    Of a line longer than `line_bytes_max`, only the first `line_bytes_max + 1` bytes are returned and the rest is
    skipped: the queue refuses the line anyway, and memory stays bounded.
    """
    pieces, cut, number = bytearray(), False, 0
    while chunk := source.read1(CHUNK_BYTES):
        batch: list[Line] = []
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            number += 1
            line = bytes(pieces) + end if pieces else end
            if line and not cut:
                batch.append((number, line[: line_bytes_max + 1]))
            pieces.clear()
            cut = False
            if len(batch) == BATCH_LINES_MAX:
                yield batch
                batch = []
        if not cut:
            pieces += rest
        if len(pieces) > line_bytes_max:
            batch.append((number + 1, bytes(pieces[: line_bytes_max + 1])))
            pieces.clear()
            cut = True
        if batch:
            yield batch
    if pieces:
        yield [(number + 1, bytes(pieces))]


# --- input that is not readable -------------------------------------------------------------------


class _UnreadableError(Exception):
    """An input failed; distinct from an OSError of the queue or of the output."""

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


# --- results --------------------------------------------------------------------------------------


class PutResult(msgspec.Struct, frozen=True):
    """One product that was put, as JSON. For a duplicate, `sequence` is that of the copy in the queue."""

    sequence: int
    feed: str
    ident: str
    size: int
    duplicate: bool


class PutReport:
    """Counts and reports products: each one (`one_by_one`), or totals at the end. JSON has one line per product."""

    def __init__(self, feed: str, as_json: bool, one_by_one: bool) -> None:
        self._feed, self._as_json, self._one_by_one = feed, as_json, one_by_one
        self.stored = self.duplicates = self.failed = self.stored_bytes = 0

    def put(self, ident: str, size: int, sequence: int, duplicate: bool) -> None:
        if duplicate:
            self.duplicates += 1
        else:
            self.stored += 1
            self.stored_bytes += size
        if self._as_json:
            echo_json(PutResult(sequence, self._feed, ident, size, duplicate))
        elif self._one_by_one:
            known = f"duplicate of {sequence}" if duplicate else str(sequence)
            click.echo(f"{known:>8}  {visible(self._feed)}  {format_size(size)}  {visible(ident)}")

    @property
    def has_any(self) -> bool:
        """Whether there is something to sum up."""
        return self.stored + self.duplicates + self.failed > 0

    def refused(self, name: str, error: HeadraceError | OSError) -> None:
        """One product was not put; the others are."""
        self.failed += 1
        if isinstance(error, HeadraceError):
            shown = failure.Failure(type(error).__name__, f"{name}: {error.problem}", error.hint, failure.USAGE)
        else:
            problem = f"{name} is not readable: {error.strerror or error}"
            shown = failure.Failure(type(error).__name__, problem, failure.os_hint(error), failure.USAGE)
        failure.show_failure(shown, self._as_json)

    def end(self) -> int:
        """Write the totals, unless each product was reported. Return the exit code."""
        if not self._as_json and not self._one_by_one:
            stored = format_count(self.stored, "product")
            parts = [f"put {stored} ({format_size(self.stored_bytes)}) under {self._feed}"]
            parts += [format_count(self.duplicates, "duplicate")] if self.duplicates else []
            parts += [f"{self.failed:,} failed"] if self.failed else []
            click.echo(", ".join(parts))
        return failure.USAGE if self.failed else failure.OK


# --- options --------------------------------------------------------------------------------------


def _check_template(template: str, paths: Sequence[str], lines: bool) -> None:
    """OptionError if the template has a field that one of its inputs does not have."""
    if not lines and set(paths) == {STDIN}:
        return  # not a template
    try:
        fields = {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}
        template.format(name="", path="", line=1)
    except (ValueError, KeyError, IndexError, AttributeError):
        fields = {""}
    if not fields <= _FIELDS:
        raise OptionError(
            f"ident template {template!r} is invalid",
            "its fields are {name}, {path} and {line}; write {{ and }} for braces",
        )
    if lines and STDIN in paths and not fields <= {"line"}:
        raise OptionError(
            f"ident template {template!r} names a file, and standard input is none",
            "its field is {line}; write {{ and }} for braces",
        )


def properties_of(pairs: Sequence[str]) -> dict[str, PropertyValue]:
    """The properties from options NAME=VALUE."""
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
        return _VALUES.decode(text)
    except msgspec.DecodeError:
        return text

"""`headrace station take`: a consumer of a station on the command line.

    get a product ──► write it, or run the program ──► acknowledge it
                               │ fails
                               └──► give it back as failed: it is delivered again, and parked after `deliveries_max`

A product is acknowledged after its payload was written and flushed, or after the program ended with exit code 0. If the
command is killed in between, the station delivers the product again: at least once. Ctrl-C and SIGTERM end the program
that runs, and give the product back without counting a failure.

A part of a large product is no product, and a station gives its products to many consumers, so nobody here can join
them. A part is never written or passed to a program: it is given back as failed, and so parked.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field

import click

from headrace.cli.cat import Write, writer
from headrace.cli.failure import NEGATIVE, OK, json_line, notice, tell
from headrace.cli.group import Command
from headrace.cli.options import AGE, completes, json_option, open_queue, queue_argument
from headrace.cli.ordering import ordered, ordering_options
from headrace.cli.output import echo_json, product_values
from headrace.cli.station_chain import existing_station
from headrace.cli.stream import DeferredSignals, stop_when_unread
from headrace.errors import OptionError, ProductDamagedError
from headrace.product import Batch, Product
from headrace.product.options import Fragment
from headrace.queue import AnyConsumer
from headrace.text import visible
from headrace.units import format_age, format_time

_BATCH_PRODUCTS = 100
_AGAIN_S = 1.0  # before a program gets a product again that has just failed
_KILL_S = 5.0  # from SIGTERM to SIGKILL
_FAILED_MAX = 10_000  # sequences that are remembered as failed
_NOT_JOINED = (
    "it is {} of a large product, which no station joins: read its feed with a program that joins "
    "(headrace.joined) or by headrace cat, or put smaller products"
)


@dataclass(slots=True)
class _Run:
    """One run of the command: what it does with products, and what has failed so far."""

    consumer: AnyConsumer
    station: str
    as_json: bool
    retries: bool  # the station parks a product after some deliveries, so trying again comes to an end
    stream: Iterator[Batch] | None = None  # what orders the products of the consumer
    failures: int = 0
    failed: set[int] = field(default_factory=set)  # the sequences

    def fail(self, product: Batch, sequence: int, reason: str) -> None:
        """Give a product back as failed, and say so; of a part, which fails each time, only once."""
        self.failures += 1
        self.consumer.nack(product, failed=True)
        is_known = sequence in self.failed
        if len(self.failed) >= _FAILED_MAX:
            self.failed.clear()
        self.failed.add(sequence)
        if is_known and product.fragments():
            return
        notice(
            f"product {sequence} of station {self.station}: {reason}; it was given back", self.as_json,
            station=self.station, sequence=sequence, problem=reason, acknowledged=False,
        )  # fmt: skip


@click.command(cls=Command, short_help="Take products, and acknowledge them once they are written or processed.")
@queue_argument
@click.argument("name", shell_complete=completes("station"))
@click.option("--exec", "command", metavar="CMD", help="Run this shell command for each product, payload on its input.")
@click.option("--exec-timeout", "exec_s_max", type=AGE, help="End a program after this long, as failed.")
@click.option("--count", type=click.IntRange(min=1), help="End after this many products.")
@click.option("--follow", is_flag=True, help="Wait for new products. [default: end when no product is waiting]")
@ordering_options
@click.option("--output", metavar="DIR", help="Write each payload to a file of its own in DIR.")
@click.option("--separator", default="", metavar="TEXT", help=r"Between payloads on standard output, such as '\n'.")
@json_option
def take(
    queue_path: str, name: str, command: str | None, exec_s_max: float | None, count: int | None, follow: bool,
    in_order: float | None, pace: float | None, output: str | None, separator: str, as_json: bool,
) -> int:  # fmt: skip
    """Take the products of the station NAME of QUEUE, as one of its consumers, and write their payloads.

    A product is acknowledged after its payload was written, or after the program of --exec ended with exit code 0. With
    another exit code it is given back and delivered again, to any consumer, until the station parks it. If this command
    is killed, the products that it holds go back to the station: none is lost, and the last may be processed twice.
    A part of a large product is given back as failed, and neither written nor passed to a program. Exit code 1 if a
    program failed, or a part came.

    The program finds the facts in HEADRACE_STATION, _SEQUENCE, _FEED, _IDENT, _SIZE, _ORIGIN, _CREATED, _INSERTED,
    _PRIORITY, _SIGNATURE and _PROPERTIES (JSON). With --json, its standard output goes to standard error.

    \b
    Example:
      headrace station take wx.queue decode --count 10 --separator '\\n'
      headrace station take wx.queue decode --follow --in-order 200ms
      headrace station take wx.queue decode --follow --exec 'gzip > "out/$HEADRACE_SEQUENCE.gz"'
    """
    if command is None and exec_s_max is not None:
        raise OptionError("--exec-timeout has no effect without --exec", "leave it out, or give --exec")
    if command is not None and (output is not None or separator):
        raise OptionError("--exec contradicts --output and --separator", "let the program write its output")
    with open_queue(queue_path, waits=follow) as queue:
        station = existing_station(queue, name)
        write = None if command is not None else writer(output, False, separator, as_json)
        retries = station.terms.deliveries_max > 0
        with station.attach() as consumer:
            tell(f"attached to station {name} of {queue.path}")
            with ordered(consumer, in_order, pace, None if follow else 0) or nullcontext() as stream:
                run = _Run(consumer, name, as_json, retries, stream)
                unread = stop_when_unread(consumer.interrupt if stream is None else stream.stop)
                if write is not None:
                    _write_all(run, write, count, follow)
                else:
                    _process_all(run, str(command), exec_s_max, count, follow)
            if unread.is_set():
                raise BrokenPipeError
    return NEGATIVE if run.failures else OK


def _taken(run: _Run, n: int, count: int | None, follow: bool) -> Iterator[Batch]:
    """Batches of up to `n` products, `count` in all. Ends when interrupted; without `follow`, when none is waiting."""
    left, parts = count, None if run.stream is None else _parts(run.stream, n)
    while left is None or left > 0:
        wanted = n if left is None else min(n, left)
        batch = run.consumer.get(wanted, None if follow else 0) if parts is None else next(parts, None)
        if batch is None or not len(batch):
            return
        if len(batch) > wanted:  # of a buffer: the others go back when the consumer detaches
            batch = batch.take(range(wanted))
        yield batch
        left = None if left is None else left - len(batch)


def _parts(stream: Iterator[Batch], n: int) -> Iterator[Batch]:
    """Batches of a buffer or pacer, cut to `n` products."""
    for batch in stream:
        for begin in range(0, len(batch), n):
            yield batch.take(range(begin, min(begin + n, len(batch))))


def _write_all(run: _Run, write: Write, count: int | None, follow: bool) -> None:
    """Write and flush each batch before it is acknowledged."""
    for batch in _taken(run, _BATCH_PRODUCTS, count, follow):
        parts = batch.fragments()
        places = [place for place in range(len(batch)) if place not in parts]
        try:
            for place in places:
                write(batch[place], batch.payload(place))
            sys.stdout.flush()
        except BrokenPipeError:  # a reader that goes away is no failure of the products
            run.consumer.nack(batch)
            raise
        if places:
            run.consumer.ack(batch.take(places) if parts else batch)
        if parts and not _refuse(run, batch, parts, follow):
            return


def _refuse(run: _Run, batch: Batch, parts: Mapping[int, Fragment], follow: bool) -> bool:
    """Give parts of large products back as failed; whether to go on: else they would come back without end."""
    returns = not run.retries and any(int(batch.sequences[place]) in run.failed for place in parts)
    if returns and not follow:
        run.consumer.nack(batch.take(sorted(parts)))
        return False
    if returns:
        time.sleep(_AGAIN_S)
    for place, part in sorted(parts.items()):
        run.fail(batch.take([place]), int(batch.sequences[place]), _NOT_JOINED.format(part))
    return True


# --- programs ---------------------------------------------------------------------------------------


def _process_all(run: _Run, command: str, exec_s_max: float | None, count: int | None, follow: bool) -> None:
    """Run the program for each product. A product that fails comes back, by the rules of the station."""
    for batch in _taken(run, 1, count, follow):
        if parts := batch.fragments():
            if not _refuse(run, batch, parts, follow):
                return
            continue
        sequence = int(batch.sequences[0])
        if sequence in run.failed:
            if not follow and not run.retries:  # it would come back without end
                run.consumer.nack(batch)
                return
            time.sleep(_AGAIN_S)
        problem = _process(run, command, batch, exec_s_max)
        if problem:
            run.fail(batch, sequence, problem)


def _process(run: _Run, command: str, batch: Batch, exec_s_max: float | None) -> str:
    """Run the program for one product and acknowledge it. Returns what went wrong, or nothing."""
    product = batch[0]
    try:
        payload = bytes(product.payload)
    except ProductDamagedError as error:
        return error.problem
    code = run_program(command, payload, facts_of(product, run.station), exec_s_max, run.as_json)
    if code is None:
        return f"the program ran for more than {format_age(exec_s_max or 0.0)}"
    if code:
        return f"the program was ended by signal {-code}" if code < 0 else f"the program had exit code {code}"
    run.consumer.ack(batch)
    if run.as_json:
        echo_json(product_values(product, station=run.station, acknowledged=True))
    return ""


def facts_of(product: Product, station: str) -> dict[str, str]:
    """The facts of a product as variables of the environment; control characters are escaped."""
    facts = {
        "STATION": station, "SEQUENCE": product.sequence, "FEED": product.feed, "IDENT": product.ident,
        "SIZE": product.size, "ORIGIN": product.origin, "CREATED": format_time(product.created_ns),
        "INSERTED": format_time(product.inserted_ns), "PRIORITY": product.priority,
        "SIGNATURE": product.signature.hex(), "PROPERTIES": json_line(dict(product.properties)),
    }  # fmt: skip
    return {f"HEADRACE_{name}": visible(str(value)) for name, value in facts.items()}


def run_program(
    command: str, payload: bytes, facts: dict[str, str], timeout_s: float | None, as_json: bool
) -> int | None:
    """Run a shell command with the payload on its standard input. Returns its exit code; None after the timeout.

    It runs in a process group of its own, which is ended as a whole if it takes too long, or if this process is to end.
    """
    process = None
    try:
        with DeferredSignals():  # otherwise one that comes here leaves a program behind that nobody ends
            process = subprocess.Popen(
                ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=2 if as_json else None,
                env={**os.environ, **facts}, start_new_session=True,
            )  # fmt: skip
        process.communicate(payload, timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process is not None and process.returncode is None:
            _end(process)
    return process.returncode


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_KILL_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

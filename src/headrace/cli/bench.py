"""`headrace bench`: run the benchmarks behind every claim about speed, and show their figures.

The measurements are in `headrace.bench`; here are options, the directory, and the table.
"""

import contextlib
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.group import Group
from headrace.cli.options import json_option
from headrace.cli.output import echo_json, show_table

if TYPE_CHECKING:
    from headrace.bench.report import Figure, Report

_MEMORY = "memory (/dev/shm)"

_place_option = click.option(
    "--place", type=click.Path(file_okay=False), help="Directory for all files. [default: in memory, /dev/shm]"
)
_scale_option = click.option(
    "--scale", type=click.FloatRange(0.001, 10), default=1.0, show_default=True, help="Share of the full work."
)


@click.group(cls=Group)
def bench() -> None:
    """Run the benchmarks behind every claim about speed.

    Figures of other systems are printed beside ours. They were measured on a machine where the yardstick, hashlib.md5
    of 150 bytes, takes 1.08 microseconds; scale them by the yardstick of your run.

    \b
    Example:
      headrace bench queue
    """


@bench.command("queue", short_help="The product queue.")
@_place_option
@click.option("--durability", type=click.Choice(["memory", "process"]), help="[default: memory if in /dev/shm]")
@_scale_option
@json_option
def queue(place: str | None, durability: str | None, scale: float, as_json: bool) -> None:
    """Measure the queue: puts, reads, wake-up of readers, space on disk, opening after a crash.

    \b
    Example:
      headrace bench queue
      headrace bench queue --place /var/tmp --durability process --json
    """
    from headrace.bench import queue as measured

    with _place(place) as (folder, kept_in):
        kind = durability or ("memory" if kept_in == _MEMORY else "process")
        _measure(
            "product queue",
            f"queue --durability {kind} --scale {scale:g}",
            f"{kept_in}, durability {kind}",
            lambda progress: measured.run(folder, kind, scale, progress),
            measured.NOT_MEASURED,
            as_json,
        )


@bench.command("match", short_help="One product against many subscriptions.")
@click.option(
    "--subscriptions",
    default="20000,40000,60000,80000,100000",
    show_default=True,
    metavar="N,N,…",
    help="Numbers of subscriptions, one run for each.",
)
@json_option
def match(subscriptions: str, as_json: bool) -> None:
    """Measure the subscription table: how long it takes to find the subscribers of a product.

    Integers, strings, 25 tag=value pairs, regular expressions, SQL and feed patterns, each kind with growing numbers
    of subscriptions that never match.

    \b
    Example:
      headrace bench match
      headrace bench match --subscriptions 1000,1000000 --json
    """
    from headrace.bench import match as measured

    numbers = _numbers(subscriptions)
    _measure(
        "subscription table",
        f"match --subscriptions {','.join(map(str, numbers))}",
        "one thread, in memory",
        lambda progress: measured.run(numbers, progress),
        measured.NOT_MEASURED,
        as_json,
    )


@bench.command("pipeline", short_help="Products through Spark.")
@_place_option
@_scale_option
@json_option
def pipeline(place: str | None, scale: float, as_json: bool) -> None:
    """Measure the pipeline: batch reads and streams compared with Parquet, micro-batches, decoding.

    \b
    Example:
      headrace bench pipeline
      headrace bench pipeline --scale 0.1 --json
    """
    from headrace.bench import pipeline as measured

    with _place(place) as (folder, kept_in):
        _measure(
            "pipeline",
            f"pipeline --scale {scale:g}",
            kept_in,
            lambda progress: measured.run(folder, scale, progress),
            measured.NOT_MEASURED,
            as_json,
        )


@bench.command("steady", short_help="The memory of a pipeline during an hour.")
@click.option("--minutes", type=click.FloatRange(0.05, 10_000), default=60.0, show_default=True, help="Duration.")
@click.option("--rate", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Products per second.")
@_place_option
@json_option
def steady(minutes: float, rate: int, place: str | None, as_json: bool) -> None:
    """Measure the memory of a pipeline under a steady stream, and count the rows of its table at the end.

    \b
    Example:
      headrace bench steady
      headrace bench steady --minutes 10 --rate 5000 --json
    """
    from headrace.bench import steady as measured

    with _place(place) as (folder, kept_in):
        _measure(
            "pipeline under a steady stream",
            f"steady --minutes {minutes:g} --rate {rate}",
            kept_in,
            lambda progress: measured.run(folder, minutes, rate, progress),
            measured.NOT_MEASURED,
            as_json,
        )


@bench.command("stations", short_help="Producers, stations and consumers.")
@_place_option
@_scale_option
@json_option
def stations(place: str | None, scale: float, as_json: bool) -> None:
    """Measure stations: sizes from 8 B to 1 MB, arrays of 1 to 1000, one to eight consumers, latency.

    \b
    Example:
      headrace bench stations
      headrace bench stations --scale 0.1 --json
    """
    from headrace.bench import stations as measured

    with _place(place) as (folder, kept_in):
        _measure(
            "stations",
            f"stations --scale {scale:g}",
            kept_in,
            lambda progress: measured.run(folder, scale, progress),
            measured.NOT_MEASURED,
            as_json,
        )


@bench.command("channels", short_help="Suppliers and consumers of channels, over the network.")
@_place_option
@click.option("--quick", is_flag=True, help="6 suppliers instead of 50, for 3 seconds each.")
@json_option
@click.pass_context
def channels(context: click.Context, place: str | None, quick: bool, as_json: bool) -> None:
    """Measure channels: the monitor system of the CARMA array, with each program in a process of its own.

    50 suppliers push 34 kB twice a second through one site to one to three consumers, staggered or not; 16 suppliers
    of 13 kB beside them; and links that carry less than the demand. The tables of CARMA memorandum 22 stand beside the
    figures. It starts 70 processes, which take about 2 GB of memory.

    What was pushed, stored, refused, delivered, expired and dropped must add up exactly; otherwise the exit code is 1.

    \b
    Example:
      headrace bench channels
      headrace bench channels --quick --json
    """
    from headrace.bench import carma_memo, report
    from headrace.bench import channels as measured
    from headrace.cli.bench_channels import show_channels

    with _place(place) as (folder, kept_in):
        progress = _Progress(as_json)
        results = list(measured.run(folder, quick, progress))
    found = measured.ChannelsReport(
        command=f"headrace bench channels{' --quick' if quick else ''}", machine=report.machine(),
        commit=report.commit(), place=kept_in, yardstick_us=progress.yardstick_us, memo_machines=carma_memo.MACHINES,
        memo=carma_memo.TABLES, results=results, faults=[fault for result in results for fault in result.faults],
        not_measured=carma_memo.NOT_COMPARABLE,
    )  # fmt: skip
    if as_json:
        echo_json(found)
    else:
        show_channels(found)
    if found.faults:
        context.exit(1)


@bench.command("relay", short_help="Products from one site to another.")
@_place_option
@_scale_option
@click.option("--secure", is_flag=True, help="What certificates, rules and signatures cost, and a hostile client.")
@json_option
def relay(place: str | None, scale: float, secure: bool, as_json: bool) -> None:
    """Measure the fabric: backlog, live, latency at several rates, and a thousand subscribers.

    With --secure: backlog, live and latency over plain TCP, with mutual TLS, with rules and with signatures, side by
    side; and how much later fifty honest clients get their replies while a hostile one sends at full speed.

    \b
    Example:
      headrace bench relay
      headrace bench relay --scale 0.1 --json
      headrace bench relay --secure
    """
    if secure:
        from headrace.bench import relay_secure as measured
    else:
        from headrace.bench import relay as measured  # type: ignore[no-redef]

    with _place(place) as (folder, kept_in):
        _measure(
            "relay",
            f"relay --scale {scale:g}" + (" --secure" if secure else ""),
            kept_in,
            lambda progress: measured.run(folder, scale, progress),
            measured.NOT_MEASURED,
            as_json,
        )


@bench.command("payload", short_help="Large files; compression.")
@_place_option
@_scale_option
@json_option
def payload(place: str | None, scale: float, as_json: bool) -> None:
    """Measure payloads: a large file in fragments, beside rsync and scp, and what is sent again after a break; how much
    smaller compression makes products, and how fast, beside LZ4.

    \b
    Example:
      headrace bench payload
      headrace bench payload --place /var/tmp --scale 0.1 --json
    """
    from headrace.bench import payload as measured

    with _place(place) as (folder, kept_in):
        _measure(
            "payload",
            f"payload --scale {scale:g}",
            kept_in,
            lambda progress: measured.run(folder, scale, progress),
            measured.NOT_MEASURED,
            as_json,
        )


@bench.command("clients", short_help="Hundreds of remote consumers and suppliers.")
@_place_option
@click.option(
    "--clients", type=click.IntRange(1, 1000), default=500, show_default=True, help="Consumers, and as many suppliers."
)
@click.option("--stations", type=click.IntRange(1, 1000), default=10, show_default=True, help="That consumers share.")
@click.option("--rate", type=click.FloatRange(1, 10_000), default=200.0, show_default=True, help="Products per second.")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=20.0, show_default=True, help="Of load.")
@click.option("--quick", is_flag=True, help="20 clients and 2 seconds, to see that it works.")
@json_option
def clients(
    place: str | None, clients: int, stations: int, rate: float, seconds: float, quick: bool, as_json: bool
) -> None:
    """Measure clients: threads, memory and processor time of each, at the site and in their programs.

    \b
    Example:
      headrace bench clients
      headrace bench clients --clients 100 --rate 1000 --json
    """
    from headrace.bench import clients as measured

    if quick:
        clients, seconds = 20, 2.0
    with _place(place) as (folder, kept_in):
        _measure(
            "remote clients",
            f"clients --clients {clients} --stations {stations} --rate {rate:g} --seconds {seconds:g}",
            kept_in,
            lambda progress: measured.run(folder, clients, stations, rate, seconds, progress),
            measured.NOT_MEASURED,
            as_json,
        )


@bench.command("slices", short_help="Processing nodes that share a stream.")
@_place_option
@_scale_option
@click.option("--plots", metavar="FOLDER", type=click.Path(file_okay=False), help="Save pictures there, as PNG.")
@click.option("--spark/--no-spark", default=True, help="With or without the part that starts Spark.")
@json_option
def slices(place: str | None, scale: float, plots: str | None, spark: bool, as_json: bool) -> None:
    """Measure slices: their assignment, processing nodes, moves under load, skewed streams, a thousand nodes.

    Real nodes are processes of this machine. Run it when nothing else runs; the first figure is the machine's load.

    \b
    Example:
      headrace bench slices
      headrace bench slices --scale 0.1 --plots plots --no-spark --json
    """
    from headrace.bench import slices as measured
    from headrace.extras import require

    require("sites", *(["plots"] if plots else []), *(["spark"] if spark else []))  # at once, and not after minutes
    with _place(place) as (folder, kept_in):
        _measure(
            "slices",
            f"slices --scale {scale:g}{'' if spark else ' --no-spark'}",
            kept_in,
            lambda progress: measured.run(folder, scale, progress, spark=spark, plots=Path(plots) if plots else None),
            measured.NOT_MEASURED,
            as_json,
        )


@bench.command("timing", short_help="The clock, the release buffer and the pacer.")
@_place_option
@_scale_option
@click.option("--plots", metavar="FOLDER", type=click.Path(file_okay=False), help="Save pictures there, as PNG.")
@json_option
def timing(place: str | None, scale: float, plots: str | None, as_json: bool) -> None:
    """Measure order and spacing: products per second in a release buffer, jitter before and after a pacer.

    The figures of NaradaBrokering's timing services are repeated. Run it when nothing else runs: a busy machine wakes
    sleepers late. The first figure is the machine's load.

    \b
    Example:
      headrace bench timing
      headrace bench timing --scale 0.2 --plots plots --json
    """
    from headrace.bench import timing as measured
    from headrace.extras import require

    require("sites", *(["plots"] if plots else []))  # at once, and not after minutes
    with _place(place) as (folder, kept_in):
        _measure(
            "timing",
            f"timing --scale {scale:g}",
            kept_in,
            lambda progress: measured.run(folder, scale, progress, Path(plots) if plots else None),
            measured.NOT_MEASURED,
            as_json,
        )


@bench.command("start", short_help="How fast commands start.")
@_place_option
@_scale_option
@json_option
def start(place: str | None, scale: float, as_json: bool) -> None:
    """Measure the start of short commands, against `import numpy`, and the memory of the first import.

    
    Example:
      headrace bench start
    """
    from headrace.bench import start as measured

    with _place(place) as (folder, kept_in):
        _measure(
            "start",
            f"start --scale {scale:g}",
            kept_in,
            lambda progress: measured.run(folder, scale, progress),
            measured.NOT_MEASURED,
            as_json,
        )


@contextlib.contextmanager
def _place(place: str | None) -> Iterator[tuple[Path, str]]:
    """A directory that is removed at the end, and where it is: in memory or on disk."""
    in_memory = place is None and Path("/dev/shm").is_dir()
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-", dir="/dev/shm" if in_memory else place))
    try:
        yield folder, _MEMORY if in_memory else "disk"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(
    title: str, command: str, place: str, run: Callable[[Callable[[str], None]], "Iterable[Figure]"],
    not_measured: list[str], as_json: bool,
) -> None:  # fmt: skip
    """Run the benchmark, measure the yardstick between its steps, and show the report."""
    from headrace.bench.report import Report, commit, machine

    progress = _Progress(as_json)
    figures = list(run(progress))
    report = Report(
        command=f"headrace bench {command}", machine=machine(), commit=commit(), place=place,
        yardstick_us=progress.yardstick_us, figures=figures, not_measured=not_measured,
    )  # fmt: skip
    if as_json:
        echo_json(report)
    else:
        _show(report, title)


class _Progress:
    """Says which step begins, and measures the yardstick before each."""

    def __init__(self, as_json: bool) -> None:
        from headrace.bench.report import yardstick

        self._shows, self._yardstick = sys.stderr.isatty() or not as_json, yardstick
        self._measured = [yardstick()]

    def __call__(self, text: str) -> None:
        self._measured.append(self._yardstick())
        if self._shows:
            click.echo(f"  … {text}", err=True)

    @property
    def yardstick_us(self) -> float:
        """The median of this run."""
        return statistics.median(self._measured)


def _numbers(text: str) -> list[int]:
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        numbers = [0]
    if numbers[0] < 1:
        raise click.BadParameter(
            f"{text!r} is not a list of positive numbers, such as 20000,100000", param_hint="--subscriptions"
        )
    return numbers


def _show(report: "Report", title: str) -> None:
    click.echo(f"{report.machine}; commit {report.commit}; {report.place}")
    click.echo(f"yardstick: hashlib.md5 of 150 B takes {report.yardstick_us:.2f} µs here")
    rows = []
    for figure in report.figures:
        goal = "" if figure.goal is None else f"{'≤' if figure.at_most else '≥'} {_number(figure.goal)}"
        verdict = {None: "", True: "met", False: "missed"}[figure.met]
        rows.append((figure.what, f"{_number(figure.value)} {figure.unit}", goal, verdict, figure.beside))
    show_table(title, ("figure", "measured", "goal", "", "beside"), rows, (1, 2))
    for line in report.not_measured:
        click.echo(f"not measured: {line}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.3g}"

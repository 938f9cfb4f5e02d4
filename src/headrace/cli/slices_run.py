"""`headrace slices run`: a processing node as a program. `headrace slices balance`: a balancer as a program.

Both run until Ctrl-C or SIGTERM. A node then finishes what it has in work, hands its slices over, and leaves; a second
signal ends it at once, and its slices move when its heartbeat is too old. On a terminal, one line shows what goes on.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.failure import NEGATIVE, OK, json_line, notice, show_warnings, warn
from headrace.cli.group import Command
from headrace.cli.options import AGE, FEED, POSITION, completes, json_option, open_queue, queue_argument
from headrace.cli.output import echo_json
from headrace.cli.slices_idle import UNDONE_MAX, Idle, count_undone
from headrace.cli.slices_objects import load_here, load_sink
from headrace.errors import HeadraceError, OptionError
from headrace.text import visible
from headrace.units import format_age, format_count

if TYPE_CHECKING:
    from headrace.queue import AnyQueue
    from headrace.share.interface import AnyShare
    from headrace.slices import Balancer, NodeStatistics, ProcessingNode

Function = TypeVar("Function", bound=Callable[..., Any])
Line = Callable[[str], None]  # shows a line in place of the one before
_LOOK_S = 0.5


def stream_options(function: Function) -> Function:
    """The stream, the group, and the terms of a group that is made by this command."""
    for option in reversed([
        click.option("--stream", required=True, metavar="CHANNEL", shell_complete=completes("channel"),
                     help="The channel whose slices are shared."),
        click.option("--group", default="main", show_default=True, shell_complete=completes("group"),
                     help="The group of nodes; each group works on the whole stream."),
        click.option("--from", "start", type=POSITION, metavar="oldest|next|SEQUENCE|AGE|TIME",
                     help="Where a new group begins; no effect on one that exists. [default: oldest]"),
        click.option("--slices", type=click.IntRange(min=1), metavar="COUNT",
                     help="Refuse a stream that has another number of slices."),
        click.option("--only", metavar="LIST", help="The group works on these slices alone, such as 0-127."),
        click.option("--dead-after", type=AGE, help="A node silent for so long loses its slices. [default: 3s]"),
        click.option("--tries-max", type=click.IntRange(min=1), metavar="COUNT",
                     help="Attempts before a product is parked. [default: 3]"),
    ]):  # fmt: skip
        function = option(function)
    return function


def _terms(options: dict[str, Any]) -> dict[str, Any]:
    """The terms of the group that were given, taken out of the options."""
    every = {name: options.pop(name) for name in ("start", "slices", "only", "dead_after", "tries_max")}
    return {name: value for name, value in every.items() if value is not None}


def _check_start(queue: "AnyQueue", stream: str, group: str, terms: dict[str, Any]) -> None:
    """Say that --from has no effect, if so. No error: a supervisor starts a node again with the same words."""
    if "start" in terms and (stream, group) in queue.shares():
        warn(f"group {group!r} of {stream!r} exists and goes on at its positions: --from has no effect")


@click.command(cls=Command, short_help="Run a processing node.")
@click.argument("work", metavar="MODULE:FUNCTION")
@queue_argument
@click.option("--name", default="", metavar="NAME", help="Of this node. [default: machine and process]")
@click.option("--workers", type=click.IntRange(1, 1024), default=1, show_default=True, help="Products at a time.")
@click.option("--processes", is_flag=True, help="Workers are processes. [default: threads]")
@click.option("--batches", is_flag=True, help="The function takes batches. [default: products]")
@click.option("--sink", metavar="SINK", help="Store results: sqlite:FILE:TABLE, or MODULE:NAME of a sink of yours.")
@click.option("--publish", type=FEED, shell_complete=completes("feed"), help="Put results into this feed of QUEUE.")
@click.option("--retry", type=AGE, default="1s", show_default=True, help="The pause after a failed attempt.")
@click.option("--hung-after", type=AGE, default="10min", show_default=True, help="Give an attempt up after so long.")
@click.option("--confirm", type=AGE, help="How often positions are confirmed. [default: 20ms, with a sink 500ms]")
@click.option("--timeout", type=AGE, help="End when all was done, and nothing came for this long. [default: run on]")
@click.option("--balance/--no-balance", default=True, help="Stand by as the balancer of the group, or do not.")
@stream_options
@json_option
def run(
    work: str, queue_path: str, stream: str, group: str, processes: bool, sink: str | None, timeout: float | None,
    as_json: bool, **options: Any,
) -> int:  # fmt: skip
    """Run a node that calls FUNCTION with each product of its slices of a stream. Start as many nodes as you like.

    MODULE is looked for in this directory first. A coroutine function is awaited. Products of one slice are worked on
    one after the other, in order; --workers of different slices at a time. A product whose work fails is tried again,
    then parked (`headrace slices parked`). With --sink or --publish, each result counts once.

    The other options from --from on are terms of the group; the first node sets them. Ctrl-C or SIGTERM: the node
    finishes what it has in work, hands its slices over, and leaves; a second one ends it at once.

    Exit codes: 0 if it was drained or --timeout has ended it, and all is done; 1 if it has then parked a product, or
    leaves products that no other node works on; 130 after Ctrl-C and 143 after SIGTERM, whatever it has parked; 2 if
    an option is invalid; 3 if it could not join or go on, such as with a name in use.

    \b
    Example:
      headrace slices run decode:work wx.queue --stream surface
      headrace slices run decode:work tcp/denver:7447 --stream surface --workers 4 --processes --publish wx/derived
      headrace slices run decode:work wx.queue --stream surface --sink sqlite:readings.db:readings --timeout 5s
    """
    function = load_here(work, "function")
    if not callable(function):
        raise OptionError(f"{work!r} is not a function", "name a function of a product, or of a batch with --batches")
    stored = load_sink(sink) if sink is not None else None
    terms = _terms(options)
    from headrace.slices import ProcessingNode

    with open_queue(queue_path) as queue:
        show_warnings()
        _check_start(queue, stream, group, terms)
        node = ProcessingNode(
            queue, stream, function, group=group, use="processes" if processes else "threads", sink=stored,
            **options, **terms,
        )  # fmt: skip
        share, undone, is_started = queue.share(stream, group, create=False), 0, False
        try:
            with one_line(as_json) as show, node:
                is_started = True
                _watch(node, share, timeout, show)
            undone = count_undone(queue, share)
        finally:
            is_explained = not is_started or isinstance(sys.exception(), HeadraceError)  # whose message says enough
            if not is_explained and _has_left(node):
                _tell_end(node, undone, as_json)
            elif not is_explained:
                after = format_age(share.terms.dead_after_s)
                warn(f"{node.name or 'the node'} ends without leaving; its slices go to other nodes after {after}")
    if undone:
        many = f"{undone:,} or more" if undone == UNDONE_MAX else format_count(undone, "product")
        warn(f"{many} not done, and no other node is alive; start a node: headrace slices run")
    return NEGATIVE if undone or node.statistics().parked else OK


def _watch(node: "ProcessingNode", share: "AnyShare", timeout: float | None, show: Line) -> None:
    """Until the node has ended, or had nothing to do for so long."""
    before, before_s = 0, time.monotonic()
    idle = None if timeout is None else Idle(share, timeout, before_s)
    while not node.wait(_LOOK_S if timeout is None else min(_LOOK_S, timeout / 2)):
        now, now_s = node.statistics(), time.monotonic()
        show(node_line(node.name, now, (now.products - before) / (now_s - before_s)))
        if idle is not None and idle.has_ended(node.name, now, now_s):
            return
        before, before_s = now.products, now_s


def _has_left(node: "ProcessingNode") -> bool:
    """Whether the node has ended in order; it has not after a second signal, or if it could not join."""
    try:
        return node.wait(0)
    except HeadraceError:
        return False


def node_line(name: str, now: "NodeStatistics", rate: float) -> str:
    """What a node does, in one line."""
    line = f"{name}: {rate:,.0f} products/s, {now.products:,} done, {format_count(now.slices, 'slice')}, "
    faults = {"failed": now.failed, "parked": now.parked, "lost": now.lost}
    return f"{line}{now.waiting:,} waiting" + "".join(f", {n:,} {what}" for what, n in faults.items() if n)


def _tell_end(node: "ProcessingNode", undone: int, as_json: bool) -> None:
    done = node.statistics()
    if as_json:
        values = {
            field: getattr(done, field) for field in done.__dataclass_fields__ if field not in ("slices", "waiting")
        }
        echo_json({"node": node.name, **values, "undone": undone})
        return
    faults = {"failed": done.failed, "parked": done.parked, "lost": done.lost, "not done": undone}
    told = "".join(f", {count:,} {what}" for what, count in faults.items() if count)
    click.echo(visible(f"{node.name or 'the node'} has left: {format_count(done.products, 'product')} done{told}"))


# --- a balancer -----------------------------------------------------------------------------------


@click.command(cls=Command, short_help="Run a balancer.")
@queue_argument
@click.option("--name", default="balancer", show_default=True, help="Of this balancer; a number is added.")
@click.option(
    "--algorithm",
    default="fewest-moves",
    show_default=True,
    metavar="fewest-moves|thresholds|MODULE:NAME",
    help="What decides which slices move.",
)
@click.option("--patience", type=AGE, default="10s", show_default=True, help="How long a giver may hold a slice.")
@click.option("--lease", type=AGE, default="2s", show_default=True, help="A standby takes over after so long.")
@click.option("--every", type=AGE, default="1s", show_default=True, help="How often loads are compared.")
@click.option("--nodes-min", type=click.IntRange(min=1), help="Release idle nodes, but keep so many. [default: 1]")
@click.option("--nodes-max", type=click.IntRange(min=1), help="Release nodes beyond this number.")
@click.option(
    "--full", type=click.FloatRange(0, 1), help="Release a node if the others stay below this. [default: 0.5]"
)
@click.option("--crowded", type=click.FloatRange(0, 1), help="More nodes are wanted above this. [default: 0.8]")
@click.option("--release-after", "after_s", type=AGE, help="How long it must have been so. [default: 1min]")
@stream_options
@json_option
def balance(
    queue_path: str, stream: str, group: str, algorithm: str, as_json: bool, nodes_min: int | None,
    nodes_max: int | None, full: float | None, crowded: float | None, after_s: float | None, **options: Any,
) -> None:  # fmt: skip
    """Run a balancer of a group, or its standby, until Ctrl-C or SIGTERM.

    Every node stands by as the balancer, so you need this command only for an algorithm of yours, for the release of
    idle nodes, or if the nodes run with --no-balance. One balancer leads; the others stand by. With one of the options
    from --nodes-min to --release-after, nodes that are not needed are drained.

    \b
    Example:
      headrace slices balance wx.queue --stream surface --nodes-min 2 --release-after 10min
      headrace slices balance tcp/denver:7447 --stream surface --algorithm mine:Careful
    """
    if ":" in algorithm:
        load_here(algorithm, "algorithm")  # which also finds it in this directory
    from headrace.slices import Balancer
    from headrace.slices.algorithms import load_algorithm
    from headrace.slices.release import Bounds

    bounds: dict[str, Any] = {
        "nodes_min": nodes_min, "nodes_max": nodes_max, "full": full, "crowded": crowded, "after_s": after_s
    }  # fmt: skip
    given = {name: value for name, value in bounds.items() if value is not None}
    release, decides, terms = Bounds(**given) if given else None, load_algorithm(algorithm), _terms(options)
    with open_queue(queue_path) as queue:
        show_warnings()
        _check_start(queue, stream, group, terms)
        share = queue.share(stream, group, **terms)
        balancer = Balancer(share, stream, group=group, algorithm=decides, release=release, **options)
        with one_line(as_json) as show, balancer:
            _follow(balancer, show, as_json)


def _follow(balancer: "Balancer", show: Line, as_json: bool) -> None:
    """Until a signal comes. Reports each change of the lead, and each error."""
    led, errors = None, 0
    while True:
        time.sleep(_LOOK_S / 5)
        now = balancer.statistics()
        if now.is_leader is not led and now.steps:
            led = now.is_leader
            text = f"{now.name} {f'leads, term {now.term}' if led else 'stands by'}"
            click.echo(json_line(now) if as_json else visible(text))
            sys.stdout.flush()
        if now.errors > errors:
            errors = now.errors
            notice(f"{now.name}: {now.latest_error}", as_json, error=now.latest_error, errors=errors)
        busiest = f", busiest node {now.busiest:.2f} of the mean" if now.busiest else ""
        state = "leads" if led else "stands by"
        show(f"{now.name} {state}: {format_count(now.sessions, 'session')}, {now.slices_moved:,} moved{busiest}")


# --- the line ------------------------------------------------------------------------------------


@contextmanager
def one_line(as_json: bool) -> Iterator[Line]:
    """A line on standard error that changes, if that is a terminal; other messages stand above it."""
    if as_json or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        yield lambda text: live.update(Text(visible(text)), refresh=True)

"""`headrace slices status`: the nodes of a group, their loads and slices, the sessions, and what is wrong."""

import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec
import numpy as np

from headrace.cli.failure import warn
from headrace.cli.group import Command
from headrace.cli.options import AGE, json_option, open_queue, queue_argument
from headrace.cli.output import echo_json, is_terminal, show_table
from headrace.cli.slices_group import group_options, open_group
from headrace.errors import HeadraceError, OptionError, SiteUnreachableError
from headrace.selection.values import slices_text
from headrace.share.interface import ELSEWHERE, NOBODY
from headrace.text import visible
from headrace.units import format_age, format_count, format_latency, format_size

if TYPE_CHECKING:
    from headrace.share.interface import AnyShare, NodeState, Parked, Sample, Session, ShareState, ShareTerms

_CLEAR = "\x1b[H\x1b[2J"
_TABLES_MAX = 40  # nodes that are shown without --all
_STILL_S = 10.0  # without a product done, although some wait: a problem


class Look(NamedTuple):
    """A group at one moment."""

    at_s: float
    terms: "ShareTerms"
    state: "ShareState"
    parked: "list[Parked]"
    still: "Mapping[str, float]"  # nodes that do nothing although products wait, and since how many seconds


@click.command(cls=Command, short_help="Show nodes, loads, slices and sessions.")
@queue_argument
@click.option("--follow", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", type=AGE, default="1s", show_default=True, help="How often, with --follow.")
@click.option("--count", type=click.IntRange(min=1), help="With --follow, end after so many times.")
@click.option(
    "--sessions",
    "shown",
    type=click.IntRange(0, 100),
    default=10,
    show_default=True,
    help="How many of the latest sessions.",
)
@click.option("--all", "every_node", is_flag=True, help=f"All nodes. [default: the busiest {_TABLES_MAX}]")
@group_options
@json_option
def status(
    queue_path: str, follow: bool, every: float, count: int | None, shown: int, every_node: bool, stream: str | None,
    group: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show a group of nodes: who owns which slices, how busy each node is, what waits, the latest sessions, and faults.

    `busy` is the share of a node's workers in use; `behind`, how many sequences its slowest slice is behind the end of
    the queue. Products of other feeds have sequences, too, so that this is no number of products. Rates are means since
    the last look; without --follow, since the node has joined. With --follow, a site that does not reply is waited for.

    \b
    Example:
      headrace slices status wx.queue
      headrace slices status wx.queue --stream surface --follow
      headrace slices status wx.queue --json
    """
    if count is not None and not follow:
        raise OptionError("--count has no effect without --follow", "add --follow, or leave it out")
    with open_queue(queue_path) as queue:
        share = open_group(queue, stream, group)
        before: Look | None = None
        for look in _looks(share, every, count) if follow else [_look(share, None)]:
            if isinstance(look, HeadraceError):
                warn(f"{look.problem}; the next look follows")
                continue
            if as_json:
                echo_json(values_of(look, shown))
            else:
                if follow and is_terminal():
                    click.echo(_CLEAR, nl=False)
                _show(look, before, shown, None if every_node else _TABLES_MAX)
            sys.stdout.flush()
            before = look


def _looks(share: "AnyShare", every_s: float, count: int | None) -> Iterator[Look | SiteUnreachableError]:
    """One look after the other, or why there is none."""
    before = None
    for number in itertools.count(1):
        try:
            before = _look(share, before)
            yield before
        except SiteUnreachableError as error:
            yield error
        if number == count:
            return
        time.sleep(every_s)


def _look(share: "AnyShare", before: Look | None) -> Look:
    state = share.state()
    return Look(time.time(), share.terms, state, share.parked(), _still(share, state, before))


def _still(share: "AnyShare", state: "ShareState", before: Look | None) -> dict[str, float]:
    """Nodes that do nothing although products wait, and since how many seconds."""
    old = {} if before is None else {(node.seat, node.joined_ns): node.products for node in before.state.nodes}
    suspects = {
        node.name: node.joined_ns
        for node in state.nodes
        if node.is_alive and node.load.waiting and old.get((node.seat, node.joined_ns), node.products) == node.products
    }
    samples: dict[str, list[Sample]] = {name: [] for name in suspects}
    for each in share.history() if suspects else ():
        if each.time_ns >= suspects.get(each.node, sys.maxsize):
            samples[each.node].append(each)
    found = {name: still_s(own) for name, own in samples.items()}
    return {name: since_s for name, since_s in found.items() if since_s >= _STILL_S}


def still_s(samples: "Sequence[Sample]") -> float:
    """For how long a node has done nothing while products waited, until its last sample."""
    since = list(itertools.takewhile(lambda each: each.waiting and not each.busy, reversed(samples)))
    return (since[0].time_ns - since[-1].time_ns) / 1e9 if since else 0.0


# --- for programs ---------------------------------------------------------------------------------


def values_of(look: Look, sessions: int = 100) -> dict[str, Any]:
    """The whole group as JSON; slices as lists such as 0-31."""
    state = look.state
    nodes = [
        {**msgspec.to_builtins(node), "behind": behind(state, node.seat), "owned": _owned(state, node.seat)}
        for node in state.nodes
    ]
    return {
        "stream": state.stream, "group": state.group, "id": look.terms.id, "slices": len(state.owners),
        "only": look.terms.only or None, "dead_after_s": look.terms.dead_after_s, "tries_max": look.terms.tries_max,
        "head": state.head, "balancer": state.leader or None, "term": state.term, "nodes": nodes,
        "unowned": _owned(state, NOBODY), "products": int(state.products.sum()),
        "busy_s": int(state.busy_ns.sum()) / 1e9, "counters": state.counters, "parked": len(look.parked),
        "sessions": state.sessions[-sessions:] if sessions else [],
        "problems": [{"problem": problem, "remedy": remedy} for problem, remedy in problems_of(look)],
    }  # fmt: skip


def _owned(state: "ShareState", seat: int) -> str:
    return slices_text(tuple(np.flatnonzero(state.owners == seat).tolist()))


def behind(state: "ShareState", seat: int) -> int:
    """How many sequences the slowest slice of a node is behind the end of the queue."""
    positions = state.positions[state.owners == seat]
    return max(0, state.head - int(positions.min())) if len(positions) else 0


def problems_of(look: Look) -> Iterator[tuple[str, str]]:
    """What an operator should look at, and what to do."""
    state = look.state
    alive = [node for node in state.nodes if node.is_alive]
    unowned = int((state.owners == NOBODY).sum())
    if not alive:
        yield "no node is alive: nothing is worked on", "start nodes: headrace slices run"
    elif not state.leader:
        yield "there is no balancer: no slice changes its owner", "start one: headrace slices balance"
    elif all(node.draining for node in alive):
        yield "all nodes are leaving: nobody takes their slices", "start a node: headrace slices run"
    elif unowned:
        yield f"{format_count(unowned, 'slice')} without an owner", "the balancer gives them out; look again"
    for node in state.nodes:
        if not node.is_alive:
            what = "its slices go to others" if alive else "start a node: headrace slices run"
            yield f"node {node.name} was not heard of for {format_age(node.age_s)}", what
        elif node.name in look.still:
            waiting, since = format_count(node.load.waiting, "product"), format_age(look.still[node.name])
            yield (
                f"node {node.name} has done nothing for {since}, and has {waiting} to do",
                "read its messages: its work takes long, hangs or fails, or its workers do not start",
            )
    if look.parked:
        yield f"{format_count(len(look.parked), 'product')} parked", "see them: headrace slices parked"
    if state.counters["lost"]:
        lost = format_count(state.counters["lost"], "product")
        yield f"{lost} evicted before they were read", "use a larger queue, or more nodes"


# --- for people -----------------------------------------------------------------------------------


def _show(look: Look, before: Look | None, sessions: int, nodes_max: int | None) -> None:
    state = look.state
    slices = int((state.owners != ELSEWHERE).sum())
    only = f" of {len(state.owners):,}" if slices != len(state.owners) else ""
    click.echo(visible(
        f"group {state.group} of stream {state.stream}: {slices:,}{only} slices, "
        f"{format_count(sum(node.is_alive for node in state.nodes), 'node')}, "
        f"balancer {f'{state.leader} (term {state.term})' if state.leader else 'none'}"
    ))  # fmt: skip
    _show_nodes(look, before, nodes_max)
    _show_sessions(state.sessions[-sessions:] if sessions else [])
    counters = {"confirmed": int(state.products.sum()), **state.counters}
    click.echo("counters: " + ", ".join(f"{name} {count:,}" for name, count in counters.items()))
    for problem, remedy in problems_of(look):
        click.echo(visible(f"problem: {problem}"))
        click.echo(visible(f"  try: {remedy}"))


def _show_nodes(look: Look, before: Look | None, nodes_max: int | None) -> None:
    nodes = sorted(look.state.nodes, key=lambda node: node.name)
    if nodes_max is not None and len(nodes) > nodes_max:
        nodes = sorted(nodes, key=lambda node: -node.load.waiting)[:nodes_max]
    old = {} if before is None else {(node.seat, node.joined_ns): node for node in before.state.nodes}
    rows = []
    for node in nodes:
        rate, busy = _rates(node, old.get((node.seat, node.joined_ns)), look.at_s, before)
        rows.append((
            node.name, _state_of(node), f"{node.slices:,}", f"{rate:,.0f}", f"{node.products:,}", f"{busy:.0%}",
            f"{node.load.cpu:.2f}", format_size(node.load.memory), f"{node.load.waiting:,}",
            f"{behind(look.state, node.seat):,}", _metrics(node),
        ))  # fmt: skip
    header = ("node", "state", "slices", "products/s", "products", "busy", "cores", "memory", "waiting", "behind", "")
    if rows:
        show_table("nodes", header, rows, range(2, 10))
    if len(nodes) < len(look.state.nodes):
        click.echo(f"  and {len(look.state.nodes) - len(nodes):,} more: --all")


def _rates(node: "NodeState", old: "NodeState | None", now_s: float, before: Look | None) -> tuple[float, float]:
    """Products per second, and the share of its workers in use."""
    since_s = before.at_s if old is not None and before is not None else node.joined_ns / 1e9
    passed_s = max(now_s - since_s, 1e-3)
    products, busy_s = (old.products, old.busy_s) if old is not None else (0, 0.0)
    return (node.products - products) / passed_s, (node.busy_s - busy_s) / passed_s / max(node.load.capacity, 1e-9)


def _state_of(node: "NodeState") -> str:
    return "dead" if not node.is_alive else "draining" if node.draining else "alive"


def _metrics(node: "NodeState") -> str:
    return ", ".join(f"{name} {value:g}" for name, value in node.load.metrics.items())


def _show_sessions(sessions: "list[Session]") -> None:
    rows = [
        (each.number, each.giver or "nobody", each.taker, f"{each.slices:,}", each.reason, state_of(each), _took(each))
        for each in sessions
    ]
    if rows:
        show_table("sessions", ("", "giver", "taker", "slices", "reason", "state", "took"), rows, (0, 3, 6))


def state_of(session: "Session") -> str:
    """The state of a session, in the words of docs/slices.md."""
    if session.outcome != "running":
        return session.outcome
    if session.removed_ns:
        return "removed"
    return f"in session, {session.left} left" if session.left != session.slices else "in session"


def _took(session: "Session") -> str:
    return format_latency((session.ended_ns - session.begun_ns) / 1e9) if session.ended_ns else ""

"""`headrace slices`: processing nodes that share a stream. Here: the group of commands, list, move, drain and delete.

slices_run.py runs nodes and balancers, slices_status.py shows a group, slices_parked.py has the products that were
given up, slices_plot.py draws. slices_group.py finds the group that a command means, slices_objects.py what is named by
MODULE:NAME; slices_idle.py knows when a node has nothing left to do.

The modules of the library are imported when a command runs: nodes need Arrow and an event loop, a help page does not.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from headrace.cli.failure import NEGATIVE, OK, confirm, warn
from headrace.cli.group import Group
from headrace.cli.options import AGE, completes, json_option, open_queue, queue_argument
from headrace.cli.output import echo_json, show_table
from headrace.cli.slices_group import find_node, group_options, name_of, open_group
from headrace.cli.slices_parked import parked
from headrace.cli.slices_plot import plot
from headrace.cli.slices_run import balance, run
from headrace.cli.slices_status import status
from headrace.errors import OptionError, ShareError
from headrace.text import visible
from headrace.units import format_age, format_count, format_latency

if TYPE_CHECKING:
    from headrace.share.interface import AnyShare, NodeState, ShareState, Slices

_LOOK_S = 0.02


@click.group(cls=Group)
def slices() -> None:
    """Share a stream between processing nodes: run them, look at them, and move work between them.

    A stream is a channel with slices. Nodes of a group own slices; a balancer moves slices between nodes.

    \b
    Example:
      headrace channel create wx.queue surface 'wx/surface/**' --slices 64
      headrace slices run decode:work wx.queue --stream surface &
      headrace slices run decode:work wx.queue --stream surface &
      headrace slices status wx.queue
    """


for each in (run, balance, status, parked, plot):
    slices.add_command(each)


@slices.command("list", short_help="List all groups of nodes.")
@queue_argument
@json_option
def list_all(queue_path: str, as_json: bool) -> None:
    """List the groups of QUEUE, with their nodes and slices.

    \b
    Example:
      headrace slices list wx.queue
    """
    with open_queue(queue_path) as queue:
        states = [queue.share(stream, group, create=False).state() for stream, group in queue.shares()]
    if as_json:
        for each in states:
            echo_json({"stream": each.stream, "group": each.group, **_counts(each), "balancer": each.leader or None})
    elif states:
        rows = [(each.stream, each.group, *_counts(each).values(), each.leader or "none") for each in states]
        show_table("groups", ("stream", "group", "nodes", "slices", "unowned", "parked", "balancer"), rows, range(2, 6))
    else:
        click.echo(f"{queue_path} has no groups of nodes; start a node with: headrace slices run")


def _counts(state: "ShareState") -> dict[str, int]:
    from headrace.share.interface import ELSEWHERE, NOBODY

    return {
        "nodes": sum(node.is_alive for node in state.nodes),
        "slices": int((state.owners != ELSEWHERE).sum()),
        "unowned": int((state.owners == NOBODY).sum()),
        "parked": state.counters["parked"],
    }


# --- move -----------------------------------------------------------------------------------------


@slices.command(short_help="Move slices to a node.")
@queue_argument
@click.argument("node", shell_complete=completes("node"))
@click.option("--slices", "chosen", metavar="LIST", help="Which slices, such as 3,8-15; from whichever nodes.")
@click.option("--from", "giver", metavar="NODE", shell_complete=completes("node"), help="From this node.")
@click.option("--count", type=click.IntRange(min=1), help="How many slices of the node of --from. [default: all]")
@click.option("--timeout", type=AGE, default="30s", show_default=True, help="How long to wait for the hand-over.")
@group_options
@json_option
def move(
    queue_path: str, node: str, chosen: str | None, giver: str | None, count: int | None, timeout: float,
    stream: str | None, group: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Move slices to NODE, and wait until it has them. Each owner finishes what it has in work; nothing is lost.

    Give --slices, or --from and perhaps --count. The balancer leaves the slices there for some seconds; then it moves
    what the loads ask for. An owner is in one session at a time: if it gives slices to another node, the command waits
    for that first. Exit code 1 if slices have not moved before the timeout; a session that has begun goes on then.

    \b
    Example:
      headrace slices move wx.queue node-2 --slices 0-31
      headrace slices move wx.queue node-2 --from node-1 --count 8
    """
    if (chosen is None) == (giver is None):
        raise OptionError("either --slices or --from is required", "name the slices, or the node that gives some")
    if chosen is not None and count is not None:
        raise OptionError("--count has no effect with --slices", "leave it out, or give --from instead")
    if giver == node:
        raise OptionError(f"node {node!r} cannot give slices to itself", "name another node with --from")
    with open_queue(queue_path) as queue:
        share = open_group(queue, stream, group)
        state = share.state()
        taker = find_node(state, node)
        if taker.draining:
            raise ShareError(f"node {node!r} is draining: it takes no slices any more", "choose another node")
        moving = _slices_of(state, chosen) if chosen else _some_of(state, find_node(state, str(giver)), count)
        moving = moving[state.owners[moving] != taker.seat]  # it has the others already
        began_s = time.monotonic()
        left = _hand_over(share, taker, moving, began_s + timeout)
        waits_for = list(_waits_for(share.state(), taker, left))
    took_s = time.monotonic() - began_s
    if as_json:
        moved_all = {"node": node, "moved": len(moving) - len(left), "left": left.tolist(), "took_s": took_s}
        echo_json({**moved_all, "waits_for": waits_for})
    else:
        moved = format_count(len(moving) - len(left), "slice")
        click.echo(visible(f"{node} has {moved} more, after {format_latency(took_s)}"))
        if len(left):
            what = f"{format_count(len(left), 'slice')} did not move within {format_age(timeout)}"
            click.echo(visible(f"{what}: {'; '.join(waits_for)}"), err=True)
            click.echo("  try: headrace slices status; then move the rest, with a longer --timeout", err=True)
    return NEGATIVE if len(left) else OK


def _slices_of(state: "ShareState", chosen: str) -> "Slices":
    """The slices of a list, checked against those of the group."""
    import numpy as np

    from headrace.selection.values import slices_of
    from headrace.share.interface import ELSEWHERE

    numbers = np.array(slices_of(chosen), np.uint32)
    if numbers[-1] >= len(state.owners):
        raise OptionError(f"slice {numbers[-1]} is out of range", f"the stream has slices 0 to {len(state.owners) - 1}")
    elsewhere = numbers[state.owners[numbers] == ELSEWHERE]
    if len(elsewhere):
        raise OptionError(f"slice {elsewhere[0]} is not one of group {state.group!r}", "see: headrace slices status")
    return numbers


def _some_of(state: "ShareState", giver: "NodeState", count: int | None) -> "Slices":
    import numpy as np

    return np.flatnonzero(state.owners == giver.seat).astype(np.uint32)[:count]


def _hand_over(share: "AnyShare", taker: "NodeState", moving: "Slices", until_s: float) -> "Slices":
    """Begin sessions until the taker owns all of the slices; those that it does not own when the time is over.

    A giver is in one session at a time, so that a session of the balancer may have to end first.
    """
    from headrace.share.interface import NOBODY

    while True:
        state = share.state()
        find_node(state, taker.name)  # an error, if it has gone meanwhile
        left: Slices = moving[state.owners[moving] != taker.seat]
        if not len(left) or time.monotonic() > until_s:
            return left
        for owner in set(state.owners[left].tolist()):
            part = left[state.owners[left] == owner]
            if owner == NOBODY:
                share.give(0, taker.seat, part, "hand")
            else:
                share.begin(0, owner, taker.seat, part, "hand")
        time.sleep(_LOOK_S)


def _waits_for(state: "ShareState", taker: "NodeState", left: "Slices") -> Iterator[str]:
    """Why slices have not moved, for each of their owners."""
    nodes = {each.seat: each for each in state.nodes}
    givers = {each.giver: each for each in state.sessions if each.outcome == "running" and each.left}
    for owner in sorted(set(state.owners[left].tolist()) - {taker.seat}):
        if owner not in nodes:
            yield "slices without an owner were not given"
            continue
        name, session = nodes[owner].name, givers.get(nodes[owner].name)
        if not nodes[owner].is_alive:
            yield f"node {name} is dead, and its slices wait for the balancer"
        elif session is not None and session.taker != taker.name:
            rest = format_count(session.left, "slice")
            yield f"node {name} is in session {session.number} with {session.taker}, which has {rest} left"
        else:
            yield f"node {name} still works on products of these slices"


# --- drain and delete -----------------------------------------------------------------------------


@slices.command(short_help="Move all slices of a node to others; then it leaves.")
@queue_argument
@click.argument("node", shell_complete=completes("node"))
@click.option("--timeout", type=AGE, default="1min", show_default=True, help="How long to wait; 0s: not at all.")
@group_options
@json_option
def drain(queue_path: str, node: str, timeout: float, stream: str | None, group: str | None, as_json: bool) -> int:
    """Let NODE give all of its slices to others, and leave. Its process ends, if it is `headrace slices run`.

    Exit code 1 if it has not left before the timeout; it goes on then.

    \b
    Example:
      headrace slices drain wx.queue node-2
    """
    with open_queue(queue_path) as queue:
        share = open_group(queue, stream, group)
        state = share.state()
        leaving = find_node(state, node)
        if not any(each.is_alive and not each.draining and each.seat != leaving.seat for each in state.nodes):
            raise ShareError(
                f"no other node of {name_of(share)} could take the slices of {node!r}",
                "start another one: headrace slices run; or stop this one, which leaves its slices to the next",
            )
        if not state.leader:
            warn(f"{name_of(share)} has no balancer, so that no slice moves; start one: headrace slices balance")
        share.drain(leaving.seat)
        left = _wait_until_gone(share, leaving, time.monotonic() + timeout)
    if as_json:
        echo_json({"node": node, "left": left == 0, "slices": left})
    else:
        click.echo(visible(f"{node} has left" if not left else f"{node} still has {format_count(left, 'slice')}"))
        if left and timeout:
            click.echo("  try: wait: it goes on, and ends what it has in work; see: headrace slices status", err=True)
    return NEGATIVE if left and timeout else OK


def _wait_until_gone(share: "AnyShare", leaving: "NodeState", until_s: float) -> int:
    """How many slices the node still has when the time is over; 0 if it has left."""
    while True:
        seats = {each.seat: each for each in share.state().nodes}
        now = seats.get(leaving.seat)
        if now is None or now.joined_ns != leaving.joined_ns:
            return 0
        if time.monotonic() >= until_s:
            return max(1, now.slices)
        time.sleep(_LOOK_S)


@slices.command(short_help="Delete a group and its positions.")
@queue_argument
@group_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(queue_path: str, stream: str | None, group: str | None, yes: bool, as_json: bool) -> int:
    """Delete a group of nodes: its positions, its list of parked products, its history. The products stay.

    A group of that name that is made later begins at the oldest product again. Refused while nodes are alive. The
    command asks first; exit code 1 if you answer no.

    \b
    Example:
      headrace slices delete wx.queue --stream surface --group trial
    """
    with open_queue(queue_path) as queue:
        share = open_group(queue, stream, group)
        if not yes and not confirm(visible(f"Delete {name_of(share)}, with {_content(share)}?")):
            click.echo("nothing was deleted", err=True)
            return NEGATIVE
        share.remove()
        terms = share.terms
    if as_json:
        echo_json({"stream": terms.stream, "group": terms.group, "deleted": True})
    else:
        click.echo(visible(f"deleted group {terms.group} of {terms.stream}"))
    return OK


def _content(share: "AnyShare") -> str:
    done, given_up = int(share.state().products.sum()), len(share.parked())
    return f"the positions of {format_count(done, 'confirmed product')} and {format_count(given_up, 'parked product')}"

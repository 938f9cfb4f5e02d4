"""`headrace clock`: how right the time of a site is, and by whom; or keep the clock of a queue that has no site."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from headrace.cli.failure import NEGATIVE, OK, notice, show_warnings
from headrace.cli.group import Command, QueueArgument
from headrace.cli.options import AGE, json_option
from headrace.cli.output import echo_json, show_table
from headrace.cli.place import Place, find_place
from headrace.errors import FabricError, OptionError
from headrace.text import visible
from headrace.units import format_latency

if TYPE_CHECKING:
    from headrace.timing.clock.keeper import Keeper
    from headrace.timing.clock.state import ClockState, ServerState

_FOLLOW_S = 1.0
_SHOWN_NS_MIN = 1_000  # of a correction; the clock of a system that is followed always has a smaller one
_HEADER = ("server", "verdict", "stratum", "reached", "offset", "delay", "error at most", "jitter", "refused")


@click.command(cls=Command)
@click.argument("where", cls=QueueArgument, completes="queue", metavar="QUEUE|SITE|SITE.TOML")
@click.option("--follow", is_flag=True, help="Show it again every second, until Ctrl-C.")
@click.option("--check", is_flag=True, help="Exit code 1 if the clock is not synchronised, or no server is right.")
@click.option(
    "--keep", is_flag=True, help="Keep the clock of QUEUE, a directory without a site, until Ctrl-C or SIGTERM."
)
@click.option("--source", type=click.Choice(("auto", "system", "ntp")), help="With --keep: where the time comes from.")
@click.option("--server", "servers", multiple=True, metavar="SERVER", help="With --keep: an NTP server; repeat it.")
@click.option("--poll", "poll_s", type=AGE, metavar="AGE", help="With --keep: how often each server is asked; 64s.")
@json_option
def clock(
    where: str, follow: bool, check: bool, keep: bool, source: str | None, servers: tuple[str, ...],
    poll_s: float | None, as_json: bool,
) -> int:  # fmt: skip
    """Show how right the time of a queue or a site is: its source, its offset, its bound, and what each server says.

    The offset is UTC by this clock minus the clock of the system. The bound is how far the clock may be from the truth;
    it grows while nothing corrects the clock, and products carry it. A truechimer agrees with the majority of the
    servers, an outlier does too but is not needed, and a falseticker lies.

    A site keeps its clock by itself (`[clock]` in its configuration). --keep does so for a queue without a site.

    \b
    Example:
      headrace clock wx.queue
      headrace clock site:denver --json
      headrace clock wx.queue --follow
      headrace clock wx.queue --keep --server ntp1.example.org --server ntp2.example.org --server 192.0.2.7
    """
    if not keep and (source or servers or poll_s is not None):
        raise OptionError("--source, --server and --poll are for --keep", "add --keep, or change [clock] of the site")
    if keep and (follow or check):
        raise OptionError("--keep and --follow or --check contradict each other", "run them in two terminals")
    place = find_place(where)
    if keep:
        return _keep(place, source, servers, poll_s, as_json)
    with _looking_at(place) as look:
        while True:
            state = look()
            _show(state, as_json)
            if not follow:
                return _check(state, as_json) if check else OK
            time.sleep(_FOLLOW_S)


def _check(state: "ClockState", as_json: bool) -> int:
    """The exit code for monitors: a bound may be honest still, while no server is known to be right."""
    if state.situation != "synchronised":
        return NEGATIVE
    if state.source == "ntp" and all(each.verdict != "truechimer" for each in state.servers):
        text = "no server is a truechimer: no majority of the servers confirms the clock now; see headrace clock"
        notice(text, as_json, problem=text)
        return NEGATIVE
    return OK


# --- where it comes from --------------------------------------------------------------------------


@contextmanager
def _looking_at(place: Place) -> "Iterator[Callable[[], ClockState]]":
    """What looks at the clock once."""
    show_warnings()
    if place.is_remote:
        from headrace.cli.sites import find_site
        from headrace.relay.messages.description import Description
        from headrace.relay.messages.query import Describe
        from headrace.relay.site_client import SiteClient

        found = find_site(place)
        client = SiteClient(found.session, found.site, found.principal)
        try:
            yield lambda: _of_site(client.query(Describe(), Description))
        finally:
            found.session.close()  # type: ignore[no-untyped-call]
        return
    from headrace.queue import Queue

    with Queue.open(_directory(place)) as queue:
        yield queue.clock


def _of_site(description: object) -> "ClockState":
    from headrace.relay.messages.description import Description

    assert isinstance(description, Description)
    if description.clock is None:
        raise FabricError(f"site {description.site} does not keep its clock", "upgrade or restart it")
    return description.clock


def _directory(place: Place) -> str:
    """The queue; that of a site if its configuration is given."""
    if not os.path.isfile(place.where):
        return place.where
    from headrace.site.loading import load_config

    return str(load_config(place.where).site.queue)


def _keep(place: Place, source: str | None, servers: tuple[str, ...], poll_s: float | None, as_json: bool) -> int:
    from headrace.queue import Queue
    from headrace.queue.queue import log_of
    from headrace.timing.clock.keeper import Keeper
    from headrace.timing.clock.terms import POLL_S, ClockTerms

    if place.is_remote:
        raise OptionError(f"{place.where} is a site, which keeps its clock by itself", "leave --keep out")
    terms = ClockTerms(source or "auto", servers, POLL_S if poll_s is None else poll_s)  # type: ignore[arg-type]
    show_warnings()
    with Queue.open(_directory(place)) as queue:
        keeper = Keeper(queue.path, log_of(queue), terms, on_change=partial(_tell_keeper, str(queue.path), as_json))
        try:
            signal.pause()
        finally:
            keeper.close()
    return OK


def _tell_keeper(queue: str, as_json: bool, keeper: "Keeper", state: "ClockState | None") -> None:
    """Say what the keeper of this process does; it goes on if nobody reads that any more."""
    with suppress(OSError):
        _say(queue, as_json, keeper, state)


def _say(queue: str, as_json: bool, keeper: "Keeper", state: "ClockState | None") -> None:
    if not keeper.is_keeping:
        then = "this process stands by, and takes over within seconds after that one ends; Ctrl-C or SIGTERM ends it"
        if "keeps the clock" not in keeper.failure:
            then = "trying again every second; Ctrl-C or SIGTERM ends it"
        notice(f"{keeper.failure} of {queue}: {then}", as_json, queue=queue, keeping=False, why=keeper.failure)
    elif state is None:
        notice(f"keeping the clock of {queue}; Ctrl-C or SIGTERM ends it", as_json, queue=queue, keeping=True)
    else:
        for text in source_troubles(state):
            notice(f"warning: {text}", as_json, warning=text)


def source_troubles(state: "ClockState") -> list[str]:
    """What is wrong with the source of the time: there is none, or a server that cannot be asked."""
    found = []
    if state.source == "none":
        follows = "the clock of the system is followed, without a bound"
        found.append(f"the clock has no source: {state.why}; {follows}. Name servers: --server")
    return found + [f"server {each.name}: {each.trouble}; it is asked again" for each in state.servers if each.trouble]


# --- how it is shown ------------------------------------------------------------------------------


def _show(state: "ClockState", as_json: bool) -> None:
    if as_json:
        echo_json(state)
        return
    for line in state_lines(state):
        click.echo(visible(line))
    if state.servers:
        show_table("servers", _HEADER, [_cells(server) for server in state.servers], range(2, 8))


def state_lines(state: "ClockState") -> list[str]:
    """The clock in words."""
    asked = "" if state.wanted == state.source else f" ({state.wanted})"
    lines = [
        f"source      {state.source}{asked}, {state.situation}{f': {state.why}' if state.why else ''}",
        f"offset      {signed(state.offset_ns)} from the clock of the system",
        "bound       unknown"
        if state.bound_ns is None
        else f"bound       {format_latency(state.bound_ns / 1e9)}, growing by {state.drift_ppb / 1000:g} µs/s",
        f"frequency   {state.rate_ppb / 1000:+.3f} ppm",
    ]
    if abs(state.left_ns) >= _SHOWN_NS_MIN:
        way = "ahead, runs slower" if state.left_ns < 0 else "behind, runs faster"
        lines.append(f"correction  {format_latency(abs(state.left_ns) / 1e9)} {way}")
    if state.steps:
        lines.append(f"jumps       {state.steps} ahead, the last by {format_latency(state.stepped_ns / 1e9)}")
    if state.system_steps:
        lines.append(f"system      its clock was set {state.system_steps} times")
    return lines


def _cells(server: "ServerState") -> tuple[str, ...]:
    refused = ", ".join(f"{count} {cause}" for cause, count in server.refused.items())
    verdict = f"{server.verdict}: {server.trouble}" if server.trouble else server.verdict
    if not server.distance_ns:
        return (server.name, verdict, "", server.reached, "", "", "", "", refused)
    times = (server.delay_ns, server.distance_ns, server.jitter_ns)
    return (
        server.name, verdict, str(server.stratum), server.reached, signed(server.offset_ns),
        *(format_latency(each / 1e9) for each in times), refused,
    )  # fmt: skip


def signed(time_ns: int) -> str:
    return f"{'-' if time_ns < 0 else '+'}{format_latency(abs(time_ns) / 1e9)}"

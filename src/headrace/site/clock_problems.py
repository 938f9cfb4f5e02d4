"""Problems of the clock of a site: it is not synchronised, a server lies or is away, somebody interferes."""

from collections.abc import Iterator

from headrace.relay.messages.description import Problem
from headrace.timing.clock.keeper import Keeper
from headrace.timing.clock.state import ClockState, ServerState
from headrace.units import format_count

KIND = "clock"
AHEAD_NS = 1_000_000_000  # a correction that lasts


def clock_problems(keeper: Keeper | None) -> Iterator[Problem]:
    """What an operator should look at; nothing without a keeper."""
    if keeper is None:
        return
    if keeper.failure and not keeper.failure.endswith("keeps the clock"):
        yield Problem(
            KIND, "keeper", f"the clock is not kept: {keeper.failure}",
            "time stamps go on, and their bound grows; look at the log of the site",
        )  # fmt: skip
    if keeper.state is not None:
        yield from state_problems(keeper.state)


def state_problems(state: ClockState) -> Iterator[Problem]:
    if state.wanted == "auto" and state.source == "none":
        pass  # nobody has asked for a bound: `headrace clock` and `headrace sites` show that there is none
    elif state.situation in ("unsynchronised", "holdover"):
        still = "its bound grows" if state.situation == "holdover" else "its bound is unknown"
        remedy = (
            "start a daemon such as chronyd on this machine, or name servers in [clock]"
            if state.source != "ntp"
            else "check the servers in [clock], and that UDP port 123 is open"
        )
        yield Problem(KIND, "", f"the clock is not synchronised: {state.why}; {still}", remedy)
    if state.left_ns < -AHEAD_NS:
        yield Problem(
            KIND, "ahead", f"the clock is {-state.left_ns / 1e9:,.0f} s ahead and runs slower until it is right",
            f"this takes {-state.left_ns * 12 / 1e9:,.0f} s; the bound of time stamps says so",
        )  # fmt: skip
    if state.source == "ntp" and state.disturbed:
        yield Problem(
            KIND, "rate", f"another program has changed the rate of the system's clock "
            f"{format_count(state.disturbed, 'time')}",
            'if a daemon disciplines the system\'s clock, choose source = "system" or "auto" in [clock]',
        )  # fmt: skip
    for server in state.servers if state.source == "ntp" else ():
        yield from _server_problems(server)


def _server_problems(server: ServerState) -> Iterator[Problem]:
    name, remedy = server.name, "name another server in [clock], or ask its operator"
    if server.verdict == "falseticker":
        yield Problem(
            KIND, name, f"time server {name} lies: it is {server.offset_ns / 1e9:+.6f} s from the others, and states "
            f"an error of {server.distance_ns / 1e9:.6f} s at most", remedy,
        )  # fmt: skip
    elif server.verdict == "undecided":
        yield Problem(
            KIND, name, f"time server {name} contradicts the clock or other servers, and no majority decides who is "
            "right", "name more servers in [clock]",
        )  # fmt: skip
    elif server.verdict in ("unreachable", "unsynchronised", "denied"):
        why = f": {server.trouble}" if server.trouble else ""
        yield Problem(KIND, name, f"time server {name} is {server.verdict}{why}", remedy)

"""The clock against real servers: several chronyd on loopback, one behind a proxy that lies, one behind a slow way.

Simulated servers do the same in test_clock_keeping.py, where chronyd is not installed.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from chrony import CHRONYD, Chronyd, Proxy
from clock_machine import FakeMachine, MemoryClock, bound_ns, error_ns

from headrace.timing.clock.keeper import Keeper
from headrace.timing.clock.state import ClockState
from headrace.timing.clock.terms import ClockTerms
from support.waiting import until

MS = 1_000_000
pytestmark = pytest.mark.skipif(CHRONYD is None, reason="chronyd is not installed (Debian: apt install chrony)")


@pytest.fixture
def parts() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(parts: ExitStack, folder: Path, names: list[str], machine: FakeMachine) -> tuple[Keeper, MemoryClock]:
    clock = MemoryClock()
    keeper = Keeper(folder, clock, ClockTerms("ntp", tuple(names), poll_s=1.0), machine, burst_s=0.05)
    parts.callback(keeper.close)
    return keeper, clock


def verdicts(keeper: Keeper) -> list[str]:
    state: ClockState | None = keeper.state
    return [] if state is None else [each.verdict for each in state.servers]


def test_four_real_servers_of_which_one_lies_one_is_slow_one_way_and_one_dies(parts: ExitStack, tmp_path: Path) -> None:
    servers = [Chronyd(tmp_path / str(place), 3 + place) for place in range(4)]
    for each in servers:
        parts.callback(each.close)
    liar, slow = Proxy(servers[2].name, off_ns=300 * MS), Proxy(servers[3].name, delay_s=0.03)
    parts.callback(liar.close)
    parts.callback(slow.close)
    names = [servers[0].name, servers[1].name, liar.name, slow.name]
    keeper, clock = start(parts, tmp_path, names, FakeMachine(off_ns=-544_461 * MS))
    until(
        lambda: verdicts(keeper)[2:3] == ["falseticker"] and "unreachable" not in verdicts(keeper), lambda: keeper.state
    )
    until(lambda: abs(error_ns(clock)) < MS, lambda: (error_ns(clock), bound_ns(clock)))
    assert abs(error_ns(clock)) <= bound_ns(clock) < 100 * MS
    # the middle of the slow one is off by 15 ms, and its interval says so
    until(lambda: verdicts(keeper)[3] in ("truechimer", "outlier"), lambda: keeper.state)
    assert (state := keeper.state) is not None
    assert state.bound_ns is not None
    assert abs(state.servers[3].offset_ns) < state.servers[3].distance_ns + state.bound_ns
    servers[1].close()
    until(lambda: verdicts(keeper)[1] != "truechimer" or keeper.state.servers[1].trouble, lambda: keeper.state)
    assert abs(error_ns(clock)) <= bound_ns(clock)
    assert state.steps == keeper.state.steps == 1


def test_a_real_server_that_is_not_synchronised_is_not_used(parts: ExitStack, tmp_path: Path) -> None:
    server = Chronyd(tmp_path / "server", None)
    parts.callback(server.close)
    keeper, clock = start(parts, tmp_path, [server.name], FakeMachine())
    until(lambda: verdicts(keeper) == ["unsynchronised"], lambda: keeper.state)
    assert clock.words is not None
    assert clock.words.bound_ns == 0

"""The keeper with real sockets and threads: simulated servers on loopback, and a system clock that is set."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clock_machine import FakeMachine, MemoryClock, bound_ns, error_ns

from headrace.errors import OptionError
from headrace.testing.ntp import SimulatedServer
from headrace.testing.ntp_udp import UdpServer
from headrace.timing.clock.keeper import Keeper, OnChange
from headrace.timing.clock.machine import RealMachine
from headrace.timing.clock.state import ClockState, read_state
from headrace.timing.clock.terms import ClockTerms, check_server
from support.waiting import until

MS = 1_000_000
HONEST = SimulatedServer(stated_ns=50_000)
Start = Callable[..., tuple[Keeper, MemoryClock, FakeMachine]]


@pytest.fixture
def servers() -> Iterator[list[UdpServer]]:
    found = [UdpServer(HONEST) for _ in range(4)]
    yield found
    for each in found:
        each.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    keepers = []

    def begin(terms: ClockTerms, machine: FakeMachine, clock: MemoryClock | None = None) -> tuple[Keeper, MemoryClock]:
        clock = clock or MemoryClock()
        keepers.append(Keeper(tmp_path, clock, terms, machine, burst_s=0.05))
        return keepers[-1], clock

    yield begin  # type: ignore[misc]
    for each in keepers:
        each.close()


def state_of(keeper: Keeper, wanted: Callable[[ClockState], object]) -> ClockState:
    until(lambda: keeper.state is not None and bool(wanted(keeper.state)))
    assert keeper.state is not None
    return keeper.state


def verdicts(state: ClockState) -> list[str]:
    return [each.verdict for each in state.servers]


def test_a_machine_whose_clock_trails_by_19_s_is_right_and_one_liar_of_four_changes_nothing(
    servers: list[UdpServer], start: Start, tmp_path: Path
) -> None:
    servers[2].behaviour = SimulatedServer(500 * MS, stated_ns=50_000)
    machine = FakeMachine(off_ns=-19_235 * MS)
    keeper, clock = start(ClockTerms("ntp", tuple(each.name for each in servers), poll_s=1.0), machine)
    state = state_of(keeper, lambda now: now.situation == "synchronised" and "falseticker" in verdicts(now))
    assert verdicts(state)[2] == "falseticker"
    assert state.steps == 1
    assert state.bound_ns is not None
    assert abs(state.offset_ns - 19_235 * MS) <= state.bound_ns
    until(lambda: abs(error_ns(clock)) < MS)
    assert abs(error_ns(clock)) <= bound_ns(clock)
    saved = read_state(tmp_path)
    assert saved is not None
    assert saved.source == "ntp"


def test_dead_servers_are_named_and_when_all_are_the_bound_grows(servers: list[UdpServer], start: Start) -> None:
    servers[0].behaviour = None
    names = tuple(each.name for each in servers[:3])
    keeper, clock = start(ClockTerms("ntp", (*names, "127.0.0.1:9")), FakeMachine())
    state = state_of(keeper, lambda now: now.situation == "synchronised")
    assert state.servers[0].verdict == "unreachable"
    assert state.servers[3].trouble == "Connection refused"
    until(lambda: state_of(keeper, bool).servers[1].asked >= 8)
    first_ns, boot_ns = bound_ns(clock), clock.words.boot_ns  # type: ignore[union-attr]
    keeper.close()
    assert clock.words is not None
    assert clock.words.bound_at(boot_ns + 3600 * 10**9) > first_ns + 15_000 * 3600 - MS


def test_a_system_clock_with_a_daemon_is_followed_with_its_own_bound(start: Start) -> None:
    machine = FakeMachine()
    machine.discipline(3 * MS)
    keeper, clock = start(ClockTerms(), machine)
    state = state_of(keeper, lambda now: now.situation == "synchronised")
    assert state.source == "system"
    assert 3 * MS <= bound_ns(clock) < 20 * MS
    assert abs(error_ns(clock)) < MS


def test_a_system_clock_that_is_set_back_slows_the_clock_down(start: Start) -> None:
    machine = FakeMachine()
    machine.discipline(MS)
    keeper, clock = start(ClockTerms(), machine)
    state_of(keeper, lambda now: now.situation == "synchronised")
    shown_ns = clock.words.at(machine.moment().boot_ns)  # type: ignore[union-attr]
    machine.off_ns = -2_000 * MS
    state = state_of(keeper, lambda now: now.system_steps)
    assert clock.words is not None
    assert clock.words.at(machine.moment().boot_ns) > shown_ns
    assert clock.words.rate_ppb == -(10**9 // 12)
    assert -2_001 * MS < state.left_ns < 0
    assert state.bound_ns is not None
    assert state.bound_ns > -state.left_ns  # what is left of the correction is part of it


def test_a_system_clock_that_is_set_ahead_makes_the_clock_jump_ahead(start: Start) -> None:
    machine = FakeMachine()
    machine.discipline(MS)
    keeper, clock = start(ClockTerms(), machine)
    state_of(keeper, lambda now: now.situation == "synchronised")
    machine.off_ns = 2_000 * MS
    assert state_of(keeper, lambda now: now.steps).stepped_ns > 1_990 * MS
    assert abs(error_ns(clock) - 2_000 * MS) < MS


def test_without_a_daemon_and_without_servers_it_says_so_and_has_no_bound(start: Start) -> None:
    keeper, clock = start(ClockTerms(), FakeMachine())
    state = state_of(keeper, bool)
    assert (state.source, state.situation, state.bound_ns) == ("none", "unsynchronised", None)
    assert state.why == "no daemon disciplines the clock of the system, and no server is named"
    assert clock.words is not None
    assert clock.words.bound_ns == 0
    keeper.close()
    assert clock.words is None  # the system's clock counts again


def test_without_a_daemon_the_servers_are_asked(servers: list[UdpServer], start: Start) -> None:
    keeper, _ = start(ClockTerms("auto", tuple(each.name for each in servers)), FakeMachine())
    assert state_of(keeper, lambda now: now.situation == "synchronised").source == "ntp"


def test_a_new_keeper_continues_from_the_words_of_the_last_one(servers: list[UdpServer], start: Start) -> None:
    terms, machine = ClockTerms("ntp", tuple(each.name for each in servers)), FakeMachine(off_ns=-5_000 * MS)
    keeper, clock = start(terms, machine)
    state_of(keeper, lambda now: now.situation == "synchronised")
    keeper.close()
    for each in servers:
        each.behaviour = None
    again, _ = start(terms, machine, clock)
    state = state_of(again, lambda now: now.situation == "holdover" and now.why == "no server replies")
    assert state.source == "ntp"
    assert abs(error_ns(clock)) <= bound_ns(clock) < 200 * MS


def test_a_second_keeper_waits_and_takes_over(servers: list[UdpServer], start: Start) -> None:
    terms = ClockTerms("ntp", tuple(each.name for each in servers))
    first, clock = start(terms, FakeMachine())
    state_of(first, lambda now: now.situation == "synchronised")
    second, _ = start(terms, FakeMachine(), clock)
    until(lambda: "keeps the clock" in second.failure)
    until(lambda: second.state is not None)  # it shows the state that the first one has saved
    first.close()
    until(lambda: not second.failure)


def test_a_keeper_says_what_it_does_as_soon_as_that_changes(tmp_path: Path) -> None:
    told: list[tuple[str, bool, str, bool]] = []

    def note(name: str) -> OnChange:
        return lambda keeper, state: told.append((name, keeper.is_keeping, keeper.failure, state is not None))

    clock, terms = MemoryClock(), ClockTerms()
    first = Keeper(tmp_path, clock, terms, FakeMachine(), on_change=note("first"))
    try:
        until(lambda: len(told) == 2)
        second = Keeper(tmp_path, clock, terms, FakeMachine(), on_change=note("second"))
        try:
            until(lambda: len(told) == 3)
            first.close()
            until(lambda: len(told) == 5)
        finally:
            second.close()
    finally:
        first.close()
    waits = f"process {os.getpid()} keeps the clock"
    assert [each[:3] for each in told] == [
        ("first", True, ""), ("first", True, ""), ("second", False, waits), ("second", True, ""), ("second", True, ""),
    ]  # fmt: skip
    assert [each[3] for each in told] == [False, True, False, False, True]  # before and after its first look


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("Ntp1.Example.org.", "ntp1.example.org"),
        ("192.0.2.7:123", "192.0.2.7"),
        ("[2001:db8::7]:99", "[2001:db8::7]:99"),
    ],
)
def test_servers_have_one_spelling(given: str, canonical: str) -> None:
    assert check_server(given) == canonical


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": "gps"}, {"source": "ntp"}, {"source": "system", "servers": ("a",)}, {"servers": ("a", "A:123")},
        {"servers": ("a b",)}, {"servers": ("a:0",)}, {"servers": ("a:99999",)}, {"poll_s": 0.5},
        {"servers": tuple(map(str, range(17)))},
    ],
)  # fmt: skip
def test_invalid_terms_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        ClockTerms(**wrong)  # type: ignore[arg-type]


def test_the_clocks_of_this_machine_and_the_state_of_its_kernel_can_be_read() -> None:
    machine = RealMachine()
    moment = machine.moment()
    assert abs(moment.system_ns - time.time_ns()) < 60 * 10**9
    assert moment.width_ns > 0
    kernel = machine.kernel()
    assert kernel.trouble or kernel.bound_ns > 0 or kernel.is_disciplined

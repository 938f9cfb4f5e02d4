"""What the clock of a site adds to its problems: in plain words, with the server and the remedy."""

import pytest

from headrace.site.clock_problems import clock_problems, state_problems
from headrace.timing.clock.state import ClockState, ServerState, Situation


def texts(state: ClockState) -> list[str]:
    return [problem.text for problem in state_problems(state)]


def test_a_clock_that_nobody_has_asked_for_is_no_problem() -> None:
    assert list(clock_problems(None)) == []
    assert texts(ClockState("auto", "none", "unsynchronised", "no daemon")) == []
    assert texts(ClockState("auto", "system", "synchronised")) == []


@pytest.mark.parametrize(("situation", "said"), [("holdover", "its bound grows"), ("unsynchronised", "is unknown")])
def test_a_clock_that_is_not_synchronised_is_named(situation: Situation, said: str) -> None:
    (text,) = texts(ClockState("ntp", "ntp", situation, "no server replies"))
    assert text.startswith("the clock is not synchronised: no server replies")
    assert text.endswith(said)
    assert texts(ClockState("system", "none", "unsynchronised", "no daemon disciplines it"))


def test_servers_that_lie_or_are_away_are_named() -> None:
    servers = (
        ServerState("liar", "falseticker", offset_ns=500_000_000, distance_ns=70_000),
        ServerState("dead", "unreachable", trouble="Connection refused"),
        ServerState("lost", "unsynchronised"),
        ServerState("alone", "undecided"),
        ServerState("good", "truechimer"),
    )
    liar, dead, lost, alone = texts(ClockState("ntp", "ntp", "synchronised", servers=servers))
    assert liar == "time server liar lies: it is +0.500000 s from the others, and states an error of 0.000070 s at most"
    assert dead == "time server dead is unreachable: Connection refused"
    assert lost == "time server lost is unsynchronised"
    assert alone.startswith("time server alone contradicts the clock")


def test_a_long_correction_and_another_program_at_the_clock_are_named() -> None:
    ahead, rate = texts(ClockState("ntp", "ntp", "synchronised", left_ns=-60 * 10**9, disturbed=2))
    assert ahead == "the clock is 60 s ahead and runs slower until it is right"
    assert rate == "another program has changed the rate of the system's clock 2 times"

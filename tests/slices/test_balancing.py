"""The balancer on a group in memory, by a clock that the test moves: joins, leaves, deaths, stand-by, stubborn givers."""

import numpy as np
import pytest

from headrace.errors import BalancerDeposedError, OptionError
from headrace.share.interface import NOBODY
from headrace.share.ownership import Ownership
from headrace.slices.algorithms import Thresholds
from headrace.slices.balancer import Balancer
from headrace.slices.balancing import SESSION_SLICES_MAX
from headrace.slices.release import Bounds
from headrace.slices.snapshot import Move, Snapshot
from headrace.testing import MemoryGroup

COST = 0.01


def busiest(group: MemoryGroup, costs: np.ndarray) -> float:
    loads = group.loads(costs)
    return float(loads.max() / loads.mean())


def spread(group: MemoryGroup) -> list[int]:
    """How many slices each node in its seat owns."""
    owners = group.owners()
    return [int(np.sum(owners == node.seat)) for node in group.nodes if node.alive]


def test_the_first_node_gets_all_slices_and_each_that_joins_its_share() -> None:
    group = MemoryGroup(60)
    balancer, costs = Balancer(group), np.full(60, COST)
    group.node("a")
    group.run(balancer, 1, costs)
    assert spread(group) == [60]
    group.node("b")
    group.run(balancer, 3, costs)
    assert min(spread(group)) >= 27  # nine tenths
    group.node("c")
    group.run(balancer, 5, costs)
    assert min(spread(group)) >= 16
    assert busiest(group, costs) <= 1.1
    reasons = {session.reason for session in group.state().sessions}
    assert reasons <= {"join", "load"}
    assert all(session.outcome == "done" for session in group.state().sessions)


def test_a_skewed_stream_is_balanced_by_measured_costs_and_then_left_alone() -> None:
    group, chance = MemoryGroup(256), np.random.default_rng(7)
    costs = chance.lognormal(0, 0.8, 256)
    costs *= 2.0 / costs.sum()
    for number in range(4):
        group.node(f"node-{number}")
    balancer = Balancer(group)
    group.run(balancer, 10, costs)
    assert busiest(group, costs) <= 1.1
    moved = balancer.statistics().slices_moved
    group.run(balancer, 60, costs)
    assert balancer.statistics().slices_moved == moved
    assert balancer.statistics().busiest == pytest.approx(busiest(group, costs), rel=0.02)


def test_a_group_that_starts_is_never_made_more_uneven_by_what_is_measured_of_some_nodes_only() -> None:
    group, chance = MemoryGroup(640), np.random.default_rng(3)
    costs = chance.lognormal(0, 1, 640)
    costs *= 8.0 / costs.sum()
    for number in range(10):
        group.node(f"node-{number}")
    balancer, worst = Balancer(group), []
    group.run(balancer, 0.3, costs)
    for _ in range(30):
        worst.append(busiest(group, costs))
        group.run(balancer, 0.25, costs)
    assert max(worst) == worst[0]
    assert worst[-1] <= 1.1


def test_the_slices_of_a_dead_node_move_within_a_second_of_its_heartbeats_end() -> None:
    group, costs = MemoryGroup(60, dead_after_s=3.0), np.full(60, COST)
    nodes = [group.node(name) for name in "abc"]
    balancer = Balancer(group)
    group.run(balancer, 3, costs)
    lost = group.owners() == nodes[0].seat
    epochs = group.state().epochs[lost]
    nodes[0].alive = False
    group.run(balancer, 3.0, costs, tick_s=0.05)  # its last heartbeat was up to a second ago
    group.run(balancer, 1.0, costs, tick_s=0.05)
    state = group.state()
    assert set(state.owners[lost]) <= {nodes[1].seat, nodes[2].seat}
    assert np.all(state.epochs[lost] == epochs + 1)
    assert state.counters["deaths"] == 1
    assert {session.reason for session in state.sessions[-2:]} == {"dead"}


def test_a_draining_node_is_emptied_and_leaves() -> None:
    group, costs = MemoryGroup(60), np.full(60, COST)
    nodes = [group.node(name) for name in "abc"]
    balancer = Balancer(group)
    group.run(balancer, 3, costs)
    group.drain(nodes[1].seat)
    group.run(balancer, 3, costs)
    assert not nodes[1].alive
    assert [node.name for node in group.state().nodes] == ["a", "c"]
    assert sum(spread(group)) == 60
    assert "drain" in {session.reason for session in group.state().sessions}


def test_a_giver_is_in_one_session_at_a_time() -> None:
    group, costs = MemoryGroup(60), np.full(60, COST)
    giver = group.node("a")
    balancer = Balancer(group)
    group.run(balancer, 1, costs)
    giver.lets_go = False
    for name in "bcd":
        group.node(name)
    group.run(balancer, 2, costs)
    assert sum(session.outcome == "running" for session in group.state().sessions) == 1
    takers = group.state().takers
    assert len(set(takers[takers != NOBODY])) == 1
    giver.lets_go = True
    group.run(balancer, 15, costs)
    assert busiest(group, costs) <= 1.1


def test_a_giver_that_never_lets_go_keeps_its_slices_and_others_go_on() -> None:
    group, costs = MemoryGroup(90), np.full(90, COST)
    stubborn, other = group.node("stubborn"), group.node("other")
    balancer = Balancer(group, patience="5s")
    group.run(balancer, 2, costs)
    stubborn.lets_go = False
    before = group.owners() == stubborn.seat
    group.node("new")
    group.run(balancer, 60, costs)
    statistics = balancer.statistics()
    assert np.array_equal(group.owners() == stubborn.seat, before)  # nothing was taken from it
    assert 1 <= statistics.cancelled <= 4  # 5 s, then pauses of 10, 20, 40 …
    assert group.state().counters["cancelled"] == statistics.cancelled
    assert np.sum(group.owners() == other.seat) < 45  # this one gave
    stubborn.lets_go = True
    group.run(balancer, 120, costs)
    assert busiest(group, costs) <= 1.1


def test_a_balancer_looks_less_and_less_often_at_a_session_that_does_not_go_on() -> None:
    group, costs = MemoryGroup(20), np.full(20, COST)
    giver = group.node("stubborn")
    balancer = Balancer(group, patience="5s")
    group.run(balancer, 2, costs)
    giver.lets_go = False
    group.node("new")
    group.run(balancer, 0.3, costs, tick_s=0.02)
    before = balancer.statistics().steps
    group.run(balancer, 4, costs, tick_s=0.02)
    assert balancer.statistics().steps - before <= 18  # four a second


def test_a_step_with_many_slow_changes_keeps_its_lease() -> None:
    class SlowGroup(MemoryGroup):
        def _called(self, what: str) -> Ownership:
            self.clock.advance(0.05)
            return super()._called(what)

    group = SlowGroup(200, dead_after_s=3600)
    for number in range(100):
        group.node(f"node-{number}")
    balancer = Balancer(group, lease="2s")
    balancer.step(group.now_s)  # a hundred gives, five seconds
    assert balancer.is_leader
    assert not np.any(group.owners() == NOBODY)
    assert group.state().term == 1


def test_a_taker_that_dies_during_a_session_leaves_the_slices_with_the_giver() -> None:
    group, costs = MemoryGroup(60), np.full(60, COST)
    giver = group.node("giver")
    balancer = Balancer(group)
    group.run(balancer, 1, costs)
    giver.lets_go = False
    taker = group.node("taker")
    group.run(balancer, 1, costs)
    assert np.any(group.state().takers == taker.seat)
    taker.alive = False
    group.run(balancer, 4, costs)
    assert np.all(group.owners() == giver.seat)
    assert not np.any(group.state().takers != NOBODY)
    giver.lets_go = True
    group.node("another")
    group.run(balancer, 5, costs)
    assert min(spread(group)) > 20


def test_a_standby_takes_over_and_the_session_that_runs_ends_without_a_balancer() -> None:
    group, costs = MemoryGroup(60), np.full(60, COST)
    giver = group.node("a")
    leader, standby = Balancer(group, lease="2s"), Balancer(group, lease="2s")
    group.run([leader, standby], 1, costs)
    assert (leader.is_leader, standby.is_leader) == (True, False)
    giver.lets_go = False
    group.node("b")
    group.run([leader, standby], 1, costs)
    giver.lets_go = True
    group.run([], 1, costs)  # no balancer at all
    assert min(spread(group)) >= 27  # nine tenths
    group.node("c")
    group.run(standby, 4, costs)  # the leader has died
    assert standby.is_leader
    assert min(spread(group)) >= 15


def test_a_thousand_standbys_do_not_call_all_the_time_and_one_of_them_takes_over_soon() -> None:
    group, costs = MemoryGroup(16), np.zeros(16)
    group.node("a")
    balancers = [Balancer(group) for _ in range(1000)]
    for rank, balancer in enumerate(balancers):
        balancer.stand_by(rank)
    group.run(balancers, 20, costs)  # each has tried at the beginning
    before = group.calls["lead"]
    group.run(balancers, 10, costs)
    standbys = group.calls["lead"] - before - 1000 - 40  # each tries when the run begins; the leader makes its steps
    assert standbys < 10 * 110
    group.run(balancers[500:], 20, costs)  # all of the keen ones have died
    assert sum(balancer.is_leader for balancer in balancers[500:]) == 1


@pytest.mark.parametrize("load", [0.95, 1.5, 3.0])
def test_a_group_that_cannot_keep_up_is_balanced_and_left_alone(load: float) -> None:
    """All nodes work all the time; what their slices need is seen only by how fast they go on."""
    group, costs = MemoryGroup(200), np.random.default_rng(3).lognormal(0, 0.8, 200)
    costs *= 4 * load / costs.sum()
    for number in range(4):
        group.node(f"node-{number}")
    balancer = Balancer(group)
    group.run(balancer, 1, costs)
    assert busiest(group, costs) > 1.2
    group.run(balancer, 45, costs)
    assert busiest(group, costs) <= 1.1
    moved = balancer.statistics().slices_moved
    assert moved < 10
    group.run(balancer, 60, costs)
    assert balancer.statistics().slices_moved == moved


def test_a_balancer_of_its_own_goes_before_those_of_the_nodes() -> None:
    group, costs = MemoryGroup(16), np.zeros(16)
    group.node("a")
    of_nodes = [Balancer(group).stand_by(rank) for rank in range(3)]
    group.run(of_nodes, 2, costs)
    leader = next(each for each in of_nodes if each.is_leader)
    term = leader.statistics().term
    own = Balancer(group, algorithm=Thresholds())
    group.run([*of_nodes, own], 1, costs)
    assert own.is_leader
    assert own.statistics().term == term + 1
    assert not leader.is_leader
    another = Balancer(group)
    group.run([*of_nodes, own, another], 5, costs)
    assert own.is_leader  # equals wait for the end of a lease
    group.run(of_nodes, 5, costs)
    assert sum(each.is_leader for each in of_nodes) == 1


def test_a_balancer_that_stops_lets_its_standby_lead_at_once() -> None:
    group = MemoryGroup(16)
    group.node("a")
    leader, standby = Balancer(group, lease="1h"), Balancer(group, lease="1h")
    group.run([leader, standby], 1, np.zeros(16))
    leader.stop()
    group.clock.advance(0.01)
    standby.step(group.now_s)
    assert standby.is_leader
    assert not leader.is_leader


def test_a_leader_that_was_stopped_for_too_long_changes_nothing() -> None:
    """It wakes up in the middle of a step, with an old term."""
    group, costs = MemoryGroup(60), np.full(60, COST)
    group.node("a")
    other = Balancer(group)
    woken = []

    class Stopped:
        def decide(self, snapshot: Snapshot) -> list[Move]:
            if not woken and len(snapshot.nodes) == 2:
                woken.append(group.now_s)
                for _ in range(5):
                    group.clock.advance(1)
                    for node in group.nodes:
                        node.turn(costs)
                other.step(group.now_s)
                return [Move(0, 1, tuple(range(60)))]
            return [Move(NOBODY, 0, tuple(np.flatnonzero(snapshot.owners == NOBODY).tolist()))]

    leader = Balancer(group, algorithm=Stopped())
    group.run(leader, 1, costs)
    term = leader.statistics().term
    group.node("b")
    owners = group.owners()
    leader.step(group.now_s)
    assert woken
    assert not leader.is_leader
    assert other.statistics().term == term + 1
    moving = group.state().takers != NOBODY
    assert moving.sum() < 60  # the other's session, not that of the old leader
    assert np.array_equal(group.owners(), owners)
    with pytest.raises(BalancerDeposedError):
        group.begin(term, 0, 1, np.arange(60, dtype=np.uint32), "load")


def test_an_algorithm_that_fails_is_counted_and_no_slice_stays_without_an_owner() -> None:
    class Broken:
        def decide(self, snapshot: Snapshot) -> list[Move]:
            raise RuntimeError("out of ideas")

    group, costs = MemoryGroup(30), np.full(30, COST)
    first, _ = [group.node(name) for name in "ab"]
    balancer = Balancer(group, algorithm=Broken())
    group.run(balancer, 2, costs)
    assert spread(group) == [15, 15]
    first.alive = False
    group.run(balancer, 5, costs)
    assert spread(group) == [30]
    assert "out of ideas" in balancer.statistics().latest_error
    assert balancer.statistics().errors > 1


def test_moves_that_make_no_sense_are_left_out() -> None:
    class Confused:
        def decide(self, snapshot: Snapshot) -> list[Move]:
            ours = tuple(np.flatnonzero(snapshot.owners == 0).tolist())
            return [
                Move(0, 9, ours),
                Move(1, 0, (0, 1)),
                Move(0, 0, ours),
                Move(0, 1, (-1, 999)),
                Move(NOBODY, 0, tuple(range(30))),
            ]

    group = MemoryGroup(30)
    for name in "ab":
        group.node(name)
    balancer = Balancer(group, algorithm=Confused())
    group.run(balancer, 5, np.full(30, COST))
    assert spread(group) == [30, 0]
    assert balancer.statistics().sessions == 0


def test_a_slice_that_moved_rests_whatever_the_algorithm_says() -> None:
    class Restless:
        def decide(self, snapshot: Snapshot) -> list[Move]:
            owner = int(snapshot.owners[0])
            return [Move(owner, 0 if owner else 1, (0,))]

    group = MemoryGroup(4)
    for name in "ab":
        group.node(name)
    balancer = Balancer(group, algorithm=Restless())
    group.run(balancer, 40, np.full(4, COST))
    assert 2 <= balancer.statistics().slices_moved <= 5


def test_slices_that_a_person_has_moved_stay_and_others_move_instead() -> None:
    group, costs = MemoryGroup(20), np.full(20, 0.02)
    nodes = [group.node(name) for name in "ab"]
    balancer = Balancer(group)
    group.run(balancer, 8, costs)
    by_hand = np.flatnonzero(group.owners() == nodes[0].seat)[:6].astype(np.uint32)
    group.begin(0, nodes[0].seat, nodes[1].seat, by_hand, "hand")
    group.run(balancer, 5, costs)
    assert np.all(group.owners()[by_hand] == nodes[1].seat)
    assert spread(group) == [10, 10]  # others have moved instead
    fixed = group.owners()[by_hand]
    group.run(balancer, 30, costs)
    assert np.array_equal(group.owners()[by_hand], fixed)


def test_many_slices_move_in_several_sessions() -> None:
    group = MemoryGroup(3 * SESSION_SLICES_MAX)
    group.node("a")
    balancer = Balancer(group)
    group.run(balancer, 1, np.zeros(group.terms.slices))
    group.node("b")
    group.run(balancer, 2, np.zeros(group.terms.slices))
    assert max(session.slices for session in group.state().sessions if session.giver) <= SESSION_SLICES_MAX
    assert min(spread(group)) >= 0.4 * group.terms.slices


def test_a_backlog_counts_although_its_node_is_busy_all_the_time() -> None:
    """Two full nodes look alike by what they do; they differ by what waits."""
    group = MemoryGroup(40)
    first, _ = group.node("a"), group.node("b")
    costs = np.full(40, 0.05)
    balancer = Balancer(group)
    group.run(balancer, 3, costs)
    assert spread(group) == [20, 20]
    costs[group.owners() == first.seat] = 0.1  # twice what it can do; the other has just enough to do
    assert group.loads(costs).tolist() == pytest.approx([2.0, 1.0])
    group.run(balancer, 15, costs)
    assert np.sum(group.owners() == first.seat) < 18


@pytest.mark.parametrize(("rate", "item_s"), [(0.05, 0.2), (0.1, 0.1), (1.0, 0.01)])
def test_few_items_that_come_by_chance_move_hardly_any_slice_but_a_lasting_difference_does(
    rate: float, item_s: float
) -> None:
    chance, group = np.random.default_rng(1), MemoryGroup(256, item_s=item_s)
    nodes = [group.node(f"node-{number}") for number in range(4)]
    balancer = Balancer(group)

    def pass_by(seconds: int, rates: np.ndarray) -> None:
        for _ in range(seconds):
            group.run(balancer, 1, chance.poisson(rates) * item_s, tick_s=0.25)

    even = np.full(256, rate)
    pass_by(120, even)
    assert balancer.statistics().slices_moved <= 10  # more than a hundred, if chance were taken for a cause
    uneven = np.where(group.owners() == nodes[0].seat, 2.0, 0.4) * even
    assert busiest(group, uneven) > 2
    pass_by(120, uneven)
    assert busiest(group, uneven) <= 1.4


def test_a_slice_that_hangs_does_not_drive_the_others_away() -> None:
    group, costs = MemoryGroup(40), np.full(40, 0.01)
    nodes = [group.node(name) for name in "ab"]
    balancer = Balancer(group)
    group.run(balancer, 5, costs)
    group.hangs[np.flatnonzero(group.owners() == nodes[0].seat)[0]] = True
    costs[group.hangs] = 0.5
    before = group.owners()
    group.run(balancer, 60, costs)
    assert np.array_equal(group.owners(), before)


def test_nodes_of_different_speed_settle() -> None:
    """A slice costs twice as much at the slow node, which nobody knows before it is there."""
    group, costs = MemoryGroup(100), np.random.default_rng(5).uniform(0.005, 0.02, 100)
    group.node("fast", speed=2)
    group.node("slow")
    balancer = Balancer(group)
    group.run(balancer, 60, costs)
    moved = balancer.statistics().slices_moved
    fast, slow = group.loads(costs) / [2, 1]
    assert max(fast, slow) <= 1.15 * (fast + slow) / 2
    group.run(balancer, 60, costs)
    assert balancer.statistics().slices_moved == moved


class CrashError(Exception):
    """The process of the balancer dies here."""


class CrashingGroup(MemoryGroup):
    """The balancer dies before its n-th change of the table, which is after the one before it."""

    changes_left = -1

    def _called(self, what: str) -> Ownership:
        if what != "lead" and self.changes_left >= 0:
            if not self.changes_left:
                raise CrashError
            self.changes_left -= 1
        return super()._called(what)


def test_a_balancer_that_dies_at_any_change_leaves_a_group_that_its_standby_balances() -> None:
    for change in range(60):
        group, costs = CrashingGroup(24), np.full(24, 0.02)
        group.changes_left = change
        crashed = _story(group, costs, Balancer(group))
        group.changes_left = -1
        group.run(Balancer(group), 20, costs)
        state = group.state()
        assert not np.any(state.takers != NOBODY)
        assert {node.name for node in state.nodes} == {"b", "d"}
        assert set(state.owners) == {node.seat for node in state.nodes}
        assert busiest(group, costs) <= 1.1
        if not crashed:
            print(f"the story has {change} changes")
            assert change >= 8
            return
    raise AssertionError("the story has too many changes")


def _story(group: CrashingGroup, costs: np.ndarray, balancer: Balancer) -> bool:
    """Joins, a death and a drain, to the end or to the crash; whether the balancer crashed."""
    crashed = False
    nodes = {}
    for event in ("a", "b", "c", "d", "-c", "~a"):
        if event[0] == "-":
            nodes[event[1]].alive = False
        elif event[0] == "~":
            group.ownership.drain(nodes[event[1]].seat)
        else:
            nodes[event] = group.node(event)
        for _ in range(5):
            try:
                group.run([] if crashed else balancer, 1, costs)
            except CrashError:
                crashed = True
    return crashed


# --- release --------------------------------------------------------------------------------------------


def test_idle_nodes_are_released_down_to_what_the_load_needs_and_stay_away() -> None:
    group, costs = MemoryGroup(64), np.full(64, 0.9 / 64)
    for number in range(6):
        group.node(f"node-{number}")
    balancer = Balancer(group, release=Bounds(nodes_min=1, full=0.5, crowded=0.8, after_s=10))
    group.run(balancer, 120, costs)
    assert len(group.state().nodes) == 2  # 0.9 / 2 = 0.45; one node alone would be at 0.9
    assert balancer.statistics().drained == 4
    assert balancer.statistics().nodes_wanted == 2
    assert "idle" in {session.reason for session in group.state().sessions}
    group.run(balancer, 60, np.full(64, 1.4 / 64))  # 0.7 each: between the two
    assert (balancer.statistics().drained, balancer.statistics().nodes_wanted) == (4, 2)
    group.run(balancer, 60, np.full(64, 1.9 / 64))
    assert balancer.statistics().nodes_wanted == 3


def test_load_that_goes_up_and_down_releases_nobody() -> None:
    group = MemoryGroup(64)
    for number in range(4):
        group.node(f"node-{number}")
    balancer = Balancer(group, release=Bounds(after_s=30))
    for _ in range(4):
        group.run(balancer, 20, np.full(64, 0.4 / 64))
        group.run(balancer, 20, np.full(64, 3.0 / 64))
    assert balancer.statistics().drained == 0


def test_nodes_beyond_the_maximum_are_released_at_once_and_never_those_below_the_minimum() -> None:
    group = MemoryGroup(64)
    for number in range(5):
        group.node(f"node-{number}")
    balancer = Balancer(group, release=Bounds(nodes_min=3, nodes_max=4, after_s=1))
    group.run(balancer, 2, np.full(64, 3.0 / 64))
    assert len(group.state().nodes) == 4
    group.run(balancer, 60, np.zeros(64))
    assert len(group.state().nodes) == 3


def test_bounds_that_make_no_sense_are_refused() -> None:
    for invalid in ({"nodes_min": 0}, {"nodes_min": 3, "nodes_max": 2}, {"full": 0.9, "crowded": 0.8}, {"after_s": -1}):
        with pytest.raises(OptionError):
            Bounds(**invalid)


# --- thresholds -----------------------------------------------------------------------------------------


def test_the_thesis_classification_balances_even_slices_and_stops() -> None:
    group, costs = MemoryGroup(100), np.full(100, COST)
    group.node("a")
    balancer = Balancer(group, algorithm=Thresholds())
    group.run(balancer, 2, costs)
    for name in "bcd":
        group.node(name)
    group.run(balancer, 40, costs)
    assert busiest(group, costs) <= 1.2
    moved = balancer.statistics().slices_moved
    group.run(balancer, 40, costs)
    assert balancer.statistics().slices_moved == moved


def test_a_session_ends_with_its_taker_also_if_the_taker_never_said_that_it_works() -> None:
    group, costs = MemoryGroup(8), np.full(8, COST)
    first = group.node("first")
    balancer = Balancer(group)
    balancer.step(group.now_s)
    assert [session.outcome for session in group.state().sessions] == ["running"]
    first.alive = False
    group.run(balancer, 5, costs)
    assert [session.outcome for session in group.state().sessions] == ["dead"]

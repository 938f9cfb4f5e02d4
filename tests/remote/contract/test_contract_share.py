"""Groups of processing nodes: the same tests on a local and on a remote queue."""

import threading

import numpy as np
import pytest

from headrace.errors import (
    BalancerDeposedError,
    ChannelMissingError,
    OptionError,
    SeatLostError,
    ShareError,
    ShareExistsError,
    ShareMissingError,
)
from headrace.queue import AnyQueue
from headrace.share.interface import NOBODY, AnySeat, AnyShare, Load, Progress, Work, marks
from support.nodes import silence
from support.serving import Served
from support.waiting import until

SLICES = 8
ALL = np.arange(SLICES, dtype=np.uint32)


@pytest.fixture
def share(queue: AnyQueue) -> AnyShare:
    queue.channel("radar", "wx/radar", slices=SLICES)
    for number in range(20):
        queue.put(b"x", feed="wx/radar/kftg", ident=str(number))
    return queue.share("radar", dead_after="1h")


@pytest.fixture
def seat(share: AnyShare) -> AnySeat:
    """A node that owns all slices."""
    seat = share.join("n1")
    assert share.give(0, seat.number, ALL, "hand") == SLICES
    return seat


# --- groups -----------------------------------------------------------------------------------------


def test_a_group_is_made_once_and_opened_by_its_name(queue: AnyQueue, share: AnyShare) -> None:
    assert (share.terms.slices, share.terms.group, share.terms.dead_after_s, share.feed) == (
        SLICES, "main", 3600.0, "wx/radar/**",
    )  # fmt: skip
    assert queue.share("radar", create=False).terms == share.terms
    other = queue.share("radar", "half", only=[0, 1, 2, 3], start="next", tries_max=5)
    assert queue.share("radar", "half", only="0-3", tries_max=5).terms == other.terms
    assert queue.shares() == [("radar", "half"), ("radar", "main")]
    assert other.terms.id != share.terms.id
    with pytest.raises(ShareExistsError, match="tries_max 5, not 4"):
        queue.share("radar", "half", tries_max=4)
    with pytest.raises(ShareExistsError, match="8 slices, not 9"):
        queue.share("radar", slices=9)
    with pytest.raises(ShareMissingError, match="no group 'other'"):
        queue.share("radar", "other", create=False)
    with pytest.raises(ChannelMissingError):
        queue.share("lidar")
    with pytest.raises(OptionError):
        queue.share("radar", "no/such name")
    with pytest.raises(OptionError):
        queue.share("radar", "quick", dead_after="1ms")


def test_a_channel_without_slices_has_no_groups(queue: AnyQueue) -> None:
    queue.channel("plain", "wx/plain")
    with pytest.raises(ShareMissingError, match="has no slices"):
        queue.share("plain")
    assert queue.shares() == []


def test_a_group_is_removed_when_no_node_is_alive(queue: AnyQueue, share: AnyShare) -> None:
    seat = share.join("n1")
    with pytest.raises(ShareError, match="has nodes: n1"):
        share.remove()
    seat.leave()
    share.remove()
    assert queue.shares() == []
    with pytest.raises(ShareMissingError):
        share.state()
    with pytest.raises(ShareMissingError):
        seat.exchange(Progress())
    assert queue.share("radar").terms.number > share.terms.number


# --- nodes ------------------------------------------------------------------------------------------


def test_a_node_holds_what_it_is_given_and_confirms_it(share: AnyShare, seat: AnySeat) -> None:
    exchanged = seat.exchange(Progress())
    holding = exchanged.holding
    assert holding is not None
    assert holding.slices.tolist() == ALL.tolist()
    assert (holding.positions == 1).all()
    assert (holding.leaving.any(), holding.careful.any(), holding.draining) == (False, False, False)
    assert exchanged.version == seat.version
    confirmed = marks([5, 2], holding.epochs[[5, 2]], [7, 9])
    again = seat.exchange(Progress(seen=exchanged.version, confirm=confirmed))
    assert again.holding is None
    assert again.refused.tolist() == []
    assert share.state().positions[[2, 5, 6]].tolist() == [9, 7, 1]
    holding.positions[0] = 3  # they are the node's own


def test_what_is_not_the_node_s_is_refused(share: AnyShare, seat: AnySeat) -> None:
    holding = seat.exchange(Progress()).holding
    assert holding is not None
    old = seat.exchange(Progress(confirm=marks([1], holding.epochs[[1]] - 1, [5])))
    beyond = seat.exchange(Progress(confirm=marks([1, 3], holding.epochs[[1, 3]], [22, 21])))
    unknown = seat.exchange(Progress(release=marks([SLICES, 70_000], [1, 1], [1, 1])))
    assert [each.refused.tolist() for each in (old, beyond, unknown)] == [[1], [1], [SLICES, 70_000]]
    assert share.state().positions.tolist() == [1, 1, 1, 21, 1, 1, 1, 1]
    assert share.state().counters["refused"] == 4


def test_a_session_moves_slices_at_their_confirmed_positions(share: AnyShare, seat: AnySeat) -> None:
    other = share.join("n2")
    seen = seat.exchange(Progress()).version
    assert share.begin(0, seat.number, other.number, np.array([6, 3], np.uint32), "hand") == 2
    told = seat.exchange(Progress(seen=seen)).holding
    coming = other.exchange(Progress()).holding
    assert told is not None
    assert coming is not None
    assert told.slices[told.leaving].tolist() == coming.coming.tolist() == [3, 6]
    released = marks([6, 3], told.epochs[[6, 3]], [4, 5])
    assert seat.exchange(Progress(release=released)).refused.tolist() == []
    mine, its = (each.exchange(Progress()).holding for each in (seat, other))
    assert mine is not None
    assert its is not None
    assert (mine.slices.tolist(), its.slices.tolist(), its.positions.tolist()) == ([0, 1, 2, 4, 5, 7], [3, 6], [5, 4])
    assert (its.epochs == told.epochs[[3, 6]] + 1).all()
    assert sorted(seat.exchange(Progress(confirm=released)).refused.tolist()) == [3, 6]
    other.exchange(Progress(seen=other.version))
    session = share.state().sessions[-1]
    assert (session.giver, session.taker, session.slices, session.outcome) == ("n1", "n2", 2, "done")


def test_names_are_given_once(share: AnyShare) -> None:
    first, second = share.join(), share.join()
    assert first.name != second.name
    assert second.name == f"{first.name}.2"
    share.join("n1")
    with pytest.raises(ShareError, match="has a node 'n1'"):
        share.join("n1")
    with pytest.raises(OptionError):
        share.join("x" * 65)
    assert [node.name for node in share.state().nodes] == [first.name, second.name, "n1"]


def test_a_node_that_left_has_no_seat(share: AnyShare, seat: AnySeat) -> None:
    seat.exchange(Progress())
    seat.leave()
    for use in (
        lambda: seat.exchange(Progress()), seat.leave, lambda: seat.begin(0, 1, 1), lambda: seat.fail(0, 1, 1),
        lambda: seat.park(0, 1, 1, "x"),
    ):  # fmt: skip
        with pytest.raises(SeatLostError, match="join the group again"):
            use()
    assert (share.state().owners == NOBODY).all()
    assert share.state().nodes == []


def test_loads_and_work_are_told(share: AnyShare, seat: AnySeat) -> None:
    load = Load(cpu=0.5, memory=1 << 30, waiting=7, in_work=2, capacity=4.0, metrics={"queue": 1.5})
    work = Work(1, np.array([3, 1], np.uint32), np.array([10, 20], np.uint64), np.array([100, 200], np.uint64))
    for _ in range(2):  # a repeated report counts once
        seat.exchange(Progress(load=load, work=work))
    state = share.state()
    assert state.nodes[0].load == load
    assert (state.nodes[0].products, state.nodes[0].slices, state.nodes[0].name) == (30, SLICES, "n1")
    assert state.products.tolist() == [0, 20, 0, 10, 0, 0, 0, 0]
    assert state.busy_ns.tolist() == [0, 200, 0, 100, 0, 0, 0, 0]
    assert [(sample.node, sample.waiting, sample.slices) for sample in share.history()] == [("n1", 7, SLICES)]
    with pytest.raises(OptionError, match="too long"):
        seat.exchange(Progress(load=Load(metrics={str(number): 1.0 for number in range(200)})))


def test_work_on_slices_of_others_counts_for_the_node_only(share: AnyShare, seat: AnySeat) -> None:
    other = share.join("n2")
    work = Work(1, np.array([1], np.uint32), np.array([1000], np.uint64), np.array([1000], np.uint64))
    other.exchange(Progress(work=work))
    state = share.state()
    assert state.products.tolist() == [0] * SLICES
    assert state.nodes[other.number].products == 1000


def test_attempts_are_counted_and_a_product_is_given_up(share: AnyShare, seat: AnySeat) -> None:
    assert seat.begin(2, 1, 4)
    assert not seat.begin(2, 9, 4)
    assert seat.begin(2, 9, 0)  # something else is in work
    assert [seat.fail(2, 1, 4) for _ in range(3)] == [1, 2, 3]
    assert seat.park(2, 1, 4, "ValueError: no station ü" + "!" * 2000)
    assert seat.park(2, 1, 4, "again")
    assert not seat.park(2, 9, 5, "not its own")
    (parked,) = share.parked()
    assert (parked.slice, parked.sequence, parked.tries, parked.node) == (2, 4, 3, "n1")
    assert parked.error.startswith("ValueError: no station ü!!!")
    assert share.state().positions[2] == 5
    assert share.unpark([99]) == []
    assert share.unpark() == [parked]
    assert share.parked() == []


# --- waiting ----------------------------------------------------------------------------------------


def test_a_node_that_waits_is_told_of_a_change(share: AnyShare, seat: AnySeat) -> None:
    other = share.join("n2")
    seen = seat.exchange(Progress()).version
    assert seat.wait(seen, 0.05) == seen
    assert seat.wait(seen - 1, 60) == seen
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(seat.wait(seen, 240)))
    waiting.start()
    share.begin(0, seat.number, other.number, ALL[:1], "hand")
    waiting.join(240)
    assert found[0] > seen
    assert found[0] == seat.exchange(Progress()).version


def test_the_version_is_known_without_an_exchange(share: AnyShare, seat: AnySeat) -> None:
    seen = seat.exchange(Progress()).version
    share.drain(seat.number)
    until(lambda: seat.version > seen, "the version has changed")
    holding = seat.exchange(Progress(seen=seen)).holding
    assert holding is not None
    assert holding.draining


def test_a_node_that_waits_is_told_that_it_lost_its_seat(queue: AnyQueue) -> None:
    queue.channel("radar", "wx/radar", slices=SLICES)
    share = queue.share("radar", dead_after="0.2s")
    seat = share.join("n1")
    seen = seat.exchange(Progress()).version
    until(lambda: not share.state().nodes[0].is_alive, "it is dead")
    assert share.seize(0, seat.number) == 0
    assert seat.wait(seen, 240) != seen
    with pytest.raises(SeatLostError):
        seat.exchange(Progress())


# --- balancers --------------------------------------------------------------------------------------


def test_one_balancer_leads_at_a_time(share: AnyShare, seat: AnySeat) -> None:
    term = share.lead("b1", 3600)
    assert (term, share.lead("b1", 3600), share.lead("b2", 3600)) == (1, 1, 0)
    assert share.state().leader == "b1"
    other = share.join("n2")
    assert share.begin(term, seat.number, other.number, ALL[:2], "load") == 2
    assert share.begin(term, seat.number, other.number, ALL[:2], "load") == 0
    assert share.cancel(term, ALL) == 2
    for use in (
        lambda: share.begin(7, seat.number, other.number, ALL, "load"), lambda: share.cancel(7, ALL),
        lambda: share.give(7, other.number, ALL, "join"), lambda: share.seize(7, other.number),
    ):  # fmt: skip
        with pytest.raises(BalancerDeposedError):
            use()
    with pytest.raises(OptionError, match="out of range"):
        share.lead("b1", 0)


def test_slices_of_a_dead_node_are_seized(share: AnyShare, seat: AnySeat, served: Served) -> None:
    assert share.seize(0, seat.number) == 0
    silence(served.queue.share("radar"), seat.number)
    assert share.seize(0, seat.number) == SLICES
    with pytest.raises(SeatLostError):
        seat.exchange(Progress())
    again = share.join("n1")
    share.give(0, again.number, ALL, "dead")
    holding = again.exchange(Progress()).holding
    assert holding is not None
    assert holding.careful.all()


def test_a_balancer_names_nodes_that_do_not_exist(share: AnyShare, seat: AnySeat) -> None:
    assert share.begin(0, seat.number, 4095, ALL, "hand") == 0
    assert share.give(0, 4095, ALL, "hand") == 0
    assert share.seize(0, 4095) == 0
    with pytest.raises(SeatLostError, match="no node at seat 4095"):
        share.drain(4095)

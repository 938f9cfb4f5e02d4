"""A balancer does the same on a local and on a remote queue."""

import numpy as np
import pytest

from headrace.queue import AnyQueue
from headrace.share.interface import ELSEWHERE, NOBODY, AnySeat, AnyShare, Holding, Marks, Progress
from headrace.slices.balancer import Balancer
from support.waiting import until

SLICES = 12


@pytest.fixture
def share(queue: AnyQueue) -> AnyShare:
    queue.channel("radar", "wx/radar", slices=SLICES)
    return queue.share("radar", dead_after="1h")


def held(seat: AnySeat) -> Holding:
    """What a node holds after it has let go of what is to move."""
    answer = seat.exchange(Progress())
    assert answer.holding is not None
    leaving = Marks(*answer.holding[:3]).where(answer.holding.leaving)
    if leaving:
        answer = seat.exchange(Progress(release=leaving))
    assert answer.holding is not None
    return answer.holding


def test_a_balancer_spreads_moves_and_drains_here_and_elsewhere(queue: AnyQueue, share: AnyShare) -> None:
    balancer, standby = Balancer(queue, "radar"), Balancer(share)
    first, second = share.join("first"), share.join("second")
    balancer.step()
    standby.step()
    assert (balancer.is_leader, standby.is_leader) == (True, False)
    assert (len(held(first).slices), len(held(second).slices)) == (6, 6)
    third = share.join("third")
    balancer.step()
    assert len(held(third).coming) > 0
    assert len(held(first).slices) + len(held(second).slices) + len(held(third).slices) == SLICES
    assert len(held(third).slices) >= 2
    share.drain(first.number)
    for _ in range(3):
        balancer.step()
        held(first)
    assert len(held(first).slices) == 0
    balancer.stop()
    until(lambda: standby.step() > 0 and standby.is_leader)
    state = share.state()
    assert not np.any(state.owners == NOBODY)
    assert {session.reason for session in state.sessions} == {"join", "drain"}
    assert standby.statistics().errors == 0


def test_a_balancer_leaves_slices_alone_that_its_group_does_not_work_on(queue: AnyQueue, share: AnyShare) -> None:
    half = queue.share("radar", "half", only="0-5")
    seat, balancer = half.join("one"), Balancer(half)
    for _ in range(3):
        balancer.step()
    assert half.state().owners.tolist() == [seat.number] * 6 + [ELSEWHERE] * 6
    assert (balancer.statistics().slices_given, balancer.statistics().decisions) == (6, 1)

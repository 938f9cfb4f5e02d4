"""A group on the files of a queue."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headrace import Queue
from headrace.errors import (
    BalancerDeposedError,
    ChannelInUseError,
    ChannelMissingError,
    OptionError,
    SeatLostError,
    ShareError,
    ShareExistsError,
    ShareMissingError,
)
from headrace.product.batch import Lost
from headrace.share.interface import ELSEWHERE, NOBODY, Holding, Load, Progress, Work, marks
from headrace.share.share import Seat, Share
from headrace.testing import MockClock

ALL = np.arange(8, dtype=np.uint32)


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    made = Queue.create(tmp_path / "q", size="1MiB", clock=MockClock())
    made.channel("radar", "wx/**", slices=8)
    for number in range(40):
        made.put(b"x", feed="wx/a", ident=str(number))
    return made


def given(share: Share, *names: str) -> int:
    """A balancer gives all slices to the first of these nodes; its term."""
    term = share.lead("balancer", 60)
    share.give(term, 0, ALL, "join")
    return term


def test_a_node_holds_what_it_was_given_and_its_confirmations_stay(queue: Queue) -> None:
    share = queue.share("radar")
    seat = share.join("one")
    given(share)
    first = seat.exchange(Progress())
    assert first.holding is not None
    assert first.holding.slices.tolist() == list(range(8))
    assert first.holding.positions.tolist() == [1] * 8
    confirm = marks(first.holding.slices, first.holding.epochs, [10] * 8)
    again = seat.exchange(Progress(first.version, confirm))
    assert again.holding is None
    assert not len(again.refused)
    with Queue.open(queue.path) as other:
        assert other.share("radar").state().positions.tolist() == [10] * 8


def test_a_slice_moves_at_its_confirmed_position_and_the_giver_is_fenced(queue: Queue) -> None:
    share = queue.share("radar")
    one, two = share.join("one"), share.join("two")
    term = given(share)
    held = one.exchange(Progress()).holding
    assert held is not None
    assert share.begin(term, one.number, two.number, ALL[:2], "load") == 2
    assert share.begin(term, one.number, two.number, ALL[2:3], "load") == 0  # one session at a time
    left = one.exchange(Progress())
    assert left.holding is not None
    assert left.holding.leaving.tolist() == [True, True] + [False] * 6
    coming = two.exchange(Progress())
    assert coming.holding is not None
    assert coming.holding.coming.tolist() == [0, 1]
    assert not len(coming.holding.slices)
    one.exchange(Progress(left.version, release=marks([0, 1], held.epochs[:2], [17, 18])))
    came = two.exchange(Progress(coming.version))
    assert came.holding is not None
    assert came.holding.positions.tolist() == [17, 18]
    late = one.exchange(Progress(0, marks([0, 1], held.epochs[:2], [30, 30])))
    assert late.refused.tolist() == [0, 1]
    assert share.state().positions[:2].tolist() == [17, 18]
    two.exchange(Progress(came.version))
    assert [(each.giver, each.taker, each.outcome) for each in share.state().sessions] == [
        ("", "one", "running"), ("one", "two", "done"),
    ]  # fmt: skip


def test_a_message_that_arrives_twice_or_late_changes_nothing(queue: Queue) -> None:
    share = queue.share("radar")
    seat = share.join("one")
    given(share)
    work = Work(1, ALL[:1], np.array([5], np.uint64), np.array([1000], np.uint64))
    for position in (20, 20, 10):
        seat.exchange(Progress(0, marks([0], [1], [position]), load=Load(cpu=0.5), work=work))
    state = share.state()
    assert (int(state.positions[0]), int(state.products[0]), state.nodes[0].products) == (20, 5, 5)


def test_a_position_beyond_the_queue_or_a_slice_that_does_not_exist_is_refused(queue: Queue) -> None:
    share = queue.share("radar")
    seat = share.join("one")
    given(share)
    exchanged = seat.exchange(Progress(0, marks([0, 9, 4_000_000_000], [1, 1, 1], [42, 5, 5])))
    assert exchanged.refused.tolist() == [0, 9, 4_000_000_000]
    assert share.state().counters["refused"] == 3


def test_a_silent_node_loses_its_slices_and_its_seat(tmp_path: Path) -> None:
    clock = MockClock()
    with Queue.create(tmp_path / "q", size="1MiB", clock=clock) as queue:
        queue.channel("radar", "wx/**", slices=8)
        share = queue.share("radar", dead_after="2s")
        one, two = share.join("one"), share.join("two")
        term = given(share)
        one.exchange(Progress())
        assert share.seize(term, one.number) == 0  # it was heard of
        clock.advance(1.9)
        two.exchange(Progress())
        assert share.seize(term, one.number) == 0
        clock.advance(0.2)
        assert share.seize(term, one.number) == 8
        assert share.give(term, two.number, ALL, "dead") == 8
        held = two.exchange(Progress()).holding
        assert held is not None
        assert held.careful.all()
        with pytest.raises(SeatLostError, match="join the group again"):
            one.exchange(Progress())


def test_a_product_that_was_announced_is_blamed_for_the_death(tmp_path: Path) -> None:
    clock = MockClock()
    with Queue.create(tmp_path / "q", size="1MiB", clock=clock) as queue:
        queue.channel("radar", "wx/**", slices=8)
        for number in range(40):
            queue.put(b"x", feed="wx/a", ident=str(number))
        share = queue.share("radar", dead_after="2s")
        for tries in (1, 2, 3):
            seat = share.join(f"node-{tries}")
            term = share.lead("balancer", 60)
            share.give(term, seat.number, ALL, "dead")
            held = seat.exchange(Progress()).holding
            assert held is not None
            assert held.tries.tolist() == [0, 0, 0, tries - 1, 0, 0, 0, 0]
            assert seat.begin(3, int(held.epochs[3]), 7)
            clock.advance(2.5)
            assert share.seize(term, seat.number) == 8
        seat = share.join("last")
        share.give(share.lead("balancer", 60), seat.number, ALL, "dead")
        held = seat.exchange(Progress()).holding
        assert held is not None
        assert (int(held.tries[3]), int(held.suspects[3])) == (3, 7)
        assert seat.park(3, int(held.epochs[3]), 7, "it ends every node")
        assert [(each.sequence, each.tries, each.node) for each in share.parked()] == [(7, 3, "last")]
        assert int(share.state().positions[3]) == 8
        assert share.unpark()
        assert not share.parked()


def test_after_a_second_death_owners_are_careful_with_all_that_was_there_at_the_first(tmp_path: Path) -> None:
    """Up to there, and no further; and a product is not blamed if its node works on something else when it dies."""
    clock = MockClock()
    with Queue.create(tmp_path / "q", size="1MiB", clock=clock) as queue:
        queue.channel("radar", "wx/**", slices=8)
        queue.put_many([b"x"] * 40, feed="wx/a")
        share = queue.share("radar", dead_after="2s")

        def next_owner() -> tuple[Seat, Holding]:
            seat = share.join("node")
            share.give(share.lead("balancer", 60), seat.number, ALL, "dead")
            held = seat.exchange(Progress()).holding
            assert held is not None
            return seat, held

        def die(seat: Seat) -> None:
            clock.advance(2.5)
            assert share.seize(share.lead("balancer", 60), seat.number) == 8

        seat, held = next_owner()
        assert not held.careful.any()
        die(seat)
        queue.put(b"x", feed="wx/a")
        seat, held = next_owner()
        assert held.careful.tolist() == [1] * 8
        assert seat.begin(0, int(held.epochs[0]), 5)
        seat.exchange(Progress(0, marks([1, 2], held.epochs[1:3], [10, 41])))  # slice 2 has passed the place
        assert seat.begin(0, int(held.epochs[0]), 0)
        die(seat)
        seat, held = next_owner()
        assert held.careful.tolist() == [41, 41, 1, 41, 41, 41, 41, 41]
        assert not held.tries.any()
        seat.exchange(Progress(0, marks([0, 1], held.epochs[:2], [40, 41])))
        assert share.table.careful[:3].tolist() == [41, 0, 1]


def test_a_deposed_balancer_can_do_nothing(tmp_path: Path) -> None:
    clock = MockClock()
    with Queue.create(tmp_path / "q", size="1MiB", clock=clock) as queue:
        queue.channel("radar", "wx/**", slices=8)
        share = queue.share("radar")
        seat = share.join("one")
        first = share.lead("first", 1)
        assert share.lead("second", 1) == 0
        clock.advance(1.1)
        second = share.lead("second", 1)
        assert second == first + 1
        with pytest.raises(BalancerDeposedError, match="another balancer leads"):
            share.give(first, seat.number, ALL, "join")
        seat.exchange(Progress())
        assert share.give(second, seat.number, ALL, "join") == 8


def test_a_group_of_a_part_of_the_slices_never_owns_the_others(queue: Queue) -> None:
    share = queue.share("radar", "half", only="0-3")
    seat = share.join("one")
    assert share.give(share.lead("balancer", 60), seat.number, ALL, "join") == 4
    assert share.state().owners.tolist() == [0] * 4 + [ELSEWHERE] * 4
    seat.leave()
    assert share.state().owners.tolist() == [NOBODY] * 4 + [ELSEWHERE] * 4


def test_what_does_not_fit_is_refused_by_name(queue: Queue) -> None:
    queue.channel("plain", "plain/**")
    share = queue.share("radar", tries_max=2)
    share.join("one")
    with pytest.raises(ShareMissingError, match="channel 'plain' has no slices"):
        queue.share("plain")
    with pytest.raises(ChannelMissingError, match="no channel 'missing'"):
        queue.share("missing")
    with pytest.raises(ShareExistsError, match="has 8 slices, not 16"):
        queue.share("radar", slices=16)
    with pytest.raises(ShareExistsError, match="tries_max 2, not 3"):
        queue.share("radar", tries_max=3)
    with pytest.raises(ShareMissingError, match="no group 'other'"):
        queue.share("radar", "other", create=False)
    with pytest.raises(OptionError, match="slice 8 is out of range"):
        queue.share("radar", "other", only="0-8")
    with pytest.raises(ShareError, match="has a node 'one'"):
        share.join("one")
    with pytest.raises(ShareError, match="has nodes: one"):
        share.remove()
    assert queue.shares() == [("radar", "main")]


def test_a_channel_that_nodes_share_is_not_removed(queue: Queue) -> None:
    share = queue.share("radar")
    with pytest.raises(ChannelInUseError, match="has groups of processing nodes: main; delete them first"):
        queue.channel("radar").remove(force=True)
    share.remove()
    queue.channel("radar").remove()
    assert queue.channels() == []


def test_a_range_that_several_nodes_have_missed_is_counted_once(queue: Queue) -> None:
    share = queue.share("radar")
    one, two = share.join("one"), share.join("two")
    none = np.zeros(0, np.uint64)
    for seat, lost in ((one, Lost(1, 20)), (two, Lost(5, 25)), (one, Lost(21, 30))):
        seat.exchange(Progress(work=Work(lost.last, ALL[:0], none, none, lost)))
    counters = share.state().counters
    assert (counters["lost"], counters["lost_last"]) == (30, 30)


def test_a_node_that_has_left_has_no_slices_in_the_history(queue: Queue) -> None:
    share = queue.share("radar")
    seat = share.join("one")
    given(share)
    seat.exchange(Progress(load=Load()))
    seat.leave()
    assert [(each.node, each.slices) for each in share.history()] == [("one", 8), ("one", 0)]


def test_a_group_of_an_earlier_channel_is_not_taken_for_that_of_the_new_one(queue: Queue) -> None:
    document = queue.path / "shares.json"
    queue.share("radar")
    before = document.read_bytes()
    document.write_bytes(b'{"format": 1}')
    queue.channel("radar").remove()
    document.write_bytes(before)  # as after a restored backup
    queue.channel("radar", "wx/**", slices=8)
    with pytest.raises(ShareExistsError, match="belongs to an earlier channel"):
        queue.share("radar")


def test_a_group_survives_the_death_of_every_process_and_check_finds_it_sound(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue.create(path, size="1MiB") as queue:
        queue.channel("radar", "wx/**", slices=8)
        for number in range(40):
            queue.put(b"x", feed="wx/a", ident=str(number))
    code = (
        "import sys, os; from headrace import Queue; from headrace.share.interface import *; import numpy as np\n"
        f"share = Queue.open({str(path)!r}).share('radar'); seat = share.join('one')\n"
        "share.give(share.lead('b', 60), seat.number, np.arange(8, dtype=np.uint32), 'join')\n"
        "seat.exchange(Progress(0, marks(range(8), [1] * 8, [23] * 8)))\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    with Queue.open(path) as queue:
        assert queue.share("radar").state().positions.tolist() == [23] * 8
        assert queue.check() == []


def test_a_truncated_table_is_an_error_that_names_the_file(queue: Queue) -> None:
    queue.share("radar")
    (queue.path / "shares" / "1.share").write_bytes(b"short")
    with pytest.raises(ShareError.__bases__[0], match=r"1\.share is invalid"):
        queue.share("radar")

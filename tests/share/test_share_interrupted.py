"""A process may be killed at any line of a change of a table: the one that repeats the change completes it."""

import sys
from collections.abc import Callable, Iterator
from itertools import count
from types import FrameType
from typing import Any

import numpy as np

from headrace.share import attempts, ownership, sessions, show
from headrace.share.interface import NOBODY, Progress, marks
from headrace.share.layout import Table, epochs_of, memory_table, owners_of
from headrace.share.ownership import Ownership
from headrace.share.sessions import Moment

NOW, LATE = Moment(10**9, 1), Moment(10**11, 2)  # after a long silence, every node counts as dead
SLICES, HEAD = np.arange(4, dtype=np.uint32), 40
FILES = (attempts.__file__, ownership.__file__, sessions.__file__)


class KilledError(BaseException):
    """The process ends here."""


def was_killed(change: Callable[[], object], lines: int) -> bool:
    """Do it, but end before the line of this number; False if the change is complete before that."""
    left = lines

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise KilledError
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        change()
    except KilledError:
        return True
    finally:
        sys.settrace(before)
    return False


def at_every_line(prepare: Callable[[], tuple[Table, Callable[[], object]]]) -> Iterator[tuple[Table, bool]]:
    """Tables in which the change was cut short, one for each line, and the one in which it was not."""
    for lines in count():
        table, change = prepare()
        killed = was_killed(change, lines)
        yield table, killed
        if not killed:
            assert lines > 10
            return


def owned_by_one() -> tuple[Table, Ownership]:
    table = memory_table(len(SLICES))
    own = Ownership(table)
    for number, name in enumerate(("one", "two")):
        assert own.join(name, number + 1, NOW) == number
    own.give(own.lead("balancer", 10**12, NOW), 0, SLICES, "join", NOW)
    return table, own


def test_a_product_that_is_parked_is_listed_once() -> None:
    def prepare() -> tuple[Table, Callable[[], object]]:
        table, own = owned_by_one()
        return table, lambda: own.attempts.park(0, 1, 2, 1, 7, "no", NOW, HEAD)

    for table, killed in at_every_line(prepare):
        own = Ownership(table)
        if killed:  # its slices go to another node, which finds the product at fault as well
            own.seize(0, 0, LATE, HEAD)
            own._seats[1]["heartbeat"] = LATE.boot_ns
            own.give(0, 1, SLICES, "dead", LATE)
            if int(table.positions[2]) <= 7:
                assert own.attempts.park(1, 2, 2, int(epochs_of(table.words)[2]), 7, "no", LATE, HEAD)
        assert [(each.slice, each.sequence) for each in show.parked_of(table)] == [(2, 7)]
        assert int(table.positions[2]) == 8


def test_a_death_is_counted_against_a_product_once_at_most() -> None:
    def prepare() -> tuple[Table, Callable[[], object]]:
        table, own = owned_by_one()
        assert own.attempts.begin(0, 1, 2, 1, 7)
        return table, lambda: own.seize(0, 0, LATE, HEAD)

    for table, killed in at_every_line(prepare):
        own = Ownership(table)
        if killed:  # the next balancer does it again
            own.seize(0, 0, LATE, HEAD)
        assert int(table.tries[2]) <= 1
        assert killed or int(table.tries[2]) == 1
        assert owners_of(table.words).tolist() == [NOBODY] * len(SLICES)
        assert table.careful.all()
        assert not table.seats[0]["instance"]


def test_a_slice_that_is_released_has_its_old_owner_or_its_new_one() -> None:
    def prepare() -> tuple[Table, Callable[[], object]]:
        table, own = owned_by_one()
        own.begin(0, 0, 1, SLICES[:2], "load", NOW)
        return table, lambda: own.exchange(0, 1, release, NOW, HEAD)

    release = Progress(release=marks(SLICES[:2], [1, 1], [20, 21]))
    for table, _ in at_every_line(prepare):
        owners, own = owners_of(table.words), Ownership(table)
        assert set(owners[:2].tolist()) in ({0}, {1})
        assert (epochs_of(table.words)[:2] == 1 + owners[:2]).all()
        if owners[0] == 1:
            assert table.positions[:2].tolist() == [20, 21]
        own.exchange(0, 1, release, NOW, HEAD)  # again: refused if the slices have moved
        assert owners_of(table.words).tolist() == [1, 1, 0, 0]
        assert table.positions[:2].tolist() == [20, 21]
        held = own.exchange(1, 2, Progress(), NOW, HEAD)
        assert held.holding is not None
        assert held.holding.positions.tolist() == [20, 21]

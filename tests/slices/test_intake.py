"""The reader of a node: slices come and go, and the others are read on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from headrace import Queue
from headrace.share.interface import NO_MARKS, marks
from headrace.slices.intake import Intake, Intaken
from support.waiting import until

SLICES = 4
NOTHING = np.zeros(0, np.uint32)
LIMIT_S = 240.0  # a safety net, not a promise


class Reads:
    """What an intake has read, by slice, as far as the slice was meant to be read."""

    def __init__(self) -> None:
        self.rows: dict[int, list[int]] = {number: [] for number in range(SLICES)}

    def post(self, read: Intaken | Exception) -> None:
        assert isinstance(read, Intaken)
        for product in read.batch or ():
            assert product.slice is not None
            if read.slices[product.slice]:
                self.rows[product.slice].append(product.sequence)

    def wait_for(self, number: int, count: int) -> None:
        until(lambda: len(self.rows[number]) >= count, lambda: f"slice {number} has {count} rows: {self.rows[number]}")


@contextmanager
def reading(queue: Queue, reads: Reads) -> Iterator[Intake]:
    intake = Intake(queue, "wx/**", SLICES, reads.post, lambda: True)
    intake.start()
    try:
        yield intake
    finally:
        intake.stop()


def put(queue: Queue, rounds: int) -> None:
    queue.put_many([b"x"] * rounds * SLICES, feed="wx/a", slice=list(range(SLICES)) * rounds)


def test_a_slice_that_goes_does_not_restart_the_reading_of_the_others(
    make_quick: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, followed = make_quick(), list[Any]()
    follow = queue.follow
    monkeypatch.setattr(queue, "follow", lambda *given, **more: followed.append(given) or follow(*given, **more))
    monkeypatch.setattr("headrace.slices.intake._WIDE_S", LIMIT_S)
    queue.channel("radar", "wx/**", slices=SLICES, assign="given")
    reads = Reads()
    with reading(queue, reads) as intake:
        intake.change(marks(range(SLICES), [1] * SLICES, [1] * SLICES), NOTHING)
        put(queue, 10)
        reads.wait_for(3, 10)
        intake.change(NO_MARKS, np.array([1], np.uint32))
        put(queue, 1)
        reads.wait_for(3, 11)  # the change is taken in with this read or before
        put(queue, 10)
        reads.wait_for(3, 21)
        assert len(followed) == 1
        assert len(reads.rows[1]) <= 11
        before = len(reads.rows[1])
        position = queue.next
        put(queue, 10)
        reads.wait_for(3, 31)
        intake.change(marks([1], [2], [position]), NOTHING)
        put(queue, 10)
        reads.wait_for(1, before + 20)
        reads.wait_for(3, 41)
    assert reads.rows[1][before:] == list(range(position + 1, queue.next, SLICES))
    assert all(reads.rows[number] == list(range(1 + number, queue.next, SLICES)) for number in (0, 2, 3))


def test_slices_that_have_gone_are_not_read_for_long(
    make_quick: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, selected = make_quick(), list[str]()
    follow = queue.follow
    monkeypatch.setattr(
        queue, "follow", lambda start, wanted, **more: selected.append(str(wanted)) or follow(start, wanted, **more)
    )
    monkeypatch.setattr("headrace.slices.intake._WIDE_S", 0.0)
    queue.channel("radar", "wx/**", slices=SLICES, assign="given")
    reads = Reads()
    with reading(queue, reads) as intake:
        intake.change(marks(range(SLICES), [1] * SLICES, [1] * SLICES), NOTHING)
        put(queue, 10)
        reads.wait_for(3, 10)
        intake.change(NO_MARKS, np.array([1, 2], np.uint32))
        until(lambda: put(queue, 1) or len(selected) == 2)
    assert len(selected) == 2
    assert len({*selected}) == 2

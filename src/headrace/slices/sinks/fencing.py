"""Fencing: what a claim and a store do to the positions in a sink. Plain data, no I/O; the sinks call this inside their
transactions.

Epochs in a sink only grow, and positions of one epoch only grow. A claim by an epoch below that in the sink, and a
store by any other epoch than that in the sink, changes nothing.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from headrace.errors import OptionError, SinkError, SinkFencedError
from headrace.share.interface import Marks, Positions
from headrace.slices.sinks.interface import Result, SinkStatistics

GROUP_BYTES_MAX = 128
_SHOWN = 5  # slices in a message


class Held(NamedTuple):
    """A slice in a sink: its last owner's epoch, and where its results end."""

    epoch: int
    position: int


Holds = Mapping[int, Held]  # by slice


def claimed(held: Holds, marks: Marks, sink: object) -> dict[int, Held]:
    """The slices of `marks` after a claim. SinkFencedError: one of them has a later owner."""
    given = _given(marks)
    _refuse_late({number for number, mark in given.items() if number in held and held[number].epoch > mark.epoch}, sink)
    return {
        number: Held(mark.epoch, held[number].position if number in held else mark.position)
        for number, mark in given.items()
    }


def advanced(held: Holds, marks: Marks, sink: object) -> dict[int, Held]:
    """The slices of `marks` after a store. SinkFencedError; SinkError if they were not claimed before."""
    given = _given(marks)
    _refuse_late({number for number, mark in given.items() if number in held and held[number].epoch > mark.epoch}, sink)
    unclaimed = sorted(number for number, mark in given.items() if held.get(number, _NONE).epoch < mark.epoch)
    if unclaimed:
        raise SinkError(f"{_shown(unclaimed)} not claimed in {sink}", "call claim before the first store")
    return {number: Held(mark.epoch, max(mark.position, held[number].position)) for number, mark in given.items()}


def fresh(results: Sequence[Result], marks: Marks, held: Holds) -> list[Result]:
    """The results that are not in the sink yet. OptionError: a position of `marks` does not pass one of them."""
    ends = dict(zip(marks.slices.tolist(), marks.positions.tolist(), strict=True))
    new = []
    for result in results:
        if result.sequence >= ends.get(result.slice, 0):
            raise OptionError(
                f"the result of product {result.sequence} is not below a position of slice {result.slice}",
                "store results together with the positions that pass them",
            )
        if result.sequence >= held[result.slice].position:
            new.append(result)
    return new


def positions_of(marks: Marks, held: Holds) -> Positions:
    return np.array([held[number].position for number in marks.slices.tolist()], np.uint64)


def check_group(group: str) -> str:
    """Return `group` if it can be the id of a group."""
    if not isinstance(group, str) or not 0 < len(group.encode()) <= GROUP_BYTES_MAX:
        raise OptionError(f"group {group!r} is invalid", f"give the id of a group, of 1 to {GROUP_BYTES_MAX} bytes")
    return group


class Counter:
    """The statistics of a sink object, which several threads may count."""

    def __init__(self) -> None:
        self.statistics = SinkStatistics()
        self._lock = threading.Lock()

    def add(self, **more: int) -> None:
        with self._lock:
            now = self.statistics
            self.statistics = msgspec.structs.replace(now, **{name: getattr(now, name) + n for name, n in more.items()})


_NONE = Held(-1, 0)


def _given(marks: Marks) -> dict[int, Held]:
    columns = (marks.slices.tolist(), marks.epochs.tolist(), marks.positions.tolist())
    if len({len(column) for column in columns}) > 1:
        raise OptionError("the columns of marks differ in length", "give each slice an epoch and a position")
    given = {number: Held(epoch, position) for number, epoch, position in zip(*columns, strict=True)}
    if len(given) < len(columns[0]):
        raise OptionError("marks name a slice twice", "give each slice one epoch and one position")
    return given


def _refuse_late(late: set[int], sink: object) -> None:
    if late:
        numbers = sorted(late)
        raise SinkFencedError(
            f"{_shown(numbers)} claimed by a later owner in {sink}; nothing was stored",
            "leave these slices to it; if the queue was restored from a backup, create the group again",
            tuple(numbers),
        )


def _shown(numbers: list[int]) -> str:
    """`slice 3 is`, `slices 3, 4 are`, `slices 0, 1, 2, 3, 4 and 60 more are`."""
    if len(numbers) == 1:
        return f"slice {numbers[0]} is"
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return f"slices {', '.join(map(str, numbers[:_SHOWN]))}{more} are"

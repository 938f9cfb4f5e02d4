"""The reader of a node, while slices come and go and products arrive: exact by sequence, here and at a site.

Oracle: for each slice, from its position until it goes, exactly its products, in order, once; whatever was read before it
came is recognised by the number of the change.
"""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from headrace import Queue
from headrace.errors import HeadraceError, SiteUnreachableError
from headrace.queue import AnyQueue
from headrace.share.interface import marks
from headrace.slices import intake as intakes
from headrace.slices.intake import Intake, Intaken
from support.serving import Served
from support.waiting import until

SLICES = 6


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("intake"), size="16MiB", durability="process")
    yield made
    made.close()


class Reading:
    """An intake, and what a node would keep of it."""

    def __init__(self, queue: AnyQueue, feed: str) -> None:
        self.lock, self.has_room = threading.Lock(), True
        self.since: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.read_to: dict[int, int] = {}
        self.kept: dict[int, list[int]] = {}
        self.errors: list[Exception] = []
        self.intake = Intake(queue, feed, SLICES, self.take, lambda: self.has_room)
        self.intake.start()

    def take(self, read: Intaken | Exception) -> None:
        if not isinstance(read, Intaken):
            self.errors.append(read)
            return
        with self.lock:
            mine = {number for number, change in self.since.items() if read.slices[number] and change <= read.change}
            if read.batch is not None:
                rows = zip(read.batch.columns["slice"].tolist(), read.batch.sequences.tolist(), strict=True)
                for number, sequence in rows:
                    if number in mine and sequence >= self.taken[number]:
                        self.kept[number].append(sequence)
                        self.taken[number] = sequence + 1
            for number in mine:
                self.read_to[number] = max(self.read_to[number], read.next)

    def change(self, added: dict[int, int], removed: list[int]) -> None:
        with self.lock:
            for number in removed:
                self.since.pop(number, None)
            number = self.intake.change(
                marks(list(added), [1] * len(added), list(added.values())), np.array(removed, np.uint32)
            )
            for slice_, position in added.items():
                self.since[slice_], self.kept[slice_] = number, []
                self.taken[slice_] = self.read_to[slice_] = position

    def stop(self) -> None:
        self.intake.stop()


@pytest.mark.parametrize("where", ["here", "there"])
def test_slices_come_and_go_while_products_arrive_and_none_is_skipped_or_read_twice(
    where: str, served: Served, make_quick: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intakes, "ROWS", 7)
    chance = random.Random(4)
    queue = make_quick(size="16MiB") if where == "here" else served.queue
    queue.channel("radar", "wx/**", slices=SLICES, assign="random")
    reading = Reading(queue if where == "here" else served.connect(), "wx/**")
    try:
        for _ in range(40):
            queue.put_many([b"x"] * chance.randint(1, 30), feed="wx/a")
            changed = chance.sample(range(SLICES), chance.randint(0, 2))
            removed = [number for number in changed if number in reading.since]
            added = {number: chance.randint(1, queue.next) for number in changed if chance.random() < 0.7}
            reading.change(added, removed + [number for number in added if number not in removed])
            reading.has_room = chance.random() < 0.8
            if chance.random() < 0.5:
                chance_s = chance.uniform(0, 0.02)
                threading.Event().wait(chance_s)
        reading.has_room = True
        reading.intake.nudge()
        rest = {number: 1 for number in range(SLICES) if number not in reading.since}
        begun = dict(rest)
        reading.change(rest, [])
        until(lambda: all(position >= queue.next for position in reading.read_to.values()), lambda: reading.read_to)
        slices = {product.sequence: product.slice for product in queue.read("oldest", "wx/**")}
        for number, kept in reading.kept.items():
            assert kept == sorted(set(kept))
            mine = [sequence for sequence, slice_ in slices.items() if slice_ == number]
            assert kept == mine[len(mine) - len(kept) :], f"slice {number} was skipped"
            if number in begun:
                assert kept == mine
    finally:
        reading.stop()
    assert reading.errors == []


def test_a_reader_whose_site_is_away_says_so_and_goes_on(served: Served) -> None:
    served.queue.channel("away", "away/**", slices=SLICES, assign="round_robin")
    reading = Reading(served.connect(patience=0.2), "away/**")
    try:
        begin = served.queue.next
        reading.change(dict.fromkeys(range(SLICES), begin), [])
        served.queue.put_many([b"x"] * 12, feed="away/a")
        until(lambda: sum(map(len, reading.kept.values())) == 12)
        served.stop()
        until(lambda: reading.errors)
        assert isinstance(reading.errors[0], SiteUnreachableError | HeadraceError)
        served.queue.put_many([b"x"] * 12, feed="away/a")
        served.start()
        until(lambda: sum(map(len, reading.kept.values())) == 24)
        assert all(kept == sorted(set(kept)) for kept in reading.kept.values())
    finally:
        reading.stop()


def test_an_error_that_nobody_expected_ends_the_reader_and_is_told(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    queue.channel("radar", "wx/**", slices=SLICES)
    reading = Reading(queue, "wx/**")

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    reading.intake._selection = fail  # type: ignore[method-assign]
    reading.change({0: 1}, [])
    until(lambda: reading.errors)
    assert isinstance(reading.errors[0], ZeroDivisionError)
    reading.stop()

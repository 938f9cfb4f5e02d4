"""Conductors of a group under random orders of reading, working, failing, moving and dying, on the real table.

The reader, the workers and the balancer are a few lines here, and each of their steps may come at any time. Oracle: no
position passes a product that was neither done nor parked; a product is begun by one owner at a time, in the order of its
slice; it is begun again only after an attempt that failed, or if it was not confirmed when its node lost the slice.
"""

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from headrace.errors import SeatLostError
from headrace.share.interface import Marks, Progress, Slices
from headrace.share.layout import memory_table, owners_of
from headrace.share.ownership import Ownership
from headrace.share.sessions import Moment
from headrace.slices.backlog import Backlog, Portion
from headrace.slices.conductor import Conductor, Failure
from headrace.slices.intake import Intaken
from headrace.slices.tasks import Outcome, Task, given_up, without

SLICES, NODES, TRIES = 5, 3, 2


class Rows:
    """As much of a Batch as a conductor looks at."""

    lost = None

    def __init__(self, sequences: list[int], slices: list[int]) -> None:
        self.sequences = np.array(sequences, np.uint64)
        self.columns = {"slice": np.array(slices, np.uint16)}
        self.sizes = np.ones(len(sequences), np.uint32)

    def __len__(self) -> int:
        return len(self.sequences)


class Reader:
    """Reads any of its slices, any distance at a time; what it has read arrives later."""

    def __init__(self, world: "World") -> None:
        self.world, self.change_number = world, 0
        self.positions: dict[int, int] = {}
        self.arriving: list[Intaken] = []

    def change(self, added: Marks, removed: Slices) -> int:
        for number in removed.tolist():
            self.positions.pop(number, None)
        self.positions.update(zip(added.slices.tolist(), added.positions.tolist(), strict=True))
        self.change_number += 1
        return self.change_number

    def read(self) -> None:
        chance, stream = self.world.chance, self.world.stream
        if not self.positions:
            return
        chosen = chance.sample(sorted(self.positions), chance.randint(1, len(self.positions)))
        begin, end = (each(self.positions[number] for number in chosen) for each in (min, max))
        end = chance.randint(end, len(stream) + 1)
        found = [n for n in range(begin, end) if stream[n - 1] in chosen]
        flags = np.isin(np.arange(SLICES), chosen)
        batch: Any = Rows(found, [stream[n - 1] for n in found])
        self.arriving.append(Intaken(batch, end, flags, self.change_number))
        self.positions.update(dict.fromkeys(chosen, end))


class Node:
    """A conductor with its seat, and two workers."""

    def __init__(self, world: "World", name: str) -> None:
        self.world, self.name = world, name
        self.join()

    def join(self) -> None:
        self.instance = self.world.next_number()
        self.seat = self.world.own.join(self.name, self.instance, self.world.now)
        self.seen = 0
        if not hasattr(self, "conductor"):
            self.reader = Reader(self.world)
            self.conductor = Conductor(SLICES, TRIES, self.reader.change)
        self.tasks: list[Task] = getattr(self, "tasks", [])

    def exchange(self) -> None:
        world = self.world
        confirm, release = self.conductor.progress()
        for marks in (confirm, release):
            for number, epoch, position in zip(*(column.tolist() for column in marks), strict=True):
                if world.owns(self, number, epoch):
                    world.check_position(number, position)
        try:
            told = world.own.exchange(
                self.seat, self.instance, Progress(self.seen, confirm, release), world.now, world.head
            )
        except SeatLostError:
            self.conductor.drop_all()
            self.join()
            return
        if world.chance.random() < 0.1:  # the reply is lost
            return
        self.conductor.confirmed(confirm, release, told.refused)
        for failure in self.conductor.to_park():
            self.conductor.park(failure, world.park(self, failure))
        if told.holding is not None:
            self.conductor.hold(told.holding, lambda added: added)
            self.seen = told.version

    def begin(self) -> None:
        if len(self.tasks) < 2 and (task := self.conductor.next_task(self.world.time_s)) is not None:
            if len(task) == 1 and self.conductor.careful[task.slices[0]]:
                if self.conductor.is_given_up(task):
                    self.conductor.finish(task, nothing(task), 0.0, 0.0)
                    self.conductor.give_up(failure_of(task, 0))
                    return
                where = int(task.slices[0]), int(task.epochs[0]), int(task.sequences[0])
                try:
                    may_begin = self.world.own.attempts.begin(self.seat, self.instance, *where)
                except SeatLostError:
                    may_begin = False
                if not may_begin:
                    self.conductor.finish(task, nothing(task), 0.0, 0.0)
                    return
            self.world.note_begun(self, task)
            self.tasks.append(task)

    def finish(self) -> None:
        world = self.world
        if not self.tasks:
            return
        task = self.tasks.pop(world.chance.randrange(len(self.tasks)))
        outcome = self.outcome_of(task)
        if world.chance.random() < 0.1:  # it hung at a product, perhaps at a bad one: nothing of the task counts
            bad = [place for place, _ in outcome.failures]
            outcome = given_up(len(task), world.chance.choice(bad or range(len(task))), "hung")
        world.note_finished(self, task, outcome, range(len(task)))
        self.count(self.conductor.finish(task, outcome, world.time_s, 1.0))

    def outcome_of(self, task: Task) -> Outcome:
        world = self.world
        bad = [
            place for place, n in enumerate(task.sequences.tolist()) if n in world.bad or world.chance.random() < 0.02
        ]
        outcome = Outcome(np.ones(len(task), np.bool_), np.ones(len(task), np.uint64), [], [])
        return without(outcome, [(place, "no") for place in bad], task.slices.tolist())

    def count(self, failures: list[Failure]) -> None:
        for failure in failures:
            try:
                tries = self.world.own.attempts.fail(
                    self.seat, self.instance, failure.slice, failure.epoch, failure.sequence
                )
            except SeatLostError:
                continue
            if tries >= TRIES:
                self.conductor.give_up(failure)

    def take_rest(self) -> None:
        """One product of a task takes long: the node takes back what comes after it."""
        long = [task for task in self.tasks if len(task) > 1]
        if not long:
            return
        task = self.world.chance.choice(long)
        place = self.world.chance.randrange(len(task))
        if self.world.chance.random() < 0.3:  # in a worker process, which says later what became of those before it
            self.world.note_finished(self, task, nothing(task), range(place + 1, len(task)))
            self.conductor.take_rest(task, place, None, self.world.time_s, 1.0)
            return
        outcome = self.outcome_of(task)
        if any(task.slices[failed] == task.slices[place] and failed < place for failed, _ in outcome.failures):
            return  # a worker passes over the rest of a slice that has failed
        undone = np.arange(len(task)) >= place
        self.world.note_finished(self, task, outcome._replace(done=outcome.done & ~undone), range(place))
        self.world.note_finished(self, task, nothing(task), range(place + 1, len(task)))
        before = [each for each in outcome.failures if each[0] < place]
        self.count(self.conductor.take_rest(task, place, outcome._replace(failures=before), self.world.time_s, 1.0))

    def accept(self) -> None:
        if self.reader.arriving:
            self.conductor.accept(self.reader.arriving.pop(0))


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.own = Ownership(memory_table(SLICES, dead_after_s=3.0, tries_max=TRIES))
        self.stream: list[int] = []  # the slice of each sequence, from 1 on
        self.bad: set[int] = set()
        self.done: set[int] = set()
        self.parked: set[int] = set()
        self.begun: dict[int, set[tuple[str, int]]] = defaultdict(set)  # by sequence: nodes and epochs in work
        self.last: dict[tuple[int, int], int] = {}  # by slice and epoch: what was begun last
        self.may_repeat: set[int] = set()
        self.time_s, self._number = 0.0, 0
        self.term = self.own.lead("balancer", 10**15, self.now)
        self.nodes = [Node(self, f"n{number}") for number in range(NODES)]

    @property
    def now(self) -> Moment:
        return Moment(int(self.time_s * 1e9) + 1, 1)

    @property
    def head(self) -> int:
        return len(self.stream) + 1

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def owns(self, node: Node, number: int, epoch: int) -> bool:
        return self.own.attempts._owns(node.seat, number, epoch)

    # --- the oracle -------------------------------------------------------------------------------

    def check_position(self, number: int, position: int) -> None:
        passed = {n for n in range(1, position) if self.stream[n - 1] == number}
        assert passed <= self.done | self.parked, f"slice {number} at {position}: {passed - self.done - self.parked}"

    def note_begun(self, node: Node, task: Task) -> None:
        for number, epoch, n in zip(
            *(each.tolist() for each in (task.slices, task.epochs, task.sequences)), strict=True
        ):
            assert node.conductor.owned[number], f"{n} is begun without its slice"
            assert node.conductor.epoch(number) == epoch
            if not self.owns(node, number, epoch):
                continue
            others = [
                each
                for each in self.nodes
                for name, e in self.begun[n]
                if each.name == name and self.owns(each, number, e)
            ]
            assert not others, f"{n} is in work twice"
            assert n not in self.done or n in self.may_repeat, f"{n} was done"
            assert n >= self.last.get((number, epoch), 0), f"{n} after {self.last[number, epoch]}"
            self.last[number, epoch] = n
            self.begun[n].add((node.name, epoch))

    def note_finished(self, node: Node, task: Task, outcome: Outcome, places: range) -> None:
        for place in places:
            epoch, n = int(task.epochs[place]), int(task.sequences[place])
            self.begun[n].discard((node.name, epoch))
            if outcome.done[place] and self.owns(node, self.stream[n - 1], epoch):
                self.done.add(n)
            elif not outcome.done[place]:
                self.last[self.stream[n - 1], epoch] = min(n, self.last.get((self.stream[n - 1], epoch), n))

    def park(self, node: Node, failure: Failure) -> bool:
        if self.owns(node, failure.slice, failure.epoch):
            self.check_position(failure.slice, failure.sequence)
            self.parked.add(failure.sequence)
        try:
            return self.own.attempts.park(
                node.seat, node.instance, failure.slice, failure.epoch, failure.sequence, "no", self.now, self.head
            )
        except SeatLostError:
            return False

    # --- what may happen --------------------------------------------------------------------------

    def put(self) -> None:
        for _ in range(self.chance.randint(1, 12)):
            self.stream.append(self.chance.randrange(SLICES))
            if self.chance.random() < 0.02:
                self.bad.add(len(self.stream))

    def balance(self) -> None:
        owners = owners_of(self.own.table.words)
        alive = [node.seat for node in self.nodes]
        some = np.array(self.chance.sample(range(SLICES), 2), np.uint32)
        what = self.chance.choice(["give", "begin", "begin", "cancel"])
        if what == "give":
            self.own.give(self.term, self.chance.choice(alive), some, "join", self.now)
        elif what == "begin":
            self.own.begin(self.term, int(owners[some[0]]), self.chance.choice(alive), some, "load", self.now)
        else:
            self.own.cancel(self.term, some, self.now)

    def lose(self) -> None:
        """A node is not heard of for too long; it dies, or goes on as if nothing had been."""
        node = self.chance.choice(self.nodes)
        owned = set(self.own._owned(node.seat).tolist())
        self.may_repeat |= {
            n for n in self.done if self.stream[n - 1] in owned and n >= self.own.table.positions[self.stream[n - 1]]
        }
        self.own._seats[node.seat]["heartbeat"] = 0
        self.time_s += 10
        for other in self.nodes:
            if other.seat != node.seat:  # which may be that of another node, which has not noticed yet that it lost it
                self.own._seats[other.seat]["heartbeat"] = self.now.boot_ns
        self.own.seize(self.term, node.seat, self.now, self.head)
        if self.chance.random() < 0.5:
            self.nodes[self.nodes.index(node)] = Node(self, f"{node.name}'")

    def step(self) -> None:
        self.time_s += 0.1
        node = self.chance.choice(self.nodes)
        acts = [node.exchange, node.begin, node.finish, node.take_rest, node.accept, node.reader.read]
        what = self.chance.random()
        if what < 0.03:
            self.put()
        elif what < 0.05:
            self.balance()
        elif what < 0.055:
            self.lose()
        else:
            self.chance.choice(acts)()

    def drain(self) -> None:
        """Everything that is left, with nothing that goes wrong any more but what is bad."""
        rest = np.arange(SLICES, dtype=np.uint32)
        for _ in range(4000):
            self.time_s += 0.5
            self.own.give(self.term, self.nodes[0].seat, rest, "join", self.now)
            for node in self.nodes:
                for act in (node.exchange, node.reader.read, node.accept, node.begin, node.finish, node.exchange):
                    act()
            if int(self.own.table.positions.min()) >= self.head:
                return
        raise AssertionError(f"stuck at {self.own.table.positions}, of {self.head}")


def nothing(task: Task) -> Outcome:
    return Outcome(np.zeros(len(task), np.bool_), np.zeros(len(task), np.uint64), [], [])


def failure_of(task: Task, place: int) -> Failure:
    return Failure(int(task.slices[place]), int(task.epochs[place]), int(task.sequences[place]), "no")


def play(seed: int, steps: int) -> World:
    print("seed", seed)
    world = World(seed)
    for _ in range(steps):
        world.step()
    world.drain()
    everything = set(range(1, world.head))
    assert everything == world.done | world.parked
    return world


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_skipped_or_done_twice_in_any_order_of_events(seed: int) -> None:
    world = play(seed, 1500)
    assert world.done
    assert world.bad <= world.parked | world.done


@pytest.mark.soak
def test_nothing_is_skipped_or_done_twice_in_many_orders_of_events() -> None:
    begin = random.SystemRandom().randrange(10**9)
    for seed in range(begin, begin + 1000):
        play(seed, 3000)


# --- the backlog ------------------------------------------------------------------------------------


def portion(sequences: list[int], stream: list[int]) -> Portion:
    slices = [stream[n - 1] for n in sequences]
    batch: Any = Rows(sequences, slices)
    places = np.arange(len(sequences), dtype=np.uint32)
    return Portion(batch, places, np.array(slices, np.uint32), np.array(sequences, np.uint64))


@pytest.mark.parametrize("seed", range(20))
def test_a_backlog_gives_each_slice_in_order_and_counts_what_it_has(seed: int) -> None:
    chance = random.Random(seed)
    stream = [chance.randrange(SLICES) for _ in range(400)]
    backlog, model = Backlog(), list[int]()
    taken: list[Portion] = []
    put = 0
    for _ in range(300):
        what = chance.choice(["add", "take", "take", "back", "drop", "discard"])
        if what == "add" and put < len(stream):
            more = list(range(put + 1, min(len(stream), put + chance.randint(1, 20)) + 1))
            put = more[-1]
            backlog.add(portion(more, stream))
            model += more
        elif what == "take":
            blocked = np.array([chance.random() < 0.4 for _ in range(SLICES)])
            blocked[[int(number) for each in taken for number in each.slices]] = True
            stops = np.array([chance.randint(1, 400) for _ in range(SLICES)], np.uint64)
            expected, passed = list[int](), blocked.copy()
            count = chance.randint(1, 15)
            for n in sorted(model):
                number = stream[n - 1]
                passed[number] |= n >= stops[number]
                if not passed[number]:
                    expected.append(n)
            assert backlog.has(blocked, stops) == bool(expected)
            got = backlog.take(count, blocked, stops)
            sequences = [int(n) for each in got for n in each.sequences]
            assert len(sequences) == min(count, len(expected))
            for number in range(SLICES):  # the first ones of each slice
                mine = [n for n in sequences if stream[n - 1] == number]
                assert mine == [n for n in expected if stream[n - 1] == number][: len(mine)]
            model = [n for n in model if n not in set(sequences)]
            taken += got
        elif what == "back":
            for each in reversed(taken):
                backlog.put_back(each)
                model += each.sequences.tolist()
            taken = []
        elif what == "drop" and chance.random() < 0.1:
            gone = np.isin(np.arange(SLICES), chance.randrange(SLICES))
            backlog.drop(gone)
            model = [n for n in model if not gone[stream[n - 1]]]
        elif what == "discard" and model:
            n = chance.choice(model)
            backlog.discard(stream[n - 1], n)
            model.remove(n)
        assert (len(backlog), backlog.bytes) == (len(model), len(model))
        positions = np.full(SLICES, 10**6, np.uint64)
        backlog.lower(positions)
        assert positions.tolist() == [
            min((n for n in model if stream[n - 1] == number), default=10**6) for number in range(SLICES)
        ]

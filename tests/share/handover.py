"""The hand-over of slices as a small world, in which everything may go wrong at every step.

Two or three nodes, two slices, a log that holds a few products of each, a balancer. What happens next is chosen from
all that may happen: a node reads, works, sends its progress; a message arrives, arrives twice, out of order, or never; a
node dies, is stopped and goes on later as if nothing had been; the balancer begins, cancels, seizes and gives. The table
is the real one (headrace/share/ownership.py); nodes and messages are a few lines here.

    safety     no product is confirmed twice, none without the work of its owner in that epoch, and a product is worked
               on again only after a death
    progress   from every state there is a way to one in which everything is confirmed
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headrace.errors import SeatLostError
from headrace.share.interface import NO_MARKS, NOBODY, Marks, Progress, marks
from headrace.share.layout import Table, epochs_of, memory_table, owners_of, takers_of
from headrace.share.ownership import Ownership
from headrace.share.sessions import Moment

NOW, LATE = Moment(10**9, 1), Moment(10**11, 1)  # after a long silence, every node counts as dead


@dataclass(frozen=True)
class Held:
    """A slice, as a node knows it."""

    epoch: int
    position: int  # worked on up to here
    leaving: bool


@dataclass(frozen=True)
class Node:
    """What a node remembers."""

    alive: bool = True
    seated: bool = True
    held: tuple[Held | None, ...] = ()


@dataclass(frozen=True)
class Message:
    """A node's progress on its way, or the reply on its way back."""

    node: int
    confirm: tuple[tuple[int, int, int], ...]  # slice, epoch, position
    release: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class World:
    """Everything that makes a difference."""

    table: bytes
    nodes: tuple[Node, ...]
    messages: tuple[Message, ...]
    worked: tuple[tuple[int, ...], ...]  # in which epochs each product of each slice was worked on, as bits
    deaths: int = 0
    moves: int = 0
    losses: int = 0
    faults: tuple[str, ...] = field(default=())


class Handover:
    """The rules of this world: what may happen in a state, and what is then."""

    def __init__(self, nodes: int, slices: int, products: int, *, deaths: int, moves: int, losses: int) -> None:
        self.products, self.deaths, self.moves, self.losses = products, deaths, moves, losses
        table = memory_table(slices, start=1)
        own = Ownership(table)
        for number in range(nodes):
            own.join(f"node-{number}", number + 1, NOW)
        own.lead("balancer", 10**15, NOW)
        own.give(1, 0, np.arange(slices, dtype=np.uint32), "join", NOW)
        self._memory = bytes(table.header.base)
        self._known: dict[tuple[bytes, str, tuple[Any, ...]], tuple[bytes, list[int], list[int], Any]] = {}
        self._seen: dict[bytes, tuple[list[int], list[int], list[int]]] = {}
        self.slices = slices
        held = tuple(Held(1, 1, False) for _ in range(slices))
        nothing: tuple[Held | None, ...] = (None,) * slices
        self.start = World(
            self._packed(table), (Node(held=held), *(Node(held=nothing) for _ in range(nodes - 1))), (),
            ((0,) * products,) * slices,
        )  # fmt: skip

    # --- what may happen --------------------------------------------------------------------------

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Every next state."""
        for number, node in enumerate(world.nodes):
            if node.alive and node.seated:
                yield from self._work(world, number, node)
                yield from self._send(world, number, node)
            elif node.alive:
                yield f"node {number} joins again", self._join(world, number)
        for place, message in enumerate(world.messages):
            rest = world.messages[:place] + world.messages[place + 1 :]
            yield f"{message} arrives", self._arrive(replace(world, messages=rest), message)
            if world.losses < self.losses:
                lost = replace(world, losses=world.losses + 1)
                yield f"{message} is lost", replace(lost, messages=rest)
                yield f"{message} arrives, and again later", self._arrive(lost, message)
        yield from self._balance(world)

    def _work(self, world: World, number: int, node: Node) -> Iterator[tuple[str, World]]:
        for each, held in enumerate(node.held):
            if held is not None and not held.leaving and held.position <= self.products:
                epochs = list(world.worked[each])
                epochs[held.position - 1] |= 1 << held.epoch
                worked = (*world.worked[:each], tuple(epochs), *world.worked[each + 1 :])
                further = _with(node, each, replace(held, position=held.position + 1))
                yield (
                    f"node {number} works on {each}:{held.position}",
                    _at(replace(world, worked=worked), number, further),
                )

    def _send(self, world: World, number: int, node: Node) -> Iterator[tuple[str, World]]:
        """A node waits for the reply, or sends again if a message may be lost."""
        if sum(message.node == number for message in world.messages) > (self.losses > 0):
            return
        known = [(each, held.epoch, held.position) for each, held in enumerate(node.held) if held is not None]
        leaving = {each for each, held in enumerate(node.held) if held is not None and held.leaving}
        message = Message(
            number, tuple(each for each in known if each[0] not in leaving),
            tuple(each for each in known if each[0] in leaving),
        )  # fmt: skip
        if message not in world.messages:
            yield f"node {number} sends", replace(world, messages=tuple(sorted((*world.messages, message), key=repr)))

    def _arrive(self, world: World, message: Message) -> World:
        node = world.nodes[message.node]
        world, reply = self._change(world, "exchange", message)
        if reply is None:
            world = self._without_results(world, node)
            return _at(world, message.node, replace(node, seated=False, held=(None,) * self.slices))
        if not node.alive:
            return world
        held: list[Held | None] = [None] * self.slices
        for each, epoch, position, leaving in reply:
            mine = node.held[each]
            held[each] = Held(epoch, mine.position if mine is not None and mine.epoch == epoch else position, leaving)
        return _at(world, message.node, replace(node, held=tuple(held)))

    def _without_results(self, world: World, node: Node) -> World:
        """The node discards what it has done and not confirmed: that work does not count any more."""
        positions = np.frombuffer(world.table, np.uint64, self.slices, self.slices * 8).tolist()
        worked = [list(each) for each in world.worked]
        for each, held in enumerate(node.held):
            if held is not None:
                for product in range(positions[each], self.products + 1):
                    worked[each][product - 1] &= ~(1 << held.epoch)
        return replace(world, worked=tuple(map(tuple, worked)))

    def _join(self, world: World, number: int) -> World:
        joined, reply = self._change(world, "join", number)
        if reply is None:
            return world  # another seat is free first: as good as staying away
        return _at(joined, number, Node(held=(None,) * self.slices))

    def _balance(self, world: World) -> Iterator[tuple[str, World]]:
        owners, takers, seats = self._owners(world.table)
        for each in range(self.slices):
            for taker in range(len(world.nodes)):
                if owners[each] == NOBODY:
                    yield f"give {each} to {taker}", self._change(world, "give", taker, each)[0]
                elif owners[each] != taker and takers[each] == NOBODY and world.moves < self.moves:
                    moved = replace(world, moves=world.moves + 1)
                    yield f"begin {each} to {taker}", self._change(moved, "begin", owners[each], taker, each)[0]
            if takers[each] != NOBODY:
                yield f"cancel {each}", self._change(world, "cancel", each)[0]
        for number, node in enumerate(world.nodes):
            if world.deaths < self.deaths and seats[number]:
                died = replace(world, deaths=world.deaths + 1)
                seized = self._change(died, "seize", number)[0]
                yield f"node {number} is silent, and seized", seized
                if node.alive:
                    dead = replace(node, alive=False, held=(None,) * self.slices)
                    yield f"node {number} dies, and is seized", _at(seized, number, dead)

    # --- the table --------------------------------------------------------------------------------

    def _change(self, world: World, how: str, *arguments: Any) -> tuple[World, Any]:
        """The world after a change of the table, and the reply to it."""
        key = (world.table, how, arguments)
        if key not in self._known:  # many worlds share a table
            self._known[key] = self._operate(*key)
        table, before, after, reply = self._known[key]
        return self._checked(world, table, before, after), reply

    def _operate(self, packed: bytes, how: str, arguments: tuple[Any, ...]) -> tuple[bytes, list[int], list[int], Any]:
        """Do it, on the real code: the table then, positions before and after, and the reply."""
        table = self._table(packed)
        own, before = Ownership(table), table.positions.tolist()
        reply = getattr(self, f"_{how}_at")(own, *arguments)
        return self._packed(table), before, table.positions.tolist(), reply

    def _exchange_at(self, own: Ownership, message: Message) -> list[tuple[int, int, int, bool]] | None:
        progress = Progress(0, _marks(message.confirm), _marks(message.release))
        try:
            told = own.exchange(message.node, message.node + 1, progress, NOW, self.products + 1).holding
        except SeatLostError:
            return None
        assert told is not None
        columns = (told.slices.tolist(), told.epochs.tolist(), told.positions.tolist(), told.leaving.tolist())
        return list(zip(*columns, strict=True))

    def _join_at(self, own: Ownership, number: int) -> int | None:
        return number if own.join(f"node-{number}", number + 1, NOW) == number else None

    def _give_at(self, own: Ownership, taker: int, each: int) -> int:
        return own.give(1, taker, np.array([each], np.uint32), "dead", NOW)

    def _begin_at(self, own: Ownership, giver: int, taker: int, each: int) -> int:
        return own.begin(1, giver, taker, np.array([each], np.uint32), "load", NOW)

    def _cancel_at(self, own: Ownership, each: int) -> int:
        return own.cancel(1, np.array([each], np.uint32), NOW)

    def _seize_at(self, own: Ownership, number: int) -> int:
        return len(own.seize(1, number, LATE, self.products + 1))

    def _checked(self, world: World, table: bytes, before: list[int], after: list[int]) -> World:
        """Whatever is confirmed now was worked on by its owner, in this epoch; positions never go back.

        What an owner did in an earlier epoch does not count: its results went with that epoch.
        """
        changed = replace(world, table=table)
        if before == after:
            return changed
        faults, epochs = list(world.faults), self.epochs(world)
        for each in range(self.slices):
            if after[each] < before[each]:
                faults.append(f"slice {each} went back from {before[each]} to {after[each]}")
            for product in range(before[each], after[each]):
                if not world.worked[each][product - 1] >> epochs[each] & 1:
                    faults.append(f"product {each}:{product} was confirmed, and its owner did not work on it")
        return replace(changed, faults=tuple(faults))

    def _packed(self, table: Table) -> bytes:
        """What makes a difference in the table: words, positions and which seats are taken."""
        return table.words.tobytes() + table.positions.tobytes() + table.seats["instance"][:4].tobytes()

    def _owners(self, packed: bytes) -> tuple[list[int], list[int], list[int]]:
        """Owner and taker of each slice, and which seats are taken."""
        if packed not in self._seen:
            words = np.frombuffer(packed, np.uint64, self.slices)
            seats = np.frombuffer(packed, np.uint64, 4, 2 * self.slices * 8)
            self._seen[packed] = owners_of(words).tolist(), takers_of(words).tolist(), seats.tolist()
        return self._seen[packed]

    def _table(self, packed: bytes) -> Table:
        table = memory_table_of(self._memory, self.slices)
        size = self.slices * 8
        table.words[:] = np.frombuffer(packed, np.uint64, self.slices)
        table.positions[:] = np.frombuffer(packed, np.uint64, self.slices, size)
        table.seats["instance"][:4] = np.frombuffer(packed, np.uint64, 4, 2 * size)
        busy = {int(each) for each in owners_of(table.words[takers_of(table.words) != NOBODY])}
        for seat in busy:
            table.seats["session"][seat] = 1
        return table

    def is_complete(self, world: World) -> bool:
        """Everything is confirmed."""
        positions = np.frombuffer(world.table, np.uint64, self.slices, self.slices * 8)
        return bool((positions == self.products + 1).all())

    def epochs(self, world: World) -> list[int]:
        return [int(each) for each in epochs_of(np.frombuffer(world.table, np.uint64, self.slices))]


_scratch: dict[int, tuple[bytearray, Table]] = {}


def memory_table_of(memory: bytes, slices: int) -> Table:
    """A table over one scratch memory, reset: a table is large, and almost all of it is empty."""
    if slices not in _scratch:
        table = memory_table(slices)
        _scratch[slices] = (table.header.base, table)
    table = _scratch[slices][1]
    table.seats[:4] = np.frombuffer(memory, table.seats.dtype, 4, _seats_offset(table))
    table.header[:] = np.frombuffer(memory, table.header.dtype, 1)
    return table


def _seats_offset(table: Table) -> int:
    return int(table.seats.__array_interface__["data"][0] - table.header.__array_interface__["data"][0])


def _marks(rows: tuple[tuple[int, int, int], ...]) -> Marks:
    return marks(*zip(*rows, strict=True)) if rows else NO_MARKS


def _with(node: Node, each: int, held: Held) -> Node:
    return replace(node, held=(*node.held[:each], held, *node.held[each + 1 :]))


def _at(world: World, number: int, node: Node) -> World:
    return replace(world, nodes=(*world.nodes[:number], node, *world.nodes[number + 1 :]))

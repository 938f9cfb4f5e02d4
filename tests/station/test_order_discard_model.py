"""Order and discard policies: a station against a model of sorted lists, driven by Hypothesis.

One station with a small capacity and one consumer. The model keeps the waiting products in a list and searches all of them
for each answer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from handling import EPOCH_NS
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace import Queue
from headrace.station import Station
from headrace.testing import MockClock

S = 10**9
NEVER = 1 << 63
CAUSES = {"lifo": "flowed_around", "any": "flowed_around"}


@dataclass(frozen=True)
class Waiting:
    sequence: int
    priority: int
    deadline_ns: int


@dataclass
class Model:
    """A station as the page describes it."""

    order: str
    discard: str
    capacity: int
    waiting: list[Waiting] = field(default_factory=list)
    dropped: int = 0
    expired: int = 0
    admitted: int = 0

    def put(self, new: Waiting) -> None:
        self.waiting.append(new)
        if len(self.waiting) <= self.capacity:
            self.admitted += 1
            return
        victim = self._victim(new)
        self.waiting.remove(victim)
        self.admitted += victim is not new
        self.dropped += 1

    def _victim(self, new: Waiting) -> Waiting:
        if self.discard == "fifo":
            return min(self.waiting, key=lambda w: w.sequence)
        if self.discard == "priority":
            return min(self.waiting, key=lambda w: (w.priority, w.sequence))
        if self.discard == "deadline":
            return min(self.waiting, key=lambda w: (w.deadline_ns, w.sequence))
        return new

    def get(self, n: int, now_ns: int) -> list[int]:
        keys: dict[str, Callable[[Waiting], tuple[int, int]]] = {
            "priority": lambda w: (-w.priority, w.sequence),
            "deadline": lambda w: (w.deadline_ns, w.sequence),
        }
        got: list[int] = []
        for first in sorted(self.waiting, key=keys.get(self.order, lambda w: (0, w.sequence))):
            if len(got) == n:
                break
            self.waiting.remove(first)
            if first.deadline_ns <= now_ns:
                self.expired += 1
            else:
                got.append(first.sequence)
        return got


@dataclass(frozen=True)
class Put:
    priority: int
    lasts_s: int | None  # until it expires; None: never


@dataclass(frozen=True)
class Get:
    n: int


@dataclass(frozen=True)
class Pass:
    seconds: int


puts = st.builds(Put, st.sampled_from([0, 2, 4, 7]), st.sampled_from([None, 5, 20, 40, 80, 200]))
steps = st.lists(st.one_of(puts, puts, puts, st.builds(Get, st.integers(1, 4)), st.builds(Pass, st.sampled_from([3, 30]))),
                 max_size=30)  # fmt: skip
ORDERS = ["any", "fifo", "priority", "deadline"]
DISCARDS = ["any", "fifo", "lifo", "priority", "deadline"]


def put(queue: Queue, clock: MockClock, act: Put) -> Waiting:
    """Deadlines differ, so that one always comes first; products without a deadline have equal priority."""
    if act.lasts_s is None:
        sequence, deadline_ns, priority = queue.put(b"", feed="a"), NEVER, 4
    else:
        deadline_ns, priority = clock.now_ns() + act.lasts_s * S + queue.next, act.priority
        sequence = queue.put(b"", feed="a", priority=priority, expiry=deadline_ns)
    assert isinstance(sequence, int)
    return Waiting(sequence, priority, deadline_ns)


def run(queue: Queue, clock: MockClock, station: Station, model: Model, acts: list[Put | Get | Pass]) -> None:
    """Do the same with both, and compare at every step."""
    with station.attach() as consumer:
        for act in [*acts, Get(100)]:
            if isinstance(act, Put):
                model.put(put(queue, clock, act))
            elif isinstance(act, Pass):
                clock.advance(act.seconds)
            else:
                batch = consumer.get_nowait(act.n)
                assert batch.sequences.tolist() == model.get(act.n, clock.now_ns())
                consumer.ack(batch)
            told = station.statistics()
            assert told.waiting == len(model.waiting)
            cause = CAUSES.get(model.discard, model.discard)
            assert told.dropped == dict.fromkeys(told.dropped, 0) | {cause: model.dropped}
            assert (told.expired, told.admitted) == (model.expired, model.admitted)


@pytest.mark.parametrize("capacity", [1, 3])
@pytest.mark.parametrize("discard", DISCARDS)
@pytest.mark.parametrize("order", ORDERS)
def test_a_station_delivers_and_drops_the_same_products_as_the_model(
    make_quick: Callable[..., Queue], order: str, discard: str, capacity: int
) -> None:
    clock = MockClock(EPOCH_NS)
    queue = make_quick(clock=clock, dedup="none", size="8MiB")

    @settings(max_examples=25, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @example([Put(4, 40), Put(4, 20), Put(4, 5), Put(4, 80), Get(1), Get(1)])
    @example([Put(0, 80), Put(7, 40), Put(0, 40), Put(7, 80), Put(2, None), Get(2)])
    @example([Put(4, None), Put(4, 5), Put(4, 20), Pass(30), Put(4, 40), Get(1), Get(4)])
    @given(steps)
    def against_the_model(acts: list[Put | Get | Pass]) -> None:
        station = queue.station("s", "**", order=order, discard=discard, capacity=capacity)
        try:
            run(queue, clock, station, Model(order, discard, capacity), acts)
        finally:
            station.remove()

    against_the_model()

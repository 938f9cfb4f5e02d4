"""Chains of stations against the model in chain_model.py, driven by Hypothesis.

Two stations in a series, or three in a group, with several consumers in this process; a death is simulated by releasing
a consumer's lock. After each step all counts must agree, `check` must find nothing, and the delivered products must be
the same, in the same order, with the same number of deliveries.
"""

import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from chain_model import Chain, Place, Product, Wish
from handling import vanish
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace import Batch, Queue
from headrace.errors import BlockedError
from headrace.station import Consumer, Station

FEEDS = ["a", "b"]
PRIORITIES = [1, 4, 6]
picks = st.integers(0, 1 << 16)
capacities = st.sampled_from([None, 1, 2, 4])


wishes = st.builds(Wish, st.sampled_from([None, *FEEDS]), st.booleans())


@dataclass(eq=False)
class Worker:
    """A consumer, and what it holds."""

    consumer: Consumer
    place: Place
    held: list[tuple[Batch, int, Product]] = field(default_factory=list)  # batch, place in it


class ChainMachine(RuleBasedStateMachine):
    """The steps of both machines; each creates its own chain."""

    chain: Chain
    stations: dict[str, Station]

    def begin(self, stations: dict[str, Station], chain: Chain) -> None:
        self.stations, self.chain = stations, chain
        self.workers = [self.attach(place) for place in chain.places.values() for _ in range(2)]

    def make_queue(self) -> Queue:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-model-", dir="/dev/shm"))
        self.queue = Queue.create(self.folder / "q", size="4MiB", durability="memory", dedup="none", origin="o")
        return self.queue

    def attach(self, place: Place) -> Worker:
        return Worker(self.stations[place.name].attach(), place)

    def pick(self, number: int, some: list[Any]) -> Any:
        return some[number % len(some)]

    # --- producers --------------------------------------------------------------------------------

    @rule(feed=st.sampled_from(FEEDS), priority=st.sampled_from(PRIORITIES))
    def put(self, feed: str, priority: int) -> None:
        must_wait, may_wait = self.chain.is_shut({feed})
        try:
            sequence = self.queue.put(b"", feed=feed, priority=priority, timeout=0)
        except BlockedError:
            assert may_wait
            return
        assert not must_wait
        assert isinstance(sequence, int)
        self.chain.put(sequence, feed, priority)

    @rule(items=st.lists(st.tuples(st.sampled_from(FEEDS), st.sampled_from(PRIORITIES)), min_size=1, max_size=6))
    def put_together(self, items: list[tuple[str, int]]) -> None:
        must_wait, may_wait = self.chain.is_shut({feed for feed, _ in items})
        try:
            receipt = self.queue.put_many(
                [b""] * len(items), feed=[feed for feed, _ in items],
                priority=np.array([priority for _, priority in items]), timeout=0,
            )  # fmt: skip
        except BlockedError:
            assert may_wait
            return
        assert not must_wait
        for sequence, (feed, priority) in zip(receipt.sequences.tolist(), items, strict=True):
            self.chain.put(sequence, feed, priority)

    # --- consumers --------------------------------------------------------------------------------

    @rule(who=picks, n=st.integers(1, 5))
    def get(self, who: int, n: int) -> None:
        worker = self.pick(who, self.workers)
        batch = worker.consumer.get_nowait(n)
        self.chain.conduct()
        expected = self.chain.get(worker.place, n)
        assert batch.sequences.tolist() == [product.sequence for product in expected]
        assert batch.deliveries.tolist() == [product.deliveries for product in expected]
        worker.held += [(batch, place, product) for place, product in enumerate(expected)]

    @precondition(lambda self: any(worker.held for worker in self.workers))
    @rule(who=picks, which=picks, how=st.sampled_from(["ack", "ack", "ack", "discard", "nack", "fail"]))
    def settle_one(self, who: int, which: int, how: str) -> None:
        worker = self.pick(who, [worker for worker in self.workers if worker.held])
        batch, place, product = worker.held.pop(which % len(worker.held))
        if how == "fail":
            worker.consumer.nack(batch[place], failed=True)
        else:
            getattr(worker.consumer, how)(batch[place])
        self.chain.settle(worker.place, product, how)

    @precondition(lambda self: any(worker.held for worker in self.workers))
    @rule(who=picks)
    def ack_all(self, who: int) -> None:
        worker = self.pick(who, [worker for worker in self.workers if worker.held])
        self.ack_held(worker)

    def ack_held(self, worker: Worker) -> None:
        worker.consumer.ack([batch[place] for batch, place, _ in worker.held])
        for _, _, product in self.in_order_of_batches(worker):
            self.chain.settle(worker.place, product, "ack")
        worker.held.clear()

    def in_order_of_batches(self, worker: Worker) -> list[tuple[Batch, int, Product]]:
        """A list is acknowledged batch by batch."""
        batches: list[Batch] = []
        for batch, _, _ in worker.held:
            if not any(batch is other for other in batches):
                batches.append(batch)
        return [held for batch in batches for held in worker.held if held[0] is batch]

    @rule(who=picks)
    def die(self, who: int) -> None:
        worker = self.pick(who, self.workers)
        vanish(worker.consumer)
        self.stations[worker.place.name].statistics()  # restores the leases of dead consumers
        youngest_first = worker.place.terms["restore"] != "output"  # each goes to the front of a list
        for _, _, product in sorted(worker.held, key=lambda held: held[2].sequence, reverse=youngest_first):
            worker.place.count("restored")
            self.chain.restore(worker.place, product)
        self.chain.conduct()
        self.workers[self.workers.index(worker)] = self.attach(worker.place)

    @rule(who=picks)
    def leave(self, who: int) -> None:
        worker = self.pick(who, self.workers)
        worker.consumer.detach()
        for _, _, product in sorted(worker.held, key=lambda held: held[2].sequence):
            del worker.place.leased[product.sequence]
            product.deliveries -= 1  # leaving on request is no delivery
            worker.place.take_back(product)
        self.workers[self.workers.index(worker)] = self.attach(worker.place)

    # --- administration --------------------------------------------------------------------------

    @rule(which=picks)
    def retry(self, which: int) -> None:
        place = self.pick(which, list(self.chain.places.values()))
        assert self.stations[place.name].retry() == len(place.parked)
        for _, product in sorted(place.parked.items()):
            product.deliveries = product.restarts = 0
            place.insert(product)
        place.parked.clear()

    @rule(which=picks)
    def forget_one(self, which: int) -> None:
        place = self.pick(which, list(self.chain.places.values()))
        if place.parked:
            sequence = self.pick(which, sorted(place.parked))
            assert self.stations[place.name].forget([sequence]) == 1
            del place.parked[sequence]

    @rule(which=picks)
    def pause_or_resume(self, which: int) -> None:
        place = self.pick(which, list(self.chain.places.values()))
        place.paused = not place.paused
        getattr(self.stations[place.name], "pause" if place.paused else "resume")()

    @rule(which=picks, capacity=capacities)
    def change_capacity(self, which: int, capacity: int | None) -> None:
        place = self.pick(which, list(self.chain.places.values()))
        if capacity is None and place.terms["discard"] != "lifo":
            return
        self.stations[place.name].change(capacity=capacity)
        place.terms["capacity"] = capacity

    @rule(which=picks, deliveries_max=st.sampled_from([0, 1, 2, 5]))
    def change_limit(self, which: int, deliveries_max: int) -> None:
        """What waits already is parked when it would be delivered."""
        place = self.pick(which, list(self.chain.places.values()))
        self.stations[place.name].change(deliveries_max=deliveries_max)
        place.terms["deliveries_max"] = deliveries_max

    @rule(which=picks, wish=wishes)
    def change_selection(self, which: int, wish: Wish) -> None:
        place = self.pick(which, list(self.chain.places.values()))
        self.stations[place.name].change(selection=wish.selection())
        place.wish, place.changed_at = wish, self.queue.next

    @rule()
    def reopen(self) -> None:
        """All consumers detach, the queue is closed and opened, and they attach again."""
        for worker in self.workers:
            worker.consumer.detach()
            for _, _, product in sorted(worker.held, key=lambda held: held[2].sequence):
                del worker.place.leased[product.sequence]
                product.deliveries -= 1
                worker.place.take_back(product)
        self.queue.close()
        for place in self.chain.places.values():  # the lists are rebuilt, by sequence
            place.waiting.sort(key=lambda product: product.sequence)
        self.queue = Queue.open(self.folder / "q")
        self.stations = {name: self.queue.station(name) for name in self.stations}
        self.workers = [self.attach(worker.place) for worker in self.workers]

    @invariant()
    def all_counts_agree(self) -> None:
        if not hasattr(self, "workers"):
            return
        self.chain.conduct()
        for name, place in self.chain.places.items():
            told = self.stations[name].statistics()
            assert (told.waiting, told.leased, told.parked) == (
                len(place.waiting), len(place.leased), len(place.parked),
            ), name  # fmt: skip
            unseen = [each for each in self.chain.unseen if name in each.selections]
            selected = sum(each.selections[name].selects(each.feed) for each in unseen)
            assert told.behind == selected // place.terms["prescale"], name
            for what in (
                "admitted",
                "delivered",
                "acknowledged",
                "discarded",
                "redelivered",
                "restored",
                "parked_total",
            ):
                assert getattr(told, what) == place.counts.get(what, 0), f"{what} of {name}"
            assert told.retries == sum(product.deliveries > 0 for product in place.waiting) + sum(
                product.deliveries > 1 for product in place.leased.values()
            )
            assert {consumer.leased for consumer in self.stations[name].consumers()} == {
                len(worker.held) for worker in self.workers if worker.place is place
            }
        self.compare_dropped()
        assert self.queue.check() == []

    def compare_dropped(self) -> None:
        """Compare the sum over all stations: which of several full ones counts a product is not specified."""
        told = [self.stations[name].statistics().dropped for name in self.chain.places]
        for cause in ("flowed_around", "fifo", "priority"):
            assert sum(one[cause] for one in told) == sum(
                place.counts.get(cause, 0) for place in self.chain.places.values()
            )

    def teardown(self) -> None:
        if not hasattr(self, "workers"):
            return
        if sys.exc_info()[0] is None:
            self.ack_everything()
        for worker in self.workers:
            worker.consumer.detach()
        self.queue.close()
        shutil.rmtree(self.folder)

    def ack_everything(self) -> None:
        """Every product must leave the chain once."""
        for place in self.chain.places.values():
            if place.paused:
                self.stations[place.name].resume()
                place.paused = False
        moving = True
        while moving:
            moving = False
            for who, worker in enumerate(self.workers):
                self.get(who, 100)
                moving = moving or bool(worker.held)
                self.ack_held(worker)
                self.all_counts_agree()  # scans the log: with a selection by record, a get does so only if nothing waits
        for place in self.chain.places.values():
            assert not place.waiting
            assert not place.leased
        assert not self.chain.unseen


class SeriesMachine(ChainMachine):
    """Two stations in series; the first may select only part of what the second selects."""

    @initialize(
        wish=wishes, blocking=st.booleans(), capacity=capacities, prescale=st.sampled_from([1, 1, 2, 3]),
        order=st.sampled_from(["priority", "fifo"]), discard=st.sampled_from(["lifo", "fifo", "priority"]),
        restores=st.tuples(*[st.sampled_from(["input", "output", "start"])] * 2),
        deliveries_max=st.sampled_from([0, 1, 2, 5]), capacity_behind=capacities,
    )  # fmt: skip
    def make(
        self, wish: Wish, blocking: bool, capacity: int | None, prescale: int, order: str, discard: str,
        restores: tuple[str, str], deliveries_max: int, capacity_behind: int | None,
    ) -> None:  # fmt: skip
        if blocking or capacity is None:
            discard = "lifo"
        common = {"deliveries_max": deliveries_max, "prescale": 1, "order": "priority"}
        terms = {
            "first": {**common, "blocking": blocking, "capacity": capacity, "prescale": prescale, "order": order,
                      "discard": discard, "restore": restores[0]},
            "second": {**common, "blocking": False, "capacity": capacity_behind, "discard": "lifo", "restore": restores[1]},
        }  # fmt: skip
        queue = self.make_queue()
        self.begin(
            {
                "first": queue.station("first", wish.selection(), **terms["first"]),
                "second": queue.station("second", "**", after="first", **terms["second"]),
            },
            Chain(
                [Place("first", 1, wish, terms["first"]), Place("second", 2, Wish(), terms["second"])], "round_robin"
            ),
        )


class GroupMachine(ChainMachine):
    """Three stations in a group."""

    @initialize(
        blocking=st.booleans(), capacity=capacities, restore=st.sampled_from(["input", "group"]),
        distribution=st.sampled_from(["round_robin", "least_loaded"]), deliveries_max=st.sampled_from([0, 2, 5]),
    )  # fmt: skip
    def make(self, blocking: bool, capacity: int | None, restore: str, distribution: str, deliveries_max: int) -> None:
        queue = self.make_queue()
        terms = {
            "blocking": blocking, "capacity": capacity, "restore": restore, "deliveries_max": deliveries_max, "prescale": 1,
            "order": "priority", "discard": "lifo",
        }  # fmt: skip
        names = ["w1", "w2", "w3"]
        self.begin(
            {name: queue.station(name, "**", group="g", distribution=distribution, **terms) for name in names},
            Chain([Place(name, 1, Wish(), dict(terms)) for name in names], distribution),
        )
        self.find_first_turn()

    def find_first_turn(self) -> None:
        """Which station has the first turn is not specified."""
        self.put("a", 4)
        served = [name for name, station in self.stations.items() if station.statistics().waiting]
        assert len(served) == 1
        names = list(self.chain.places)
        self.chain.turn = names[names.index(served[0]) - 1]


SETTINGS = settings(
    max_examples=50, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestSeries = SeriesMachine.TestCase
TestSeries.settings = SETTINGS
TestGroup = GroupMachine.TestCase
TestGroup.settings = SETTINGS

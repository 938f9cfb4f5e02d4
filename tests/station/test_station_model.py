"""Lines of stations against a simple model of them, driven by hypothesis.

Two stations in a series, or three in a group, with several consumers in this process; a death is simulated by letting
go of a consumer's lock. The model keeps every product in exactly one place of lists and dictionaries. After each step
all counts must agree, `check` must find nothing, and what is handed out must be the same products in the same order,
with the same number of deliveries.
"""

import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from handling import vanish
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace import Batch, Queue, Selection
from headrace.errors import BlockedError
from headrace.station import Consumer, Station

FEEDS = ["a", "b"]
PRIORITIES = [1, 4, 6]
SUSPECT = 2  # deliveries after which a product is handed out alone
picks = st.integers(0, 1 << 16)
capacities = st.sampled_from([None, 1, 2, 4])


@dataclass(frozen=True)
class Wish:
    """A selection: of one feed or of everything, decided by index rows or by records."""

    feed: str | None = None
    by_reading: bool = False

    def selects(self, feed: str) -> bool:
        return self.feed in (None, feed)

    def may_want(self, feeds: set[str]) -> bool:
        """As far as producers can tell."""
        return self.by_reading or self.feed is None or self.feed in feeds

    def selection(self) -> Selection:
        if self.by_reading:
            return Selection(where="priority >= 0" if self.feed is None else f"feed = '{self.feed}'")
        return Selection(self.feed or "**")


wishes = st.builds(Wish, st.sampled_from([None, *FEEDS]), st.booleans())


@dataclass(eq=False)
class Product:
    sequence: int
    feed: str
    priority: int
    selections: dict[str, "Wish"]  # what each station selected when it was put
    wanted: set[str] = field(default_factory=set)  # stations that select it
    deliveries: int = 0
    restarts: int = 0  # how often it went back to the start


@dataclass(eq=False)
class Place:
    """One station of the model."""

    name: str
    stage: int
    wish: Wish
    terms: dict[str, Any]
    changed_at: int = 0  # the first sequence that the selection decides about
    paused: bool = False
    counted: int = 0  # for the prescale
    waiting: list[Product] = field(default_factory=list)
    leased: dict[int, Product] = field(default_factory=dict)
    parked: dict[int, Product] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    @property
    def is_full(self) -> bool:
        return self.terms["capacity"] is not None and len(self.waiting) >= self.terms["capacity"]

    def selects(self, product: Product) -> bool:
        if not product.selections[self.name].selects(product.feed):
            return False
        self.counted += 1
        return self.counted % self.terms["prescale"] == 0

    def first(self) -> Product:
        """The one that is handed out next."""
        if self.terms["order"] == "fifo":
            return min(self.waiting, key=lambda product: product.sequence)
        return max(self.waiting, key=lambda product: product.priority)  # the first of these

    def insert(self, product: Product) -> None:
        """Back where its sequence belongs among those of its priority."""
        for place, other in enumerate(self.waiting):
            if other.priority == product.priority and other.sequence > product.sequence:
                self.waiting.insert(place, product)
                return
        self.waiting.append(product)


class Line:
    """The model of a line."""

    def __init__(self, places: list[Place], distribution: str) -> None:
        self.places = {place.name: place for place in places}
        self.distribution = distribution
        self.unseen: list[Product] = []  # in the log, not looked at yet
        self.turn = ""  # the member of the group that was served last

    def is_shut(self, feeds: set[str]) -> tuple[bool, bool]:
        """Must a put, and may a put, wait for a blocking station? Not if another of its group has room.

        While there are products that an earlier selection decides about, producers of all feeds may be kept waiting.
        """
        shut = [
            place
            for place in self.places.values()
            if all(self.has_no_room(other) for other in self.places.values() if other.stage == place.stage)
        ]
        oldest = self.unseen[0].sequence if self.unseen else 1 << 63
        surely = any(place.wish.may_want(feeds) for place in shut)
        return surely, surely or any(oldest < place.changed_at for place in shut)

    def has_no_room(self, place: Place) -> bool:
        capacity = place.terms["capacity"]
        return place.terms["blocking"] and capacity is not None and len(place.waiting) + len(self.unseen) >= capacity

    def put(self, sequence: int, feed: str, priority: int) -> None:
        wishes = {place.name: place.wish for place in self.places.values()}
        self.unseen.append(Product(sequence, feed, priority, wishes))

    def conduct(self) -> None:
        """Look at the log as far as there is room."""
        while self.unseen:
            product = self.unseen[0]
            counted = {place.name: place.counted for place in self.places.values()}
            product.wanted = {place.name for place in self.places.values() if place.selects(product)}
            if product.wanted:
                place = self.choose(self.behind(0, product))
                if place.terms["blocking"] and place.is_full:
                    for name, number in counted.items():
                        self.places[name].counted = number
                    return
            self.unseen.pop(0)
            self.arrive(product, self.behind(0, product))

    def behind(self, stage: int, product: Product) -> list[Place]:
        """Stations of later stages that want it."""
        return [place for place in self.places.values() if place.stage > stage and place.name in product.wanted]

    def choose(self, candidates: list[Place]) -> Place:
        """The station of the earliest stage; of a group the next in turn, or the least busy, full ones last."""
        stage = min(place.stage for place in candidates)
        beside = [place for place in candidates if place.stage == stage]
        if len(beside) == 1:
            return beside[0]
        names = list(self.places)
        start = names.index(self.turn) + 1 if self.turn else 0
        in_turn = sorted(beside, key=lambda place: (names.index(place.name) - start) % len(names))
        free = [place for place in in_turn if not place.is_full]
        if free and self.distribution == "least_loaded":
            return min(free, key=lambda place: len(place.waiting) + len(place.leased))
        return (free or in_turn)[0]

    def arrive(self, product: Product, candidates: list[Place]) -> None:
        while candidates:
            place = self.choose(candidates)
            self.turn = place.name
            product.deliveries = 0
            if place.terms["blocking"] or not place.is_full:
                place.waiting.append(product)
                place.count("admitted")
                return
            product = self.let_go_by(place, product)
            candidates = self.behind(place.stage, product)

    def let_go_by(self, place: Place, product: Product) -> Product:
        """A full station: which one goes on instead."""
        policy = place.terms["discard"]
        if policy == "lifo":
            place.count("flowed_around")
            return product
        place.waiting.append(product)
        if policy == "fifo":
            victim = min(place.waiting, key=lambda other: other.sequence)
        else:
            victim = min(place.waiting, key=lambda other: other.priority)
        place.waiting.remove(victim)
        place.count(policy)
        place.count("admitted", victim is not product)
        return victim

    # --- what consumers do ------------------------------------------------------------------------

    def get(self, place: Place, n: int) -> list[Product]:
        """What has been handed out twice in vain is handed out alone."""
        got: list[Product] = []
        while len(got) < n and place.waiting and not place.paused:
            product = place.first()
            if got and product.deliveries >= SUSPECT:
                break
            place.waiting.remove(product)
            if 0 < place.terms["deliveries_max"] <= max(product.deliveries, product.restarts):
                place.parked[product.sequence] = product
                place.count("parked_total")
                continue
            place.count("redelivered", product.deliveries > 0)
            product.deliveries += 1
            place.leased[product.sequence] = product
            got.append(product)
            if product.deliveries > SUSPECT:
                break
        place.count("delivered", len(got))
        return got

    def settle(self, place: Place, product: Product, how: str) -> None:
        del place.leased[product.sequence]
        if how == "ack":
            place.count("acknowledged")
            self.arrive(product, self.behind(place.stage, product))
        elif how == "discard":
            place.count("discarded")
        else:
            product.deliveries -= how == "nack"
            place.insert(product)

    def restore(self, place: Place, product: Product) -> None:
        """Its consumer is dead."""
        del place.leased[product.sequence]
        where = place.terms["restore"]
        if where == "output":
            self.arrive(product, self.behind(place.stage, product))
        elif where == "start":
            product.restarts += 1
            self.choose(self.behind(0, product)).insert(product)
        elif where == "group":
            chosen = self.choose([other for other in self.behind(0, product) if other.stage == place.stage])
            self.turn = chosen.name
            chosen.insert(product)
        else:
            place.insert(product)


@dataclass(eq=False)
class Worker:
    """A consumer, and what it holds."""

    consumer: Consumer
    place: Place
    held: list[tuple[Batch, int, Product]] = field(default_factory=list)  # batch, place in it


class LineModel(RuleBasedStateMachine):
    """What both machines can do; how their lines are made is left to them."""

    line: Line
    stations: dict[str, Station]

    def begin(self, stations: dict[str, Station], line: Line) -> None:
        self.stations, self.line = stations, line
        self.workers = [self.attach(place) for place in line.places.values() for _ in range(2)]

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
        must_wait, may_wait = self.line.is_shut({feed})
        try:
            sequence = self.queue.put(b"", feed=feed, priority=priority, timeout=0)
        except BlockedError:
            assert may_wait
            return
        assert not must_wait
        assert isinstance(sequence, int)
        self.line.put(sequence, feed, priority)

    @rule(items=st.lists(st.tuples(st.sampled_from(FEEDS), st.sampled_from(PRIORITIES)), min_size=1, max_size=6))
    def put_together(self, items: list[tuple[str, int]]) -> None:
        must_wait, may_wait = self.line.is_shut({feed for feed, _ in items})
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
            self.line.put(sequence, feed, priority)

    # --- consumers --------------------------------------------------------------------------------

    @rule(who=picks, n=st.integers(1, 5))
    def get(self, who: int, n: int) -> None:
        worker = self.pick(who, self.workers)
        batch = worker.consumer.get_nowait(n)
        self.line.conduct()
        expected = self.line.get(worker.place, n)
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
        self.line.settle(worker.place, product, how)

    @precondition(lambda self: any(worker.held for worker in self.workers))
    @rule(who=picks)
    def put_all(self, who: int) -> None:
        worker = self.pick(who, [worker for worker in self.workers if worker.held])
        self.put_held(worker)

    def put_held(self, worker: Worker) -> None:
        worker.consumer.ack([batch[place] for batch, place, _ in worker.held])
        for _, _, product in self.in_order_of_batches(worker):
            self.line.settle(worker.place, product, "ack")
        worker.held.clear()

    def in_order_of_batches(self, worker: Worker) -> list[tuple[Batch, int, Product]]:
        """A list is put batch by batch."""
        batches: list[Batch] = []
        for batch, _, _ in worker.held:
            if not any(batch is other for other in batches):
                batches.append(batch)
        return [held for batch in batches for held in worker.held if held[0] is batch]

    @rule(who=picks)
    def die(self, who: int) -> None:
        worker = self.pick(who, self.workers)
        vanish(worker.consumer)
        self.stations[worker.place.name].statistics()  # looks after the dead
        youngest_first = worker.place.terms["restore"] != "output"  # whoever goes to the front of a list
        for _, _, product in sorted(worker.held, key=lambda held: held[2].sequence, reverse=youngest_first):
            worker.place.count("restored")
            self.line.restore(worker.place, product)
        self.line.conduct()
        self.workers[self.workers.index(worker)] = self.attach(worker.place)

    @rule(who=picks)
    def leave(self, who: int) -> None:
        worker = self.pick(who, self.workers)
        worker.consumer.detach()
        for _, _, product in sorted(worker.held, key=lambda held: held[2].sequence):
            del worker.place.leased[product.sequence]
            worker.place.insert(product)
        self.workers[self.workers.index(worker)] = self.attach(worker.place)

    # --- whoever keeps the stations ---------------------------------------------------------------

    @rule(which=picks)
    def retry(self, which: int) -> None:
        place = self.pick(which, list(self.line.places.values()))
        assert self.stations[place.name].retry() == len(place.parked)
        for _, product in sorted(place.parked.items()):
            product.deliveries = product.restarts = 0
            place.insert(product)
        place.parked.clear()

    @rule(which=picks)
    def forget_one(self, which: int) -> None:
        place = self.pick(which, list(self.line.places.values()))
        if place.parked:
            sequence = self.pick(which, sorted(place.parked))
            assert self.stations[place.name].forget([sequence]) == 1
            del place.parked[sequence]

    @rule(which=picks)
    def pause_or_resume(self, which: int) -> None:
        place = self.pick(which, list(self.line.places.values()))
        place.paused = not place.paused
        getattr(self.stations[place.name], "pause" if place.paused else "resume")()

    @rule(which=picks, capacity=capacities)
    def change_capacity(self, which: int, capacity: int | None) -> None:
        place = self.pick(which, list(self.line.places.values()))
        if capacity is None and place.terms["discard"] != "lifo":
            return
        self.stations[place.name].change(capacity=capacity)
        place.terms["capacity"] = capacity

    @rule(which=picks, wish=wishes)
    def change_selection(self, which: int, wish: Wish) -> None:
        place = self.pick(which, list(self.line.places.values()))
        self.stations[place.name].change(selection=wish.selection())
        place.wish, place.changed_at = wish, self.queue.next

    @rule()
    def reopen(self) -> None:
        """Everybody goes, and comes again."""
        for worker in self.workers:
            worker.consumer.detach()
            for _, _, product in sorted(worker.held, key=lambda held: held[2].sequence):
                del worker.place.leased[product.sequence]
                worker.place.insert(product)
        self.queue.close()
        for place in self.line.places.values():  # the lists are made anew, by sequence
            place.waiting.sort(key=lambda product: product.sequence)
        self.queue = Queue.open(self.folder / "q")
        self.stations = {name: self.queue.station(name) for name in self.stations}
        self.workers = [self.attach(worker.place) for worker in self.workers]

    @invariant()
    def all_counts_agree(self) -> None:
        if not hasattr(self, "workers"):
            return
        self.line.conduct()
        for name, place in self.line.places.items():
            told = self.stations[name].statistics()
            assert (told.waiting, told.leased, told.parked) == (
                len(place.waiting), len(place.leased), len(place.parked),
            ), name  # fmt: skip
            assert told.behind == len(self.line.unseen)
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
        """All stations together: which of several full ones a product went by may be told either way."""
        told = [self.stations[name].statistics().dropped for name in self.line.places]
        for cause in ("flowed_around", "fifo", "priority"):
            assert sum(one[cause] for one in told) == sum(
                place.counts.get(cause, 0) for place in self.line.places.values()
            )

    def teardown(self) -> None:
        if not hasattr(self, "workers"):
            return
        if sys.exc_info()[0] is None:
            self.put_everything()
        for worker in self.workers:
            worker.consumer.detach()
        self.queue.close()
        shutil.rmtree(self.folder)

    def put_everything(self) -> None:
        """Every product must end somewhere, once."""
        for place in self.line.places.values():
            if place.paused:
                self.stations[place.name].resume()
                place.paused = False
        moving = True
        while moving:
            moving = False
            for who, worker in enumerate(self.workers):
                self.get(who, 100)
                moving = moving or bool(worker.held)
                self.put_held(worker)
                self.all_counts_agree()  # looks at the log: where records decide, a get does so only if nothing waits
        for place in self.line.places.values():
            assert not place.waiting
            assert not place.leased
        assert not self.line.unseen


class SeriesModel(LineModel):
    """One station behind another; the first may select only part of what the second does."""

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
            Line([Place("first", 1, wish, terms["first"]), Place("second", 2, Wish(), terms["second"])], "round_robin"),
        )


class GroupModel(LineModel):
    """Three stations side by side."""

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
            Line([Place(name, 1, Wish(), dict(terms)) for name in names], distribution),
        )
        self.see_who_begins()

    def see_who_begins(self) -> None:
        """Whose turn it is first is not agreed on."""
        self.put("a", 4)
        served = [name for name, station in self.stations.items() if station.statistics().waiting]
        assert len(served) == 1
        names = list(self.line.places)
        self.line.turn = names[names.index(served[0]) - 1]


SETTINGS = settings(
    max_examples=50, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestSeriesModel = SeriesModel.TestCase
TestSeriesModel.settings = SETTINGS
TestGroupModel = GroupModel.TestCase
TestGroupModel.settings = SETTINGS

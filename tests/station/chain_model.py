"""A simple model of a chain of stations: every product is in exactly one place, in lists and dictionaries."""

from dataclasses import dataclass, field
from typing import Any

from headrace import Selection

SUSPECT = 2  # deliveries after which a product is delivered alone


@dataclass(frozen=True)
class Wish:
    """A selection: of one feed or of everything, decided by index rows or by records."""

    feed: str | None = None
    by_reading: bool = False

    def selects(self, feed: str) -> bool:
        return self.feed in (None, feed)

    def may_want(self, feeds: set[str]) -> bool:
        """Whether it may select one of these feeds, as far as producers know."""
        return self.by_reading or self.feed is None or self.feed in feeds

    def selection(self) -> Selection:
        if self.by_reading:
            return Selection(where="priority >= 0" if self.feed is None else f"feed = '{self.feed}'")
        return Selection(self.feed or "**")


@dataclass(eq=False)
class Product:
    sequence: int
    feed: str
    priority: int
    selections: dict[str, Wish]  # of each station when the product was put
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
    changed_at: int = 0  # the first sequence to which the selection applies
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
        """The product that is delivered next."""
        if self.terms["order"] == "fifo":
            return min(self.waiting, key=lambda product: product.sequence)
        return max(self.waiting, key=lambda product: product.priority)  # the first of these

    def is_used_up(self, product: Product) -> bool:
        return 0 < self.terms["deliveries_max"] <= max(product.deliveries, product.restarts)

    def park(self, product: Product) -> None:
        self.parked[product.sequence] = product
        self.count("parked_total")

    def take_back(self, product: Product) -> None:
        """The product waits again, or is parked after its last delivery."""
        if self.is_used_up(product):
            self.park(product)
        else:
            self.insert(product)

    def insert(self, product: Product) -> None:
        """Put a product back where its sequence belongs among those of its priority."""
        for place, other in enumerate(self.waiting):
            if other.priority == product.priority and other.sequence > product.sequence:
                self.waiting.insert(place, product)
                return
        self.waiting.append(product)


class Chain:
    """The model of a chain."""

    def __init__(self, places: list[Place], distribution: str) -> None:
        self.places = {place.name: place for place in places}
        self.distribution = distribution
        self.unseen: list[Product] = []  # in the log, not scanned yet
        self.turn = ""  # the member of the group that was served last

    def is_shut(self, feeds: set[str]) -> tuple[bool, bool]:
        """Whether a put must wait, and whether it may wait, for a blocking station; not if another of its group has room.

        While products wait to which an earlier selection applies, producers of all feeds may have to wait.
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
        """Scan the log as far as there is room."""
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
        """Stations of later stages that select it."""
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
            if place.is_used_up(product):
                place.count("admitted")
                place.park(product)
                return
            if place.terms["blocking"] or not place.is_full:
                place.waiting.append(product)
                place.count("admitted")
                return
            product = self.let_go_by(place, product)
            candidates = self.behind(place.stage, product)

    def let_go_by(self, place: Place, product: Product) -> Product:
        """The product that leaves a full station, by its discard policy."""
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

    # --- consumers --------------------------------------------------------------------------------

    def get(self, place: Place, n: int) -> list[Product]:
        """A product that was delivered twice and failed is delivered alone."""
        got: list[Product] = []
        while len(got) < n and place.waiting and not place.paused:
            product = place.first()
            if got and product.deliveries >= SUSPECT:
                break
            place.waiting.remove(product)
            if place.is_used_up(product):
                place.park(product)
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
            place.take_back(product)

    def restore(self, place: Place, product: Product) -> None:
        """Restore a product whose consumer is dead."""
        del place.leased[product.sequence]
        where = place.terms["restore"]
        if where == "output":
            self.arrive(product, self.behind(place.stage, product))
        elif where == "start":
            product.restarts += 1
            self.choose(self.behind(0, product)).take_back(product)
        elif where == "group":
            chosen = self.choose([other for other in self.behind(0, product) if other.stage == place.stage])
            self.turn = chosen.name
            chosen.take_back(product)
        else:
            place.take_back(product)

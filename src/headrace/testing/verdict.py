"""The comparison of two lists of sightings: what was sent, what one consumer received.

`judge` is a pure function. Feed, ident and content make a product: a second sending of all three is a copy, and is
expected to arrive once. Without an ident each sending is a product of its own.

Every receipt falls into exactly one of these, tried in this order:

    mismatched     the content was sent under another feed or ident; or the feed and ident were
                   sent, but never with this content
    earlier        as unknown, and nothing that was sent has come yet: put by others before; only if `skip_earlier`
    unknown        neither content nor name was ever sent, or not to this consumer
    duplicated     the consumer had this product before
    out of order   a product that was sent later was received before this one
    good           anything else

and a product is lost if it was meant for the consumer and no receipt of it was seen at all, not even under another
name.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

SIGNATURE_BYTES = 16
EXAMPLES_MAX = 5

Order = Literal["total", "feed"]
Expect = Callable[[str, str], bool]
Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """A product as it passed by, without its payload."""

    feed: str
    ident: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    signature: Signature


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a consumer was owed and what it got; of each fault, count and first names."""

    sent: int  # distinct products meant for the consumer
    copies: int  # further sendings of these
    received: int  # receipts of any kind
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    unknown: int = 0
    mismatched: int = 0
    lost_idents: tuple[str, ...] = ()
    duplicated_idents: tuple[str, ...] = ()
    out_of_order_idents: tuple[str, ...] = ()
    unknown_idents: tuple[str, ...] = ()
    mismatched_idents: tuple[str, ...] = ()
    earlier: int = 0  # receipts from before the first product that was sent: they are not compared

    @property
    def ok(self) -> bool:
        """Everything that was sent arrived once, unchanged and in order, and nothing else did."""
        faults = (self.lost, self.duplicated, self.out_of_order, self.unknown, self.mismatched)
        return not any(faults)

    def __str__(self) -> str:
        lines = [f"sent {self.sent} (+{self.copies} copies), received {self.received}"]
        faults = (
            ("lost", self.lost, self.lost_idents),
            ("duplicated", self.duplicated, self.duplicated_idents),
            ("out of order", self.out_of_order, self.out_of_order_idents),
            ("unknown", self.unknown, self.unknown_idents),
            ("mismatched", self.mismatched, self.mismatched_idents),
        )
        lines += [
            f"{name} {number}: {', '.join(idents)}{', ...' if number > len(idents) else ''}"
            for name, number, idents in faults
            if number
        ]
        return "\n".join(lines)


class _Fault:
    """A count, and the names of the first few."""

    __slots__ = ("_idents", "count")

    def __init__(self) -> None:
        self.count = 0
        self._idents: list[str] = []

    def add(self, seen: Sighting) -> None:
        self.count += 1
        if len(self._idents) < EXAMPLES_MAX:
            self._idents.append(seen.ident)

    @property
    def idents(self) -> tuple[str, ...]:
        return tuple(self._idents)


class _Ledger:
    """Every product that was sent, with the places of its sendings: only the first one if it has an ident."""

    def __init__(self, sent: Iterable[Sighting], expect: Expect | None) -> None:
        self.places: dict[Sighting, list[int]] = {}
        self.meant: set[Sighting] = set()
        self.contents: set[bytes] = set()
        self.names: set[tuple[str, str]] = set()
        self.copies = 0
        for place, product in enumerate(sent):
            places = self.places.setdefault(product, [])
            if places and product.ident:
                self.copies += product in self.meant
                continue
            places.append(place)
            self.contents.add(product.signature)
            self.names.add((product.feed, product.ident))
            if expect is None or expect(product.feed, product.ident):
                self.meant.add(product)

    def is_mismatched(self, seen: Sighting) -> bool:
        if seen in self.places:
            return False
        return seen.signature in self.contents or (seen.feed, seen.ident) in self.names

    def missing(self, had: Mapping[Sighting, int], misnamed: Counter[bytes]) -> Iterator[Sighting]:
        """What was meant and never came, not even under another name."""
        left = misnamed.copy()
        for product, places in self.places.items():
            for _ in range(len(places) - had[product] if product in self.meant else 0):
                if left[product.signature] > 0:
                    left[product.signature] -= 1
                else:
                    yield product


def judge(
    sent: Iterable[Sighting],
    received: Iterable[Sighting],
    expect: Expect | None = None,
    order: Order = "total",
    *,
    skip_earlier: bool = False,
) -> Verdict:
    """Compare; `expect(feed, ident)` is whether a product was meant for the consumer.

    `skip_earlier`: products of others that come before all that were sent are no fault.
    """
    ledger = _Ledger(sent, expect)
    lost, duplicated, late, unknown, mismatched = (_Fault() for _ in range(5))
    had: Counter[Sighting] = Counter()
    misnamed: Counter[bytes] = Counter()
    newest: dict[str, int] = {}
    receipts = earlier = 0
    for seen in received:
        if skip_earlier and seen not in ledger.places and not ledger.is_mismatched(seen) and receipts == 0:
            earlier += 1
            continue
        receipts += 1
        if ledger.is_mismatched(seen):
            mismatched.add(seen)
            misnamed[seen.signature] += 1
        elif seen not in ledger.meant:
            unknown.add(seen)
        elif had[seen] == len(ledger.places[seen]):
            duplicated.add(seen)
        else:
            lane = seen.feed if order == "feed" else ""
            place = ledger.places[seen][had[seen]]
            if place < newest.get(lane, -1):
                late.add(seen)
            newest[lane] = max(place, newest.get(lane, -1))
            had[seen] += 1
    for product in ledger.missing(had, misnamed):
        lost.add(product)
    return Verdict(
        sent=sum(len(ledger.places[product]) for product in ledger.meant),
        copies=ledger.copies,
        received=receipts,
        lost=lost.count,
        duplicated=duplicated.count,
        out_of_order=late.count,
        unknown=unknown.count,
        mismatched=mismatched.count,
        lost_idents=lost.idents,
        duplicated_idents=duplicated.idents,
        out_of_order_idents=late.idents,
        unknown_idents=unknown.idents,
        mismatched_idents=mismatched.idents,
        earlier=earlier,
    )

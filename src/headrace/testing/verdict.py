"""The comparison of two lists of sightings: what was sent, what one consumer received.

`judge` is a pure function. Every receipt falls into exactly one of these, tried in this order:

    mismatched     the content was sent under another feed or ident; or the feed and ident were
                   sent, but never with this content
    unknown        neither content nor name was ever sent, or not to this consumer
    duplicated     the consumer had this product before
    out of order   a product that was sent later was received before this one
    good           anything else

and a product is lost if it was meant for the consumer and no receipt of it was seen at all.
"""

from collections.abc import Callable, Iterable
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
    """The first sending of every content, in order, and every name that was sent."""

    def __init__(self, sent: Iterable[Sighting], expect: Expect | None) -> None:
        self.first: dict[bytes, tuple[int, Sighting]] = {}
        self.names: set[tuple[str, str]] = set()
        self.meant: set[bytes] = set()
        self.copies = 0
        for product in sent:
            signature = product.signature
            if signature in self.first:
                self.copies += signature in self.meant
                continue
            self.first[signature] = (len(self.first), product)
            self.names.add((product.feed, product.ident))
            if expect is None or expect(product.feed, product.ident):
                self.meant.add(signature)

    def is_mismatched(self, seen: Sighting) -> bool:
        known = self.first.get(seen.signature)
        if known is None:
            return (seen.feed, seen.ident) in self.names
        return known[1] != seen


def judge(
    sent: Iterable[Sighting],
    received: Iterable[Sighting],
    expect: Expect | None = None,
    order: Order = "total",
) -> Verdict:
    """Compare; `expect(feed, ident)` is whether a product was meant for the consumer."""
    ledger = _Ledger(sent, expect)
    lost, duplicated, late, unknown, mismatched = (_Fault() for _ in range(5))
    had: set[bytes] = set()
    newest: dict[str, int] = {}
    receipts = 0
    for seen in received:
        receipts += 1
        if ledger.is_mismatched(seen):
            mismatched.add(seen)
        elif seen.signature not in ledger.meant:
            unknown.add(seen)
        elif seen.signature in had:
            duplicated.add(seen)
        else:
            lane = seen.feed if order == "feed" else ""
            place = ledger.first[seen.signature][0]
            if place < newest.get(lane, -1):
                late.add(seen)
            newest[lane] = max(place, newest.get(lane, -1))
        had.add(seen.signature)
    for signature, (_, product) in ledger.first.items():
        if signature in ledger.meant and signature not in had:
            lost.add(product)
    return Verdict(
        sent=len(ledger.meant),
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
    )

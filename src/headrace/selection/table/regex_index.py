"""RegexIndex: subscriptions by text that their ident pattern requires.

Of each pattern's required texts (`literals.py`) the one with the least load is chosen, and of it a piece of three,
four, six or eight characters; every piece of those lengths of a product's ident is then looked up. That costs the same
for ten patterns and for a hundred thousand, and a pattern can be added or removed at any time. Patterns that are found
still have to be tried; this only says which.

Patterns without a required text, such as `.*x.*`, are not in this index.

Readers take no lock: a look-up is one atomic step, and what it finds is a tuple that is replaced and never changed.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.product.product import Product
from headrace.selection.table.field_indexes import Found, drop
from headrace.selection.table.literals import BEGIN, END, Required, fold
from headrace.selection.table.subscription import Subscription

LENGTHS = (3, 4, 6, 8)

Pieces = Mapping[int, dict[str, Found]]  # length -> piece -> subscriptions

_NO_PIECES: dict[str, Found] = {}


class RegexIndex:
    """Finds the subscriptions whose pattern may be in the ident of a product; see the module."""

    name = "ident"

    def __init__(self) -> None:
        self._verbatim: Pieces = {}
        self._folded: Pieces = {}

    def __len__(self) -> int:
        """Lengths in use; 0 when there is nothing."""
        return len(self._verbatim) + len(self._folded)

    def find(self, product: Product) -> Found:
        hits: list[Found] = []
        if self._verbatim:
            hits += _look_up(self._verbatim, product.ident)
        if self._folded:
            hits += _look_up(self._folded, fold(product.ident))
        if len(hits) <= 1:
            return hits[0] if hits else ()
        return tuple(dict.fromkeys(subscription for found in hits for subscription in found))

    def load(self, required: Required) -> int:
        return self._best(required).load

    def add(self, required: Required, subscription: Subscription) -> "_Chosen":
        chosen = self._best(required)
        pieces = self._pieces(required.folded)
        for piece in chosen.pieces:
            if len(piece) not in pieces:
                pieces = {**pieces, len(piece): {}}
            by_piece = pieces[len(piece)]
            by_piece[piece] = (*by_piece.get(piece, ()), subscription)
        self._replace(required.folded, pieces)
        return chosen

    def remove(self, chosen: "_Chosen", subscription: Subscription) -> None:
        pieces = self._pieces(chosen.folded)
        for piece in chosen.pieces:
            drop(pieces[len(piece)], piece, subscription)
        self._replace(chosen.folded, {length: by_piece for length, by_piece in pieces.items() if by_piece})

    def _pieces(self, folded: bool) -> Pieces:
        return self._folded if folded else self._verbatim

    def _replace(self, folded: bool, pieces: Pieces) -> None:
        if folded:
            self._folded = pieces
        else:
            self._verbatim = pieces

    def _best(self, required: Required) -> "_Chosen":
        """One piece of each text of the clause that meets the least load."""
        pieces = self._pieces(required.folded)
        choices = []
        for clause in usable(required).clauses:
            chosen = [min(_cut(text), key=lambda piece: _load(pieces, piece)) for text in sorted(clause)]
            load = max(_load(pieces, piece) for piece in chosen)
            choices.append(_Chosen(load, -min(map(len, chosen)), frozenset(chosen), required.folded))
        return min(choices, key=lambda choice: (choice.load, choice.shortness, len(choice.pieces)))


class _Chosen(NamedTuple):
    load: int  # subscriptions that were there already, at the fullest piece
    shortness: int
    pieces: frozenset[str]
    folded: bool


def usable(required: Required) -> Required:
    """The clauses whose every text is long enough to be looked up."""
    clauses = tuple(clause for clause in required.clauses if min(map(len, clause)) >= LENGTHS[0])
    return Required(clauses, required.folded)


def _cut(text: str) -> list[str]:
    """All pieces of a text, of the greatest length that it has."""
    length = max(length for length in LENGTHS if length <= len(text))
    return [text[place : place + length] for place in range(len(text) - length + 1)]


def _load(pieces: Pieces, piece: str) -> int:
    return len(pieces.get(len(piece), _NO_PIECES).get(piece, ()))


def _look_up(pieces: Pieces, ident: str) -> list[Found]:
    """What stands at the pieces of an ident."""
    text = BEGIN + ident + END
    hits: list[Found] = []
    for length, by_piece in pieces.items():
        get = by_piece.get
        cut = {text[place : place + length] for place in range(len(text) - length + 1)}
        hits += [found for piece in cut if (found := get(piece)) is not None]
    return hits

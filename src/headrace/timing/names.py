"""JoinedNames: numbers for the feeds and origins of several queues.

Each queue, and each connection to a site, numbers names by itself. A batch that is joined from several of them needs
one list. It has room for as many names as a queue: origins come first, because a row has 16 bits for them.

A batch of one source keeps the names that it has; nothing of this is used then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headrace.errors import NamesFullError
from headrace.product.batch import Batch

Table = npt.NDArray[np.uint32]

ORIGINS_MAX = 4096
FEEDS_MAX = 258_048
_UNKNOWN = np.uint32(0xFFFFFFFF)


@dataclass(slots=True)
class _Known:
    """The names of one source: its numbers, and ours for those that have come up."""

    names: Sequence[str]
    feeds: Table = field(default_factory=lambda: np.empty(0, np.uint32))
    origins: Table = field(default_factory=lambda: np.empty(0, np.uint32))


class JoinedNames:
    """Grows only; `texts` is what the numbers mean."""

    def __init__(self) -> None:
        self.texts: list[str] = [""] * ORIGINS_MAX
        self._origins: dict[str, int] = {}
        self._feeds: dict[str, int] = {}
        self._known: dict[int, _Known] = {}  # by the id of the list of names, which it holds

    def tables(self, batch: Batch) -> tuple[Table, Table]:
        """Our number of each feed and of each origin of a batch, by the number there. NamesFullError: too many."""
        known = self._known.get(id(batch.names))
        if known is None:
            known = self._known[id(batch.names)] = _Known(batch.names)
        known.feeds = _grown(known.feeds, len(batch.names))
        known.origins = _grown(known.origins, len(batch.names))
        for number in _new(known.feeds, batch.columns["feed"]):
            known.feeds[number] = self._feed(known.names[number])
        for number in _new(known.origins, batch.columns["origin"]):
            known.origins[number] = self._origin(known.names[number])
        return known.feeds, known.origins

    def _feed(self, text: str) -> int:
        number = self._feeds.get(text)
        if number is None:
            if len(self._feeds) >= FEEDS_MAX:
                raise _full("feeds", FEEDS_MAX)
            number = self._feeds[text] = len(self.texts)
            self.texts.append(text)
        return number

    def _origin(self, text: str) -> int:
        number = self._origins.get(text)
        if number is None:
            number = len(self._origins)
            if number >= ORIGINS_MAX:
                raise _full("origins", ORIGINS_MAX)
            self._origins[text] = number
            self.texts[number] = text
        return number


def _grown(table: Table, size: int) -> Table:
    if len(table) >= size:
        return table
    grown = np.full(max(size, 2 * len(table)), _UNKNOWN, np.uint32)
    grown[: len(table)] = table
    return grown


def _new(table: Table, column: npt.NDArray[np.integer]) -> list[int]:
    """The numbers in a column that have none of ours yet."""
    used = np.unique(column)
    new: list[int] = used[table[used] == _UNKNOWN].tolist()
    return new


def _full(what: str, most: int) -> NamesFullError:
    return NamesFullError(f"the sources have more than {most:,} {what} together", "select fewer of them")

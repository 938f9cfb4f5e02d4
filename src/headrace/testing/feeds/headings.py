"""WMO abbreviated headings: `SAUS70 KWBC 060053 RRA`.

    SAUS70   what and where it is about          KWBC     the centre that compiled it
    060053   day, hour, minute                   RRA      BBB group: why a heading comes again

A heading names a bulletin only together with its BBB group. The first bulletin of a minute has
none; later ones with the same heading are delayed ones, RRA to RRX. A correction (CCx) or an
amendment (AAx) carries the heading of the bulletin it replaces, and so must follow it;
`Replacements` holds the ones that are due.
"""

from collections import deque
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Generic, TypeVar

from headrace.testing.feeds.content import day_hour_minute

LETTERS = ascii_uppercase[:24]  # Y and Z have meanings of their own
LINE_END = "\r\r\n"
_MEMORY_MINUTES = 30

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Heading:
    """What a bulletin and its replacements share."""

    name: str  # TTAAii
    centre: str  # CCCC
    minute: int  # since 1970

    def text(self, bbb: str) -> str:
        """The heading line, without its end."""
        line = f"{self.name} {self.centre} {day_hour_minute(self.minute)}"
        return f"{line} {bbb}" if bbb else line


class HeadingLog:
    """Hands out the BBB group of headings that come again within their minute.

    Minutes need not come in order, but none may come more than `_MEMORY_MINUTES` behind the latest.
    """

    __slots__ = ("_prune_at", "_uses")

    def __init__(self) -> None:
        self._prune_at = 0
        self._uses: dict[tuple[str, str, int], int] = {}

    def take(self, heading: Heading) -> str:
        """Empty for the first bulletin under a heading, then RRA, RRB, ... RRX and no further."""
        if heading.minute >= self._prune_at:
            self._prune(heading.minute)
        key = (heading.name, heading.centre, heading.minute)
        uses = self._uses.get(key, 0)
        self._uses[key] = uses + 1
        return "RR" + LETTERS[min(uses, len(LETTERS)) - 1] if uses else ""

    def _prune(self, minute: int) -> None:
        oldest = minute - _MEMORY_MINUTES
        self._uses = {key: uses for key, uses in self._uses.items() if key[2] >= oldest}
        self._prune_at = minute + _MEMORY_MINUTES


class Replacements(Generic[T]):
    """Bulletins that will be corrected or amended, in the order in which they were sent."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: deque[tuple[float, T]] = deque()

    def plan(self, due_s: float, bulletin: T) -> None:
        self._due.append((due_s, bulletin))

    def take(self, time_s: float) -> T | None:
        """The oldest planned one, if its time has come."""
        if self._due and self._due[0][0] <= time_s:
            return self._due.popleft()[1]
        return None

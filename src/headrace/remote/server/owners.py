"""Owners: whose the stations and cursors are that clients have made, as a small document of the site.

    site/owners.json    by the name of the station or cursor: the principal that made it, "*" if it has no name

What is not listed belongs to the site: a program on its machine made it, or a client before there were access rules.
An entry counts for one station, not for its name: it has the number of its chain and its place there, which tell the
station from a later one that the site has made. Entries of stations and cursors that were removed are dropped.

The document is written after the station or cursor was made. If the process dies in between, it belongs to the site,
and its client needs the right `manage`, or another name.

Not here: what an owner may do (access.py).
"""

import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from headrace.files import make_folder
from headrace.log.documents import Document
from headrace.log.seams import Disk
from headrace.station import StationTerms

FILE = Path("site") / "owners.json"
VERSION = 1
Place = tuple[int, int]  # of a station: its chain, and its number there


class OwnedStation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    owner: str
    chain: int
    member: int


class OwnersFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int = VERSION
    stations: dict[str, OwnedStation] = {}
    cursors: dict[str, str] = {}


_DOCUMENT = Document(
    OwnersFile, VERSION, field="version",
    remedy="restore {path}/owners.json, or remove it: stations and cursors of clients then belong to the site",
)  # fmt: skip


class Owners:
    """Of one queue. Threads may share it; hold `changing` from the check of a name until what it names is noted."""

    def __init__(self, queue: Path) -> None:
        self._path = queue / FILE
        self.changing = threading.RLock()
        self._known = _DOCUMENT.read(self._path) or OwnersFile()

    # --- stations ---------------------------------------------------------------------------------

    def of_station(self, terms: StationTerms) -> str | None:
        """The owner; None: the site."""
        known = self._known.stations.get(terms.name)
        return known.owner if known is not None and (known.chain, known.member) == (terms.chain, terms.member) else None

    def stations_of(self, owner: str, there: Iterable[StationTerms]) -> int:
        """How many of the stations that exist belong to `owner`."""
        return sum(self.of_station(terms) == owner for terms in there)

    def note_station(self, terms: StationTerms, owner: str, there: Iterable[StationTerms]) -> None:
        """`owner` has made this station; `there` are all that exist."""
        with self.changing:
            kept = {each.name: self._known.stations[each.name] for each in there if self.of_station(each) is not None}
            kept[terms.name] = OwnedStation(owner, terms.chain, terms.member)
            self._save(OwnersFile(stations=kept, cursors=self._known.cursors))

    def forget_station(self, name: str) -> None:
        with self.changing:
            if name in self._known.stations:
                kept = {each: owned for each, owned in self._known.stations.items() if each != name}
                self._save(OwnersFile(stations=kept, cursors=self._known.cursors))

    # --- cursors ----------------------------------------------------------------------------------

    def of_cursor(self, name: str) -> str | None:
        """The owner; None: the site."""
        return self._known.cursors.get(name)

    def cursors_of(self, owner: str) -> int:
        return Counter(self._known.cursors.values())[owner]

    def note_cursor(self, name: str, owner: str) -> None:
        """`owner` has made this cursor."""
        with self.changing:
            self._save(OwnersFile(stations=self._known.stations, cursors={**self._known.cursors, name: owner}))

    def keep_cursors(self, there: Iterable[str]) -> None:
        """Forget those of cursors that do not exist any more: whoever makes one of that name again owns it."""
        with self.changing:
            kept = {name: self._known.cursors[name] for name in there if name in self._known.cursors}
            if len(kept) < len(self._known.cursors):
                self._save(OwnersFile(stations=self._known.stations, cursors=kept))

    def _save(self, known: OwnersFile) -> None:
        make_folder(self._path.parent)
        _DOCUMENT.write(self._path, known, Disk())
        self._known = known

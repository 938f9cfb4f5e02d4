"""The file `stations.json`: which stations a queue has, and on what terms.

    stations.json          the terms of all stations: one document, replaced as a whole
    stations/3.chain       chain number 3: the shared state of its stations (kernel/chain/)

Processes change the document under the queue's lock, so that no product is put between the old terms and the new ones.
The number `stations` in the control file grows with each change, which is how other processes notice it. Readers take
no lock.

Version 1 said `line` for a chain, `cue` for a capacity and `equal_cue` for `least_loaded`; it is read and upgraded.
"""

from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import QueueDamagedError
from headrace.log.documents import Document
from headrace.log.explain import REPAIR
from headrace.log.seams import Storage
from headrace.station.terms import StationTerms

FILE = "stations.json"
FOLDER = "stations"
FORMAT = 2


class StationDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All stations of a queue."""

    format: int = FORMAT
    number: int = 0  # `stations` in the control file once these terms are in force
    next_chain: int = 1  # the number of the next chain; never reused
    stations: tuple[StationTerms, ...] = ()

    def find(self, name: str) -> StationTerms | None:
        return next((terms for terms in self.stations if terms.name == name), None)

    def chain(self, number: int) -> list[StationTerms]:
        """The stations of one chain, in the order of their stages."""
        return sorted((terms for terms in self.stations if terms.chain == number), key=lambda terms: terms.stage)

    def by_chain(self) -> dict[int, list[StationTerms]]:
        """The stations of every chain, as `chain` returns them."""
        found: dict[int, list[StationTerms]] = {}
        for terms in sorted(self.stations, key=lambda terms: terms.stage):
            found.setdefault(terms.chain, []).append(terms)
        return found

    @property
    def chains(self) -> set[int]:
        """The numbers of all chains."""
        return {terms.chain for terms in self.stations}

    def replace(self, *changed: StationTerms) -> "StationDocument":
        """The document with these stations added, or instead of those of the same name."""
        names = {terms.name for terms in changed}
        kept = tuple(terms for terms in self.stations if terms.name not in names)
        return msgspec.structs.replace(self, stations=kept + changed)

    def without(self, name: str) -> "StationDocument":
        return msgspec.structs.replace(self, stations=tuple(t for t in self.stations if t.name != name))


def _upgrade_lines(found: dict[str, Any]) -> dict[str, Any]:
    """Version 1 as version 2: other words, the same meaning."""
    words = {"next_line": "next_chain", "line": "chain", "cue": "capacity"}
    stations = []
    for station in found.get("stations", ()):
        renamed = {words.get(key, key): value for key, value in station.items()}
        if renamed.get("distribution") == "equal_cue":
            renamed["distribution"] = "least_loaded"
        stations.append(renamed)
    return {**{words.get(key, key): value for key, value in found.items()}, "stations": stations}


_DOCUMENT = Document(StationDocument, FORMAT, field="format", remedy=REPAIR, upgrades={1: _upgrade_lines})


def chain_path(path: Path, number: int) -> Path:
    """Where the file of a chain is, in the queue at `path`."""
    return path / FOLDER / f"{number}.chain"


def load_stations(path: Path, number: int) -> StationDocument:
    """The stations of the queue at `path`. `number` is `stations` in the control file: 0 if there never were any.

    QueueDamagedError if the file is missing though there were stations: they must not be taken for removed.
    """
    document = _DOCUMENT.read(path / FILE)
    if document is None and number:
        raise QueueDamagedError(
            f"{path / FILE} is missing, though the queue has stations",
            f"restore the file, or forget the stations: headrace queue repair {path}",
        )
    return document or StationDocument()


def save_stations(path: Path, stations: StationDocument, storage: Storage | None) -> None:
    """Replace the document; with a storage it survives a power failure. Call it under the queue's lock."""
    _DOCUMENT.write(path / FILE, stations, storage)

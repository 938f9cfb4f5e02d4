"""The file `stations.json`: which stations a queue has, and on what terms.

    stations.json          the terms of all stations: one document, replaced as a whole
    stations/3.chain       chain number 3: the shared state of its stations (kernel/chain/)

Processes change the document under the queue's lock, so that no product is put between the old terms and the new ones.
The number `stations` in the control file grows with each change, which is how other processes notice it. Readers take
no lock.

Version 1 said `line` for a chain, `cue` for a capacity and `equal_cue` for `least_loaded`; it is read and upgraded.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import QueueDamagedError
from headrace.log.documents import Document, replace_file
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

    def changed_chains(self, before: "StationDocument") -> set[int]:
        """The chains that have other stations than before. New stations come last: then only those are examined."""
        same = same_beginning(before.stations, self.stations)
        kept = set(map(id, before.stations)) if not same else ()
        changed = [terms for terms in self.stations[same:] if id(terms) not in kept]
        there = set(map(id, self.stations)) if not same else ()
        gone = [terms for terms in before.stations[same:] if id(terms) not in there]
        return {terms.chain for terms in (*changed, *gone)}

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


def same_beginning(before: Sequence[StationTerms], after: Sequence[StationTerms]) -> int:
    """How many stations come first in both, unchanged: all that there were before, or none."""
    return len(before) if after[: len(before)] == before else 0


class StationLines:
    """Writes the document with a line for each station; if stations were added, only these are encoded.

    So a new station costs about the same however many there are.
    """

    def __init__(self) -> None:
        self._stations: tuple[StationTerms, ...] = ()
        self._lines: list[bytes] = []
        self._encode = msgspec.json.Encoder().encode

    def save(self, path: Path, document: StationDocument, storage: Storage | None) -> None:
        """Replace the document; with a storage it survives a power failure. Call it under the queue's lock."""
        same = same_beginning(self._stations, document.stations)
        self._stations = document.stations
        self._lines[same:] = map(self._encode, document.stations[same:])
        head = {"format": document.format, "number": document.number, "next_chain": document.next_chain}
        text = self._encode(head)[:-1] + b',"stations":[\n' + b",\n".join(self._lines) + b"\n]}\n"
        replace_file(path / FILE, text, storage)

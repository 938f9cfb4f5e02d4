"""Registry: the file `stations.json`, which says what stations a queue has, and the folder of their lines.

    stations.json          terms of all stations; one document, replaced as a whole
    stations/3.chain       chain number 3: the shared state of its stations (kernel/chain/chain.pxi)

Changes are made under the queue's lock, so that no product is put between the old terms and the new; the number
`stations` in the control file changes with each, which is how other processes notice. Readers take no lock.
"""

import os
from pathlib import Path

import msgspec

from headrace.errors import QueueDamagedError, QueueVersionError
from headrace.log.explain import REPAIR
from headrace.log.seams import Storage
from headrace.station.terms import StationTerms

FILE = "stations.json"
FOLDER = "stations"
FORMAT = 1


class StationDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All stations of a queue."""

    format: int = FORMAT
    number: int = 0  # `stations` in the control file once these terms are in force
    next_line: int = 1  # of lines; never given twice
    stations: tuple[StationTerms, ...] = ()

    def find(self, name: str) -> StationTerms | None:
        return next((terms for terms in self.stations if terms.name == name), None)

    def line(self, number: int) -> list[StationTerms]:
        """The stations of one line, in the order of their stages."""
        return sorted((terms for terms in self.stations if terms.line == number), key=lambda terms: terms.stage)

    def replace(self, *changed: StationTerms) -> "StationDocument":
        """With these stations instead of those of the same name, or added."""
        names = {terms.name for terms in changed}
        kept = tuple(terms for terms in self.stations if terms.name not in names)
        return msgspec.structs.replace(self, stations=kept + changed)

    def without(self, name: str) -> "StationDocument":
        return msgspec.structs.replace(self, stations=tuple(t for t in self.stations if t.name != name))


class _Format(msgspec.Struct):
    format: int


# made once: threads that use a type for the first time at the same moment would get in each other's way
_FORMAT = msgspec.json.Decoder(_Format)
_STATIONS = msgspec.json.Decoder(StationDocument)


def line_path(path: Path, number: int) -> Path:
    return path / FOLDER / f"{number}.chain"


def load_stations(path: Path) -> StationDocument:
    """What the queue at `path` has; nothing if there never was a station."""
    file = path / FILE
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return StationDocument()
    try:
        found = _FORMAT.decode(text).format
        if found > FORMAT:
            raise QueueVersionError(f"{file} has format {found}, this Headrace knows {FORMAT}", "upgrade Headrace")
        return _STATIONS.decode(text)
    except msgspec.MsgspecError as error:
        raise QueueDamagedError(f"{file} cannot be read: {error}", REPAIR.format(path=path)) from None


def save_stations(path: Path, stations: StationDocument, storage: Storage | None) -> None:
    """Replace the document; with a storage, so that it survives a power failure. Under the queue's lock."""
    file = path / FILE
    part = path / f"{FILE}.part"
    part.write_bytes(msgspec.json.format(msgspec.json.encode(stations)))
    if storage is not None:
        storage.sync_file(part)
    os.replace(part, file)
    if storage is not None:
        storage.sync_directory(path)

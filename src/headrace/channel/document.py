"""The file `channels.json`: which channels a queue has, and on what terms.

    channels.json           all definitions: one document, replaced as a whole
    channels/               made after the document: a queue with this folder and without the document is damaged
    channels/lock           held (flock) while definitions, or the stations of a channel, are changed
    channels/7.suppliers    slots and counters of the suppliers of channel number 7 (slots.py)
    channels/7.slices       counters of its slices, if it has slices (assigner.py)

Readers take no lock: they find the old document or the new one. Changes have a lock of their own instead of the
queue's, because they wait for the disk and puts must not wait with them; it is released with its holder.

For each station of a channel the definition has what that station set itself, so that a change of the channel reaches
the stations that did not set the option. An entry is written before its station is created, and has no effect without
it.

A new option needs a new FORMAT: an older Headrace then asks for an upgrade instead of ignoring the option.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec

from headrace.channel.compression import Compression
from headrace.channel.qos import QoS
from headrace.channel.slicing import SLICES_MAX, Slicing, parse_assign
from headrace.errors import InvalidError, QueueError
from headrace.files import make_folder, open_to_read, write_regular
from headrace.kernel import _kernel as kernel
from headrace.log.documents import Document
from headrace.log.explain import explain_os_error
from headrace.log.locks import locked
from headrace.log.seams import Disk, Storage

FORMAT = 3
FILE = "channels.json"
FOLDER = "channels"


class Definition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One channel."""

    name: str
    number: int  # in the names of its files; never reused
    feed: str  # the subtree, `wx/radar/**`
    created_ns: int
    qos: QoS
    slicing: Slicing | None = None  # None: its products have the slices that producers give them, or none
    compression: Compression | None = None  # None: its products are stored as they are put
    stations: dict[str, dict[str, str | int | float | None]] = {}  # the fields of QoS that each station set itself


class ChannelDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    format: int = FORMAT
    next_number: int = 1
    slicings: int = 0  # changes with every channel with slices or compression that is created, changed or removed
    channels: dict[str, Definition] = {}


_DOCUMENT = Document(
    ChannelDocument, FORMAT, field="format", unnamed=1,
    remedy="restore it from a backup, or run: headrace queue repair {path}, then create the channels again; "
    "stations and products are not in it",
    upgrades={1: lambda document: document, 2: lambda document: document},  # without slices; without compression
)  # fmt: skip


class DefinitionFile:
    """The file of one queue, and the lock for its changes."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self.folder = directory / FOLDER
        self._text = str(self.path)
        self._seen: tuple[tuple[int, int, int], ChannelDocument] | None = None

    def read(self) -> ChannelDocument:
        """The document now. Read again only if the file was replaced.

        Empty if there are no channels; QueueDamagedError if there were some and the file is missing.
        """
        try:
            seen = _identity(os.stat(self._text))
            if self._seen is not None and self._seen[0] == seen:
                return self._seen[1]
            with open_to_read(self.path) as file:
                seen, text = _identity(os.fstat(file.fileno())), file.read()
        except FileNotFoundError:
            if self.folder.exists():
                raise _DOCUMENT.damaged(self.path, "it is missing, though the queue had channels") from None
            return ChannelDocument()
        except OSError as error:
            raise explain_os_error(error, self.path.parent) from error
        document = _decode(self.path, text)
        self._seen = (seen, document)
        return document

    def write(self, document: ChannelDocument) -> None:
        """Replace the file; after return it survives a power failure. Only while `changing`."""
        try:
            _DOCUMENT.write(self.path, document, Disk())
        except OSError as error:
            raise explain_os_error(error, self.path.parent) from error

    @contextmanager
    def changing(self) -> Iterator[ChannelDocument]:
        """Hold the lock for changes, against all processes and threads; yields the document."""
        with ExitStack() as held:
            try:
                self._make_folder()
                held.enter_context(locked(self.folder / "lock"))
            except OSError as error:
                raise explain_os_error(error, self.path.parent) from error
            yield self.read()

    def _make_folder(self) -> None:
        """Make the folder if this is the first change, after a document without channels."""
        if not self.folder.exists():
            part = self.path.with_name(f"{os.urandom(8).hex()}.json.part")  # a recovery removes what is left
            write_regular(part, msgspec.json.encode(ChannelDocument()))
            Disk().sync_file(part)
            with suppress(FileExistsError):  # another process is making its first change too
                os.link(part, self.path)
            part.unlink()
            make_folder(self.folder)


class ChannelFiles:
    """The channels' part in opening, checking and repairing a queue (log/seams.py: Resident)."""

    file = FILE

    def validate(self, path: Path) -> None:
        DefinitionFile(path).read()

    def settle(self, log: kernel.Log, path: Path, storage: Storage, trusted: bool) -> None:
        """Put the channels with slices into force again, and remove files that belong to no channel.

        The locks of suppliers end with their processes.
        """
        document = DefinitionFile(path).read()
        if document.slicings > log.state["slicings"]:
            log.set_state(slicings=document.slicings)
        known = {f"{definition.number}.slices" for definition in document.channels.values() if definition.slicing}
        for file in (path / FOLDER).glob("*.slices"):
            if file.name not in known:
                file.unlink(missing_ok=True)

    def forget(self, log: kernel.Log, path: Path) -> list[str]:
        """Without a document there are no channels: an empty one says so."""
        if (path / FILE).exists() or not (path / FOLDER).exists():
            return []
        DefinitionFile(path).write(ChannelDocument())
        return [f"{path / FILE} is missing: the queue has no channels any more; create them again"]

    def check(self, log: kernel.Log, path: Path) -> list[str]:
        """What is wrong with the file, in words; empty if it is valid or missing."""
        try:
            self.validate(path)
        except QueueError as error:
            return [error.problem]
        return []


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    """Differs after every replacement of the file."""
    return status.st_ino, status.st_mtime_ns, status.st_size


def _decode(path: Path, text: bytes) -> ChannelDocument:
    document = _DOCUMENT.decode(path, text)
    for name, definition in document.channels.items():
        if definition.name != name:
            raise _DOCUMENT.damaged(path, f"channel {name!r} has the name {definition.name!r} inside")
        if definition.slicing is not None:
            _check_slicing(path, definition.slicing)
    return document


def _check_slicing(path: Path, slicing: Slicing) -> None:
    try:
        assignment = parse_assign(slicing.assign)
    except InvalidError as error:
        raise _DOCUMENT.damaged(path, error.problem) from None
    if not 1 <= slicing.slices <= SLICES_MAX or (assignment.how == "grid" and not assignment.rows):
        raise _DOCUMENT.damaged(path, f"{slicing.slices} slices by {slicing.assign} are out of range")

"""ChannelDocument: the file `channels.json` of a queue, which says what channels it has.

    channels.json           all definitions: one document, replaced as a whole by a rename
    channels/lock           held (flock) while definitions, or the stations of a channel, are changed
    channels/7.suppliers    places and counters of the suppliers of channel number 7 (places.py)

Readers take no lock: they find the old document or the new one. Changes have a lock of their own, not the queue's,
because they wait for the disk and nobody should wait with them; it goes with its holder.

For every station of a channel the definition has what that station said itself, so that a change of the channel is
handed on to those that said nothing. An entry is written before its station is made and is void without it.

A new option means a new FORMAT: an older Headrace then says "upgrade" instead of leaving the option out.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from headrace.channel.qos import QoS
from headrace.errors import QueueDamagedError, QueueError, QueueVersionError
from headrace.kernel import _kernel as kernel
from headrace.log.explain import explain_os_error
from headrace.log.seams import Disk, Storage

FORMAT = 1
FILE = "channels.json"
FOLDER = "channels"


class Definition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One channel."""

    name: str
    number: int  # names its files; never given twice
    feed: str  # the subtree, `wx/radar/**`
    created_ns: int
    qos: QoS
    stations: dict[str, dict[str, str | int | float | None]] = {}  # fields of QoS that a station said itself


class ChannelDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    format: int = FORMAT
    next_number: int = 1
    channels: dict[str, Definition] = {}


class DefinitionFile:
    """The file of one queue, and the lock for its changes."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self.folder = directory / FOLDER
        self._text = str(self.path)
        self._seen: tuple[tuple[int, int, int], ChannelDocument] | None = None

    def read(self) -> ChannelDocument:
        """What the file says now; none are defined if there is no file. Read again only if it was replaced."""
        try:
            seen = _identity(os.stat(self._text))
            if self._seen is not None and self._seen[0] == seen:
                return self._seen[1]
            with self.path.open("rb") as file:
                seen, text = _identity(os.fstat(file.fileno())), file.read()
        except FileNotFoundError:
            return ChannelDocument()
        except OSError as error:
            raise explain_os_error(error, self.path.parent) from error
        definitions = _decode(self.path, text)
        self._seen = (seen, definitions)
        return definitions

    def write(self, definitions: ChannelDocument) -> None:
        """Replace the file; after return the new one survives a power failure. Only while `changing`."""
        text = msgspec.json.format(msgspec.json.encode(definitions), indent=2) + b"\n"
        part = self.path.with_name(f"{FILE}.part")
        try:
            with part.open("wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path)
            Disk().sync_directory(self.path.parent)
        except OSError as error:
            raise explain_os_error(error, self.path.parent) from error

    @contextlib.contextmanager
    def changing(self) -> Iterator[ChannelDocument]:
        """Nobody else changes channels meanwhile, in any process; what the file says."""
        try:
            self.folder.mkdir(exist_ok=True)
            descriptor = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o660)
        except OSError as error:
            raise explain_os_error(error, self.path.parent) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield self.read()
        finally:
            os.close(descriptor)


# made once: threads that use a type for the first time at the same moment would get in each other's way
_ANY = msgspec.json.Decoder(dict[str, Any])
_DEFINITIONS = msgspec.json.Decoder(ChannelDocument)


class ChannelFiles:
    """The channels' part in opening, checking and repairing a queue (log/seams.py: Resident)."""

    file = FILE

    def validate(self, path: Path) -> None:
        DefinitionFile(path).read()

    def settle(self, log: kernel.Log, path: Path, storage: Storage, trusted: bool) -> None:
        """Nothing is left to settle: the locks of suppliers end with their processes."""

    def check(self, log: kernel.Log, path: Path) -> list[str]:
        return check_definitions(path)


def check_definitions(directory: Path) -> list[str]:
    """What is wrong with the file, in words; nothing if it is sound or not there."""
    try:
        DefinitionFile(directory).read()
    except QueueError as error:
        return [error.problem]
    return []


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    """What changes when the file is replaced."""
    return status.st_ino, status.st_mtime_ns, status.st_size


def _decode(path: Path, text: bytes) -> ChannelDocument:
    try:
        version = _ANY.decode(text).get("format")
        if isinstance(version, int) and version > FORMAT:
            raise QueueVersionError(
                f"{path} has format {version}; this Headrace knows formats up to {FORMAT}", "upgrade Headrace"
            )
        definitions = _DEFINITIONS.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from None
    for name, definition in definitions.channels.items():
        if definition.name != name:
            raise _damaged(path, f"channel {name!r} calls itself {definition.name!r}")
    return definitions


def _damaged(path: Path, reason: str) -> QueueDamagedError:
    return QueueDamagedError(
        f"{path} cannot be read: {reason}",
        "restore it from a backup, or remove it and create the channels again; stations and products are not in it",
    )

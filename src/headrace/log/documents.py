"""Small documents: files that are replaced as a whole, and JSON with a version number.

A reader finds the old content or the new one, never a part of either: the bytes are written to `NAME.part` beside the
file and renamed into place. One process at a time writes a document; a lock or its single owner ensures that. A `.part`
that a killed writer left is overwritten by the next one.

Each call states by `storage` how durable the replacement is:

    None       it survives the death of processes, but not a power failure (nothing waits for the disk)
    a Storage  after return it survives a power failure; before, either the old or the new content does
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from headrace.decoding import Decoder, converted
from headrace.errors import QueueDamagedError, QueueVersionError
from headrace.files import IrregularFileError, read_regular, write_regular
from headrace.log.seams import Storage

PART = ".part"

UNREADABLE = (msgspec.DecodeError, IrregularFileError)  # what reading a file of ours may raise if it is damaged

Identity = tuple[int, int, int]

Struct = TypeVar("Struct", bound=msgspec.Struct)
_Version = int | float | str | bool | None  # what a damaged document may have in place of one
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]  # a document of one version as one of the next


def replace_file(path: Path, data: bytes, storage: Storage | None, *, mode: int | None = None) -> None:
    """Make `data` the content of the file at `path`, completely or not at all. OSError if the disk refuses.

    `mode` gives its permissions; None: those of its folder.
    """
    part = path.with_name(path.name + PART)
    write_regular(part, data, mode=mode)
    move_into_place(part, path, storage)


def move_into_place(part: Path, path: Path, storage: Storage | None) -> None:
    """Make a finished file, on the same file system, the one at `path`. OSError if the disk refuses."""
    if storage is not None:
        storage.sync_file(part)
    os.replace(part, path)
    if storage is not None:
        storage.sync_directory(path.parent)


def file_identity(path: Path) -> Identity | None:
    """Differs after every replacement of the file; None if there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


class Document(Generic[Struct]):
    """How documents of one kind are read and written; make one per kind, at import.

    The decoders are made here, once (decoding.py).
    """

    def __init__(
        self,
        kind: type[Struct],
        version: int,
        *,
        field: str,
        remedy: str,
        unnamed: int | None = None,
        upgrades: Mapping[int, Upgrade] | None = None,
    ) -> None:
        """`field` names the version in the document; `unnamed` is the version of one without it, if that is allowed.

        `upgrades[n]` turns version n into version n + 1.

        `remedy` is what to do about a document that is damaged; it may name `{path}`, the folder.
        """
        self._version, self._field, self._remedy, self._upgrades = version, field, remedy, upgrades or {}
        self._unnamed = unnamed
        self._head: Decoder[Any] = Decoder(msgspec.defstruct("Head", [(field, _Version, unnamed)]), encoding="json")
        self._plain: Decoder[dict[str, Any]] = Decoder(dict[str, Any], encoding="json")
        self._struct: Decoder[Struct] = Decoder(kind, encoding="json")
        self._kind = kind

    def read(self, path: Path) -> Struct | None:
        """The document at `path`, None if there is no file; QueueVersionError, QueueDamagedError, or an OSError."""
        try:
            text = read_regular(path)
        except FileNotFoundError:
            return None
        except IrregularFileError as error:
            raise self.damaged(path, str(error.strerror)) from None
        return self.decode(path, text)

    def decode(self, path: Path, text: bytes) -> Struct:
        """As `read`, from bytes that were read already; `path` is named in errors."""
        try:
            version = getattr(self._head.decode(text), self._field)
            if version == self._version:
                return self._struct.decode(text)
            found = self._plain.decode(text)
            return converted(self._upgraded(path, found, version), self._kind)
        except UNREADABLE as error:
            raise self.damaged(path, str(error)) from None

    def is_current(self, path: Path) -> bool:
        """Whether the document at `path` has this version and not an older one; of one that can be read."""
        return bool(self._plain.decode(read_regular(path)).get(self._field, self._unnamed) == self._version)

    def damaged(self, path: Path, reason: str) -> QueueDamagedError:
        """The error for a document whose content is invalid."""
        return QueueDamagedError(f"{path} is invalid: {reason}", self._remedy.format(path=path.parent))

    def _upgraded(self, path: Path, found: dict[str, Any], version: object) -> dict[str, Any]:
        if not isinstance(version, int) or version < 1:
            raise self.damaged(path, f"its {self._field} is {version!r}")
        if version > self._version:
            raise QueueVersionError(
                f"{path} has {self._field} {version}; this Headrace knows up to {self._version}", "upgrade Headrace"
            )
        for step in range(version, self._version):
            if step not in self._upgrades:
                raise self.damaged(path, f"{self._field} {version} is no longer supported")
            try:
                found = {**self._upgrades[step](found), self._field: step + 1}
            except (KeyError, TypeError, AttributeError, ValueError) as error:  # it is not what that version wrote
                raise self.damaged(path, f"as {self._field} {step}: {error!r:.200}") from None
        return found

    def write(self, path: Path, document: Struct, storage: Storage | None) -> None:
        """Replace the file at `path` by this document, indented for people who look at it."""
        replace_file(path, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n", storage)

"""Partial: a file that is being received, with its journal, until it has its name.

    DIR/.headrace-receive/<transfer>.part       the bytes so far, each fragment at its place
    DIR/.headrace-receive/<transfer>.journal    which of them are there

A fragment is written at its offset, then recorded. The hashes that the sender took are compared when its second
manifest arrives: a fragment that differs counts as missing from then on, and is asked for again. When everything is
there and equal, the file is synced, gets mode and time, and then its name, in one step. So a reader of the directory
sees a file whole or not at all, and a kill at any point loses nothing that was recorded.
"""

import errno
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from headrace.errors import FabricMessageError, NameRefusedError
from headrace.files import read_regular
from headrace.log.directory import is_in_memory
from headrace.payload.fragments import journal as journals
from headrace.payload.fragments import names
from headrace.payload.fragments.journal import Entry, Journal
from headrace.payload.fragments.manifest import HASH_BYTES, Manifest, hash_of, zeros_hash
from headrace.payload.fragments.ranges import numbers_of

SUFFIX = ".part"
EXISTING = ("refuse", "replace", "number")


class Partial:
    """One file on its way. Threads may call `write` at once; everything else is for one thread."""

    def __init__(self, state: Path, manifest: Manifest, origin: str) -> None:
        """Begin, or continue what is there. OSError if the disk is full, for example."""
        self.manifest, self._state = manifest, state
        self._path, self._journal_path = state / (manifest.transfer + SUFFIX), _journal_path(state, manifest.transfer)
        before = _journaled(self._journal_path) if self._path.exists() else None
        if before is not None and not before.manifest.describes_same(manifest):
            before = None
        self._holes = numbers_of(manifest.holes, manifest.count)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._allocate(before is None)
            if before is None:
                self.held = np.zeros(manifest.count, np.bool_)
                self._hashes = np.zeros((manifest.count, HASH_BYTES), np.uint8)
            else:
                self.held, self._hashes = journals.held_of(before)
            self._journal = Journal(self._journal_path, manifest, origin, 0 if before is None else before.valid_bytes)
        except BaseException:
            os.close(self._file)
            raise
        self.bad = 0  # fragments that did not match
        self.was: os.stat_result | None = None  # as it got its name
        if before is not None and not before.is_of_this_boot:
            self._verify_again()
        self._hold_holes()
        if manifest.has_hashes:
            self.compare(manifest)

    def _allocate(self, is_new: bool) -> None:
        """Reserve the space, so that a full disk is found at the beginning; a sparse file stays sparse.

        A file system in memory reserves pages by clearing each, which takes longer than to write them: there, only the
        free space is compared. A file of one fragment is written next, and finds out by itself.
        """
        size = self.manifest.size
        if is_new:
            os.ftruncate(self._file, 0)
        if self.manifest.count > 1 and not self.manifest.holes:
            if _is_in_memory(self._state):
                free = os.fstatvfs(self._file)
                if size - os.fstat(self._file).st_blocks * 512 > free.f_bavail * free.f_frsize:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            else:
                os.posix_fallocate(self._file, 0, size)
        os.ftruncate(self._file, size)

    def _hold_holes(self) -> None:
        """Holes are zeros without being sent."""
        for number in np.flatnonzero(self._holes & ~self.held):
            self._hashes[number] = np.frombuffer(zeros_hash(self.manifest.length_of(int(number))), np.uint8)
        self.held |= self._holes

    def _verify_again(self) -> None:
        """The machine was restarted since: keep only what is really there."""
        for number in np.flatnonzero(self.held).tolist():
            content = os.pread(self._file, self.manifest.length_of(number), number * self.manifest.fragment_bytes)
            if hash_of(content) != self._hashes[number].tobytes():
                self.held[number] = False

    # --- fragments --------------------------------------------------------------------------------

    def write(self, number: int, payload: memoryview) -> Entry:
        """Write one fragment; record what is returned, afterwards. FabricMessageError if it is damaged."""
        manifest = self.manifest
        if number >= manifest.count or payload.nbytes != manifest.length_of(number):
            raise FabricMessageError(
                f"fragment {number} of {manifest.name!r} has {payload.nbytes} bytes", "it is refused"
            )
        digest = hash_of(payload)
        if manifest.has_hashes and digest != manifest.hashes[number * HASH_BYTES : (number + 1) * HASH_BYTES]:
            raise FabricMessageError(f"fragment {number} of {manifest.name!r} is damaged", "it is asked for again")
        journals.write_at(self._file, payload, number * manifest.fragment_bytes)
        return number, digest

    def record(self, entries: list[Entry]) -> None:
        """Remember fragments that were written, across a kill."""
        self._journal.append(entries)
        for number, digest in entries:
            self.held[number] = True
            self._hashes[number] = np.frombuffer(digest, np.uint8)

    def compare(self, manifest: Manifest) -> None:
        """The hashes by the sender have arrived: a fragment that differs is missing again."""
        self.manifest = msgspec.structs.replace(manifest, asks=False)
        wanted = np.frombuffer(manifest.hashes, np.uint8).reshape(-1, HASH_BYTES)
        differs = self.held & (wanted != self._hashes).any(axis=1)
        self.bad += int(differs.sum())
        self.held &= ~differs

    @property
    def is_complete(self) -> bool:
        return self.manifest.has_hashes and bool(self.held.all())

    @property
    def held_bytes(self) -> int:
        """Bytes that are there."""
        held = int(self.held.sum())
        if not held:
            return 0
        last = self.manifest.count - 1
        short = self.manifest.fragment_bytes - self.manifest.length_of(last) if self.held[last] else 0
        return held * self.manifest.fragment_bytes - short

    # --- the end ----------------------------------------------------------------------------------

    def sync(self) -> None:
        """Wait until the disk has it. After an OSError, discard it: what the system dropped is not tried again."""
        os.fsync(self._file)

    def take_name(self, root: Path, existing: str) -> str:
        """Give the file its name, after `sync`; the name. Its folder is to be synced.

        NameRefusedError if it must not have the name, and the partial file stays.
        """
        manifest = self.manifest
        os.fchmod(self._file, manifest.mode)
        os.utime(self._file, ns=(manifest.mtime_ns, manifest.mtime_ns))
        self.was = os.fstat(self._file)
        with names.folder_of(root, manifest.name) as (folder, last):
            last = allowed_name(folder, last, existing)
            os.rename(self._path, last, dst_dir_fd=folder)
        return "/".join([*manifest.name.split("/")[:-1], last])

    def close(self) -> None:
        os.close(self._file)
        self._journal.close()

    def discard(self) -> None:
        """Close and remove what is left."""
        self.close()
        self._path.unlink(missing_ok=True)
        self._journal_path.unlink(missing_ok=True)


def allowed_name(folder: int, last: str, existing: str) -> str:
    """The name that the file gets if something has its name already, by the policy `existing`."""
    there = names.found(folder, last)
    if there is None:
        return last
    if existing == "number":
        return names.free_name(folder, last)
    if existing == "replace" and not _is_folder(there):
        return last
    kind = "a directory" if _is_folder(there) else "a file"
    raise NameRefusedError(
        f"{last!r} is {kind} already, and is not overwritten", "remove it, or receive with --existing replace or number"
    )


def _is_folder(found: os.stat_result) -> bool:
    return (found.st_mode & 0o170000) == 0o040000


@dataclass(frozen=True, slots=True)
class Begun:
    """A transfer that has a journal here."""

    manifest: Manifest
    origin: str
    has_name: bool  # it was finished, and the journal is all that is left


def begun_in(state: Path) -> list[Begun]:
    """The transfers that were begun here; what has no valid journal is removed."""
    found = []
    for path in sorted(state.glob("*" + journals.SUFFIX)):
        journaled = _journaled(path)
        if journaled is None:
            path.unlink()
        else:
            found.append(Begun(journaled.manifest, journaled.origin, not path.with_suffix(SUFFIX).exists()))
    for path in state.glob("*" + SUFFIX):
        if not path.with_suffix(journals.SUFFIX).exists():
            path.unlink()
    return found


def forget(state: Path, transfer: str) -> None:
    """Remove the journal of a transfer that has its name."""
    _journal_path(state, transfer).unlink(missing_ok=True)


def remove(state: Path, transfer: str) -> None:
    """Remove what there is of a transfer that is not open."""
    (state / (transfer + SUFFIX)).unlink(missing_ok=True)
    forget(state, transfer)


@lru_cache(8)
def _is_in_memory(state: Path) -> bool:
    return is_in_memory(state)


def _journal_path(state: Path, transfer: str) -> Path:
    return state / (transfer + journals.SUFFIX)


def _journaled(path: Path) -> journals.Journaled | None:
    try:
        return journals.decode_journal(read_regular(path))
    except OSError:
        return None

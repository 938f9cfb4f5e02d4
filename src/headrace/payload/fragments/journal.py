"""Journal: which fragments of a partial file are there, so that a receiver that was killed continues.

It lies beside the partial file. One line of JSON, then a record of 40 bytes for each fragment that was written:

    u32 number, 32 bytes BLAKE3 of the fragment, u32 CRC-32 of the 36 bytes before

A record is appended after its fragment was written. After a kill the operating system still has both; a record that was
cut off is dropped, and its fragment received again. After a restart of the machine either may be missing, so a journal
of an earlier boot is only a hint: each fragment that it names is read and hashed again (`partial.py`).
"""

import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from headrace.decoding import Decoder
from headrace.errors import HeadraceError
from headrace.log.documents import UNREADABLE
from headrace.payload.fragments.manifest import HASH_BYTES, Manifest, check_manifest

SUFFIX = ".journal"
_HEAD_BYTES_MAX = 8 << 20
_BODY = struct.Struct(f"<I{HASH_BYTES}s")
_CHECK = struct.Struct("<I")
RECORD_BYTES = _BODY.size + _CHECK.size

Entry = tuple[int, bytes]  # the number of a fragment, and its hash


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    boot: str
    origin: str  # of the fragments
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Journaled:
    """What a journal says."""

    manifest: Manifest
    origin: str
    entries: list[Entry]  # in the order in which they were written
    is_of_this_boot: bool
    valid_bytes: int  # what is behind is cut off


_DECODER: Decoder[_Head] = Decoder(_Head, bytes_max=_HEAD_BYTES_MAX, encoding="json")


def boot_id() -> str:
    """Different after each start of the machine; empty if the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def encode_head(manifest: Manifest, origin: str) -> bytes:
    """The first line. Hashes and questions of the sender do not belong to it."""
    bare = msgspec.structs.replace(manifest, hashes=b"", asks=False, withdrawn="")
    return msgspec.json.encode(_Head(boot_id(), origin, bare)) + b"\n"


def encode_entries(entries: list[Entry]) -> bytes:
    bodies = [_BODY.pack(*entry) for entry in entries]
    return b"".join(body + _CHECK.pack(zlib.crc32(body)) for body in bodies)


def decode_journal(content: bytes) -> Journaled | None:
    """What the journal says; None if not even its first line is valid."""
    line, found, records = content[:_HEAD_BYTES_MAX].partition(b"\n")
    if not found:
        return None
    try:
        head = _DECODER.decode(line)
        check_manifest(head.manifest)
    except (*UNREADABLE, HeadraceError):
        return None
    records = content[len(line) + 1 :]
    entries = _entries_of(records, head.manifest.count)
    valid = len(line) + 1 + len(entries) * RECORD_BYTES
    return Journaled(head.manifest, head.origin, entries, bool(head.boot) and head.boot == boot_id(), valid)


def _entries_of(records: bytes, count: int) -> list[Entry]:
    """The records up to the first one that is invalid."""
    entries: list[Entry] = []
    for place in range(0, len(records) - RECORD_BYTES + 1, RECORD_BYTES):
        number, digest = _BODY.unpack_from(records, place)
        (check,) = _CHECK.unpack_from(records, place + _BODY.size)
        if check != zlib.crc32(records[place : place + _BODY.size]) or number >= count:
            break
        entries.append((number, digest))
    return entries


class Journal:
    """The journal of one partial file, open for appending."""

    def __init__(self, path: Path, manifest: Manifest, origin: str, valid_bytes: int = 0) -> None:
        """Begin a journal; or continue one, of which so many bytes are valid."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if not valid_bytes:
                head = encode_head(manifest, origin)
                os.ftruncate(self._file, 0)
                write_at(self._file, head, 0)
                valid_bytes = len(head)
            os.ftruncate(self._file, valid_bytes)
        except BaseException:
            os.close(self._file)
            raise
        self._end = valid_bytes

    def append(self, entries: list[Entry]) -> None:
        """Record fragments that were written. An OSError leaves the records before as they are."""
        records = encode_entries(entries)
        write_at(self._file, records, self._end)
        self._end += len(records)

    def close(self) -> None:
        os.close(self._file)


def write_at(file: int, content: bytes | memoryview, place: int) -> None:
    """Write everything, however little the system takes at once."""
    view = memoryview(content)
    while view:
        written = os.pwrite(file, view, place)
        view, place = view[written:], place + written


def held_of(journaled: Journaled) -> tuple[np.ndarray, np.ndarray]:
    """Which fragments are there, and their hashes; the last record of a fragment counts."""
    count = journaled.manifest.count
    held, hashes = np.zeros(count, np.bool_), np.zeros((count, HASH_BYTES), np.uint8)
    for number, digest in journaled.entries:
        held[number] = True
        hashes[number] = np.frombuffer(digest, np.uint8)
    return held, hashes

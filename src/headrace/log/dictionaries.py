"""Dictionaries: what small compressed products of a queue have in common, stored once.

    dictionaries/3f2a91c0.dictionary    one dictionary, in the form that also travels between sites

    magic 8 B · version u16 · feed bytes u16 · dictionary bytes u32 · BLAKE3 of the rest 32 B · feed · dictionary

A dictionary never changes, and its number is computed from its content: the first bytes of a hash, placed in the range
that zstd leaves to private dictionaries. A compressed product names its dictionary by that number. A file with another
content under the same number is refused, so a number means the same dictionary in every queue that has it.

A dictionary consists of pieces of the products that it was trained with. `feed` says which these were, so that a site
gives it only to clients that may receive some of them.

Dictionaries are kept as long as the queue: a product that needs one may arrive from another site at any time.

Not here: training (payload/compression/training.py), and the expansion itself (kernel/log/expand.pxi).
"""

import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from headrace.errors import DictionaryError, HeadraceError, OptionError
from headrace.files import make_folder, read_regular, write_regular
from headrace.log.explain import explain_os_error
from headrace.log.seams import Disk, Storage
from headrace.product.expansion import DictionarySource
from headrace.product.feed import FeedPattern

if TYPE_CHECKING:
    import zstandard

FOLDER = "dictionaries"
DICTIONARIES_MAX = 256  # of one queue
DICTIONARY_BYTES_MAX = 1 << 20
_MAGIC = b"HRDICT\0\0"
_VERSION = 1
_HEAD = struct.Struct("<8sHHI32s")
_ZSTD_MAGIC = b"\x37\xa4\x30\xec"
_NUMBERS = (1 << 15, 1 << 31)  # of private dictionaries
_NAME = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Dictionary:
    """One dictionary of zstd; make one with `numbered` or `decode_dictionary`."""

    number: int
    feed: str  # the pattern of the products with which it was trained
    content: bytes  # as zstd has it, with its number in it

    @property
    def name(self) -> str:
        """The number as people write it."""
        return name_of(self.number)


def name_of(number: int) -> str:
    """A dictionary's number as people write it: 8 hexadecimal digits."""
    return f"{number:08x}"


def parse_name(text: Any) -> int:
    """The number of a dictionary; OptionError if it is none."""
    if not isinstance(text, str) or not _NAME.fullmatch(text) or not _NUMBERS[0] <= int(text, 16) < _NUMBERS[1]:
        raise OptionError(
            f"{str(text)[:40]!r} is not a dictionary", "give 8 hexadecimal digits, as headrace queue train shows them"
        )
    return int(text, 16)


def numbered(content: bytes, feed: str) -> Dictionary:
    """The dictionary with this content, under the number that the content gives it."""
    number = _number_of(content)
    return Dictionary(number, feed, content[:4] + number.to_bytes(4, "little") + content[8:])


def _number_of(content: bytes) -> int:
    low, high = _NUMBERS
    digest = blake3(content[:4] + bytes(4) + content[8:]).digest()
    return low + int.from_bytes(digest[:8], "little") % (high - low)


# --- bytes ------------------------------------------------------------------------------------------


def encode_dictionary(dictionary: Dictionary) -> bytes:
    """A dictionary as a file has it, and a message between sites."""
    body = dictionary.feed.encode() + dictionary.content
    sizes = len(dictionary.feed.encode()), len(dictionary.content)
    return _HEAD.pack(_MAGIC, _VERSION, *sizes, blake3(body).digest()) + body


def decode_dictionary(data: bytes, number: int) -> Dictionary:
    """The dictionary in these bytes; DictionaryError unless every byte is valid and it is the one of that number."""
    if len(data) < _HEAD.size:
        raise _invalid(number, f"it has {len(data)} bytes")
    magic, version, feed_bytes, content_bytes, digest = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise _invalid(number, "it does not begin as a dictionary of Headrace")
    if version != _VERSION:
        raise _invalid(number, f"it has version {version}, and this Headrace knows {_VERSION}")
    body = data[_HEAD.size :]
    is_whole = len(body) == feed_bytes + content_bytes and content_bytes <= DICTIONARY_BYTES_MAX
    if not is_whole or blake3(body).digest() != digest:
        raise _invalid(number, "its size or its hash is wrong")
    content = body[feed_bytes:]
    if content[:4] != _ZSTD_MAGIC or int.from_bytes(content[4:8], "little") != number or _number_of(content) != number:
        raise _invalid(number, "its content has another number")
    try:
        feed = body[:feed_bytes].decode()
        FeedPattern(feed)
    except (UnicodeDecodeError, HeadraceError):
        raise _invalid(number, "its feed is invalid") from None
    return Dictionary(number, feed, content)


def _invalid(number: int, why: str) -> DictionaryError:
    return DictionaryError(
        f"dictionary {name_of(number)} is invalid: {why}", "copy it again from a queue or site that has it"
    )


# --- the folder -------------------------------------------------------------------------------------


class Dictionaries:
    """The dictionaries of one queue. Threads may share it."""

    def __init__(self, path: Path, storage: Storage | None = None) -> None:
        self.queue, self.folder = path, path / FOLDER
        self._storage = storage or Disk()
        self._known: dict[int, Dictionary] = {}

    def get(self, number: int) -> Dictionary | None:
        """The dictionary of that number; None if the queue lacks it; DictionaryError if its file is invalid."""
        found = self._known.get(number)
        if found is None:
            try:
                data = read_regular(self._file(number))
            except FileNotFoundError:
                return None
            except OSError as error:
                raise explain_os_error(error, self.queue) from error
            found = self._known[number] = decode_dictionary(data, number)
        return found

    def need(self, number: int) -> Dictionary:
        """As `get`; DictionaryError if the queue lacks it."""
        found = self.get(number)
        if found is None:
            raise missing(number, self.queue)
        return found

    def take(self, numbers: Iterable[int], source: DictionarySource | None) -> None:
        """After return, the queue has these dictionaries, those that it lacked from `source`; or DictionaryError."""
        for number in numbers:
            if self.get(number) is None:
                found = None if source is None else source.need(number)
                if not isinstance(found, Dictionary):
                    raise missing(number, self.queue)
                self.add(found)

    def add(self, dictionary: Dictionary) -> None:
        """After return, the queue has the dictionary for good. DictionaryError if it has another of that number."""
        held = self.get(dictionary.number)
        if held is not None:
            if held.content != dictionary.content:
                raise DictionaryError(
                    f"the queue has another dictionary {dictionary.name}", "train again, with other products"
                )
            return
        if len(self.numbers()) >= DICTIONARIES_MAX:
            raise DictionaryError(
                f"the queue has {DICTIONARIES_MAX} dictionaries, the maximum",
                f"remove files from {self.folder} that no held product needs",
            )
        try:
            self._write(self._file(dictionary.number), encode_dictionary(dictionary))
        except OSError as error:
            raise explain_os_error(error, self.queue) from error
        self._known[dictionary.number] = dictionary

    def _write(self, file: Path, data: bytes) -> None:
        if not self.folder.exists():
            make_folder(self.folder)
            self._storage.sync_directory(self.queue)
        part = file.with_name(f"{os.urandom(8).hex()}.part")
        try:
            write_regular(part, data)
            self._storage.sync_file(part)
            part.rename(file)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        self._storage.sync_directory(self.folder)

    def numbers(self) -> list[int]:
        """The numbers of all dictionaries."""
        names = sorted(file.stem for file in self.folder.glob("*.dictionary")) if self.folder.exists() else []
        return [int(name, 16) for name in names if _NAME.fullmatch(name)]

    def faults(self) -> list[tuple[Path, str]]:
        """Every file that is invalid, and why."""
        found = []
        for number in self.numbers():
            try:
                decode_dictionary(read_regular(self._file(number)), number)
            except (DictionaryError, OSError) as error:
                found.append((self._file(number), str(error)))
        return found

    def _file(self, number: int) -> Path:
        return self.folder / f"{name_of(number)}.dictionary"


def missing(number: int, queue: Path) -> DictionaryError:
    """The error for a product whose dictionary is not there."""
    return DictionaryError(
        f"{queue} lacks dictionary {name_of(number)}, with which a product is compressed",
        f"{restore(number, queue)}; products that do not need it stay readable",
    )


def restore(number: int, queue: Path) -> str:
    """Where the file of a missing dictionary has to be, and where it may come from."""
    place = queue / FOLDER / f"{name_of(number)}.dictionary"
    return f"restore {place} from a backup of this queue, or copy it from the queue that the products came from"


def zstd_dictionary(content: bytes) -> "zstandard.ZstdCompressionDict":
    """A dictionary, ready for zstd."""
    import zstandard  # loaded by programs that compress something

    return zstandard.ZstdCompressionDict(content)

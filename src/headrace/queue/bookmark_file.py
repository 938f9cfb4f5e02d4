"""FileBookmark: results that are appended to a file, and beside it the position and the length that belongs to it.

    metar.txt                 the results
    metar.txt.bookmark        how many of its bytes count, and the mark; replaced as a whole
    metar.txt.bookmark.lock   held by the process that uses them

`store` appends and flushes; then the bookmark is replaced, which is the commit. A process that is killed before leaves
bytes that do not count, and the next one cuts them off. So a program that reads the file meanwhile may see results that
disappear and come again; `headrace.queue.bookmark_file.counted_bytes` says how many of them stay.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from headrace.errors import BookmarkError
from headrace.files import open_regular, read_regular
from headrace.log.documents import replace_file
from headrace.log.locks import FileLockedError, locked
from headrace.log.seams import Disk
from headrace.queue.bookmark import Bookmark, Mark, decoded, explained

VERSION = 1
_SUFFIX, _LOCK = ".bookmark", ".bookmark.lock"
_DISK = Disk()


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bookmark of a file."""

    version: int
    bytes: int  # of the file that count
    mark: Mark | None


class FileBookmark(Bookmark[BinaryIO]):
    """The bookmark of one file, which belongs to it: nobody else writes there."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """BookmarkError: another process uses it, or the file has content that no bookmark describes."""
        self.path = Path(path)
        self.name = f"the bookmark of {self.path}"
        self._held = ExitStack()
        try:
            with explained(self.name):
                self._held.enter_context(locked(_beside(self.path, _LOCK), wait=False))
                self._open()
        except FileLockedError as error:
            by = f" by process {error.holder}" if error.holder else ""
            raise BookmarkError(f"{self.path} is in use{by}", "end that program, or use another file") from None
        except BaseException:
            self._held.close()
            raise

    def _open(self) -> None:
        """Cut off what was appended and not committed."""
        kept = _kept(self.path)
        descriptor = open_regular(self.path, os.O_RDWR | os.O_CREAT, follow=True)
        self._file = self._held.enter_context(os.fdopen(descriptor, "r+b"))
        size = os.fstat(self._file.fileno()).st_size
        if kept is None:
            if size:
                raise BookmarkError(
                    f"{self.path} has content, and no bookmark says where it ends", "move it away, or use another file"
                )
            _DISK.sync_directory(self.path.parent)
            kept = Kept(VERSION, 0, None)
        if size < kept.bytes:
            raise BookmarkError(
                f"{self.path} has {size:,} bytes, and its bookmark counts {kept.bytes:,}",
                f"restore it, or remove both {self.path.name} and {_beside(self.path, _SUFFIX).name} to start again",
            )
        self._bytes, self._mark = kept.bytes, kept.mark
        self._file.truncate(self._bytes)

    def close(self) -> None:
        self._held.close()

    def _stored(self, after: Mark) -> AbstractContextManager[BinaryIO]:
        return self._appended(after)

    @contextmanager
    def _appended(self, after: Mark) -> Iterator[BinaryIO]:
        self._file.seek(self._bytes)
        try:
            yield self._file
            with explained(self.name):
                self._file.flush()
                os.fdatasync(self._file.fileno())
                end = self._file.seek(0, os.SEEK_END)
                self._save(Kept(VERSION, end, after))
        except BaseException:
            self._cut()
            raise
        self._bytes, self._mark = end, after

    def _cut(self) -> None:
        """Take back what was appended; what is buffered must not reach the file either."""
        with explained(self.name):
            try:
                self._file.flush()
            finally:
                os.ftruncate(self._file.fileno(), self._bytes)

    def _replace(self, mark: Mark | None) -> None:
        with explained(self.name):
            self._save(Kept(VERSION, self._bytes, mark))
        self._mark = mark

    def _save(self, kept: Kept) -> None:
        replace_file(_beside(self.path, _SUFFIX), msgspec.json.encode(kept), _DISK)


def counted_bytes(path: str | os.PathLike[str]) -> int:
    """How many bytes of the file count now; those behind them may be cut off. For programs that read it."""
    kept = _kept(Path(path))
    return kept.bytes if kept else 0


def _kept(path: Path) -> Kept | None:
    beside = _beside(path, _SUFFIX)
    try:
        text = read_regular(beside)
    except FileNotFoundError:
        return None
    kept: Kept = decoded(str(beside), text, Kept)
    if kept.version != VERSION:
        raise BookmarkError(f"{beside} has version {kept.version}, not {VERSION}", "upgrade Headrace")
    return kept


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)

"""SqliteBookmark: results and the position in one transaction of an SQLite database.

    headrace_bookmarks(name, mark)      beside your own tables

The transaction of `store` is yours for any statement but those that begin or end transactions. If another process has
moved the bookmark meanwhile, nothing is stored. A commit survives a power failure.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import msgspec

from headrace.errors import BookmarkError, OptionError
from headrace.queue.bookmark import Bookmark, Mark, decoded
from headrace.units import parse_age

NAME_CHARACTERS_MAX = 255
_TABLE = "CREATE TABLE IF NOT EXISTS headrace_bookmarks (name TEXT PRIMARY KEY, mark TEXT NOT NULL)"
_READ = "SELECT mark FROM headrace_bookmarks WHERE name = ?"
_MOVE = "UPDATE headrace_bookmarks SET mark = ? WHERE name = ? AND mark = ?"


class SqliteBookmark(Bookmark[sqlite3.Connection]):
    """One of any number of bookmarks in a database, each with its name. `database` is the open connection."""

    def __init__(
        self, path: str | os.PathLike[str], name: str = "main", *, timeout: float | str | timedelta = "30s"
    ) -> None:
        """`timeout`: how long a transaction of another process is waited for. BookmarkError: no access."""
        if not os.fspath(path) or str(path).startswith(("file:", ":memory:")):
            raise OptionError(f"{str(path)!r} is not the path of a database", "give the path of a file")
        if not 1 <= len(name) <= NAME_CHARACTERS_MAX:
            raise OptionError(f"a name of {len(name)} characters", f"1 to {NAME_CHARACTERS_MAX} are allowed")
        self.path, self._key = Path(path), name
        self.name = f"bookmark {name} in {self.path}"
        with self._explained():
            self.database = sqlite3.connect(self.path, parse_age(timeout, "timeout"), isolation_level=None)
            try:
                self.database.execute("PRAGMA synchronous = FULL")
                self.database.execute(_TABLE)
                self._mark = self._read()
            except BaseException:
                self.database.close()
                raise

    def close(self) -> None:
        self.database.close()

    def _stored(self, after: Mark) -> AbstractContextManager[sqlite3.Connection]:
        return self._transaction(after)

    @contextmanager
    def _transaction(self, after: Mark) -> Iterator[sqlite3.Connection]:
        with self._explained():
            self.database.execute("BEGIN IMMEDIATE")
        try:
            self.database.set_authorizer(_deny_transactions)
            try:
                yield self.database
            finally:
                self.database.set_authorizer(None)
            with self._explained():
                self._move(after)
                self.database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # some errors have rolled it back already
                self.database.execute("ROLLBACK")
            raise
        self._mark = after

    def _move(self, after: Mark) -> None:
        assert self._mark is not None
        moved = self.database.execute(_MOVE, [_text(after), self._key, _text(self._mark)])
        if moved.rowcount != 1:
            raise BookmarkError(
                f"another process has moved {self.name}; nothing was stored",
                "end one of the two, or give each a bookmark and results of its own",
            )

    def _replace(self, mark: Mark | None) -> None:
        with self._explained():
            if mark is None:
                self.database.execute("DELETE FROM headrace_bookmarks WHERE name = ?", [self._key])
            else:
                self.database.execute(
                    "INSERT OR IGNORE INTO headrace_bookmarks VALUES (?, ?)", [self._key, _text(mark)]
                )
        self._mark = self._read()  # another process may have been faster

    def _read(self) -> Mark | None:
        found = self.database.execute(_READ, [self._key]).fetchone()
        mark: Mark | None = decoded(self.name, found[0].encode(), Mark) if found else None
        return mark

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise BookmarkError(
                f"{self.path} was not written: {error}",
                "check disk and permissions, and end a program that keeps a transaction open; nothing was stored",
            ) from error


def _text(mark: Mark) -> str:
    return msgspec.json.encode(mark).decode()


def _deny_transactions(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK

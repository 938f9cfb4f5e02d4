"""SqliteSink: results and positions in one transaction of an SQLite database.

    headrace_positions(group_id, slice, epoch, position)      beside your own tables

Rows go into a table that exists, or a function of yours does with the open transaction what it likes: update counters,
fill several tables. It must not begin or end transactions, and the database refuses that while it runs.

Several processes of one machine may use a database at once: it is in WAL mode, and each store is one short write
transaction. A process that waits for another one gives up after `timeout`. A commit survives a power failure. SQLite
locks do not work on network file systems: nodes on several machines need another sink.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import OptionError, SinkError, SinkFencedError, SinkRefusedError, SinkUnavailableError
from headrace.share.interface import Marks, Positions
from headrace.slices.sinks.fencing import Counter, Held, advanced, check_group, claimed, fresh, positions_of
from headrace.slices.sinks.interface import Result, SinkStatistics, values_of
from headrace.units import parse_age

Write = Callable[[sqlite3.Connection, Sequence[Result]], object]

_POSITIONS = """CREATE TABLE IF NOT EXISTS headrace_positions (
    group_id TEXT NOT NULL, slice INTEGER NOT NULL, epoch INTEGER NOT NULL, position INTEGER NOT NULL,
    PRIMARY KEY (group_id, slice)
) WITHOUT ROWID"""
_COLUMNS = ["group_id", "slice", "epoch", "position"]
_READ = """SELECT slice, epoch, position FROM headrace_positions
    WHERE group_id = ? AND slice IN (SELECT value FROM json_each(?))"""
_PAUSE_S = 0.02
_REMEDIES = {
    sqlite3.SQLITE_BUSY: "another process holds a transaction for too long: let it end, or raise timeout",
    sqlite3.SQLITE_LOCKED: "another process holds a transaction for too long: let it end, or raise timeout",
    sqlite3.SQLITE_FULL: "free some space",
    sqlite3.SQLITE_IOERR: "check the disk, and whether it has space",
    sqlite3.SQLITE_READONLY: "change the permissions of the file and of its folder",
    sqlite3.SQLITE_CANTOPEN: "create the folder, and check its permissions",
    sqlite3.SQLITE_PERM: "change the permissions of the file",
    sqlite3.SQLITE_NOMEM: "free some memory",
    sqlite3.SQLITE_PROTOCOL: "too many processes open the database at once: try again",
}
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class SqliteSink:
    """Give either `table`, for results that are rows, or `write`, a function that gets the connection and the results.

    A row is a tuple of all columns, or a mapping of names to values.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str | None = None,
        *,
        write: Write | None = None,
        timeout: float | str | timedelta = "30s",
    ) -> None:
        """OptionError: an argument is invalid, or the table does not exist. SinkUnavailableError: no access."""
        if (table is None) == (write is None):
            raise OptionError("a SqliteSink needs either a table or a write function", 'SqliteSink("out.db", "rows")')
        if not os.fspath(path) or str(path).startswith(("file:", ":memory:")):
            raise OptionError(f"{str(path)!r} is not the path of a database", "give the path of a file")
        self.path = Path(path)
        self._table, self._write, self._timeout_s = table, write, parse_age(timeout, "timeout")
        self._lock, self._pid, self._counter = threading.Lock(), os.getpid(), Counter()
        with self._explained():
            self._database = sqlite3.connect(
                self.path, timeout=self._timeout_s, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise

    def claim(self, group: str, marks: Marks) -> Positions:
        with self._transaction():
            held = self._held(check_group(group), marks)
            after = claimed(held, marks, self.path)
            self._save(group, held, after)
            self._counter.add(claims=1)
        return positions_of(marks, after)

    def store(self, group: str, results: Sequence[Result], marks: Marks) -> None:
        try:
            with self._transaction():
                held = self._held(check_group(group), marks)
                after = advanced(held, marks, self.path)
                new = fresh(results, marks, held)
                if new:
                    self._apply(new)
                self._save(group, held, after)
            self._counter.add(stores=1, results=len(new), repeated=len(results) - len(new))
        except _RefusedError as refused:
            raise self._blamed(new, refused.cause) from refused.cause

    def statistics(self) -> SinkStatistics:
        return self._counter.statistics

    def close(self) -> None:
        if os.getpid() == self._pid:
            with self._lock:
                self._database.close()

    # --- the database -----------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._use_wal()
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(_POSITIONS)
        names = [row[1] for row in self._database.execute("PRAGMA table_info(headrace_positions)")]
        if names != _COLUMNS:
            raise SinkError(
                f"{self.path}: the table headrace_positions has the columns {', '.join(names)}",
                "it is not one of this version: rename it, or use another database",
            )
        if (
            self._table is not None
            and not self._database.execute("SELECT 1 FROM pragma_table_info(?)", [self._table]).fetchone()
        ):
            raise OptionError(
                f"{self.path} has no table {self._table!r}", f"create it first: CREATE TABLE {self._table} (…)"
            )

    def _use_wal(self) -> None:
        """SQLite does not wait by itself if two processes switch the mode at once."""
        end = time.monotonic() + self._timeout_s
        while True:
            try:
                mode = self._database.execute("PRAGMA journal_mode").fetchone()[0]
                if mode != "wal":
                    mode = self._database.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(_PAUSE_S)
        if mode != "wal":
            raise SinkError(f"{self.path} does not support WAL mode", "put it on a local file system")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One write transaction; after an error, nothing of it remains."""
        if os.getpid() != self._pid:
            raise SinkError(f"{self.path} was opened before a fork", "make the sink in the process that uses it")
        with self._lock, self._explained():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):  # some errors have rolled it back already
                    self._database.execute("ROLLBACK")
                if isinstance(error, SinkFencedError):
                    self._counter.add(fenced=1)
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = _code(error)
            if code in _DAMAGED:
                raise SinkError(f"{self.path}: {error}", "restore it from a backup, or use another file") from error
            hint = _REMEDIES.get(code, "check the database; nothing was stored")
            raise SinkUnavailableError(f"{self.path} was not written: {error}", hint) from error

    def _held(self, group: str, marks: Marks) -> dict[int, Held]:
        numbers = msgspec.json.encode(marks.slices.tolist()).decode()
        return {row[0]: Held(*row[1:]) for row in self._database.execute(_READ, [group, numbers])}

    def _save(self, group: str, held: Mapping[int, Held], after: Mapping[int, Held]) -> None:
        changed = ((group, number, *now) for number, now in after.items() if held.get(number) != now)
        self._database.executemany("INSERT OR REPLACE INTO headrace_positions VALUES (?, ?, ?, ?)", changed)

    # --- results ----------------------------------------------------------------------------------

    def _apply(self, results: Sequence[Result]) -> None:
        """Do what the results say, in the open transaction. _RefusedError: one of them is at fault."""
        try:
            if self._write is None:
                self._insert(results)
            else:
                self._call(self._write, results)
        except sqlite3.Error as error:
            if _code(error) == sqlite3.SQLITE_AUTH and self._write is not None:
                raise SinkError(
                    f"the function for {self.path} begins or ends a transaction; nothing was stored",
                    "leave that to the sink: results and positions belong into one transaction",
                ) from error
            if _code(error) in _REMEDIES or _code(error) in _DAMAGED:
                raise
            raise _RefusedError(error) from error
        except Exception as error:
            raise _RefusedError(error) from error

    def _insert(self, results: Sequence[Result]) -> None:
        rows = (row for result in results for row in values_of(result))
        for shape, alike in groupby(rows, _shape):
            names, count = (
                ("", shape) if isinstance(shape, int) else (f" ({', '.join(map(_quoted, shape))})", len(shape))
            )
            values = (row if isinstance(row, tuple) else tuple(row.values()) for row in alike)
            places = ", ".join("?" * count)
            self._database.executemany(f"INSERT INTO {_quoted(self._table or '')}{names} VALUES ({places})", values)

    def _call(self, write: Write, results: Sequence[Result]) -> None:
        """Call the user's function; the transaction is ours."""
        self._database.set_authorizer(_deny_transactions)
        try:
            write(self._database, results)
        finally:
            self._database.set_authorizer(None)

    def _blamed(self, results: Sequence[Result], cause: Exception) -> SinkError:
        """The error for the product at fault: each is tried in a transaction that is taken back."""
        self._counter.add(refused=1)
        place = f"the function for {self.path}" if self._write else f"table {self._table!r} of {self.path}"
        try:
            with self._transaction():
                for result in results:
                    try:
                        self._apply([result])
                    except _RefusedError as refused:
                        raise SinkRefusedError(
                            f"{place} refuses the result of product {result.sequence}: {refused.cause!s:.300}",
                            "change what the work returns, or the table; nothing was stored",
                            result.slice,
                            result.sequence,
                        ) from refused.cause
                raise _DoneError
        except SinkRefusedError as error:
            return error
        except _DoneError:
            return SinkError(
                f"{place} refuses {len(results)} results together: {cause!s:.300}",
                "each of them alone is accepted; nothing was stored",
            )


class _RefusedError(Exception):
    """The results, not the database, are at fault."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


class _DoneError(Exception):
    """Takes a trial back."""


def _shape(row: Any) -> int | tuple[str, ...]:
    """Rows of one shape are inserted by one statement."""
    if isinstance(row, tuple):
        return len(row)
    if isinstance(row, Mapping) and row and all(isinstance(name, str) for name in row):
        return tuple(row)
    raise OptionError(f"{row!r:.100} is not a row", "return a tuple, a mapping of columns, or a list of these")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _code(error: sqlite3.Error) -> int:
    """The primary code of SQLite; 0 if the error is not SQLite's own."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _deny_transactions(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK

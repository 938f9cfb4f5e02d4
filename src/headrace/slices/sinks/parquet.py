"""ParquetSink: results as Parquet files in a folder, and positions in a log of commits beside it (commit_log.py).

    results ──► staged file, flushed ──► line in the log: positions, name of the file ──► renamed into the folder

The line in the log is the commit. The folder has complete and committed files and nothing else, so that every reader of
Parquet can take it as it is. A file whose writer was killed between the commit and the rename is put into place by the
next process that claims, stores or calls `committed_files`.

Each store makes one file: let nodes store seldom and much. Files of the folder may be merged, moved or deleted by
others at any time; the log does not need them any more.
"""

import errno
import os
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import OptionError, SinkFencedError, SinkRefusedError, SinkUnavailableError
from headrace.log.seams import Disk
from headrace.share.interface import Marks, Positions
from headrace.slices.sinks.commit_log import CommitLog, has_log
from headrace.slices.sinks.fencing import Counter, Held, Holds, advanced, check_group, claimed, fresh, positions_of
from headrace.slices.sinks.interface import Result, SinkStatistics, values_of
from headrace.units import parse_age

_SUFFIX = ".parquet"
_DISK = Disk()
_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "raise the quota, or free some space",
    errno.EACCES: "change the permissions of the folder",
    errno.EPERM: "change the permissions of the folder",
    errno.EROFS: "mount the file system for writing, or choose another folder",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENOTDIR: "a file that is not a folder has that name: move it away, or choose another path",
    errno.EEXIST: "a file that is not a folder has that name: move it away, or choose another path",
}


class ParquetSink:
    """A result is a row, as a mapping of columns to values, or many rows as a `RecordBatch` or `Table`.

    A column that a row does not name is null there; a row with an unknown column is refused. Nodes on several machines
    may share a folder on a file system with locks and renames, such as NFS 4; that is untested.
    """

    def __init__(
        self, folder: str | os.PathLike[str], schema: pa.Schema, *, timeout: float | str | timedelta = "30s"
    ) -> None:
        """OptionError: an argument is invalid, or the folder has other columns. SinkUnavailableError: no access."""
        if not isinstance(schema, pa.Schema) or not len(schema):
            raise OptionError(
                f"{schema!r:.100} is not a schema with columns", "pyarrow.schema([('station', 'string')])"
            )
        if not os.fspath(folder):
            raise OptionError("the folder is empty", 'ParquetSink("results", schema)')
        self.folder = Path(folder)
        self._schema = schema
        self._lock, self._counter = threading.Lock(), Counter()
        with self._explained():
            self._log = CommitLog(self.folder, parse_age(timeout, "timeout"))
            with self._log.locked():
                self._log.remove_strays()
            self._check_columns()

    def claim(self, group: str, marks: Marks) -> Positions:
        check_group(group)
        with self._lock, self._explained(), self._log.locked():
            held = self._log.held(group)
            after = claimed(held, marks, self.folder)
            changed = _changed(held, after)
            if changed:
                self._log.commit(group, changed)
            self._counter.add(claims=1)
            return positions_of(marks, after)

    def store(self, group: str, results: Sequence[Result], marks: Marks) -> None:
        check_group(group)
        with self._lock, self._explained():
            before = dict(self._log.held(group))
            try:
                new, staged = self._prepared(results, marks, before)
            except FileNotFoundError:  # another process has just removed the file as a stray: again, under the lock
                new, staged, before = [], "", {}
            try:
                with self._log.locked():
                    held = self._log.held(group)
                    after = advanced(held, marks, self.folder)
                    if _among(after, held) != _among(after, before) or (staged and not self._has(staged)):
                        self._discard(staged)
                        new, staged = self._prepared(results, marks, held)
                    changed = _changed(held, after)
                    if changed:
                        self._log.commit(group, changed, staged)
            finally:
                self._discard(staged)
            self._counter.add(stores=1, results=len(new), repeated=len(results) - len(new))

    def statistics(self) -> SinkStatistics:
        return self._counter.statistics

    def close(self) -> None:
        """Nothing is open between two calls."""

    # --- files ------------------------------------------------------------------------------------

    def _prepared(self, results: Sequence[Result], marks: Marks, held: Holds) -> tuple[list[Result], str]:
        """The results that are new, and the name of their staged file; empty if they have no rows."""
        if not set(marks.slices.tolist()) <= held.keys():
            return [], ""  # not claimed as far as this process knows; what others have committed is read next
        new = fresh(results, marks, held)
        table = self._table(new)
        if not table.num_rows:
            return new, ""
        name = secrets.token_hex(8) + _SUFFIX
        path = self._log.staged / name
        try:
            pq.write_table(table, path)
            _DISK.sync_file(path)
            _DISK.sync_directory(self._log.staged)
        except BaseException:
            self._discard(name)
            raise
        return new, name

    def _has(self, name: str) -> bool:
        return (self._log.staged / name).exists()

    def _discard(self, name: str) -> None:
        """Delete a staged file, unless it is committed."""
        if name and name != self._log.last_staged:
            with suppress(OSError):
                (self._log.staged / name).unlink()

    def _check_columns(self) -> None:
        for path in sorted(self.folder.glob("*" + _SUFFIX))[:1]:
            found = pq.read_schema(path)
            if not found.equals(self._schema):
                raise OptionError(
                    f"{path} has the columns {_shown(found)}, and not {_shown(self._schema)}",
                    "give the same schema, or choose a new folder",
                )

    # --- rows -------------------------------------------------------------------------------------

    def _table(self, results: Sequence[Result]) -> pa.Table:
        """The rows of results. SinkRefusedError names the product whose rows do not fit."""
        try:
            return self._converted(results)
        except (pa.ArrowException, OptionError, ValueError, TypeError, OverflowError):
            for result in results:
                self._try_alone(result)
            raise

    def _converted(self, results: Sequence[Result]) -> pa.Table:
        tables, rows = [], list[Mapping[str, Any]]()
        for value in (value for result in results for value in values_of(result)):
            if isinstance(value, pa.RecordBatch | pa.Table):
                tables += [self._from_rows(rows), self._from_table(value)]
                rows = []
            else:
                rows.append(value)
        table = pa.concat_tables([*tables, self._from_rows(rows)])
        for field in self._schema:
            if not field.nullable and table.column(field.name).null_count:
                raise OptionError(f"column {field.name!r} is null", "give it a value, or make it nullable")
        return table

    def _from_rows(self, rows: list[Mapping[str, Any]]) -> pa.Table:
        names = set(self._schema.names)
        for row in rows:
            if not isinstance(row, Mapping):
                raise OptionError(f"{row!r:.100} is not a row", "return a mapping of columns, or a list of these")
            if not row.keys() <= names:
                raise OptionError(f"column {min(row.keys() - names)!r} is unknown", f"columns are {', '.join(names)}")
        return pa.Table.from_pylist(rows, schema=self._schema)

    def _from_table(self, value: pa.RecordBatch | pa.Table) -> pa.Table:
        table = pa.Table.from_batches([value]) if isinstance(value, pa.RecordBatch) else value
        if set(table.column_names) != set(self._schema.names) or len(table.column_names) != len(self._schema):
            raise OptionError(f"a table has the columns {', '.join(table.column_names)}", _shown(self._schema))
        return table.select(self._schema.names).cast(self._schema)

    def _try_alone(self, result: Result) -> None:
        try:
            self._converted([result])
        except (pa.ArrowException, OptionError, ValueError, TypeError, OverflowError) as error:
            self._counter.add(refused=1)
            raise SinkRefusedError(
                f"{self.folder} refuses the result of product {result.sequence}: {error!s:.300}",
                "change what the work returns, or the schema; nothing was stored",
                result.slice,
                result.sequence,
            ) from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except SinkFencedError:
            self._counter.add(fenced=1)
            raise
        except OSError as error:
            hint = _REMEDIES.get(error.errno or 0, "check the disk")
            raise SinkUnavailableError(
                f"{error.filename or self.folder} was not written: {error.strerror or error}", hint
            ) from error


def committed_files(folder: str | os.PathLike[str], *, timeout: float | str | timedelta = "30s") -> list[Path]:
    """The files of a ParquetSink, in the order of their commits, for any reader of Parquet.

    Every committed result is in one of them, also if its writer was killed before it put the file into place. Without
    write access to the folder, the files that are in place. OptionError: there is no such folder.
    """
    path = Path(folder)
    if not path.is_dir():
        raise OptionError(f"{path} is not a folder", "give the folder of a ParquetSink")
    if has_log(path):
        try:
            with CommitLog(path, parse_age(timeout, "timeout")).locked():
                pass  # the next holder of the lock puts the last file into place
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise SinkUnavailableError(f"{path} was not read: {error}", "check the disk") from error
    return sorted(path.glob("*" + _SUFFIX))


def _changed(held: Holds, after: Holds) -> dict[int, Held]:
    return {number: now for number, now in after.items() if held.get(number) != now}


def _among(numbers: Holds, held: Holds) -> dict[int, Held | None]:
    return {number: held.get(number) for number in numbers}


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)

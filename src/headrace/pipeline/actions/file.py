"""File: rows written to files below a folder, under paths that a template makes.

    append      at the end of the file (file_append.py)
    each        one file for each row, never visible in part. If the file exists with other bytes, it stays, and the
                row is a dead letter, also when the batch is repeated
    overwrite   as `each`, but the last row wins

A path that comes from a product stays below the folder: rules/template_safety.py escapes values, and the result is
checked again here. An invalid path (a file where a folder is needed, a name that is too long) makes the row a dead
letter. A full disk, or a folder without write permission, is a PipelineError.

Durability: what `append` has written survives a power failure. `each` and `overwrite` survive the death of processes
and leave flushing to the operating system: one flush for each file would be expensive.
"""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.errors import PipelineError
from headrace.files import IrregularFileError, read_regular
from headrace.pipeline.actions.action import Context, Counts
from headrace.pipeline.actions.dead_letters import DeadLetters, Letters
from headrace.pipeline.actions.disk import RESERVED, disk_error, is_path_invalid, make_folder
from headrace.pipeline.actions.file_append import Spool, append, append_lock
from headrace.pipeline.actions.journal import Journal, digest
from headrace.pipeline.actions.prepared import PreparedRow, Recipe, prepared_batches, rows_in
from headrace.pipeline.rules.rule import PAYLOAD, FileAction


class RefusedError(Exception):
    """No file takes the row; the text says why."""


class FilePerformer:
    """[rule.file]."""

    def __init__(self, action: FileAction, name: str, pattern: str | None, letters: DeadLetters) -> None:
        if action.folder is None:
            raise PipelineError("the file action has no folder", "load the rules by load_rules, or give folder")
        self._action = action
        self._folder: Path = action.folder
        self.folder, self.appends = action.folder, action.mode == "append"
        self.name = name
        self._letters = letters
        self.recipe = Recipe(
            ((action.path, "path"),), pattern, action.content or PAYLOAD, action.remove, action.mode == "append",
            action.metadata,
        )  # fmt: skip

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        self.recipe.check(frame.columns)
        journal = Journal(context.state / f"{self.name}.json", self._action)
        if self._action.mode == "append" and (counts := journal.done(context.batch_id)) is not None:
            return counts
        return self.perform_batches(prepared_batches(frame, self.recipe), context)

    def perform_batches(self, batches: Iterable[pa.RecordBatch], context: Context) -> Counts:
        """As `perform`, with prepared rows."""
        try:
            make_folder(self._folder)
        except OSError as error:
            raise disk_error(error, self._folder, "created") from error
        if self._action.mode == "append":
            return self._append(batches, context)
        return self._place(batches, context)

    def close(self) -> None:
        """Nothing is open."""

    # --- append -----------------------------------------------------------------------------------

    def _append(self, batches: Iterable[pa.RecordBatch], context: Context) -> Counts:
        journal = Journal(context.state / f"{self.name}.json", self._action)
        if (counts := journal.done(context.batch_id)) is not None:
            return counts
        targets = Targets(self._folder)
        try:
            spool = Spool(context.state)
        except OSError as error:
            raise disk_error(error, context.state) from error
        try:
            with self._letters.writing(context, self.name) as letters:
                rows = sum(spool_row(row, spool, targets, letters) for row in rows_in(batches))
            counts = Counts(rows, len(spool.pieces), letters.count)
            return append(self._folder, spool, journal, context.batch_id, counts)
        finally:
            spool.close()

    # --- each, overwrite --------------------------------------------------------------------------

    def _place(self, batches: Iterable[pa.RecordBatch], context: Context) -> Counts:
        targets, part = Targets(self._folder), part_name(context, self.name)
        rows = 0
        with self._letters.writing(context, self.name) as letters:
            for row in rows_in(batches):
                try:
                    self.put(row, targets, part)
                    rows += 1
                except RefusedError as error:
                    letters.add(row, str(error))
        return Counts(rows, len(targets.files), letters.count)

    def put(self, row: PreparedRow, targets: "Targets", part: str) -> None:
        """After return, the file of the row has its content. RefusedError: its path is invalid, or another row has it.

        part: the name of the file that is written aside.
        """
        path, content = self._folder / targets.admit(row), row.content
        if self._action.mode == "overwrite":
            put_whole(path, content, self._folder, part)
            return
        with append_lock(self._folder):  # no other rule creates the file between the check and the rename
            if is_wanted(path, content):
                put_whole(path, content, self._folder, part)


def spool_row(row: PreparedRow, spool: Spool, targets: "Targets", letters: Letters) -> bool:
    """Add a row to the spool, or to the dead letters; return whether it is in the spool."""
    try:
        path = targets.admit(row)
    except RefusedError as error:
        letters.add(row, str(error))
        return False
    try:
        spool.add(path, row.content)
    except OSError as error:
        raise disk_error(error, "the spool of the batch") from error
    return True


def part_name(context: Context, name: str) -> str:
    """The name of the file that an action writes aside; a killed process leaves at most one."""
    return f"{RESERVED}-{digest(context.application, context.rule, name)}.part"


class Targets:
    """The files of one batch: whether a row can be written to its path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = len(os.fspath(folder)) + 1
        self.files: set[str] = set()
        self._folders: set[str] = set()

    def admit(self, row: PreparedRow) -> str:
        """The path of a row; its folder exists after return. RefusedError tells why the row has none."""
        if row.error is not None:
            raise RefusedError(row.error)
        path = row.texts[0]
        if path not in self.files:
            parents = self._check(path)
            self._make_ready(path)
            self.files.add(path)
            self._folders.update(parents)
        return path

    def _check(self, path: str) -> list[str]:
        names = path.split("/")
        if "\0" in path or any(name in ("", ".", "..") for name in names):
            raise RefusedError(f"{path[:200]!r} is not a path below {self._folder}")
        if any(name.startswith(RESERVED) for name in names):
            raise RefusedError(
                f"{path[:200]!r} has a name that begins with {RESERVED}, which is reserved for the pipeline"
            )
        parents = ["/".join(names[:count]) for count in range(1, len(names))]
        if path in self._folders or not self.files.isdisjoint(parents):
            raise RefusedError(f"{path[:200]!r} would be both a file and a folder")
        return parents

    def _make_ready(self, path: str) -> None:
        target = self._folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            held = os.stat(target)
            if not stat.S_ISREG(held.st_mode):
                raise RefusedError(f"{target} exists, and is not a file")
            if not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
        except FileNotFoundError:
            return  # a new file
        except (OSError, UnicodeEncodeError) as error:
            if isinstance(error, UnicodeEncodeError) or is_path_invalid(error):
                raise RefusedError(f"{str(target)[:200]!r} is not a valid path: {error!s:.200}") from None
            raise disk_error(error, target) from error


def is_wanted(path: Path, content: bytes) -> bool:
    """Whether the file is still to be written. RefusedError: it exists with other bytes, even if they begin alike."""
    try:
        is_same = path.stat().st_size == len(content) and read_regular(path, follow=True) == content
    except FileNotFoundError:
        return True
    except IrregularFileError:
        raise RefusedError(f"{path} exists, and is not a file") from None
    except OSError as error:
        raise disk_error(error, path, "read") from error
    if not is_same:
        raise RefusedError(f"{path} exists with other bytes; add {{sequence}} to path, or choose overwrite")
    return False


def put_whole(path: Path, content: bytes, folder: Path, part: str) -> None:
    """Write a file that no reader sees before it is complete. It survives the death of processes, not a power failure.

    All files share one part, so that a killed process leaves at most one. It lies in `folder` if that is on the same
    file system: a reader that lists the folder of the file never sees it.
    """
    try:
        is_near = path.parent.stat().st_dev == folder.stat().st_dev
        aside = (folder if is_near else path.parent) / part
        with open(aside, "wb", buffering=0) as file:
            view = memoryview(content)
            while view:
                view = view[file.write(view) :]
        os.replace(aside, path)
    except OSError as error:
        if is_path_invalid(error):
            raise RefusedError(f"{path} is not a valid path: {error.strerror}") from None
        raise disk_error(error, path) from error

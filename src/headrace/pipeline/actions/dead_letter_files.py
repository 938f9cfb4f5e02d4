"""Files of the dead letters: one writer at a time, and fewer files.

Many rules, and several pipelines, write dead letters to one folder. Each puts a complete file into place, and a batch
that is repeated replaces its file or removes it. Compaction replaces the folder. So each of them holds a lock on the
home of the table (table_home.py) meanwhile.

The last file of each rule and action is not merged: its batch may be repeated. Earlier batches are done.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.log.locks import lock_file
from headrace.pipeline.actions.disk import disk_error, make_folder
from headrace.pipeline.actions.table_compaction import compact_table
from headrace.pipeline.actions.table_home import homes

_NAME = re.compile(r"part-(?P<rule>.+)-(?P<batch>\d{10,})-(?P<action>.+)\.parquet")


@contextmanager
def only_writer(table: Path) -> Iterator[None]:
    """Hold the folder of dead letters. OSError."""
    home = homes(table)[0]
    make_folder(home)
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        lock_file(descriptor)
        yield
    finally:
        os.close(descriptor)


def compact_letters(table: Path) -> int:
    """Merge small files; return how many files there are fewer. TargetError or PipelineError: nothing has changed."""
    if not table.is_dir():
        return 0
    try:
        with only_writer(table):
            return compact_table(table, leave=_last_files(table))
    except OSError as error:
        raise disk_error(error, table, "compacted") from error


def _last_files(table: Path) -> set[str]:
    last: dict[tuple[str, str], tuple[int, str]] = {}
    for name in os.listdir(table):
        found = _NAME.fullmatch(name)
        if found:
            key, place = (found["rule"], found["action"]), (int(found["batch"]), name)
            last[key] = max(place, last.get(key, place))
    return {name for _, name in last.values()}

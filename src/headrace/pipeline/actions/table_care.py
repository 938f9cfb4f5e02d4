"""Care of a table between batches: rows that are old enough are removed, small files are merged, remains are deleted.

`keep`      table_keep.py, table_delta_keep.py          at most once an hour
`compact`   table_compaction.py, table_delta_compaction.py
always      remains of earlier compactions              when the pipeline starts, and every ten minutes

The first time of each is after the first batch of a run. A table has one writer, and care is part of it: it runs in
the thread of the rule, after a batch is done. The batch stays done if care fails. A failure is logged, the table stays
as it is, and the next attempt comes when it is due.
"""

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from headrace.errors import PipelineError
from headrace.pipeline.actions.disk import disk_error
from headrace.pipeline.actions.table_compaction import compact_table
from headrace.pipeline.actions.table_delta import DeltaLog
from headrace.pipeline.actions.table_keep import Removed, expire_table
from headrace.pipeline.actions.table_replaced import KEPT_S, remove_replaced
from headrace.pipeline.rules.rule import TableAction
from headrace.units import exact_age

_LOGGER = logging.getLogger(__name__)
_EXPIRE_S = 3600.0
_Result = TypeVar("_Result")
_SPANS = 10  # files are merged within a tenth of `keep`, so that no row stays much longer than it


class Cared(NamedTuple):
    """What was done to a table."""

    removed_rows: int = 0  # because they were older than `keep`
    removed_files: int = 0
    fewer_files: int = 0  # because small ones were merged


class TableCare:
    """For one table, in the process that writes it."""

    def __init__(self, action: TableAction) -> None:
        self._action = action
        self._table = Path(action.path)
        self._expire_at = self._compact_at = self._tidy_at = -math.inf  # on the monotonic clock

    def after_batch(self) -> Cared:
        """Do what is due."""
        action, now, removed, fewer = self._action, time.monotonic(), Removed(), 0
        if action.keep_s is not None and now >= self._expire_at:
            pause_s = min(_EXPIRE_S, action.keep_s / _SPANS)
            removed = self._attempt(self.expire, pause_s) or removed
            self._expire_at = time.monotonic() + pause_s
        if action.compact_s is not None and now >= self._compact_at:
            fewer = self._attempt(self.compact, action.compact_s) or 0
            self._compact_at = time.monotonic() + action.compact_s
        if now >= self._tidy_at:
            self.tidy()
        return Cared(removed.rows, removed.files, fewer)

    def expire(self) -> Removed:
        """Remove rows that are older than `keep`. TargetError."""
        if self._action.keep_s is None:
            return Removed()
        log = self._log()
        removed = expire_table(self._table, self._action.keep_s) if log is None else log.expire(self._action.keep_s)
        if removed.files:
            _LOGGER.info(
                "%s: %d rows in %d files are removed; they are older than %s",
                self._table, removed.rows, removed.files, exact_age(self._action.keep_s),
            )  # fmt: skip
        return removed

    def compact(self) -> int:
        """Merge small files; return how many files there are fewer. TargetError or PipelineError."""
        span_s = None if self._action.keep_s is None else self._action.keep_s / _SPANS
        log = self._log()
        fewer = compact_table(self._table, span_s) if log is None else log.compact(span_s)
        if fewer:
            _LOGGER.info("%s is compacted: %d files fewer", self._table, fewer)
        return fewer

    def tidy(self) -> None:
        """Delete what earlier compactions have left, once no reader needs it."""
        self._tidy_at = time.monotonic() + KEPT_S
        self._attempt(self._tidy, KEPT_S)

    def _tidy(self) -> None:
        log = self._log()
        if log is not None:
            log.tidy()
            return
        try:
            remove_replaced(self._table)
        except OSError as error:
            raise disk_error(error, self._table, "tidied up") from error

    def _attempt(self, step: Callable[[], _Result], pause_s: float) -> _Result | None:
        try:
            return step()
        except PipelineError as error:
            _LOGGER.warning("%s; the table stays as it is, and the next attempt is in %g s", error, pause_s)
            return None

    def _log(self) -> DeltaLog | None:
        return DeltaLog(self._table, "") if self._action.format == "delta" else None

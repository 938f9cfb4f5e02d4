"""Table: the rows of a batch added to a table of Parquet files, or to a Delta table, each row once.

    Spark ──► stage (table_staging.py) ──► ready ──► files in place ──► [Delta: one transaction] ──► journal: done

A reader of the table sees complete files only. In a Parquet table it may see some files of a batch before the others; a
Delta table has the whole batch or nothing of it.

A row becomes a dead letter if its value of a partition column is invalid as the name of a folder, or would be read back
as another value. Spark writes such rows to a partition of the stage that is never put into place. So one job tells
whether there are any, and no write fails because of them.
"""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructType

from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions.action import Context, Counts
from headrace.pipeline.actions.dead_letters import DeadLetters
from headrace.pipeline.actions.disk import disk_error, make_folder
from headrace.pipeline.actions.journal import Journal, life
from headrace.pipeline.actions.prepared import Recipe, prepared_batches, rows_in
from headrace.pipeline.actions.table_care import TableCare
from headrace.pipeline.actions.table_delta import DeltaLog
from headrace.pipeline.actions.table_schema import check_fits, move_record, read_schema, schema_of, write_schema
from headrace.pipeline.actions.table_staging import NO_VALUE, UNFIT, Ready, Stage
from headrace.pipeline.rules.rule import JSON, PAYLOAD, TableAction
from headrace.pipeline.rules.template_safety import NAME_BYTES_MAX

_ESCAPED = r"""[\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]"""  # characters that Spark escapes to three in the name of a folder


class TablePerformer:
    """[rule.table]."""

    def __init__(self, action: TableAction, name: str, letters: DeadLetters) -> None:
        self._action = action
        self._name = name
        self._letters = letters
        self._table = Path(action.path)
        self._care = TableCare(action)

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        try:
            make_folder(self._table)
        except OSError as error:
            raise disk_error(error, self._table, "created") from error
        move_record(self._table)
        journal = Journal(context.state / f"{self._name}.json", self._identity())
        stage = Stage(self._table, context, self._name)
        done = journal.done(context.batch_id)
        if done is not None:
            stage.clear()
            return done
        log = self._log(context)
        ready = stage.ready()
        if ready is None:
            schema = schema_of(frame.schema, self._action.partition_by)
            held = log.schema() if log else read_schema(self._table, frame)
            check_fits(schema, held, self._table, self._action.columns == "grow")
            ready = self._write(frame, stage, context)
        self._publish(ready, stage, log, context)
        counts = Counts(sum(staged.rows for staged in ready.files), len(ready.files), ready.failed)
        try:
            journal.mark(context.batch_id, counts)
        except OSError as error:
            raise disk_error(error, journal.path) from error
        stage.clear()
        return msgspec.structs.replace(counts, removed=self._care.after_batch().removed_rows)

    def close(self) -> None:
        """Nothing is open."""

    def tidy(self) -> None:
        """Delete what earlier compactions have left. Called when the pipeline starts."""
        self._care.tidy()

    def _identity(self) -> dict[str, Any]:
        """The action for its journal. Other keys may change without making it another action."""
        action = self._action
        return {"path": action.path, "format": action.format, "partition_by": action.partition_by}

    def _log(self, context: Context) -> DeltaLog | None:
        if self._action.format != "delta":
            return None
        return DeltaLog(self._table, f"{context.application}/{context.rule}/{self._name}/{life(context.state)}")

    def _publish(self, ready: Ready, stage: Stage, log: DeltaLog | None, context: Context) -> None:
        if ready.files:
            if log is None:
                write_schema(self._table, schema_of(StructType.fromJson(ready.schema), ready.partition_by))
            stage.put_into_place(ready)
            if log is not None:
                log.add(ready, context.batch_id)

    def _write(self, frame: DataFrame, stage: Stage, context: Context) -> Ready:
        """Let Spark write the stage. If that fails, nothing is left of it."""
        stage.clear()
        try:
            stage.folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error, stage.folder) from error
        try:
            failed = self._write_fit(frame, stage, context)
            is_flat = self._action.format == "delta"
            return stage.make_ready(is_flat, failed, frame.schema.jsonValue(), self._action.partition_by)
        except BaseException:
            stage.clear()
            raise

    def _write_fit(self, frame: DataFrame, stage: Stage, context: Context) -> int:
        """Write all rows, unfit ones to their own partition, and return the number of unfit ones."""
        self._spark_write(frame, stage)
        return self._refuse(frame.filter(_unfit(self._text_columns(frame))), context) if stage.has_unfit() else 0

    def _spark_write(self, frame: DataFrame, stage: Stage) -> None:
        columns = self._action.partition_by
        rows = self._marked(frame).repartition(*columns) if columns else frame  # one file per value
        try:
            rows.write.partitionBy(*columns).parquet(f"file://{stage.folder}")
        except AnalysisException as error:
            raise PipelineError(
                f"{self._table} cannot store these rows: {_first(error)}", "change the rule's sql"
            ) from error
        except Exception as error:
            if "No space left on device" in str(error):
                raise TargetError(
                    f"{self._table} cannot be written: no space left on device",
                    "free some space; the batch is then retried",
                ) from error
            raise

    def _marked(self, frame: DataFrame) -> DataFrame:
        """The same rows, with unfit ones marked for their own partition."""
        texts = self._text_columns(frame)
        unfit = _unfit(texts)
        return frame.withColumns({name: F.when(unfit, F.lit(UNFIT)).otherwise(F.col(name)) for name in texts})

    def _text_columns(self, frame: DataFrame) -> list[str]:
        kinds = {field.name: field.dataType for field in frame.schema.fields}
        return [name for name in self._action.partition_by if isinstance(kinds[name], StringType)]

    def _refuse(self, frame: DataFrame, context: Context) -> int:
        content = PAYLOAD if PAYLOAD in frame.columns else JSON
        names = ", ".join(self._action.partition_by)
        with self._letters.writing(context, self._name) as letters:
            for row in rows_in(prepared_batches(frame, Recipe((("x", "text"),), None, content))):
                letters.add(row, f"{names}: too long, or invalid, as the name of a partition")
        return letters.count


def _unfit(texts: Sequence[str]) -> Column:
    """Whether a row has no valid partition by these columns."""
    return reduce(Column.__or__, map(_is_no_folder, texts), F.lit(False))


def _is_no_folder(name: str) -> Column:
    bytes_max = NAME_BYTES_MAX - len(name) - 1
    is_long = (F.octet_length(name) > bytes_max // 3) & (  # a shorter value fits even if every byte is escaped
        F.octet_length(F.regexp_replace(name, _ESCAPED, "%00")) > bytes_max
    )
    is_reserved = F.col(name).isin(NO_VALUE, UNFIT)
    return F.coalesce(is_reserved | F.contains(name, F.lit("\0")) | is_long, F.lit(False))


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]

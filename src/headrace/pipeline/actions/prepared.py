"""Prepared rows: templates are filled in and contents are made in executors, one Arrow batch at a time.

    rows of a rule ──Recipe──► texts (list of string) | content | error | sequence | feed | ident

`texts` are the results of the recipe's templates: a path, or the arguments of a command. A row whose templates cannot
be filled in has an `error`; its content is kept for the dead letters. Sequence, feed and ident are those of the product
that the row comes from, if the rows still have them.

The content of a row is what goes into a file, a product or a program:

    payload, or another column   its bytes; text as UTF-8; a missing value is empty
    json                         the row as an object: times in ISO 8601, bytes in base64
    none                         nothing

`remove` strips the envelope of a bulletin, as LDM does: `wmo` the heading (SOH, transmission number, TTAAii CCCC YYGGgg
BBB, AWIPS identifier, each with its line end) and, if the bulletin begins with SOH, the CR CR LF ETX at the end;
`controls` all control characters except line feeds; `non-ascii` all bytes above 127, as LDM's -strip does, too.

`metadata` puts LDM's metadata before the content (ldm_metadata.py). With content `none` it stands alone, and has the
size that the payload would have.

`prepared_batches` fetches prepared rows to the driver as they are needed, partition by partition. Each partition is a
few Arrow messages of bounded size, without an object per row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headrace.errors import PipelineError
from headrace.pipeline.actions.ldm_metadata import with_metadata
from headrace.pipeline.decoders.wmo import find_heading
from headrace.pipeline.rules.rule import (
    JSON,
    METADATA_COLUMNS,
    NOTHING,
    PAYLOAD,
    ExecAction,
    Metadata,
    PipeAction,
    Removed,
)
from headrace.pipeline.rules.template import Template, showable, template
from headrace.pipeline.rules.template_safety import Purpose

MESSAGE_BYTES = 4 << 20
ORIGIN = pa.schema({"sequence": pa.int64(), "feed": pa.string(), "ident": pa.string()})
SCHEMA = pa.schema([
    pa.field("texts", pa.list_(pa.string())), pa.field("content", pa.binary()), pa.field("error", pa.string()), *ORIGIN,
])  # fmt: skip


class PreparedRow(NamedTuple):
    texts: list[str]
    content: bytes
    error: str | None
    sequence: int | None
    feed: str | None
    ident: str | None


class Sender(NamedTuple):
    """An action of a rule that shares a query with others."""

    rule: str
    action: str  # its name within the rule
    performer: Any


SentRow = tuple[Sender, PreparedRow]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How rows are prepared. It is sent to executors."""

    texts: tuple[tuple[str, Purpose], ...]
    pattern: str | None  # of the selection's ident
    content: str
    remove: tuple[Removed, ...] = ()
    ends_lines: bool = False
    metadata: Metadata = "none"

    @classmethod
    def of_command(cls, action: ExecAction | PipeAction, pattern: str | None) -> "Recipe":
        """The arguments of a command, and what its program reads."""
        texts: list[tuple[str, Purpose]] = [(argument, "argument") for argument in action.command]
        return cls(tuple(texts), pattern, action.content or PAYLOAD, action.remove, metadata=action.metadata)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        rows = with_valid_text(rows)
        texts, errors = self.texts_of(rows)
        content = self.contents_of(rows)
        listed = pa.array([list(each) for each in zip(*texts, strict=True)], SCHEMA.field("texts").type)
        return pa.RecordBatch.from_arrays([listed, content, errors, *origin(rows)], schema=SCHEMA)

    @property
    def form(self) -> "Recipe":
        """What decides the contents: recipes with equal forms make equal contents of a row."""
        return replace(self, texts=(), pattern=None, ends_lines=self.ends_lines and self.content != PAYLOAD)

    def texts_of(self, rows: pa.RecordBatch) -> tuple[list[list[str | None]], Any]:
        """The texts of each template, and the errors. The rows must have passed `with_valid_text`, here and below."""
        rows, noted = showable_rows(rows) if self.content == JSON else (rows, {})
        return filled(self._templates(), rows, noted)

    def contents_of(self, rows: pa.RecordBatch) -> Any:
        """The contents as a binary column."""
        if self.content == JSON:
            rows, _ = showable_rows(rows)
        if self.metadata == "none":
            return contents(rows, self.content, self.remove, self.ends_lines)
        data = contents(rows, self._data, self.remove, self.ends_lines)
        return with_metadata(rows, data.to_pylist(), self.metadata, self.content != NOTHING)

    @property
    def _data(self) -> str:
        """The content that metadata is about."""
        return PAYLOAD if self.content == NOTHING else self.content

    def check(self, columns: Iterable[str]) -> None:
        """PipelineError names a column that is needed and missing."""
        needed = {self.content} if self.metadata == "none" else {self._data, *METADATA_COLUMNS}
        check_columns(self._templates(), needed - {JSON, NOTHING}, columns)

    def _templates(self) -> list[Template]:
        return [template(source, purpose, self.pattern) for source, purpose in self.texts]


def check_columns(templates: Iterable[Template], others: Iterable[str], columns: Iterable[str]) -> None:
    has = list(columns)
    needed = {column for each in templates for column in each.columns} | set(others)
    missing = sorted(needed.difference(has))
    if missing:
        raise PipelineError(f"the rows have no column {missing[0]!r}", f"select it too; columns are: {', '.join(has)}")


def filled(
    templates: Iterable[Template], rows: pa.RecordBatch, noted: Mapping[int, str]
) -> tuple[list[list[str | None]], Any]:
    """The texts of each template, and a column of errors, null for valid rows. `noted` has earlier errors by row."""
    texts: list[list[str | None]] = []
    errors = [noted.get(place) for place in range(rows.num_rows)]
    for each in templates:
        made = each.column(rows)
        texts.append(made.texts.to_pylist())
        for place, why in made.errors:
            errors[place] = errors[place] or why
    return texts, pa.array(errors, pa.string())


def origin(rows: pa.RecordBatch) -> list[Any]:
    """Sequence, feed and ident; null if the rows do not have them."""
    return [_cast(rows, field) for field in ORIGIN]


def _cast(rows: pa.RecordBatch, field: pa.Field) -> Any:
    if field.name not in rows.schema.names:
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(field.name)
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # a column of the user with the same name
        return pa.nulls(rows.num_rows, field.type)


def with_valid_text(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with valid UTF-8 in all texts: Spark accepts any bytes as text."""
    columns = [_valid_column(column) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _valid_column(column: Any) -> Any:
    if not (pa.types.is_string(column.type) or pa.types.is_nested(column.type)):
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return _repaired(column.take(pa.array(range(len(column)))))  # a copy that begins at its beginning
    return column


def _repaired(column: Any) -> Any:
    kind, missing = column.type, column.is_null()
    if pa.types.is_string(kind):
        raw = column.cast(pa.binary()).to_pylist()
        return pa.array([None if each is None else each.decode(errors="replace") for each in raw], kind)
    if pa.types.is_struct(kind):
        parts = [_repaired(column.field(place)) for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=missing)
    if pa.types.is_map(kind):
        keys, items = _repaired(column.keys), _repaired(column.items)
        return pa.MapArray.from_arrays(column.offsets, keys, items, type=kind, mask=missing)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(column.offsets, _repaired(column.values), type=kind, mask=missing)
    return column


def showable_rows(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
    """The rows without times outside Python's range, and an error for each row that had one."""
    errors: dict[int, str] = {}
    columns = [showable(rows.column(name), name, errors) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names), errors


# --- to the driver --------------------------------------------------------------------------------

Prepare = Callable[[pa.RecordBatch], pa.RecordBatch]


def prepared_batches(frame: DataFrame, prepare: Prepare) -> Iterator[pa.RecordBatch]:
    """The result of `prepare` for the rows of a DataFrame, in their order."""
    messages = frame.mapInArrow(partial(_packed, prepare), "message binary")
    # By the RDD, not by the DataFrame: Spark 4.3 leaks the jobs of the latter, with the plans and sessions that they
    # hold, because they run when it considers the query as ended.
    for row in messages.rdd.toLocalIterator(prefetchPartitions=True):
        yield from parts_of_message(row.message)


def rows_in(batches: Iterable[pa.RecordBatch]) -> Iterator[PreparedRow]:
    for batch in batches:
        yield from map(PreparedRow._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _packed(prepare: Prepare, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Prepared rows as messages. Runs in executors."""
    for batch in batches:
        for part in prepared_parts(prepare(batch)):
            yield pa.RecordBatch.from_arrays([pa.array([message_of(part)], pa.binary())], ["message"])


def message_of(part: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, part.schema) as writer:
        writer.write_batch(part)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def parts_of_message(message: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(pa.py_buffer(message)) as reader:
        yield from reader


def prepared_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of bounded size, or of one row."""
    if batch.num_rows == 0:
        return
    if batch.num_rows == 1 or batch.nbytes <= MESSAGE_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from prepared_parts(batch.slice(0, half))
    yield from prepared_parts(batch.slice(half))


# --- contents ---------------------------------------------------------------------------------------


_HEAD_BYTES = 400
_CONTROLS = bytes({*range(32), 127} - {10})
_NON_ASCII = bytes(range(128, 256))
_encoder = msgspec.json.Encoder(enc_hook=str)


def contents(rows: pa.RecordBatch, content: str, remove: Sequence[Removed] = (), ends_lines: bool = False) -> Any:
    """The contents as a binary column. With `ends_lines`, text and JSON end with a line feed.

    Rows for JSON must have passed `with_valid_text` and `showable_rows`.
    """
    if content == NOTHING:
        return pa.array([b""] * rows.num_rows, pa.binary())
    if content == JSON:
        end = b"\n" if ends_lines else b""
        return pa.array([json_of(row) + end for row in row_dicts(rows)], pa.binary())
    if content not in rows.schema.names:
        raise PipelineError(f"the rows have no column {content!r}", f"columns are: {', '.join(rows.schema.names)}")
    column = rows.column(content)
    made = column if pa.types.is_binary(column.type) else pc.cast(pc.cast(column, pa.string()), pa.binary())
    made = pc.fill_null(made, b"")
    if ends_lines and not pa.types.is_binary(column.type):
        return pa.array([_line(text) for text in made.to_pylist()], pa.binary())
    return pa.array([without(data, remove) for data in made.to_pylist()], pa.binary()) if remove else made


def row_dicts(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="lossy")
    return made


def json_of(row: dict[str, Any]) -> bytes:
    return _encoder.encode(row)


def without(data: bytes, remove: Sequence[Removed]) -> bytes:
    """The payload without the parts to remove."""
    if "wmo" in remove:
        data = _without_wmo(data)
    dropped = (_CONTROLS if "controls" in remove else b"") + (_NON_ASCII if "non-ascii" in remove else b"")
    return data.translate(None, dropped) if dropped else data


def _without_wmo(data: bytes) -> bytes:
    heading = find_heading(data[:_HEAD_BYTES].decode("latin-1"))
    if heading is None:
        return data
    body = data[heading.end :].lstrip(b"\r").removeprefix(b"\n")
    if data.startswith(b"\x01"):
        body = body.removesuffix(b"\x03").removesuffix(b"\n").removesuffix(b"\r").removesuffix(b"\r")
    return body


def _line(text: bytes) -> bytes:
    return text if not text or text.endswith(b"\n") else text + b"\n"

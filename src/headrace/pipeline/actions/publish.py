"""Publish: a product for each row, put into the pipeline's queue or another, once.

    rows ──► feed, ident, payload, priority, signature (in executors) ──► format("headrace")

The signature is made of everything that the row says, of the pipeline, the rule and the action. A batch that comes
again makes the same signatures, and the queue drops what it holds already. Two rows that differ in any column are two
products, even if what is published of them is the same; two that are equal in all columns are one.

A row whose feed or ident cannot be, which has a time that Python does not have, or whose payload is larger than the
queue takes, is a dead letter. So is one whose product the rule would select itself, and publish again without end.
"""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from blake3 import blake3
from pyspark.sql import DataFrame

from headrace.errors import HeadraceError, PipelineError, TargetError
from headrace.pipeline.actions.action import Context, Counts
from headrace.pipeline.actions.dead_letters import DeadLetters
from headrace.pipeline.actions.prepared import SCHEMA as PREPARED
from headrace.pipeline.actions.prepared import (
    check_columns,
    contents,
    filled,
    origin,
    prepared_batches,
    rows_in,
    showable_rows,
    sound,
)
from headrace.pipeline.rules.rule import JSON, NOTHING, PAYLOAD, AlertAction, PublishAction
from headrace.pipeline.rules.template import Template, template
from headrace.pipeline.source.open_queues import QueueAddress, open_queue
from headrace.pipeline.spark.failures import failure_of
from headrace.product.product import Product
from headrace.selection import Selection

COLUMNS = "feed string, ident string, payload binary, priority int, signature binary"


class Made(NamedTuple):
    """What has been made of rows."""

    rows: pa.RecordBatch
    texts: list[list[str | None]]
    payloads: Any
    errors: Any  # null where nothing is wrong


@dataclass(frozen=True, slots=True)
class Publication:
    """What becomes of a row; it is sent to executors."""

    feed: str  # templates
    ident: str
    message: str | None  # a template for the payload; None: `content` is it
    content: str
    select: Selection | None  # of the rule
    priority: int
    writer: str = ""  # pipeline, rule and action
    payload_bytes_max: int = 0
    origin: str = ""  # of the products
    is_own: bool = True  # they go where the rule's products come from

    @property
    def pattern(self) -> str | None:
        return None if self.select is None else self.select.ident

    def templates(self) -> list[Template]:
        made = [template(self.feed, "feed", self.pattern), template(self.ident, "ident", self.pattern)]
        return made if self.message is None else [*made, template(self.message, "text", self.pattern)]

    def check(self, columns: Iterable[str]) -> None:
        needed = {self.content} - {JSON, NOTHING} if self.message is None else set()
        check_columns(self.templates(), needed, columns)

    def products(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The products of those rows that can be some."""
        rows, texts, payloads, errors = self._made(rows)
        signatures = [signature(self.writer, row) for row in zip(*(c.to_pylist() for c in rows.columns), strict=True)]
        arrays = [
            pa.array(texts[0], pa.string()), pa.array(texts[1], pa.string()), payloads,
            pa.array([self.priority] * rows.num_rows, pa.int32()), pa.array(signatures, pa.binary()),
        ]  # fmt: skip
        names = ["feed", "ident", "payload", "priority", "signature"]
        return pa.RecordBatch.from_arrays(arrays, names=names).filter(errors.is_null())

    def refused(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The others, as prepared rows."""
        rows, _, payloads, errors = self._made(rows)
        texts = pa.array([[]] * rows.num_rows, PREPARED.field("texts").type)
        made = pa.RecordBatch.from_arrays([texts, payloads, errors, *origin(rows)], schema=PREPARED)
        return made.filter(errors.is_valid())

    def _made(self, rows: pa.RecordBatch) -> Made:
        rows, noted = showable_rows(sound(rows))
        texts, errors = filled(self.templates(), rows, noted)
        if self.message is None:
            payloads = contents(rows, self.content)
        else:
            payloads = pa.array([(text or "").encode() for text in texts[2]], pa.binary())
        told = errors.to_pylist()
        self._tell_sizes(payloads, told)
        if self.select is not None and self.is_own:
            self._tell_loops(self.select, texts, payloads, told)
        return Made(rows, texts, payloads, pa.array(told, pa.string()))

    def _tell_sizes(self, payloads: Any, told: list[str | None]) -> None:
        for place, payload in enumerate(payloads):
            size = payload.as_buffer().size
            if size > self.payload_bytes_max > 0:
                told[place] = (
                    told[place] or f"the payload has {size:,} bytes, and the queue takes {self.payload_bytes_max:,}"
                )

    def _tell_loops(
        self, select: Selection, texts: list[list[str | None]], payloads: Any, told: list[str | None]
    ) -> None:
        """Products are looked at only on feeds that the rule selects, which are few, or none."""
        selected = {feed for feed in set(texts[0]) if feed is not None and select.wants_feed(feed)}
        if not selected:
            return
        now_ns = time.time_ns()
        for place, (feed, ident) in enumerate(zip(texts[0], texts[1], strict=True)):
            if told[place] is not None or feed not in selected:
                continue
            if select.wants(self._product(feed, ident or "", payloads[place].as_buffer(), now_ns)):
                told[place] = f"the rule selects {feed!r} itself, and would never end"

    def _product(self, feed: str, ident: str, payload: Any, now_ns: int) -> Product:
        """As the queue will have it."""
        return Product(feed, ident, memoryview(payload), 0, b"", self.origin, 0, None, now_ns, now_ns, self.priority)


def signature(writer: str, row: tuple[Any, ...]) -> bytes:
    return blake3(repr((writer, *row)).encode(errors="surrogatepass")).digest(16)


class PublishPerformer:
    """[rule.publish]."""

    def __init__(self, action: PublishAction, name: str, select: Selection | None, letters: DeadLetters) -> None:
        self._place = None
        if action.queue is not None or action.site is not None:
            self._place = QueueAddress(None if action.queue is None else str(action.queue), action.site)
        self._name = name
        self._letters = letters
        self._publication = Publication(
            action.feed, action.ident, None, action.content or PAYLOAD, select, action.priority
        )

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        return publish(frame, self._publication, self._place or context.place, context, self._name, self._letters)

    def close(self) -> None:
        """Queues stay open for other batches, as Spark's source has them."""


def publish(
    frame: DataFrame, publication: Publication, place: QueueAddress, context: Context, name: str, letters: DeadLetters
) -> Counts:
    """Put the rows of a batch as products."""
    publication.check(frame.columns)
    config = open_queue(place).config
    publication = replace(
        publication,
        writer=f"{context.application}/{context.rule}/{name}",
        payload_bytes_max=config.payload_bytes_max,
        origin=config.origin,
        is_own=is_same(place, context.place),
    )
    context_ = frame.sparkSession.sparkContext
    refused, put = context_.accumulator(0), context_.accumulator(0)

    def products(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            made = publication.products(batch)
            refused.add(batch.num_rows - made.num_rows)
            put.add(made.num_rows)
            yield made

    writer = frame.mapInArrow(products, COLUMNS).write.format("headrace").mode("append")
    for option, value in (("queue", place.queue), ("site", place.site), ("application", context.application)):
        writer = writer.option(option, value) if value is not None else writer
    try:
        writer.save()
    except HeadraceError:
        raise
    except Exception as error:
        failure = failure_of(str(error))
        raise (TargetError if failure.is_transient else PipelineError)(
            f"the products of rule {context.rule!r} did not get into {place}: {failure.text[:400]}",
            "see to what it says; the batch is then done again, and nothing is put twice",
        ) from error
    with letters.writing(context, name) as writing:
        if refused.value:
            for row in rows_in(prepared_batches(frame, partial(Publication.refused, publication))):
                writing.add(row, row.error or "")
    return Counts(put.value, failed=writing.count)


def is_same(one: QueueAddress, other: QueueAddress) -> bool:
    """Whether two places have the same queue, as far as their names tell."""
    if one.queue is not None and other.queue is not None:
        return os.path.realpath(one.queue) == os.path.realpath(other.queue)
    return one.site is not None and one.site == other.site


# --- alert ------------------------------------------------------------------------------------------


class AlertPerformer:
    """[rule.alert]."""

    def __init__(self, action: AlertAction, name: str, select: Selection | None, letters: DeadLetters) -> None:
        self._when = action.when
        self._name = name
        self._letters = letters
        self._publication = Publication(action.feed, action.ident, action.message, JSON, select, action.priority)

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        rows = frame.filter(self._when)
        return publish(rows, self._publication, context.place, context, self._name, self._letters)

    def close(self) -> None:
        """Nothing is open."""

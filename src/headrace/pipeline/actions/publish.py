"""Publish and alert: a product for each row, stored once in the queue of the pipeline or in another.

    rows ──► feed, ident, payload, priority, signature (in executors) ──► format("headrace")

An alert is a publication of the rows on which a condition holds, with a message or the row as JSON.

Exactly once, by the signature: it is computed from every column of the row, and from pipeline, rule and action. A
repeated batch gives the same signatures, and the queue drops the products that it holds already. Two rows that differ
in any column are two products, even if their published content is equal; two rows that are equal in all columns are
one.

A row becomes a dead letter if its feed or ident is invalid, if it has a time outside the years 1 to 9999, or if its
payload is larger than the queue allows. So does a row whose product the rule would select itself: the rule would
publish it again and again.
"""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from blake3 import blake3
from pyspark.sql import DataFrame

from headrace.errors import HeadraceError, PipelineError, TargetError
from headrace.link.login import Login
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
    with_valid_text,
)
from headrace.pipeline.rules.rule import JSON, NOTHING, PAYLOAD, AlertAction, PublishAction
from headrace.pipeline.rules.template import Template, template
from headrace.pipeline.source.open_queues import QueueAddress, open_queue
from headrace.pipeline.spark.failures import failure_of
from headrace.product.product import MadeProduct, Product
from headrace.selection import Selection

COLUMNS = "feed string, ident string, payload binary, priority int, signature binary"


class PublishPerformer:
    """[rule.publish] and [rule.alert]."""

    def __init__(
        self, action: PublishAction | AlertAction, name: str, select: Selection | None, letters: DeadLetters
    ) -> None:
        self._action, self._name, self._select, self._letters = action, name, select, letters

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        address = target_of(self._action, context.address)
        publication = publication_of(self._action, self._select, self._name, address, context)
        rows = frame.filter(self._action.when) if isinstance(self._action, AlertAction) else frame
        return publish(rows, publication, address, context, self._name, self._letters)

    def close(self) -> None:
        """Nothing to end: queues stay open for other batches, as those of Spark's source do."""


def target_of(action: PublishAction | AlertAction, own: QueueAddress) -> QueueAddress:
    """The queue that an action names, with the login of the pipeline; or else `own`, that of the pipeline."""
    if isinstance(action, AlertAction) or (action.queue is None and action.site is None):
        return own
    login = Login() if action.site is None else own.login
    return QueueAddress(None if action.queue is None else str(action.queue), action.site, login)


# --- rows as products, in executors ---------------------------------------------------------------


class Made(NamedTuple):
    """The parts of the products of a batch."""

    rows: pa.RecordBatch
    texts: list[list[str | None]]
    payloads: Any
    errors: Any  # null where the row can be published


@dataclass(frozen=True, slots=True)
class Publication:
    """How a row becomes a product. It is sent to executors."""

    action: PublishAction | AlertAction
    select: Selection | None  # of the rule
    writer: str  # pipeline, rule and action
    payload_bytes_max: int  # of the queue
    origin: str  # of the products
    is_own: bool  # they go to the queue that the rule reads

    @property
    def message(self) -> str | None:
        """A template for the payload; None: `content` is the payload."""
        return self.action.message if isinstance(self.action, AlertAction) else None

    @property
    def content(self) -> str:
        return JSON if isinstance(self.action, AlertAction) else self.action.content or PAYLOAD

    def templates(self) -> list[Template]:
        pattern = None if self.select is None else self.select.ident
        made = [template(self.action.feed, "feed", pattern), template(self.action.ident, "ident", pattern)]
        return made if self.message is None else [*made, template(self.message, "text", pattern)]

    def check(self, columns: Iterable[str]) -> None:
        """PipelineError names a column that is needed and missing."""
        needed = {self.content} - {JSON, NOTHING} if self.message is None else set()
        check_columns(self.templates(), needed, columns)

    def products(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The products of the rows that can be published."""
        rows, texts, payloads, errors = self._made(rows)
        signatures = [signature(self.writer, row) for row in zip(*(c.to_pylist() for c in rows.columns), strict=True)]
        arrays = [
            pa.array(texts[0], pa.string()), pa.array(texts[1], pa.string()), payloads,
            pa.array([self.action.priority] * rows.num_rows, pa.int32()), pa.array(signatures, pa.binary()),
        ]  # fmt: skip
        names = ["feed", "ident", "payload", "priority", "signature"]
        return pa.RecordBatch.from_arrays(arrays, names=names).filter(errors.is_null())

    def refused(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The other rows, prepared for the dead letters."""
        rows, _, payloads, errors = self._made(rows)
        texts = pa.array([[]] * rows.num_rows, PREPARED.field("texts").type)
        made = pa.RecordBatch.from_arrays([texts, payloads, errors, *origin(rows)], schema=PREPARED)
        return made.filter(errors.is_valid())

    def _made(self, rows: pa.RecordBatch) -> Made:
        rows, noted = showable_rows(with_valid_text(rows))
        texts, filling = filled(self.templates(), rows, noted)
        if self.message is None:
            payloads = contents(rows, self.content)
        else:
            payloads = pa.array([(text or "").encode() for text in texts[2]], pa.binary())
        errors = filling.to_pylist()
        self._refuse_large(payloads, errors)
        if self.select is not None and self.is_own:
            self._refuse_loops(self.select, texts, payloads, errors)
        return Made(rows, texts, payloads, pa.array(errors, pa.string()))

    def _refuse_large(self, payloads: Any, errors: list[str | None]) -> None:
        for place, payload in enumerate(payloads):
            size = payload.as_buffer().size
            if size > self.payload_bytes_max > 0:
                problem = f"the payload has {size:,} bytes, and the queue allows {self.payload_bytes_max:,}"
                errors[place] = errors[place] or problem

    def _refuse_loops(
        self, select: Selection, texts: list[list[str | None]], payloads: Any, errors: list[str | None]
    ) -> None:
        """Only products on feeds that the rule selects are checked in full; usually there are none."""
        selected = {feed for feed in set(texts[0]) if feed is not None and select.wants_feed(feed)}
        if not selected:
            return
        now_ns = time.time_ns()
        for place, (feed, ident) in enumerate(zip(texts[0], texts[1], strict=True)):
            if errors[place] is not None or feed not in selected:
                continue
            if select.wants(self._product(feed, ident or "", payloads[place].as_buffer(), now_ns)):
                errors[place] = f"the rule selects {feed!r} itself, and would never end"

    def _product(self, feed: str, ident: str, payload: Any, now_ns: int) -> Product:
        """The product as the queue will store it."""
        priority = self.action.priority
        return MadeProduct(feed, ident, memoryview(payload), 0, b"", self.origin, 0, None, now_ns, now_ns, priority)


def signature(writer: str, row: tuple[Any, ...]) -> bytes:
    return blake3(repr((writer, *row)).encode(errors="surrogatepass")).digest(16)


# --- on the driver --------------------------------------------------------------------------------


def publication_of(
    action: PublishAction | AlertAction, select: Selection | None, name: str, address: QueueAddress, context: Context
) -> Publication:
    config = open_queue(address).config
    writer = f"{context.application}/{context.rule}/{name}"
    is_own = is_same(address, context.address)
    return Publication(action, select, writer, config.payload_bytes_max, config.origin, is_own)


def publish(
    frame: DataFrame, publication: Publication, address: QueueAddress, context: Context, name: str, letters: DeadLetters
) -> Counts:
    """Store the rows of a batch as products, and those that have none as dead letters."""
    publication.check(frame.columns)
    spark = frame.sparkSession.sparkContext
    refused, stored = spark.accumulator(0), spark.accumulator(0)

    def products(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            made = publication.products(batch)
            refused.add(batch.num_rows - made.num_rows)
            stored.add(made.num_rows)
            yield made

    writer = frame.mapInArrow(products, COLUMNS).write.format("headrace").mode("append")
    writer = writer.options(**address.options()).option("application", context.application)
    try:
        writer.save()
    except HeadraceError:
        raise
    except Exception as error:
        failure = failure_of(str(error))
        raise (TargetError if failure.is_transient else PipelineError)(
            f"the products of rule {context.rule!r} were not stored in {address}: {failure.text[:400]}",
            "fix the cause; the batch is then retried, and no product is stored twice",
        ) from error
    with letters.writing(context, name) as writing:
        if refused.value:
            for row in rows_in(prepared_batches(frame, partial(Publication.refused, publication))):
                writing.add(row, row.error or "")
    return Counts(stored.value, failed=writing.count)


def is_same(one: QueueAddress, other: QueueAddress) -> bool:
    """Whether two addresses lead to the same queue, as far as their names tell."""
    if one.queue is not None and other.queue is not None:
        return os.path.realpath(one.queue) == os.path.realpath(other.queue)
    return one.site is not None and one.site == other.site

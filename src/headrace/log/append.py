"""Append: how products enter the log, one, many, or as they are in another queue.

The kernel is called first and its refusal is explained afterwards, so that a put that succeeds pays for no check twice.
A put without optional facts takes the shortest path. What a gate refuses (a blocking station that is full) is tried
again once there is room.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import BatchTooLargeError
from headrace.kernel import _kernel as kernel
from headrace.log import columns, puts, records
from headrace.log.puts import When
from headrace.log.seams import Timeout, Wait
from headrace.product.batch import Batch
from headrace.product.product import PRIORITY_DEFAULT
from headrace.product.properties import PropertyValue

if TYPE_CHECKING:
    from headrace.log.log import Log

@dataclass(frozen=True, slots=True)
class Duplicate:
    """Nothing was stored: the queue holds a product with this signature, at sequence `of`."""

    of: int

    def __bool__(self) -> bool:
        return False


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What became of each product of a `put_many`, in their order."""

    products: int  # in the call
    stored: int  # new ones, now readable
    first: int  # sequence of the first one stored; the others follow without a gap; 0 if none was
    _outcomes: tuple[int, ...] | None = None  # with duplicates: sequence, or minus that of the held copy

    def __len__(self) -> int:
        return self.products

    @property
    def sequences(self) -> npt.NDArray[np.uint64]:
        """The sequence of each product; for a duplicate that of the copy that is held."""
        if self._outcomes is None:
            return np.arange(self.first, self.first + self.products, dtype=np.uint64)
        return np.abs(np.array(self._outcomes, dtype=np.int64)).astype(np.uint64)

    @property
    def duplicates(self) -> npt.NDArray[np.bool_]:
        """True for each product that was not stored because a copy is held."""
        if self._outcomes is None:
            return np.zeros(self.products, dtype=np.bool_)
        return np.array(self._outcomes, dtype=np.int64) < 0


def put(
    log: "Log", payload: Any, *, feed: str, ident: str = "", created: When | None = None,
    priority: int = PRIORITY_DEFAULT, expiry: When | None = None,
    properties: Mapping[str, PropertyValue] | None = None, slice: int | None = None,
    signature: bytes | None = None, origin: str | None = None, origin_sequence: int = 0, previous: int = 0,
    timeout: Timeout = None,
) -> int | Duplicate:  # fmt: skip
    """Store one product; its sequence, or the Duplicate of the one that is held. `Queue.put` explains."""
    wait: Wait | None = None
    while True:
        try:
            if (
                log.is_plain and created is None and expiry is None and properties is None and slice is None
                and signature is None and origin is None and not origin_sequence and 0 <= priority <= 7
            ):  # fmt: skip
                outcome = log.kernel.put_plain(payload, feed, ident, priority)
                return outcome if outcome > 0 else Duplicate(-outcome)
            outcome = _put_in_full(
                log, payload, feed, ident, created, priority, expiry, properties, slice, signature, origin,
                origin_sequence, previous,
            )  # fmt: skip
            break
        except (LookupError, TypeError, ValueError, OverflowError, BufferError, kernel.KernelError) as error:
            log.check_open()
            if isinstance(error, kernel.KernelError) and error.code in puts.GATES:
                wait = _make_way(log, error, timeout, wait)
            elif not puts.learn_feed(log.kernel, feed, error, log.path):
                raise puts.explain_put(
                    error, log.path, log.config.payload_bytes_max, payload, feed, ident, priority
                ) from None
    if log.is_disk:  # a duplicate too is acknowledged only when the copy that is held is safe
        log.make_durable(abs(outcome))
    return outcome if outcome > 0 else Duplicate(-outcome)


def _put_in_full(
    log: "Log", payload: Any, feed: str, ident: str, created: Any, priority: Any, expiry: Any, properties: Any,
    slice: Any, signature: Any, origin: Any, origin_sequence: Any, previous: Any,
) -> int:  # fmt: skip
    """A put with every optional fact; the kernel's answer."""
    if not log.is_writing:
        log.begin_writing()
    now_ns, boot_ns = log.now()
    return log.kernel.put(
        payload, feed, ident, puts.time_of(created, "created"), puts.check_priority(priority),
        puts.expiry_of(expiry, now_ns), puts.properties_of(properties), puts.slice_of(slice),
        puts.signature_of(signature), puts.origin_of(log.kernel, origin, origin_sequence),
        puts.sequence_of(origin_sequence), puts.sequence_of(previous), now_ns, boot_ns,
    )  # fmt: skip


def put_many(
    log: "Log", payloads: Any, *, feed: columns.Texts, ident: columns.Texts = "", created: Any = None,
    priority: columns.Numbers = PRIORITY_DEFAULT, expiry: Any = None, properties: Any = None, slice: Any = None,
    signature: Any = None, origin: Any = None, origin_sequence: Any = None, previous: Any = None,
    timeout: Timeout = None,
) -> Receipt:  # fmt: skip
    """Store many products as one: readers see all of them or none. `Queue.put_many` explains."""
    shared = log.kernel
    plain = (
        log.is_plain and payloads.__class__ is list and feed.__class__ is str and ident.__class__ is str
        and priority.__class__ is int and 0 <= priority <= 7 and created is expiry is properties is slice is None
        and signature is origin is origin_sequence is previous is None and feed in shared.feeds
    )  # fmt: skip
    held: Any = payloads
    arguments: Any = None
    if not plain:
        held, arguments = _columns(log, payloads, feed, ident, created, priority, expiry, properties, slice,
                                        signature, origin, origin_sequence, previous)  # fmt: skip
    wait: Wait | None = None
    try:
        while True:
            try:
                if plain:
                    first, stored, outcomes = shared.put_many_plain(held, feed, ident, priority)
                else:
                    first, stored, outcomes = shared.put_many(held, *arguments)
                break
            except kernel.KernelError as error:
                log.check_open()
                if error.code not in puts.GATES:
                    raise
                wait = _make_way(log, error, timeout, wait)
    except (TypeError, ValueError, KeyError, kernel.KernelError, BufferError) as error:
        log.check_open()
        config = log.config
        if isinstance(error, kernel.KernelError) and error.code == kernel.CODES["batch_too_large"]:
            raise BatchTooLargeError(
                f"a batch of {len(held)} products does not fit into {config.size} bytes as one piece",
                "put it in several calls, or resize the queue",
            ) from None
        raise puts.explain_many(error, log.path, config.payload_bytes_max, held, ident) from None
    if log.is_disk and held:
        log.make_durable(max([first + stored - 1, *map(abs, outcomes or ())]))
    return Receipt(len(held), stored, first, None if outcomes is None else tuple(outcomes))


def _columns(log: "Log", payloads: Any, *columns_given: Any) -> tuple[Any, tuple[Any, ...]]:
    """The payloads of a `put_many`, and its other arguments as the kernel takes them."""
    log.check_open()
    if not log.is_writing:
        log.begin_writing()
    held = columns.payload_column(payloads) if type(payloads) is not list else payloads
    return held, (*puts.many_columns(log.kernel, len(held), *columns_given), *log.now())


def put_batch(log: "Log", batch: Batch, keep: Any = None, timeout: Timeout = None) -> Receipt:
    """Store products of another queue as they are, as one. `Queue.put_batch` explains."""
    log.check_open()
    if not log.is_writing:
        log.begin_writing()
    rows, mask = records.rows_of(batch), records.mask_of(keep, len(batch))
    wait: Wait | None = None
    while True:
        try:
            first, stored, outcomes = log.kernel.put_records(rows, mask, *log.now())
            break
        except kernel.KernelError as error:
            log.check_open()
            if error.code not in puts.GATES:
                raise records.explain_records(error, log.path, batch, log.config) from None
            wait = _make_way(log, error, timeout, wait)
    products = stored if outcomes is None else len(outcomes)
    if log.is_disk and products:
        log.make_durable(max([first + stored - 1, *map(abs, outcomes or ())]))
    return Receipt(products, stored, first, None if outcomes is None else tuple(outcomes))


def _make_way(log: "Log", error: kernel.KernelError, timeout: Timeout, wait: Wait | None) -> Wait:
    """Deal with what a gate refused an append for, or wait for it; what is left of the time."""
    wait = wait or Wait(timeout)
    log.gate.make_way(error, wait)
    return wait

"""Append: how products enter the log: one, many, or as they are in another queue.

Call the kernel first; diagnose only if it fails. So a put that succeeds pays for no check twice, and a put without
optional facts takes the shortest path. If a gate refuses an append (a blocking station is full), it is tried again once
there is room, until the timeout. If a function of a user assigns slices, the kernel refuses, too: then the function is
called, and the append tried again with its slices.

Not here: the append itself, and the look-up that recognises a duplicate (kernel/log/append.pxi, dedup.pxi).
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import BatchTooLargeError, InvalidError, OptionError
from headrace.kernel import _kernel as kernel
from headrace.log import records
from headrace.log.columns import Columns, PutColumns, Texts, columns_of, payload_column
from headrace.log.entering import entering_batch, entering_many, entering_one
from headrace.log.explain import explain, explain_many, explain_put
from headrace.log.seams import Assigned, Packed, Timeout, Wait
from headrace.product.batch import Batch
from headrace.product.feed import check_feed
from headrace.product.options import with_compression
from headrace.product.product import PRIORITY_DEFAULT, PRIORITY_MAX
from headrace.product.put import PLAIN, Put, expiry_of

if TYPE_CHECKING:
    from headrace.log.log import Log

FEED, ORIGIN = 1, 2  # kinds of names
GATES = tuple(kernel.CODES[why] for why in ("stations", "blocked", "rejected", "held"))
SLICES = tuple(kernel.CODES[why] for why in ("slices", "slice_given", "slice_missing"))
FUNCTION = kernel.CODES["function"]
_NO_FACTS: dict[str, Any] = {}
PASSABLE = GATES + SLICES  # an append that is refused for one of these may be tried again
REFUSALS = (LookupError, TypeError, ValueError, OverflowError, BufferError, kernel.KernelError)  # by the kernel


Appended = tuple[int, int, list[int] | None]  # first sequence, how many were stored, outcomes if not all were


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Nothing was stored: the queue holds a product with this signature, at sequence `of`."""

    of: int

    def __bool__(self) -> bool:
        return False


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What became of each product of a `put_many`, in order."""

    products: int  # in the call
    stored: int  # new ones, now readable
    first: int  # sequence of the first product stored; the others follow without a gap; 0 if none was stored
    _outcomes: tuple[int, ...] | None = None  # with duplicates: sequence, or minus that of the held copy

    def __len__(self) -> int:
        return self.products

    @property
    def sequences(self) -> npt.NDArray[np.uint64]:
        """The sequence of each product; for a duplicate, that of the copy that the queue holds."""
        if self._outcomes is None:
            return np.arange(self.first, self.first + self.products, dtype=np.uint64)
        return np.abs(np.array(self._outcomes, dtype=np.int64)).astype(np.uint64)

    @property
    def duplicates(self) -> npt.NDArray[np.bool_]:
        """True for each product that was not stored because the queue holds a copy."""
        if self._outcomes is None:
            return np.zeros(self.products, dtype=np.bool_)
        return np.array(self._outcomes, dtype=np.int64) < 0


# --- one --------------------------------------------------------------------------------------------


def put(
    log: "Log", payload: Any, feed: str, ident: str, facts: Put = PLAIN, timeout: Timeout = None
) -> int | Duplicate:
    """Store one product; its sequence, or the Duplicate of the one that is held. `Queue.put` explains."""
    wait: Wait | None = None
    assigned: Assigned | None = None
    packed = log.pack(payload, feed) if log.packs else None
    while True:
        try:
            if facts is PLAIN and log.is_quick and assigned is None and packed is None:
                outcome = log.kernel.put_plain(payload, feed, ident, _NO_FACTS)
            else:
                outcome = _put_in_full(log, payload, feed, ident, facts, assigned, packed)
            break
        except REFUSALS as error:
            log.check_open()
            if isinstance(error, kernel.KernelError) and error.code == FUNCTION:
                assigned = log.assigner.assign(entering_one(payload, feed, ident, facts))
            elif isinstance(error, kernel.KernelError) and error.code in PASSABLE:
                wait, assigned = _make_way(log, error, timeout, wait), _unless_stale(assigned, error)
                if error.code in SLICES:
                    packed = log.pack(payload, feed) if log.packs else None
            elif isinstance(error, KeyError):
                learn_feed(log.kernel, feed, log.path)
            else:
                raise explain_put(error, log.path, log.config.payload_bytes_max, payload, feed, ident) from None
    if log.is_disk:  # a duplicate is acknowledged only when the copy that is held is safe
        log.make_durable(abs(outcome))
    return outcome if outcome > 0 else Duplicate(-outcome)


def _put_in_full(
    log: "Log", payload: Any, feed: str, ident: str, facts: Put, assigned: Assigned | None, packed: Packed | None
) -> int:
    """Put with every optional fact; the kernel's answer."""
    if not log.is_writing:
        log.begin_writing()
    if facts.origin is not None:
        _learn_origin(log.kernel, facts.origin, facts.origin_sequence)
    now_ns, boot_ns = log.now()
    slice_, number = (facts.slice, 0) if assigned is None else (int(assigned.slices[0]), assigned.number)
    content, options = None, facts.options
    if packed is not None:
        payload, content, options = packed.payload, payload, with_compression(options, packed.compression)
    expires_ns = facts.expires_ns(now_ns or log.now_ns()) if facts.expiry else 0
    return log.kernel.put(
        payload, feed, ident, facts.created, facts.priority, expires_ns, facts.properties or None,
        slice_, facts.signature, facts.origin, facts.origin_sequence, facts.previous, options or None, now_ns,
        boot_ns, number, content,
    )  # fmt: skip


# --- many -------------------------------------------------------------------------------------------


def put_many(
    log: "Log", payloads: Any, *, feed: Texts, ident: Texts = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
) -> Receipt:
    """Store many products as one: readers see all of them or none. `Queue.put_many` explains."""
    if log.is_plain and payloads.__class__ is list and feed.__class__ is str and ident.__class__ is str:
        priority = facts.get("priority") if facts else PRIORITY_DEFAULT
        plain = not facts or (len(facts) == 1 and priority.__class__ is int and 0 <= priority <= PRIORITY_MAX)
        if plain and feed in log.kernel.feeds:  # the kernel has a shorter path for these
            put_plain = partial(log.kernel.put_many_plain, payloads, feed, ident, priority)  # type: ignore[arg-type]
            with suppress(_NeedsColumnsError):
                return _append_many(log, payloads, ident, lambda _: put_plain(), timeout)
    log.check_open(always=False)
    held = payloads if payloads.__class__ is list else payload_column(payloads)
    return put_columns(log, held, columns_of(len(held), feed, ident, facts), timeout)


def put_columns(log: "Log", payloads: list[Any], columns: Columns, timeout: Timeout = None) -> Receipt:
    """As `put_many`, with columns that were checked already."""
    log.check_open(always=False)
    if not log.is_writing:
        log.begin_writing()
    for feed in distinct(columns.feed):
        if feed not in log.kernel.feeds:
            learn_feed(log.kernel, feed, log.path)
    has_sequences = "origin_sequence" in columns.facts
    for origin in distinct(columns.facts.get("origin", ())):
        _learn_origin(log.kernel, origin, has_sequences)
    append = partial(_append_columns, log, payloads, columns, _Packing(log))
    return _append_many(log, payloads, columns.ident, append, timeout, columns)


def _append_columns(
    log: "Log", payloads: list[Any], columns: Columns, packing: "_Packing", assigned: Assigned | None
) -> Appended:
    now_ns, boot_ns = log.now()
    if isinstance(columns.facts.get("expiry"), str):
        expires_ns = np.array([expiry_of(columns.facts["expiry"], log.now_ns())], np.uint64)
        columns = msgspec.structs.replace(columns, facts={**columns.facts, "expiry": expires_ns})
    number, contents = 0, None
    if assigned is not None:
        number = assigned.number
        columns = msgspec.structs.replace(columns, facts={**columns.facts, "slice": assigned.slices})
    if log.packs:
        payloads, contents, options = packing.of(payloads, columns)
        if contents is not None:
            columns = msgspec.structs.replace(columns, facts={**columns.facts, "options": options})
    return log.kernel.put_many(payloads, *columns.arguments(now_ns, boot_ns, number, contents))


class _Packing:
    """The payloads of one `put_many` as they are to be stored; kept while the put waits at gates."""

    def __init__(self, log: "Log") -> None:
        self._log, self._made_for = log, -1
        self._made: tuple[list[Any], list[Any] | None, list[bytes | None]] = ([], None, [])

    def of(self, payloads: list[Any], columns: Columns) -> tuple[list[Any], list[Any] | None, list[bytes | None]]:
        """Payloads to store, what they were before (None: the same), and their options."""
        number = self._log.kernel.slicings_number
        if number != self._made_for:
            packed = self._log.packer.pack_many(payloads, columns.feed, self._log.expanded_bytes_max)
            self._made_for, self._made = number, _with_packed(payloads, columns, packed)
        return self._made


def _with_packed(
    payloads: list[Any], columns: Columns, packed: list[Packed | None] | None
) -> tuple[list[Any], list[Any] | None, list[bytes | None]]:
    if packed is None:
        return payloads, None, []
    given = columns.facts.get("options")
    blocks = given if isinstance(given, list) else [given] * len(payloads)
    stored = [payload if made is None else made.payload for payload, made in zip(payloads, packed, strict=True)]
    options = [
        block if made is None else with_compression(block or b"", made.compression)
        for block, made in zip(blocks, packed, strict=True)
    ]
    contents = [None if made is None else payload for payload, made in zip(payloads, packed, strict=True)]
    return stored, contents, options


class _NeedsColumnsError(Exception):
    """A function of a user assigns the slices and needs to see the columns, or a channel compresses."""


def _append_many(
    log: "Log", held: list[Any], ident: Texts, append: Callable[[Assigned | None], Appended], timeout: Timeout,
    columns: Columns | None = None,
) -> Receipt:  # fmt: skip
    """Call the kernel by `append`, waiting at gates; the receipt, or what is wrong with the batch."""
    wait: Wait | None = None
    assigned: Assigned | None = None
    if log.assigner.calls and columns is not None and "slice" not in columns.facts:  # the kernel refuses a given one
        assigned = log.assigner.assign(entering_many(held, columns))
    try:
        while True:
            try:
                first, stored, outcomes = append(assigned)
                break
            except kernel.KernelError as error:
                log.check_open()
                if error.code == FUNCTION:
                    if columns is None:
                        raise _NeedsColumnsError from None
                    assigned = log.assigner.assign(entering_many(held, columns))
                elif error.code in PASSABLE:
                    wait, assigned = _make_way(log, error, timeout, wait), _unless_stale(assigned, error)
                    if columns is None and log.packs:
                        raise _NeedsColumnsError from None
                else:
                    raise
    except REFUSALS as error:
        log.check_open()
        config = log.config
        if isinstance(error, kernel.KernelError) and error.code == kernel.CODES["batch_too_large"]:
            raise BatchTooLargeError(
                f"a batch of {len(held)} products does not fit into {config.size} bytes as one piece",
                "put it in several calls, or resize the queue",
            ) from None
        raise explain_many(error, log.path, config.payload_bytes_max, held, ident) from None
    if log.is_disk and held:
        log.make_durable(max([first + stored - 1, *map(abs, outcomes or ())]))
    return Receipt(len(held), stored, first, None if outcomes is None else tuple(outcomes))


def put_batch(
    log: "Log", batch: Batch, keep: Any = None, timeout: Timeout = None, *, passed_on: bool = False
) -> Receipt:
    """Store products of another queue as they are, as one. `Queue.put_batch` explains.

    `passed_on`: another site has passed them on, so that they may be passed on once less.
    """
    log.check_open(always=False)
    if not log.is_writing:
        log.begin_writing()
    rows, mask = records.rows_of(batch), records.mask_of(keep, len(batch))
    log.dictionaries.take(kernel.needed_dictionaries(rows), rows.dictionaries)
    wait: Wait | None = None
    assigned = log.assigner.assign(entering_batch(batch)) if log.assigner.calls else None
    packed = records.packed_rows(log, batch, mask, passed_on=passed_on) if log.packs else None
    while True:
        try:
            slices, number = (None, 0) if assigned is None else (assigned.slices, assigned.number)
            first, stored, outcomes = log.kernel.put_records(rows, mask, *log.now(), slices, number, passed_on, packed)
            break
        except kernel.KernelError as error:
            log.check_open()
            if error.code == FUNCTION:
                assigned = log.assigner.assign(entering_batch(batch))
            elif error.code in PASSABLE:
                wait, assigned = _make_way(log, error, timeout, wait), _unless_stale(assigned, error)
                if error.code in SLICES:
                    packed = records.packed_rows(log, batch, mask, passed_on=passed_on) if log.packs else None
            else:
                raise records.explain_records(error, log.path, batch, log.config) from None
    products = stored if outcomes is None else len(outcomes)
    if log.is_disk and products:
        log.make_durable(max([first + stored - 1, *map(abs, outcomes or ())]))
    return Receipt(products, stored, first, None if outcomes is None else tuple(outcomes))


def in_halves(
    count: int, put: Callable[[int, int], None], refuse: Callable[[int, InvalidError], None],
    on: type[InvalidError] = InvalidError,
) -> None:  # fmt: skip
    """Put `count` products with as few calls as possible, though some may be invalid, or all together too large.

    `put(start, stop)` puts a range. If it raises `on`, its halves are tried in order, down to the single product at
    fault, for which `refuse(index, error)` is called. Other errors, and those of `refuse`, end it.
    """
    ranges = [(0, count)] if count else []
    while ranges:
        start, stop = ranges.pop()
        try:
            put(start, stop)
        except on as error:
            if stop - start == 1:
                refuse(start, error)
                continue
            middle = (start + stop) // 2
            ranges += [(middle, stop), (start, middle)]


# --- names and gates --------------------------------------------------------------------------------


def distinct(texts: str | Iterable[str]) -> set[str]:
    """The different texts of a column."""
    return {texts} if isinstance(texts, str) else set(texts)


def learn_feed(log: kernel.Log, feed: str, path: Path) -> None:
    """Give a new feed a number; FeedError if its name is invalid."""
    try:
        log.add_name(FEED, check_feed(feed))
    except kernel.KernelError as error:
        raise explain(error, path) from None


def _learn_origin(log: kernel.Log, origin: str, has_sequence: object) -> None:
    """Give a new origin a number. A product of another origin needs its sequence there."""
    if not has_sequence and log.origins.get(origin) != log.state["origin"]:
        raise OptionError(
            f"a product of origin {origin!r} came without its origin_sequence",
            "pass on both as they came",
        )
    if origin not in log.origins:
        log.add_name(ORIGIN, origin)


def _unless_stale(assigned: Assigned | None, error: kernel.KernelError) -> Assigned | None:
    """What functions of users have assigned, for another attempt; None if channels have changed since."""
    return None if error.code in SLICES else assigned


def _make_way(log: "Log", error: kernel.KernelError, timeout: Timeout, wait: Wait | None) -> Wait:
    """Remove the reason for which the kernel refused an append, or wait for it; the rest of the timeout."""
    wait = wait or Wait(timeout)
    if error.code in SLICES:
        log.assigner.make_way(error)
    else:
        log.gate.make_way(error, wait)
    return wait

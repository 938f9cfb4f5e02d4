"""Read: from a start and a selection to a Batch.

Cheap conditions first. Conditions on index rows (feed, origin, priority, slice) are decided once per name and become a
filter that the kernel applies to rows. Idents are gathered and matched a column at a time. Only the rest has its
records verified, and only verified records are matched against the other conditions. Readers take no lock. A product
that does not match its checksum is never returned: the batch ends before it, and a read that starts at it raises
ProductDamagedError.

A Reader keeps two things between reads: the decisions about names, and the count for `every`. What a reader may see
(`Allowed`) is decided with the names, before anything else.

A function of a user may be slow. It is called once for each product, a few products at a time. A `brief` reader that
has called it for a tenth of a second returns what it has found, which may be nothing: `next` says how far it got.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headrace.errors import OptionError, ProductDamagedError, StartAheadError
from headrace.kernel import _kernel as kernel
from headrace.log.explain import REPAIR, explain, segment_path
from headrace.log.seams import Clock
from headrace.product.batch import Batch, Lost
from headrace.selection import Selection
from headrace.selection.matching import gathered, narrowed
from headrace.units import parse_age, parse_time

_CHUNK = 4096  # rows at a time if more than index rows decides
_CALLS_MAX, _CALLS_S = 64, 0.005  # products at a time for a function, and how long they may take
_FUNCTION_S = 0.1  # how long a brief read may call a function
NO_LIMIT = (1 << 63) - 1
_CODES = kernel.CODES
_BEFORE_ALL_NS = 1  # nothing has expired

Mask = npt.NDArray[np.uint8]
Allowed = Callable[[str], bool]  # whether a reader may see products of a feed; asked once for each feed
Start = int | str | datetime | timedelta


class Read(Protocol):
    """Read products from a position on, up to `stop`, which is not included, and `most` of them at most."""

    def __call__(self, position: int, stop: int | None = None, most: int | None = None) -> Batch: ...


def check_limit(limit: int) -> int:
    """Return `limit` if it is a number of products; OptionError otherwise."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise OptionError(f"limit {limit!r} is not a positive number", "give how many products you want at most")
    return limit


class RowTerms:
    """What a selection requires of the index rows of one log, for the names known at the last `learn`.

    `filter` is for the kernel, None if index rows decide nothing. `feeds` and `origins` are its masks, by the number of
    a name; None if all are wanted.
    """

    __slots__ = ("_allowed", "_log", "_slices", "feeds", "filter", "origins", "selection")

    def __init__(self, log: kernel.Log, selection: Selection, allowed: Allowed | None = None) -> None:
        self._log, self.selection, self._allowed = log, selection, allowed
        self.feeds = None if selection.feed is None and allowed is None else np.zeros(0, np.uint8)
        self.origins = None if selection.origin is None else np.zeros(0, np.uint8)
        self._slices = _slice_mask(selection.slices)
        self.filter: kernel.RowFilter | None = None
        self.learn()

    def learn(self) -> bool:
        """Decide about the names that are new since the last call; False if there are none."""
        if self.feeds is None and self.origins is None:
            self._renew()
            return False
        feeds_end = self._log.learn_names()
        origins_end = len(self._log.origins)
        known = _length(self.feeds), _length(self.origins)
        self.feeds = self._extended(self.feeds, feeds_end, self._wants_feed)
        self.origins = self._extended(self.origins, origins_end, self.selection.wants_origin)
        self._renew()
        return known != (_length(self.feeds), _length(self.origins))

    def _wants_feed(self, feed: str) -> bool:
        return (self._allowed is None or self._allowed(feed)) and self.selection.wants_feed(feed)

    def _extended(self, mask: Mask | None, end: int, wants: Callable[[str], bool]) -> Mask | None:
        if mask is None:
            return None
        wanted = [bool(name) and wants(name) for name in self._log.names[len(mask) : end]]
        return np.concatenate([mask, np.array(wanted, np.uint8)])

    def _renew(self) -> None:
        """Make a new filter. A mask is never changed after a filter has it."""
        if self.selection.priority is None and self.feeds is self.origins is self._slices is None:
            return
        self.filter = kernel.RowFilter(self.feeds, self.origins, self.selection.priorities, self._slices)


def _slice_mask(slices: tuple[int, ...] | None) -> Mask | None:
    if slices is None:
        return None
    mask = np.zeros(kernel.SLICES, np.uint8)
    mask[list(slices)] = 1
    return mask


def _length(mask: Mask | None) -> int:
    return 0 if mask is None else len(mask)


class Reader:
    """One selection over one queue."""

    __slots__ = (
        "_brief", "_by_ident", "_by_record", "_calls", "_every", "_expired", "_heads", "_log", "_path", "_terms",
        "_wanted", "selection",
    )  # fmt: skip

    def __init__(
        self, log: kernel.Log, path: Path, selection: Selection, allowed: Allowed | None = None, *, heads: bool = False,
        brief: bool = False, expired: bool = False,
    ) -> None:  # fmt: skip
        """`expired`: expired products are included.

        `heads`: read the headers of records only. Checksums are not compared, and expired products are included. Then
        only the columns of the batch may be used; its payloads are not verified.
        """
        self._log, self._path, self.selection, self._brief = log, path, selection, brief
        self._expired = expired
        self._heads = heads and selection.is_by_ident_alone
        self._terms = RowTerms(log, selection, allowed)
        self._by_ident = selection.ident is not None or selection.not_ident is not None
        self._by_record = not selection.is_by_ident_alone
        self._every = selection.every
        self._calls = 0 if selection.function is None else 1  # of a function, for one chunk
        self._wanted = 0  # wanted products since the last one that `every` let through

    def read(self, start: int, limit: int, bytes_limit: int, now_ns: int, stop: int = NO_LIMIT) -> Batch:
        """Products from `start` on: at most `limit`, and no more once `bytes_limit` payload bytes are reached."""
        if not self._by_chunks and not self._heads:
            clock_ns = _BEFORE_ALL_NS if self._expired else now_ns
            outcome, rows = self._log.take(start, limit, bytes_limit, stop, self._terms.filter, clock_ns)
            if outcome == 0 and rows.damage is None:
                return Batch(rows, self._log.names)
        return self._read_by_steps(start, limit, bytes_limit, now_ns, stop)

    @property
    def _by_chunks(self) -> bool:
        return self._by_ident or self._by_record or self._every > 1

    def _read_by_steps(self, start: int, limit: int, bytes_limit: int, now_ns: int, stop: int) -> Batch:
        """Read chunk by chunk: if more than index rows decides, or after a loss, a new name or damage."""
        rows = self._log.rows()
        first = self._log.first_from(start)
        lost = Lost(start, first - 1) if first > start else None
        position, begun_s = first, time.monotonic() if self._calls else 0.0
        while True:
            begin, called_s = len(rows), time.monotonic() if self._calls else 0.0
            outcome = rows.pick(position, self._pick_limit(begin, limit), bytes_limit, stop, self._terms.filter)
            self._match_idents(rows, begin, limit)
            if self._heads:
                rows.fill(begin)
            else:
                rows.verify(begin, _BEFORE_ALL_NS if self._by_record or self._expired else now_ns)
            self._match_records(rows, begin, limit, now_ns)
            if rows.damage is not None or outcome not in (0, _CODES["unknown_feed"]):
                break
            if outcome == _CODES["unknown_feed"] and len(rows) < limit and not self._terms.learn():
                outcome = _CODES["damaged"]  # a row refers to an unknown feed or origin
                break
            position = rows.next
            if position >= min(self._log.head, stop) or len(rows) >= limit or rows.bytes >= bytes_limit:
                break
            if self._calls and self._has_called_enough(begun_s, called_s):
                break
        self._log.learn_names()
        batch = Batch(rows, self._log.names, lost)
        if len(batch) or lost:
            return batch
        if outcome == _CODES["gone"]:
            return self.read(rows.next, limit, bytes_limit, now_ns, stop)
        if rows.damage is not None or outcome != 0:
            raise self._damage(rows, outcome)
        return batch

    def _has_called_enough(self, begun_s: float, called_s: float) -> bool:
        """Whether a read returns now; the faster the function, the more products come in one chunk."""
        now_s = time.monotonic()
        is_slow = now_s - called_s > _CALLS_S
        self._calls = max(1, self._calls // 2) if is_slow else min(_CALLS_MAX, self._calls * 2)
        return self._brief and now_s - begun_s > _FUNCTION_S

    def _pick_limit(self, begin: int, limit: int) -> int:
        if self._calls:  # no more than the limit, so that no product is examined twice
            return begin + min(self._calls, limit - begin)
        return begin + max(_CHUNK, limit - begin) if self._by_chunks else limit

    def _match_idents(self, rows: kernel.Rows, begin: int, limit: int) -> None:
        if not self._by_ident or len(rows) == begin:
            return
        wanted = gathered(self.selection, len(rows) - begin, *rows.gather_idents(begin))
        last = not self._by_record and self._every == 1
        _keep(rows, wanted, begin, limit if last else NO_LIMIT)

    def _match_records(self, rows: kernel.Rows, begin: int, limit: int, now_ns: int) -> None:
        """Apply the conditions that need verified records, then `every`."""
        if self._by_record and len(rows) > begin:
            places = self._wanted_places(rows, begin, now_ns)
            wanted = np.zeros(len(rows) - begin, np.bool_)
            wanted[places - begin] = True
            _keep(rows, wanted, begin, limit if self._every == 1 else NO_LIMIT)
            if not self._expired:
                rows.expire(begin, now_ns)  # only now, so that no expired product is counted that was not selected
        if self._every > 1 and len(rows) > begin:
            turns = np.arange(self._wanted + 1, self._wanted + 1 + len(rows) - begin) % self._every == 0
            self._wanted = (self._wanted + _keep(rows, turns, begin, limit)) % self._every

    def _wanted_places(self, rows: kernel.Rows, begin: int, now_ns: int) -> npt.NDArray[np.intp]:
        """The batch is temporary: its columns become invalid with the next pick."""
        self._log.learn_names()
        batch = Batch(rows, self._log.names)
        return narrowed(self.selection, batch, np.arange(begin, len(rows)), now_ns, idents_decided=True)

    def _damage(self, rows: kernel.Rows, outcome: int) -> Exception:
        sequence, file = rows.damage or (rows.next, self._log.failed_file)
        if rows.damage is None and outcome != _CODES["damaged"]:
            return explain(kernel.KernelError(outcome, file), self._path)
        error = ProductDamagedError(
            f"product {sequence} in {segment_path(self._path, file)} is damaged",
            f"{REPAIR.format(path=self._path)}, or read on at {sequence + 1}",
            sequence,
        )
        if rows.damage is None:
            error.next = max(self._log.segment_end(sequence), sequence + 1)
        return error


def _keep(rows: kernel.Rows, wanted: npt.NDArray[np.bool_], begin: int, limit: int) -> int:
    """Of the rows from `begin` on, keep the wanted ones, up to `limit` in all; how many were examined.

    The next scan starts at the first wanted row beyond the limit, if there is one.
    """
    over = np.flatnonzero(wanted)[max(0, limit - begin) :]
    if len(over):
        wanted = wanted[: over[0]]
        rows.cut(begin + int(over[0]))
    rows.keep(np.ascontiguousarray(wanted).view(np.uint8), begin)
    return len(wanted)


# --- where to start ------------------------------------------------------------------------------


def resolve_start(log: kernel.Log, start: Start, clock: Clock | None) -> int:
    """The sequence that `start` means now: itself, the oldest, the next, or the first one inserted since a time.

    OptionError for a sequence beyond the end: products that are put until then would be skipped in silence; and
    StartAheadError for a time in the future: products that are put until then would not be skipped.
    """
    if isinstance(start, int) and not isinstance(start, bool):
        if not 0 <= start < 1 << 63:
            raise OptionError(f"sequence {start} is out of range", "sequences begin at 1")
        if start > log.tail:
            raise OptionError(
                f"sequence {start} is beyond the end of the queue: the next product will be {log.tail}",
                'give a sequence up to there, or "next" for the end',
            )
        return max(start, 1)
    if start == "oldest":
        return log.oldest
    if start == "next":
        return log.head
    now_ns = clock.now_ns() if clock else log.now_ns()
    since_ns = time_of(start, now_ns)
    if since_ns > now_ns:
        raise StartAheadError(
            f"start {start!s} is in the future", "follow from there, which waits; or give a station a start_time",
            (since_ns - now_ns) / 1e9,
        )  # fmt: skip
    return log.first_since(since_ns)


def time_of(start: Start, now_ns: int) -> int:
    """Nanoseconds since 1970; an age counts back from now. OptionError if it is neither an age nor a time."""
    try:
        if isinstance(start, timedelta) or (isinstance(start, str) and _is_age(start)):
            return max(0, now_ns - int(parse_age(start, "start") * 1e9))
        if isinstance(start, str | datetime):
            return parse_time(start, "start")
    except OptionError:
        pass
    raise OptionError(
        f"start {start!r} is invalid",
        'give a sequence, "oldest", "next", an age such as "1h", or a time such as "2026-11-15T12:00Z"',
    )


def _is_age(text: str) -> bool:
    """Whether it is a number and a unit, without anything that only a time has."""
    return text[:1].isdigit() and text[-1:].isalpha() and "T" not in text and "-" not in text

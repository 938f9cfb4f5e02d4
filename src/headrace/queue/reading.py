"""Reading: from a start and a selection to a Batch.

Cheap conditions first: the feed pattern is decided once per feed and becomes a mask that the kernel applies to index
rows; idents are gathered and matched a column at a time; only what is left has its records verified. Readers take no
lock. A product that does not fit its checksum is never handed out: the batch ends before it, and a read that begins at
it raises ProductDamagedError.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import ProductDamagedError
from headrace.product.batch import Batch, Lost
from headrace.queue.kernel import _kernel as kernel
from headrace.queue.trouble import REPAIR, explain, segment_path
from headrace.selection import Selection

_CHUNK = 4096  # rows at a time where idents decide
_NO_LIMIT = (1 << 63) - 1
_TROUBLE = kernel.TROUBLE


class Reader:
    """One selection over one queue; keeps the feed mask between reads."""

    __slots__ = ("_filter", "_log", "_mask", "_path", "selection")

    def __init__(self, log: kernel.Log, path: Path, selection: Selection) -> None:
        self._log, self._path, self.selection = log, path, selection
        self._mask: npt.NDArray[np.uint8] | None = None
        self._filter: kernel.RowFilter | None = None
        if selection.feed is not None:
            self._mask = np.zeros(0, np.uint8)
            self._learn_feeds()

    def _learn_feeds(self) -> bool:
        """Decide the feeds that have appeared since the last time; False if there are none."""
        assert self._mask is not None
        end = self._log.learn_names()
        names, known = self._log.names, len(self._mask)
        wanted = [self.selection.wants_feed(name) if name else False for name in names[known:end]]
        self._mask = np.concatenate([self._mask, np.array(wanted, np.uint8)])
        self._filter = kernel.RowFilter(self._mask)
        return len(self._mask) > known

    def read(self, start: int, limit: int, bytes_limit: int, now_ns: int, stop: int = _NO_LIMIT) -> Batch:
        """Products from `start` on: at most `limit`, and no more once `bytes_limit` payload bytes are reached."""
        if self.selection.ident is None:
            outcome, rows = self._log.take(start, limit, bytes_limit, stop, self._filter, now_ns)
            if outcome == 0 and rows.damage is None:
                return Batch(rows, self._log.names)
        return self._read_by_steps(start, limit, bytes_limit, now_ns, stop)

    def _read_by_steps(self, start: int, limit: int, bytes_limit: int, now_ns: int, stop: int) -> Batch:
        """Chunk by chunk, where idents decide, and wherever something is out of the ordinary."""
        rows = self._log.rows()
        first = self._log.first_from(start)
        lost = Lost(start, first - 1) if first > start else None
        position = first
        while True:
            begin = len(rows)
            outcome = rows.pick(position, self._pick_limit(begin, limit), bytes_limit, stop, self._filter)
            self._match_idents(rows, begin)
            rows.cut(limit)
            rows.verify(begin, now_ns)
            if rows.damage is not None or outcome not in (0, _TROUBLE["unknown_feed"]):
                break
            if outcome == _TROUBLE["unknown_feed"] and not self._learn_feeds():
                outcome = _TROUBLE["damaged"]  # a row speaks of a feed that nobody knows
                break
            position = rows.next
            if position >= min(self._log.head, stop) or len(rows) >= limit or rows.bytes >= bytes_limit:
                break
        self._log.learn_names()
        batch = Batch(rows, self._log.names, lost)
        if len(batch) or lost:
            return batch
        if outcome == _TROUBLE["gone"]:
            return self.read(rows.next, limit, bytes_limit, now_ns, stop)
        if rows.damage is not None or outcome != 0:
            raise self._damage(rows, outcome)
        return batch

    def _pick_limit(self, begin: int, limit: int) -> int:
        return limit if self.selection.ident is None else begin + max(_CHUNK, limit - begin)

    def _match_idents(self, rows: kernel.Rows, begin: int) -> None:
        if self.selection.ident is None or len(rows) == begin:
            return
        offsets, data = rows.gather_idents(begin)
        idents = pa.Array.from_buffers(
            pa.string(), len(rows) - begin, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        rows.keep(self.selection.wants_idents(idents), begin)

    def _damage(self, rows: kernel.Rows, outcome: int) -> Exception:
        sequence, file = rows.damage or (rows.next, self._log.trouble_file)
        if rows.damage is None and outcome != _TROUBLE["damaged"]:
            return explain(kernel.KernelError(outcome, file), self._path)
        error = ProductDamagedError(
            f"product {sequence} in {segment_path(self._path, file)} is damaged",
            f"{REPAIR.format(path=self._path)}, or read on at {sequence + 1}",
            sequence,
        )
        if rows.damage is None:
            error.next = max(self._log.segment_end(sequence), sequence + 1)
        return error

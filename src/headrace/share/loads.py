"""Loads: what nodes report of their work, and samples of it, one a second for each node. Plain arrays, no clock."""

import msgspec
import numpy as np

from headrace.errors import OptionError
from headrace.share.interface import Load, Work
from headrace.share.layout import LOAD_BYTES_MAX, SAMPLES, Table, owners_of
from headrace.share.sessions import Moment

SAMPLE_NS = 1_000_000_000  # between two samples of a node's load


class Loads:
    """The reports of one table."""

    def __init__(self, table: Table) -> None:
        self._table, self._header, self._seats = table, table.header[0], table.seats

    def count(self, seat: int, work: Work) -> None:
        """Add what was done. Work on slices that the seat does not own counts for the node only."""
        entry, table = self._seats[seat], self._table
        if work.number <= int(entry["reported"]):
            return
        entry["reported"] = work.number
        known = work.slices < len(table.words)
        known &= owners_of(table.words[np.where(known, work.slices, 0)]) == seat
        np.add.at(table.products, work.slices[known], work.products[known])
        np.add.at(table.busy_ns, work.slices[known], work.busy_ns[known])
        entry["products"] += np.uint64(work.products.sum())
        entry["busy_ns"] += np.uint64(work.busy_ns.sum())
        if work.lost is not None:  # other nodes may have missed a part of the same range
            first = max(work.lost.first, int(self._header["lost_last"]) + 1)
            self._header["lost"] += max(0, work.lost.last + 1 - first)
            self._header["lost_last"] = max(work.lost.last, int(self._header["lost_last"]))

    def note(self, seat: int, load: Load, text: bytes, now: Moment) -> None:
        """Keep the latest report; `text` is that of `load_text`."""
        entry = self._seats[seat]
        entry["load_bytes"], entry["load"] = len(text), text
        since = now.boot_ns - int(entry["sampled"])
        if since >= SAMPLE_NS:
            busy = (int(entry["busy_ns"]) - int(entry["sampled_busy_ns"])) / since if entry["sampled"] else 0.0
            entry["sampled"], entry["sampled_busy_ns"] = now.boot_ns, entry["busy_ns"]
            self._sample(seat, load, busy, now)

    def note_last(self, seat: int, now: Moment) -> None:
        """The node has gone, and has no slices any more."""
        self._sample(seat, Load(), 0.0, now)

    def _sample(self, seat: int, load: Load, busy: float, now: Moment) -> None:
        place = int(self._header["samples"]) % SAMPLES
        name, slices = self._seats[seat]["name"], np.count_nonzero(owners_of(self._table.words) == seat)
        self._table.samples[place] = (now.wall_ns, load.waiting, load.cpu, busy, slices, seat, name)
        self._header["samples"] += 1


def load_text(load: Load) -> bytes:
    """A load as a table has it; OptionError if it is too long."""
    text = msgspec.json.encode(load)
    if len(text) > LOAD_BYTES_MAX:
        raise OptionError(f"a load of {len(text)} bytes is too long", f"report at most {LOAD_BYTES_MAX} bytes")
    return text

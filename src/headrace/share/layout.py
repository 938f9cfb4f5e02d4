"""The table of one group: what lies where in its file, as NumPy arrays over the mapped bytes.

    header      magic, version, slices, the balancer's lease, counters
    slices      columns, one entry for each slice: word, position, suspect, products, busy_ns, fresh, careful,
                mourned, tries
    seats       4,096 nodes
    sessions    a ring of the latest 1,024 load-balancing sessions
    parked      a ring of 4,096 products that were given up
    samples     a ring of 32,768 loads

The word of a slice holds its epoch (32 bits), taker (16) and owner (16), so that every change of ownership is one store
of eight bytes: a process that is killed leaves the old owner or the new one. Integers are little-endian. Most of the
file is never written, and takes no space on disk.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.share.interface import ELSEWHERE, NOBODY

MAGIC = b"HRSHARE1"
VERSION = 2
SEATS = 4096
SESSIONS = 1024
PARKED = 4096
SAMPLES = 32768
NAME_BYTES_MAX = 64
LOAD_BYTES_MAX = 1024
ERROR_BYTES_MAX = 400

HEADER = np.dtype(
    [
        ("magic", "S8"), ("version", "<u4"), ("slices", "<u4"), ("dead_after_ns", "<u8"), ("tries_max", "<u4"),
        ("changes", "<u4"), ("term", "<u8"), ("leader_until", "<u8"), ("leader", f"S{NAME_BYTES_MAX}"),
        ("sessions", "<u8"), ("parked", "<u8"), ("samples", "<u8"), ("lost", "<u8"), ("failed", "<u8"),
        ("refused", "<u8"), ("cancelled", "<u8"), ("deaths", "<u8"), ("lost_last", "<u8"), ("leader_yields", "u1"),
        ("reserved", "V287"),
    ]
)  # fmt: skip
SEAT = np.dtype(
    [
        ("instance", "<u8"), ("heartbeat", "<u8"), ("joined_ns", "<u8"), ("version", "<u8"), ("reported", "<u8"),
        ("products", "<u8"), ("busy_ns", "<u8"), ("sampled", "<u8"), ("sampled_busy_ns", "<u8"), ("session", "<u8"),
        ("in_work", "<u8"), ("in_work_slice", "<u4"), ("pid", "<u4"), ("draining", "u1"), ("fresh", "u1"),
        ("load_bytes", "<u2"), ("reserved", "V4"), ("name", f"S{NAME_BYTES_MAX}"), ("user", f"S{NAME_BYTES_MAX}"),
        ("load", f"S{LOAD_BYTES_MAX}"),
    ]
)  # fmt: skip
SESSION = np.dtype(
    [
        ("number", "<u8"), ("begun_ns", "<u8"), ("removed_ns", "<u8"), ("available_ns", "<u8"), ("ended_ns", "<u8"),
        ("slices", "<u4"), ("left", "<u4"), ("waits", "<u4"), ("giver_seat", "<u2"), ("taker_seat", "<u2"),
        ("reason", "u1"), ("outcome", "u1"), ("reserved", "V6"), ("giver", f"S{NAME_BYTES_MAX}"),
        ("taker", f"S{NAME_BYTES_MAX}"),
    ]
)  # fmt: skip
PARKED_ENTRY = np.dtype(
    [
        ("sequence", "<u8"), ("time_ns", "<u8"), ("slice", "<u4"), ("tries", "<u4"), ("node", f"S{NAME_BYTES_MAX}"),
        ("error", f"S{ERROR_BYTES_MAX}"),
    ]
)  # fmt: skip
SAMPLE = np.dtype(
    [
        ("time_ns", "<u8"), ("waiting", "<u8"), ("cpu", "<f4"), ("busy", "<f4"), ("slices", "<u4"), ("seat", "<u4"),
        ("name", f"S{NAME_BYTES_MAX}"),
    ]
)  # fmt: skip
_COLUMNS = {"words": "<u8", "positions": "<u8", "suspects": "<u8", "products": "<u8", "busy_ns": "<u8", "fresh": "<u8",
            "careful": "<u8", "mourned": "<u8", "tries": "u1"}  # fmt: skip
_UNOWNED = (NOBODY << 16) | NOBODY
_SIXTEEN, _THIRTY_TWO, _LOW = np.uint64(16), np.uint64(32), np.uint64(0xFFFF)

Words = npt.NDArray[np.uint64]


class Table(NamedTuple):
    """Views of one file, or of memory."""

    header: Any  # one record
    words: Words
    positions: npt.NDArray[np.uint64]
    suspects: npt.NDArray[np.uint64]
    products: npt.NDArray[np.uint64]
    busy_ns: npt.NDArray[np.uint64]
    fresh: npt.NDArray[np.uint64]  # the session that brought the slice, until its owner works on it
    careful: npt.NDArray[np.uint64]  # an owner died: the next one is careful until its position is this; 0: is not
    mourned: npt.NDArray[np.uint64]  # where the queue ended at that death; 0: the slice has passed it
    tries: npt.NDArray[np.uint8]
    seats: Any
    sessions: Any
    parked: Any
    samples: Any


def _parts(slices: int) -> list[tuple[str, np.dtype[Any], int]]:
    columns = [(name, np.dtype(kind), slices) for name, kind in _COLUMNS.items()]
    rings = [("seats", SEAT, SEATS), ("sessions", SESSION, SESSIONS), ("parked", PARKED_ENTRY, PARKED),
             ("samples", SAMPLE, SAMPLES)]  # fmt: skip
    return [("header", HEADER, 1), *columns, *rings]


def table_bytes(slices: int) -> int:
    """The size of the file of a group."""
    return sum(_aligned(kind.itemsize * count) for _, kind, count in _parts(slices))


def table_over(memory: Any, slices: int) -> Table:
    """The table in these bytes."""
    views, offset = {}, 0
    for name, kind, count in _parts(slices):
        views[name] = np.frombuffer(memory, kind, count, offset)
        offset += _aligned(kind.itemsize * count)
    return Table(**views)


def new_table(
    memory: Any, slices: int, start: int, dead_after_s: float, tries_max: int, only: tuple[int, ...] | None = None
) -> Table:
    """Make zeros a table without nodes, in which no slice has an owner; the magic comes last.

    With `only`, no node ever owns one of the other slices.
    """
    table = table_over(memory, slices)
    header = table.header
    header["version"], header["slices"], header["tries_max"] = VERSION, slices, tries_max
    header["dead_after_ns"] = int(dead_after_s * 1e9)
    table.words[:] = _UNOWNED | 1 << 32
    if only is not None:
        others = np.setdiff1d(np.arange(slices), np.array(only))
        table.words[others] = words_of(ELSEWHERE, NOBODY, 1)
    table.positions[:] = start
    header["magic"] = MAGIC
    return table


def memory_table(slices: int, start: int = 1, dead_after_s: float = 3.0, tries_max: int = 3) -> Table:
    """A table that no file holds."""
    return new_table(bytearray(table_bytes(slices)), slices, start, dead_after_s, tries_max)


def _aligned(size: int) -> int:
    return (size + 63) // 64 * 64


# --- words ----------------------------------------------------------------------------------------


def owners_of(words: Words) -> npt.NDArray[np.uint16]:
    return (words & _LOW).astype(np.uint16)


def takers_of(words: Words) -> npt.NDArray[np.uint16]:
    return ((words >> _SIXTEEN) & _LOW).astype(np.uint16)


def epochs_of(words: Words) -> npt.NDArray[np.uint32]:
    return (words >> _THIRTY_TWO).astype(np.uint32)


def words_of(owners: Any, takers: Any, epochs: Any) -> Words:
    """Words from their parts: arrays, or one value for all."""
    made = np.asarray(owners, np.uint64) | np.asarray(takers, np.uint64) << _SIXTEEN
    joined: Words = made | np.asarray(epochs, np.uint64) << _THIRTY_TWO
    return joined

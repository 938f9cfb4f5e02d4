"""Recovery: what the first process to attach does about those that are gone.

Same start of the machine: the page cache kept every store, so the log only has to be rolled back to its commit point
and stray files removed. After a restart of the machine the control file is worth nothing but its `synced` mark: the
directory of segments is made anew from the segment files, and rows behind the mark are believed only if their records
fit their checksums. If products may have been lost that way (durability `process`), the next sequence leaps ahead, so
that no sequence is ever given twice.
"""

import mmap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.queue.config import QueueConfig
from headrace.queue.directory import STATE_READY, STATE_RECOVERING, boot_id, learn_names, segment_path
from headrace.queue.kernel import _kernel as kernel
from headrace.queue.storage import Storage

LEAP = 1 << 32
LEAP_AHEAD = -1
ROW = np.dtype([("inserted_ns", "<u8"), ("offset", "<u4"), ("payload_bytes", "<u4"), ("feed", "<u4"),
                ("sequence", "<u4"), ("origin", "<u2"), ("slice", "<u2"), ("ident_bytes", "<u2"),
                ("priority", "u1"), ("flags", "u1")])  # fmt: skip
HEADER_BYTES = 256
MARK_DAMAGED = 2


@dataclass(frozen=True, slots=True)
class Segment:
    """What one segment file says of itself."""

    file: int
    number: int
    first: int
    size: int


def settle(path: Path, config: QueueConfig, log: kernel.Log, storage: Storage) -> None:
    """Make the queue ready for use. The caller is alone."""
    restarted = log.state["boot"] != boot_id()
    log.set_state(state=STATE_RECOVERING)
    log.reset_locks()
    if restarted:
        log.recount_names((path / "names").stat().st_size)
        learn_names(path, log)
        leap = config.durability == "process" and not log.state["clean"]
        rebuild_directory(path, log, trusted=log.state["synced"], floor=LEAP_AHEAD if leap else 0)
        _sync_all(path, log, storage)
    else:
        log.roll_back()
    remove_strays(path, log)
    _settle_dedup(path, log)
    if log.state["head"] != log.state["tail"]:
        _sync_all(path, log, storage)
        log.publish(log.state["tail"])
    log.set_state(boot=boot_id(), state=STATE_READY)


def _sync_all(path: Path, log: kernel.Log, storage: Storage) -> None:
    for segment in sorted((path / "segments").glob("*.segment")):
        storage.sync_file(segment)
    storage.sync_directory(path / "segments")
    log.set_state(synced=log.state["tail"], synced_file=log.state["next_file"])
    storage.sync_file(path / "control")


def _settle_dedup(path: Path, log: kernel.Log) -> None:
    """The duplicate memory can always be made anew; do so if its file is not as it should be."""
    state = log.state
    file = path / f"signatures-{state['dedup_table']:016x}"
    if not file.exists() or file.stat().st_size != state["dedup_bytes"]:
        log.rebuild_dedup()


def remove_strays(path: Path, log: kernel.Log) -> list[Path]:
    """Unlink files that no entry of the directory knows."""
    state = log.state
    live = {log.entry(n)["file"] for n in range(state["segment_oldest"], state["segment_newest"] + 1)}
    live.add(state["spare_file"])
    known = {segment_path(path, file) for file in live}
    table = path / f"signatures-{state['dedup_table']:016x}"
    strays = [file for file in (path / "segments").iterdir() if file not in known]
    strays += [file for file in path.glob("signatures-*") if file != table]
    strays += list(path.glob("queue.json.*.part"))
    for file in strays:
        file.unlink()
    return strays


# --- the directory of segments, from the files ----------------------------------------------------


def map_segment(path: Path, file: Path) -> mmap.mmap | None:
    """Map a segment file, or None if it is too short to be one."""
    if file.stat().st_size < HEADER_BYTES + ROW.itemsize:
        return None
    with file.open("r+b") as handle:
        return mmap.mmap(handle.fileno(), 0)


def find_segments(path: Path, log: kernel.Log) -> list[Segment]:
    """The segment files that belong to this queue, in the order of their numbers."""
    found: dict[int, Segment] = {}
    for file in sorted((path / "segments").glob("*.segment")):
        data = map_segment(path, file)
        if data is None:
            continue
        header = kernel.read_segment_header(data)
        data.close()
        if (
            header is not None
            and header["sound"]
            and header["uuid"] == log.state["uuid"]
            and segment_path(path, header["file"]) == file
        ):
            found[header["number"]] = Segment(header["file"], header["number"], header["first"], header["size"])
    return [found[number] for number in sorted(found)]


def last_row(data: Any, first: int, limit: int) -> int:
    """How many rows from the first on belong to this life of the segment."""
    room = (len(data) - HEADER_BYTES) // (ROW.itemsize + 56)
    rows = np.frombuffer(data, ROW, count=room, offset=len(data) - room * ROW.itemsize)[::-1]
    expected = (np.arange(first, first + room, dtype=np.uint64) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    fitting = np.flatnonzero(rows["sequence"][:limit] == expected[:limit])
    return int(fitting[-1]) + 1 if len(fitting) else 0


def rebuild_directory(path: Path, log: kernel.Log, trusted: int, floor: int) -> list[str]:
    """Write the directory anew from the segment files; what was noticed, in words.

    Rows of sequences below `trusted` are believed. The next sequence is at least `floor`; with LEAP_AHEAD it is far
    beyond anything that can have been given.
    """
    noticed: list[str] = []
    segments = find_segments(path, log)
    boot_ns, now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.time_ns()
    end = log.state["tail"] if not segments else segments[0].first
    number = 0
    log.set_state(segment_oldest=1, segment_newest=0, spare_file=0, pending_file=0)
    damaged: list[int] = []
    for place, segment in enumerate(segments):
        limit = segments[place + 1].first - segment.first if place + 1 < len(segments) else 1 << 40
        data = map_segment(path, segment_path(path, segment.file))
        if data is None or len(data) != segment.size or limit < 0:
            noticed.append(f"{segment_path(path, segment.file)} has the wrong size and was left out")
            continue
        count, faults, payload_bytes, newest_ns, marked, marked_bytes = _survey(
            log, data, segment.first, limit, trusted
        )
        data.close()
        damaged += faults
        number += 1
        end = segment.first + count
        age_ns = max(0, now_ns - newest_ns) if newest_ns else 0
        log.set_entry(
            number, segment.first, end, segment.file, segment.size, payload_bytes, newest_ns,
            max(1, boot_ns - age_ns), marked, marked_bytes,
        )  # fmt: skip
        renumber(path, log, segment, number)
    oldest = log.entry(1)["first"] if number else end
    log.set_state(
        segment_newest=number, tail=end, head=end, oldest=oldest,
        next_file=max([s.file for s in segments], default=0) + 1,
    )  # fmt: skip
    log.roll_back()
    if floor == LEAP_AHEAD:
        floor = (end // LEAP + 1) * LEAP
    if floor > end:
        log.begin_segment(floor)
        noticed.append(f"sequences go on at {floor}: products from {end} on may have been lost")
    if damaged:
        log.mark_rows(np.array(damaged, np.uint64), MARK_DAMAGED)
        noticed.append(f"{len(damaged)} products do not fit their checksums and were marked damaged")
    log.recount_feeds()
    log.rebuild_dedup()
    return noticed


def renumber(path: Path, log: kernel.Log, segment: Segment, number: int) -> None:
    """Bring the number in a segment's own header in line with the directory."""
    if segment.number != number:
        kernel.write_header(log, segment.file, segment.size, number, segment.first)


def _survey(
    log: kernel.Log, data: Any, first: int, limit: int, trusted: int
) -> tuple[int, list[int], int, int, int, int]:
    """Walk a segment: rows up to the last sound one; those before it that are not sound, by sequence."""
    count = last_row(data, first, limit)
    if first + count <= trusted:
        walked, faults, *sums = kernel.survey_rows(log, data, first, count, False)
    else:
        walked, faults, *sums = kernel.survey_rows(log, data, first, count, True)
        while faults and faults[-1][0] == first + walked - 1:
            faults.pop()
            walked -= 1
        _, _, *sums = kernel.survey_rows(log, data, first, walked, False)
    payload_bytes, newest_ns, marked, marked_bytes = sums
    return (
        walked,
        [sequence for sequence, _ in faults],
        payload_bytes,
        newest_ns,
        marked,
        marked_bytes,
    )

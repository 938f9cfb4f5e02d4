"""Recovery: what the first process to attach does after others died.

If the machine has not restarted, the page cache kept every store: the log is rolled back to its commit point, and stray
files are removed. After a restart, only the `synced` mark of the control file is trusted: the directory of segments is
rebuilt from the segment files, and rows after the mark are trusted only if their records match their checksums. If
products may have been lost that way (durability `process`), the next sequence leaps ahead, so that no sequence is ever
given twice.
"""

import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import QueueDamagedError
from headrace.files import open_regular, open_to_read
from headrace.kernel import _kernel as kernel
from headrace.log.config import QueueConfig
from headrace.log.directory import boot_id, is_continued, learn_names
from headrace.log.explain import REPAIR, segment_path
from headrace.log.seams import Resident, Storage

LEAP_AHEAD = -1
ROW = np.dtype(
    {
        "names": list(kernel.ROW_FIELDS),
        "formats": [f"<u{size}" for _, size in kernel.ROW_FIELDS.values()],
        "offsets": [offset for offset, _ in kernel.ROW_FIELDS.values()],
        "itemsize": kernel.ROW_BYTES,
    }
)


@dataclass(frozen=True, slots=True)
class Segment:
    """The header of one segment file."""

    file: int
    number: int
    first: int
    size: int


def settle(path: Path, config: QueueConfig, log: kernel.Log, storage: Storage, residents: Sequence[Resident]) -> None:
    """Make the queue ready for use. The caller holds it exclusively."""
    continued, same_start = is_continued(log), log.state["boot"] == boot_id()
    for resident in residents:
        resident.validate(path)
    log.set_state(state=kernel.STATE_RECOVERING)
    kernel.reset_locks(log)
    if not same_start:
        log.clear_clock()  # it counts from the start of the machine
    log.set_state(size_bytes=config.size, age_ns=config.age_ns)
    if continued:
        kernel.take_back(log)
    else:
        _settle_after_restart(path, config, log, storage)
    if log.state["segment_bytes"] != config.segment_bytes:
        kernel.forget_spare(log)
        log.set_state(segment_bytes=config.segment_bytes)
    remove_strays(path, log)
    _settle_dedup(path, config, log)
    if log.state["head"] != log.state["tail"]:
        _sync_all(path, log, storage)
        log.publish(log.state["tail"])
    for resident in residents:
        resident.settle(log, path, storage, trusted=same_start)
    log.set_state(boot=boot_id(), state=kernel.STATE_READY)


def _settle_after_restart(path: Path, config: QueueConfig, log: kernel.Log, storage: Storage) -> None:
    """Trust the segment files. An invalid one is left to a repair; nothing is deleted."""
    state = log.state
    kernel.recount_names(log, (path / "names").stat().st_size)
    learn_names(path, log)
    doubtful = [file for file in doubtful_segments(path, log) if not _is_blank(file)]
    if doubtful:
        raise QueueDamagedError(f"{doubtful[0]} is cut short or altered", REPAIR.format(path=path))
    leap = config.durability == "process" and not state["clean"]
    floor = LEAP_AHEAD if leap else max(state["synced"], state["head"] if config.durability == "disk" else 0)
    rebuild_directory(path, log, trusted=state["synced"], floor=floor, take_back=state["boot"] != boot_id())
    _sync_all(path, log, storage)


def doubtful_segments(path: Path, log: kernel.Log) -> list[Path]:
    """Segment files that are not complete segments of this queue."""
    sound = {segment_path(path, segment.file) for _, segment in sound_segments(path, log)}
    return [file for file in sorted((path / "segments").glob("*.segment")) if file not in sound]


def _is_blank(file: Path) -> bool:
    """Whether it was created but never written to, which is what a power failure can leave of a new file."""
    with open_to_read(file) as handle:
        return not any(handle.read(4096))


def _sync_all(path: Path, log: kernel.Log, storage: Storage) -> None:
    for segment in sorted((path / "segments").glob("*.segment")):
        storage.sync_file(segment)
    storage.sync_directory(path / "segments")
    log.set_state(synced=log.state["tail"], synced_file=log.state["next_file"])
    storage.sync_file(path / "control")


def _settle_dedup(path: Path, config: QueueConfig, log: kernel.Log) -> None:
    """Rebuild the duplicate memory if its file is missing or has the wrong size, or if `queue.json` has another rule.

    A queue that computes no signatures does not keep its memory complete.
    """
    state = log.state
    file = path / f"signatures-{state['dedup_table']:016x}"
    changed = state["signature_kind"] != config.signature_kind
    log.set_state(signature_kind=config.signature_kind)
    if changed or not file.exists() or file.stat().st_size != state["dedup_bytes"]:
        kernel.rebuild_dedup(log)


def remove_strays(path: Path, log: kernel.Log) -> list[Path]:
    """Delete files that no entry of the directory refers to."""
    state = log.state
    live = {log.entry(n)["file"] for n in range(state["segment_oldest"], state["segment_newest"] + 1)}
    live.add(state["spare_file"])
    known = {segment_path(path, file) for file in live}
    table = path / f"signatures-{state['dedup_table']:016x}"
    strays = [file for file in (path / "segments").glob("*.segment") if file not in known]
    strays += [file for file in path.glob("signatures-*") if file != table]
    strays += path.glob("*.json.part")
    for file in strays:
        file.unlink()
    return strays


# --- the directory of segments, from the files ----------------------------------------------------


def map_segment(file: Path) -> kernel.Mapped | None:
    """Map a segment file; None if it is too short to be one."""
    descriptor = open_regular(file, os.O_RDWR)
    try:
        size = os.fstat(descriptor).st_size
        smallest = kernel.SEGMENT_HEADER + kernel.ROW_BYTES + kernel.RECORD_HEADER
        return kernel.Mapped(descriptor, size) if size >= smallest else None
    finally:
        os.close(descriptor)


def sound_segments(path: Path, log: kernel.Log) -> list[tuple[int, Segment]]:
    """The complete segment files of this queue, each with its number of current rows."""
    found = []
    for file in sorted((path / "segments").glob("*.segment")):
        data = map_segment(file)
        header = kernel.read_segment_header(data) if data is not None else None
        if data is None or header is None or not header["sound"] or header["size"] != len(data):
            continue
        if header["uuid"] == log.state["uuid"] and segment_path(path, header["file"]) == file:
            segment = Segment(header["file"], header["number"], header["first"], header["size"])
            found.append((last_row(data, segment.first, 1 << 40), segment))
    return found


def find_segments(path: Path, log: kernel.Log) -> list[Segment]:
    """The segments of this queue in the order of their numbers.

    After a power failure, a file that was deleted may be back beside the one that took its number. The one with more
    rows is the current one.
    """
    best = {segment.number: segment for _, segment in sorted(sound_segments(path, log), key=lambda found: found[0])}
    return [best[number] for number in sorted(best)]


def rows_of(data: Any) -> npt.NDArray[np.void]:
    """As many index rows as the segment can have, the first one first."""
    room = (len(data) - kernel.SEGMENT_HEADER) // (kernel.ROW_BYTES + kernel.RECORD_HEADER)
    return np.frombuffer(data, ROW, count=room, offset=len(data) - room * kernel.ROW_BYTES)[::-1]


def last_row(data: Any, first: int, limit: int) -> int:
    """How many rows, from the first on, are of this segment; the file may have served another one before."""
    rows = rows_of(data)
    room = len(rows)
    limit = min(limit, room)
    expected = (np.arange(first, first + room, dtype=np.uint64) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    fitting = np.flatnonzero(rows["sequence"][:limit] == expected[:limit])
    return int(fitting[-1]) + 1 if len(fitting) else 0


def rebuild_directory(path: Path, log: kernel.Log, trusted: int, floor: int, take_back: bool = False) -> list[str]:
    """Rebuild the directory from the segment files; what was found, in words.

    Rows of sequences below `trusted` are trusted. The next sequence is at least `floor`; with LEAP_AHEAD it is far
    beyond anything that can have been given. With `take_back`, a batch whose end is missing was never committed
    and is removed as a whole.
    """
    surveys = [survey for segment in find_segments(path, log) if (survey := _survey(path, log, segment, trusted))]
    for survey, following in itertools.pairwise(surveys):
        survey.count = min(survey.count, max(0, following.segment.first - survey.segment.first))
    if take_back:
        _take_back_unfinished(path, surveys, trusted)
    number = 0
    log.set_state(segment_oldest=1, segment_newest=0, spare_file=0, pending_file=0)
    for number, survey in enumerate(surveys, 1):
        _enter(path, log, survey, number)
    first = surveys[0].segment.first if surveys else 1
    end = surveys[-1].segment.first + surveys[-1].count if surveys else 1
    files = [int(file.name[:16], 16) for file in (path / "segments").glob("*.segment")]
    log.set_state(segment_newest=number, tail=end, head=end, oldest=first, next_file=max(files, default=0) + 1)
    kernel.take_back(log)
    noticed = []
    if floor == LEAP_AHEAD:
        floor = end + kernel.SEQUENCE_LEAP  # rows hold the low 32 bits, which continue without repetition
    if floor > end:
        kernel.begin_segment(log, floor)
        noticed.append(f"sequences go on at {floor}: products from {end} on may have been lost")
    damaged = sum(survey.damaged for survey in surveys)
    if damaged:
        noticed.append(f"{damaged} products do not fit their checksums and were marked damaged")
    kernel.recount_last(log)
    kernel.rebuild_dedup(log)
    return noticed


@dataclass(slots=True)
class Survey:
    """A segment, and how many of its rows are valid."""

    segment: Segment
    count: int  # rows up to the last valid one
    damaged: int  # rows before that whose record is damaged


def _survey(path: Path, log: kernel.Log, segment: Segment, trusted: int) -> Survey | None:
    """Check the rows that are not trusted, and rebuild invalid ones from their records."""
    data = map_segment(segment_path(path, segment.file))
    if data is None:
        return None
    count = last_row(data, segment.first, 1 << 40)
    if segment.first + count <= trusted:
        return Survey(segment, count, 0)
    _, faults, *_ = kernel.survey_rows(log, data, segment.first, count, True)
    if not faults:
        return Survey(segment, count, 0)
    kernel.rebuild_rows(log, data, segment.first, count)
    damaged = rows_of(data)["flags"][:count] & kernel.ROW_DAMAGED
    while count and damaged[count - 1]:
        count -= 1
    return Survey(segment, count, int(np.count_nonzero(damaged[:count])))


def _take_back_unfinished(path: Path, surveys: list[Survey], trusted: int) -> None:
    """Cut the end of the log back to the last row that ends its batch."""
    while surveys:
        survey = surveys[-1]
        data = map_segment(segment_path(path, survey.segment.file))
        assert data is not None
        rows = rows_of(data)
        while (
            survey.count
            and survey.segment.first + survey.count > trusted
            and rows["flags"][survey.count - 1] & kernel.ROW_CONTINUES
        ):
            survey.count -= 1
        if survey.count or len(surveys) == 1 or survey.segment.first <= trusted:
            return
        surveys.pop()


def _enter(path: Path, log: kernel.Log, survey: Survey, number: int) -> None:
    """Put one segment into the directory."""
    segment = survey.segment
    data = map_segment(segment_path(path, segment.file))
    assert data is not None
    _, _, payload_bytes, newest_ns, marked, marked_bytes = kernel.survey_rows(
        log, data, segment.first, survey.count, False
    )
    boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    age_ns = max(0, log.now_ns() - newest_ns) if newest_ns else 0
    log.set_entry(
        number, segment.first, segment.first + survey.count, segment.file, segment.size, payload_bytes, newest_ns,
        max(1, boot_ns - age_ns), marked, marked_bytes,
    )  # fmt: skip
    renumber(log, segment, number)


def renumber(log: kernel.Log, segment: Segment, number: int) -> None:
    """Make the number in a segment's own header equal to that in the directory."""
    if segment.number != number:
        kernel.write_header(log, segment.file, segment.size, number, segment.first)

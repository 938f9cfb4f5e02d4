"""Repair: make a damaged queue usable again, keeping every intact product.

The caller holds the queue exclusively. Everything that can be derived is rebuilt: control, names, index rows,
directory, duplicate memory. A product that does not match its checksum is marked as damaged; readers skip and count it.
Unusable segment files and documents move to `damaged/`. Only `queue.json` is not derived from other files: it is
required for a repair.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from headrace.errors import QueueDamagedError
from headrace.files import make_folder, open_regular, open_to_read, write_regular
from headrace.kernel import _kernel as kernel
from headrace.log.attach import alone_at
from headrace.log.config import QueueConfig, read_config
from headrace.log.cursor import CURSORS_BYTES, SLOTS, CursorFile
from headrace.log.directory import (
    boot_id,
    check_control,
    check_path,
    check_sanity,
    format_control,
    is_continued,
    learn_names,
    open_log,
    upgrade_control,
)
from headrace.log.explain import segment_path
from headrace.log.irregular import put_irregular_aside
from headrace.log.recovery import (
    LEAP_AHEAD,
    doubtful_segments,
    find_segments,
    last_row,
    map_segment,
    rebuild_directory,
    remove_strays,
)
from headrace.log.seams import Disk, Resident


def repair_queue(path: Path, residents: Sequence[Resident]) -> list[str]:
    """Repair what can be repaired; what was done, in words. An empty list: nothing was damaged."""
    check_path(path)
    config = read_config(path)
    done = put_irregular_aside(path)
    with alone_at(path):
        done += _repair_cursors(path) + _repair_residents(path, residents)
        make_folder(path / "segments")
        os.close(open_regular(path / "names", os.O_RDWR | os.O_CREAT))
        known = _repair_control(path, config, done)
        log, names_lost = _repair_names(path, config, done)
        tail = log.state["tail"]
        for resident in residents:
            done += resident.forget(log, path)
        _repair_segments(path, log, known, names_lost, done)
        _put_aside(path, log, done)
        done += rebuild_directory(path, log, trusted=0, floor=tail if known else LEAP_AHEAD)
        done += [f"removed {file}, which no entry of the directory knows" for file in remove_strays(path, log)]
        log.set_state(boot=boot_id(), state=kernel.STATE_READY)
        _sync(path)
    return done


def _sync(path: Path) -> None:
    disk = Disk()
    for file in [*path.glob("*"), *path.glob("segments/*")]:
        if file.is_file():
            disk.sync_file(file)
    disk.sync_directory(path / "segments")
    disk.sync_directory(path)


def _repair_cursors(path: Path) -> list[str]:
    file = path / "cursors"
    done = []
    if not file.exists() or file.stat().st_size != CURSORS_BYTES:
        with os.fdopen(open_regular(file, os.O_RDWR | os.O_CREAT), "r+b") as handle:
            handle.truncate(CURSORS_BYTES)
        done.append(f"gave {file} its size; cursors beyond the cut are forgotten")
    cursors = CursorFile(file)
    for slot in range(SLOTS):
        if cursors.is_damaged(slot):
            cursors.remove(slot)
            done.append(f"dropped the cursor in slot {slot}, whose position is lost")
    return done


def _repair_control(path: Path, config: QueueConfig, done: list[str]) -> bool:
    """True if the control file could be kept, and with it the known sequences.

    From here on its state is "recovering": if this process dies, the next one that opens the queue trusts only the
    segment files.
    """
    file = path / "control"
    try:
        descriptor = open_regular(file, os.O_RDWR)
        try:
            upgrade_control(path, descriptor, alone=True)
            check_control(path, config, descriptor)
        finally:
            os.close(descriptor)
        log = open_log(path)
        check_sanity(path, log)
        known = is_continued(log)
        log.set_state(state=kernel.STATE_RECOVERING)
        return known
    except QueueDamagedError as error:
        format_control(path, config, kernel.STATE_RECOVERING)
        done.append(f"rebuilt {file} ({error.problem})")
        return False
    finally:
        Disk().sync_file(file)


def _repair_residents(path: Path, residents: Sequence[Resident]) -> list[str]:
    """Move unreadable documents aside; their stations and channels have to be created again."""
    done = []
    for resident in residents:
        try:
            resident.validate(path)
        except QueueDamagedError:
            if not (path / resident.file).exists():
                continue  # `forget` deals with it
            make_folder(path / "damaged")
            (path / resident.file).rename(path / "damaged" / resident.file)
            done.append(f"moved {resident.file} to {path / 'damaged'}: it is unreadable; create again what it listed")
    return done


def _put_aside(path: Path, log: kernel.Log, done: list[str]) -> None:
    """Move unusable segment files aside; nothing is deleted."""
    for file in doubtful_segments(path, log):
        make_folder(path / "damaged")
        file.rename(path / "damaged" / file.name)
        done.append(f"moved {file.name} to {path / 'damaged'}: it is unusable")


def _repair_names(path: Path, config: QueueConfig, done: list[str]) -> tuple[kernel.Log, bool]:
    """The log, and whether the numbers of feeds and origins had to be assigned again."""
    file = path / "names"
    try:
        log = open_log(path)
        kernel.recount_names(log, file.stat().st_size)
        learn_names(path, log)
        if log.origins:
            kernel.reset_locks(log)
            return log, False
    except (kernel.KernelError, QueueDamagedError, FileNotFoundError):
        pass
    write_regular(file, b"")
    log = kernel.Log(os.open(path, os.O_RDONLY), os.open(path / "segments", os.O_RDONLY))
    kernel.reset_locks(log)
    log.set_state(feeds_end=kernel.ORIGINS_MAX, origins_end=0)
    log.set_state(origin=log.add_name(2, config.origin))
    done.append(f"rebuilt {file} from the records")
    return log, True


def _repair_segments(path: Path, log: kernel.Log, known: bool, names_lost: bool, done: list[str]) -> None:
    """Restore name, size, header and index rows of every segment file, as far as they can be derived."""
    state = log.state
    entries = {}
    if known:
        for number in range(state["segment_oldest"], state["segment_newest"] + 1):
            entries[log.entry(number)["file"]] = log.entry(number)
    _repair_file_names(path, log, done)
    for known_file, known_entry in entries.items():
        _repair_header(path, log, known_file, known_entry, done)
    for where in sorted((path / "segments").glob("*.segment")):
        _repair_size(where, done)
    for segment in find_segments(path, log):
        entry = entries.get(segment.file)
        count = (entry["end"] or state["tail"]) - entry["first"] if entry and entry["first"] == segment.first else None
        _repair_rows(path, log, segment.file, segment.first, count, names_lost, done)


def _header_of(file: Path) -> "kernel.SegmentHeader | None":
    """The header of a segment file; None if it is damaged."""
    with open_to_read(file) as handle:
        header = kernel.read_segment_header(handle.read(kernel.SEGMENT_HEADER).ljust(kernel.SEGMENT_HEADER, b"\0"))
    return header if header is not None and header["sound"] else None


def _repair_file_names(path: Path, log: kernel.Log, done: list[str]) -> None:
    """Rename intact segments of this queue that have the name of another."""
    for file in (path / "segments").glob("*.moving"):  # a repair that died here
        file.rename(file.with_suffix(".segment"))
    strangers = []
    for file in sorted((path / "segments").glob("*.segment")):
        header = _header_of(file)
        if header is not None and header["uuid"] == log.state["uuid"] and segment_path(path, header["file"]) != file:
            strangers.append((file.rename(file.with_suffix(".moving")), segment_path(path, header["file"])))
    for moving, home in strangers:
        if not home.exists():
            moving.rename(home)
            done.append(f"gave {home} its name back")
        else:
            moving.rename(moving.with_suffix(".segment"))


def _repair_header(path: Path, log: kernel.Log, file: int, entry: "kernel.Entry", done: list[str]) -> None:
    """Rewrite a damaged header from its directory entry."""
    where = segment_path(path, file)
    if not where.exists():
        last = (entry["end"] or log.state["tail"]) - 1
        done.append(f"{where} is gone, and with it products {entry['first']} to {last}")
    elif _header_of(where) is None and where.stat().st_size:
        os.truncate(where, entry["size"])
        with os.fdopen(open_regular(where, os.O_RDWR), "r+b") as handle:
            handle.write(kernel.segment_header(log, file, entry["size"], entry["number"], entry["first"]))
        done.append(f"rewrote the header of {where}")


def _repair_size(file: Path, done: list[str]) -> None:
    header = _header_of(file)
    if header is not None and file.stat().st_size != header["size"]:
        os.truncate(file, header["size"])
        done.append(f"gave {file} its size of {header['size']} bytes")


def _repair_rows(
    path: Path,
    log: kernel.Log,
    file: int,
    first: int,
    count: int | None,
    names_lost: bool,
    done: list[str],
) -> None:
    """Rebuild the index rows if they are damaged, or if the names they refer to are lost."""
    where = segment_path(path, file)
    data = map_segment(where)
    if data is None:
        return
    found = last_row(data, first, count if count is not None else 1 << 40)
    expected = count if count is not None else max(found, kernel.count_records(log, data, first))
    _, faults, *_ = kernel.survey_rows(log, data, first, found, True)
    if names_lost or found < expected or faults:
        rebuilt, lost = kernel.rebuild_rows(log, data, first, expected)
        done.append(f"rebuilt the index of {where}: {rebuilt} products found, {lost} lost")

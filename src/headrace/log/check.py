"""Check: walk all files of a queue and list every inconsistency.

It may run while others write: it checks what was committed when it began, segment by segment, and takes the queue's
lock only for the list of segments and the duplicate memory. It changes nothing; `repair.py` does.
"""

import itertools
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from headrace.kernel import _kernel as kernel
from headrace.log.config import QueueConfig
from headrace.log.cursor import SLOTS, CursorFile
from headrace.log.explain import segment_path
from headrace.log.irregular import irregular_in
from headrace.log.recovery import map_segment

Progress = Callable[[int, int], None]  # segments done, of how many


class Finding(msgspec.Struct, frozen=True):
    """One inconsistency."""

    file: str
    problem: str
    sequence: int | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}" + (f" (product {self.sequence})" if self.sequence else "")


def check_queue(
    path: Path,
    config: QueueConfig,
    log: kernel.Log,
    cursors: CursorFile,
    progress: Progress | None = None,
) -> list[Finding]:
    """Every inconsistency; an empty list if there is none."""
    findings = [Finding(str(file), "it is not a regular file") for file in irregular_in(path)]
    findings += _check_terms(path, config, log)
    findings += _check_directory(path, log)
    state = log.state
    numbers = range(state["segment_oldest"], state["segment_newest"] + 1)
    for done, number in enumerate(numbers):
        findings += _check_segment(path, log, number, state["head"])
        if progress is not None:
            progress(done + 1, len(numbers))
    findings += [
        Finding(str(path / "cursors"), f"slot {slot} has no valid position")
        for slot in range(SLOTS)
        if cursors.is_damaged(slot)
    ]
    return findings


def _check_terms(path: Path, config: QueueConfig, log: kernel.Log) -> list[Finding]:
    state, control = log.state, str(path / "control")
    terms = [
        ("queue id", state["uuid"], uuid.UUID(config.uuid).bytes),
        ("size", state["size_bytes"], config.size),
        ("age", state["age_ns"], config.age_ns),
    ]
    findings = [
        Finding(control, f"its {what} differs from queue.json") for what, found, meant in terms if found != meant
    ]
    if not state["oldest"] <= state["head"] <= state["tail"]:
        findings.append(Finding(control, f"oldest {state['oldest']}, head {state['head']}, tail {state['tail']}"))
    return findings


def _check_directory(path: Path, log: kernel.Log) -> list[Finding]:
    """Entries follow each other; files are there; nothing else is."""
    with log.held():
        state, control = log.state, str(path / "control")
        entries = [log.entry(n) for n in range(state["segment_oldest"], state["segment_newest"] + 1)]
        known = {segment_path(path, entry["file"]) for entry in entries}
        if state["spare_file"]:
            known.add(segment_path(path, state["spare_file"]))
        strays = [file for file in (path / "segments").iterdir() if file not in known]
    findings = [Finding(str(file), "no entry of the directory refers to this file") for file in strays]
    for number, entry in enumerate(entries, state["segment_oldest"]):
        if entry["number"] != number:
            findings.append(Finding(control, f"entry {number} of the directory has number {entry['number']}"))
    for entry, following in itertools.pairwise(entries):
        if not entry["first"] <= entry["end"] <= following["first"]:
            findings.append(
                Finding(
                    control,
                    f"segment {entry['number']} ends at {entry['end']}, the next begins before",
                )
            )
    if entries and entries[0]["first"] != state["oldest"]:
        findings.append(
            Finding(
                control,
                f"oldest is {state['oldest']}, the first segment begins at {entries[0]['first']}",
            )
        )
    total = sum(entry["size"] for entry in entries) + (state["segment_bytes"] if state["spare_file"] else 0)
    if total != state["bytes_total"]:
        findings.append(Finding(control, f"counts {state['bytes_total']} bytes of segments, there are {total}"))
    return findings


def _check_segment(path: Path, log: kernel.Log, number: int, head: int) -> list[Finding]:
    entry = log.entry(number)
    file = segment_path(path, entry["file"])
    try:
        data = map_segment(file)
    except FileNotFoundError:
        return [] if number < log.state["segment_oldest"] else [Finding(str(file), "the file is missing")]
    except OSError as error:
        return [Finding(str(file), str(error.strerror))]
    if data is None or len(data) != entry["size"]:
        return [Finding(str(file), f"it has {file.stat().st_size} bytes instead of {entry['size']}")]
    findings = _check_header(file, kernel.read_segment_header(data), entry, log)
    if not findings:
        count = max(0, min(entry["end"] or head, head) - entry["first"])
        _, faults, *_ = kernel.survey_rows(log, data, entry["first"], count, True)
        findings = [Finding(str(file), kernel.FAULTS[fault], sequence) for sequence, fault in faults]
        findings += _check_memory(path, log, data, entry["first"], count, {f.sequence for f in findings})
    if data.holed:
        findings = [Finding(str(file), "it was truncated while it was in use")]
    return [] if number < log.state["segment_oldest"] else findings  # evicted in the meantime


def _check_header(
    file: Path, header: Mapping[str, object] | None, entry: Mapping[str, object], log: kernel.Log
) -> list[Finding]:
    if header is None:
        return [Finding(str(file), "it is not a segment file")]
    if not header["sound"]:
        return [Finding(str(file), "its header does not match its checksum")]
    if header["uuid"] != log.state["uuid"]:
        return [Finding(str(file), "it belongs to another queue")]
    return [
        Finding(str(file), f"its header has {what} {header[what]}, the directory {entry[what]}")
        for what in ("file", "number", "first", "size")
        if header[what] != entry[what]
    ]


def _check_memory(
    path: Path, log: kernel.Log, data: kernel.Mapped, first: int, count: int, faulty: set[int | None]
) -> list[Finding]:
    """The duplicate memory must know every product that has a signature."""
    if not log.state["signature_kind"]:
        return []
    with log.held():
        forgotten = kernel.forgotten_rows(log, data, first, count)
    table = str(path / f"signatures-{log.state['dedup_table']:016x}")
    return [
        Finding(table, "the duplicate memory does not know this product", sequence)
        for sequence in forgotten
        if sequence not in faulty
    ]

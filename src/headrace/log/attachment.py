"""Attachments: which processes have a queue open.

Each opening takes a place in the control file with its process id and that process's start time, so that a place whose
process has died can be told from one whose number has been given away again. The places only inform: nothing waits for
them, and a process that finds no free one works all the same.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from headrace.kernel import _kernel as kernel

READER, WRITER = 1, 2
PLACES = 1024


@dataclass(frozen=True, slots=True)
class Attachment:
    """One opening of the queue by a living process."""

    place: int
    pid: int
    reads: bool
    writes: bool
    attached_ns: int


def process_start(pid: int) -> int:
    """Clock ticks since boot when `pid` started; 0 if there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def list_attachments(log: kernel.Log) -> list[Attachment]:
    """Those whose process lives."""
    return [
        Attachment(place, pid, bool(roles & READER), bool(roles & WRITER), attached_ns)
        for place, pid, started, roles, attached_ns in log.attachments()
        if process_start(pid) == started
    ]


class Presence:
    """This opening's own place."""

    def __init__(self, log: kernel.Log) -> None:
        self._log = log
        self.roles = 0
        self._pid = os.getpid()
        self._started = process_start(self._pid)
        self._attached_ns = time.time_ns()
        self._place = self._take()

    def _take(self) -> int | None:
        with self._log.held():
            taken = {place: process_start(pid) == started for place, pid, started, *_ in self._log.attachments()}
            for place in range(PLACES):
                if not taken.get(place, False):
                    self._write(place)
                    return place
            return None

    def _write(self, place: int) -> None:
        self._log.set_attachment(place, self._pid, self._started, self.roles, self._attached_ns)

    def add_role(self, role: int) -> None:
        self.roles |= role
        if self._place is not None:
            self._write(self._place)

    def leave(self) -> None:
        if self._place is not None and self._pid == os.getpid():
            self._log.set_attachment(self._place, 0, 0, 0, 0)
            self._place = None

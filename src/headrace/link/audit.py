"""Audit: who joined a site, who was refused, and who changed what.

    audit.note("station removed", "radar", principal="alice", peer=zid)     what somebody has done
    audit.refuse("put", "wx/radar/KFTG", principal="alice", why=str(error)) what somebody may not do
    audit.note_site("reload", "site.toml", "rules")                         what the site itself did

Each is one line of JSON in a file of its series (audit_files.py): `changes`, `refusals` and `site`. Each series is
bounded and has files of its own, so that refusals never push out a change, nor what the site did. Of one principal,
only some lines per second are written; the next one says how many were left out before it (`left_out`), and the last
ones are counted when the site stops. Clients without a name are one principal.

`note` never raises and never waits for anything but the disk's cache: it may be called under a lock and on the threads
of Zenoh. A line that the disk refuses is counted (`failed`) and logged. All text may come from elsewhere: it is cut to
`TEXT_MAX` characters and escaped, so that a line is always one line.

Not here: reading (audit_files.py), and the log for operators (`headrace.site.logs`).
"""

import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from headrace.link.audit_files import SERIES, Files, Series

TEXT_MAX = 256  # characters of one field
PRINCIPALS_MAX = 1024  # whose budgets are remembered
Outcome = Literal["done", "refused"]

log = logging.getLogger("headrace.link.audit")


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. `peer` is an address or a Zenoh id, where it is known; `left_out` lines before it were not written."""

    time: str  # UTC
    principal: str | None = None  # None: without a name, or the site itself
    peer: str = ""
    action: str
    subject: str = ""
    outcome: Outcome = "done"
    detail: str = ""  # why it was refused, or what has changed
    left_out: int = 0


class AuditStatistics(msgspec.Struct, frozen=True):
    """Lines since the start."""

    written: int
    left_out: int
    failed: int
    failure: str = ""  # why the last line could not be written; empty if it was


@dataclass(slots=True)
class _Budget:
    """How many lines a principal may still cause in one series, as of `then_s`."""

    lines: float
    then_s: float
    left_out: int = 0

    def takes(self, now_s: float, burst: float, per_second: float) -> bool:
        self.lines = min(burst, self.lines + (now_s - self.then_s) * per_second)
        self.then_s = now_s
        if self.lines < 1:
            self.left_out += 1
            return False
        self.lines -= 1
        return True


class Audit:
    """Writes from its construction until `close`. Without a folder it writes nothing."""

    def __init__(
        self, folder: Path | None, *, now_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._files = None if folder is None else {series: Files(folder, series) for series in SERIES}
        self._now_s, self._monotonic_s = now_s, monotonic_s
        self._budgets: OrderedDict[tuple[Series, str | None], _Budget] = OrderedDict()
        self._lock = threading.Lock()
        self._written = self._left_out = self._failed = 0
        self._failure = ""

    def note(self, action: str, subject: str = "", *, principal: str | None, peer: str = "", detail: str = "") -> None:
        """Somebody has done something: joined, left, or changed `subject`."""
        self._add("changes", action, subject, principal, peer, "done", detail)

    def refuse(self, action: str, subject: str = "", *, principal: str | None, peer: str = "", why: str = "") -> None:
        """Somebody was refused something. A name that was not proved is a `subject`, not a `principal`."""
        self._add("refusals", action, subject, principal, peer, "refused", why)

    def note_site(self, action: str, subject: str = "", detail: str = "", *, outcome: Outcome = "done") -> None:
        """The site itself, or its operator, has done something; nobody elsewhere may be able to cause it."""
        self._add("site", action, subject, None, "", outcome, detail)

    def statistics(self) -> AuditStatistics:
        with self._lock:
            return AuditStatistics(self._written, self._left_out, self._failed, self._failure)

    def close(self) -> None:
        """Count what was left out, and close the files; idempotent."""
        with self._lock:
            for (series, principal), budget in self._budgets.items():
                self._write_left_out(series, principal, budget)
            self._budgets.clear()
            for files in (self._files or {}).values():
                files.close()
            self._files = None

    def _add(
        self, series: Series, action: str, subject: str, principal: str | None, peer: str, outcome: Outcome, detail: str
    ) -> None:  # fmt: skip
        with self._lock:
            budget = self._budget(series, principal)
            rates = SERIES[series]
            if not budget.takes(self._monotonic_s(), rates.burst, rates.per_second):
                self._left_out += 1
                return
            left_out, budget.left_out = budget.left_out, 0
            self._write(series, Entry(
                time=self._time(), principal=_cut(principal), peer=peer[:TEXT_MAX], action=action[:TEXT_MAX],
                subject=subject[:TEXT_MAX], outcome=outcome, detail=detail[:TEXT_MAX], left_out=left_out,
            ))  # fmt: skip

    def _budget(self, series: Series, principal: str | None) -> _Budget:
        key = (series, principal)
        found = self._budgets.get(key)
        if found is None:
            found = self._budgets[key] = _Budget(SERIES[series].burst, self._monotonic_s())
            if len(self._budgets) > PRINCIPALS_MAX * len(SERIES):
                (old, whose), forgotten = self._budgets.popitem(last=False)
                self._write_left_out(old, whose, forgotten)
        self._budgets.move_to_end(key)
        return found

    def _write_left_out(self, series: Series, principal: str | None, budget: _Budget) -> None:
        if budget.left_out:
            left_out, budget.left_out = budget.left_out, 0
            action = "more of these"
            self._write(series, Entry(time=self._time(), principal=_cut(principal), action=action, left_out=left_out))

    def _write(self, series: Series, entry: Entry) -> None:
        if self._files is None:
            return
        try:
            self._files[series].append(_line(entry))
            self._written += 1
            self._failure = ""
        except OSError as error:
            self._failed += 1
            self._failure = str(error)
            log.warning("the audit log cannot be written: %s; free some space, or correct its permissions", error)

    def _time(self) -> str:
        return datetime.fromtimestamp(self._now_s(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:TEXT_MAX]


def _line(entry: Entry) -> bytes:
    """One line of ASCII: whatever is in the texts, a terminal shows it."""
    return json.dumps(msgspec.to_builtins(entry)).encode() + b"\n"

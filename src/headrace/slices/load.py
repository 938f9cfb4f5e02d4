"""Load: what a node reports of itself: the cores and the memory that it uses, and the user's own metrics."""

import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.channel.worker import ErrorLog
from headrace.share.interface import Load

_PAGE = os.sysconf("SC_PAGE_SIZE")
METRICS_MAX, _NAME_BYTES, _VALUE_MAX = 16, 24, 1e300

Metrics = Callable[[], Mapping[str, float]]


class LoadMeter:
    """Measures between two reports. Children count when they have ended, worker processes by `/proc`."""

    def __init__(self, capacity: float, metrics: Metrics | None) -> None:
        self._capacity, self._metrics = capacity, metrics
        self._cpu_s, self._at_s = _cpu_s(), time.monotonic()
        self._errors = ErrorLog(logging.getLogger("headrace.slices"))

    def read(self, waiting: int, in_work: int) -> Load:
        """The load since the last call."""
        cpu_s, at_s = _cpu_s(), time.monotonic()
        passed_s = max(at_s - self._at_s, 1e-6)
        cpu = max(0.0, cpu_s - self._cpu_s) / passed_s
        self._cpu_s, self._at_s = cpu_s, at_s
        return Load(round(cpu, 4), _memory(), waiting, in_work, self._capacity, self._own())

    def _own(self) -> dict[str, float]:
        """The user's metrics; the first sixteen that are numbers. Those that fail are left out, and the log says so."""
        if self._metrics is None:
            return {}
        try:
            found = [(str(name), float(value)) for name, value in self._metrics().items()]
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            self._errors.add("the metrics of the node failed", error)
            return {}
        kept = {_short(name): value for name, value in found if math.isfinite(value) and abs(value) <= _VALUE_MAX}
        return dict(list(kept.items())[:METRICS_MAX])


def _short(name: str) -> str:
    """So that sixteen of them fit into a report, however they are escaped."""
    safe = "".join(each if each.isprintable() and each not in '"\\' else "_" for each in name)
    return safe.encode(errors="replace")[:_NAME_BYTES].decode(errors="ignore")


def _cpu_s() -> float:
    """Processor time of this process and its children, those that still run included."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + _children_s()


def _children_s() -> float:
    total = 0
    for child in _children():
        try:
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _memory() -> int:
    total = 0
    for process in ("self", *_children()):
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
        except OSError:
            continue
    return total


def _children() -> list[str]:
    try:
        return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    except OSError:
        return []

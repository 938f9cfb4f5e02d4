"""Process tree: what this one and all that it has started have used.

Processor time tells what work costs even if other programs keep the machine busy; seconds do not.
"""

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_TIMES = slice(11, 15)  # after the name in /proc/PID/stat: user, system, and both of children that have ended


def tree(head: int) -> list[int]:
    """A process and all its descendants."""
    found = [head]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue  # the process has just ended
    return found


def processor_s(head: int) -> float:
    """Seconds of processor time of a process and all its descendants, also of those that have ended."""
    ticks = 0
    for process in tree(head):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[_TIMES]))
    return ticks / _TICKS_PER_S

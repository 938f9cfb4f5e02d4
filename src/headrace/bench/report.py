"""What a benchmark finds, and how it is shown."""

import hashlib
import os
import platform
import subprocess
import timeit
from collections.abc import Callable
from pathlib import Path

import msgspec

Announce = Callable[[str], None]  # called with the name of each step of a benchmark


class Figure(msgspec.Struct, frozen=True):
    """One measured figure and what it was meant to be."""

    name: str
    what: str
    value: float
    unit: str
    goal: float | None = None
    at_most: bool = False  # the goal is an upper bound
    beside: str = ""  # other systems

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal


class Report(msgspec.Struct, frozen=True):
    """A run of one benchmark."""

    command: str
    machine: str
    commit: str
    place: str
    yardstick_us: float  # hashlib.md5 of 150 bytes, median of the run
    figures: list[Figure]
    not_measured: list[str]


def yardstick() -> float:
    """Microseconds that `hashlib.md5(150 bytes).digest()` takes: how fast this machine is now."""
    data = os.urandom(150)
    return (
        min(timeit.repeat(lambda: hashlib.md5(data, usedforsecurity=False).digest(), number=20_000, repeat=5))
        / 20_000
        * 1e6
    )


def machine() -> str:
    """Processor, cores, system and Python, without names."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    system = f"{platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}"
    return f"{model or platform.machine()}, {os.cpu_count()} cores, {system}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def commit() -> str:
    """The commit of the source tree, if there is one."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()

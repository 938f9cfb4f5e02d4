"""Helpers for tests of configurations."""

from collections.abc import Callable
from pathlib import Path

from headrace.site import Problem, check_config
from support.daemon import Daemon

Write = Callable[[str], Path]
Serve = Callable[[Path], Daemon]

SITE = '[site]\nqueue = "q"\n'


def reported(path: Path) -> list[str]:
    """Every problem, without its file."""
    return [str(found).removeprefix(f"{path}:") for found in check_config(path)]


def only(path: Path) -> Problem:
    """The only problem of a file that has one."""
    (found,) = check_config(path)
    return found

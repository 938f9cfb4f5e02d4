"""What tests of configurations call."""

from collections.abc import Callable
from pathlib import Path

from headrace.site import Problem, check_config

Write = Callable[[str], Path]

SITE = '[site]\nqueue = "q"\n'


def told(path: Path) -> list[str]:
    """Every complaint, without its file."""
    return [str(complaint).removeprefix(f"{path}:") for complaint in check_config(path)]


def only(path: Path) -> Problem:
    """The one complaint that there is."""
    (complaint,) = check_config(path)
    return complaint

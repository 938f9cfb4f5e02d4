"""Kinds of values: how each is written in a file, and how a struct keeps it.

A field of a struct carries its kind. `read` takes what TOML gave, and the folder against which paths are meant, and
returns what the struct keeps, or raises an InvalidError; `write` is the way back. A quantity without its unit is
refused: nobody can see in `beat = 500` whether seconds are meant.

Not here: files and folders (paths.py), kinds that only one package has (site/kinds.py, pipeline/rules/kinds.py), and
whether values go together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import OptionError, SelectionError
from headrace.selection import Selection
from headrace.selection.values import max_age_text
from headrace.units import parse_age, parse_size

NAME_MAX = 255
_SIZES = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "GB": 10**9, "MB": 10**6, "kB": 1000}


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Kind:
    """One value."""

    name: str  # as the reference calls it
    read: Callable[[Any, Path], Any]
    write: Callable[[Any], Any] = _itself


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of values of one kind, none of them twice unless `is_sequence`; kept as a tuple.

    `alone` may stand for the list.
    """

    name: str
    item: Kind
    alone: str = ""
    is_sequence: bool = False

    def write(self, values: Any) -> Any:
        return self.alone if values == (self.alone,) else [self.item.write(value) for value in values]


# --- texts and truth ------------------------------------------------------------------------------


def text_of(value: Any, example: str) -> str:
    if not isinstance(value, str):
        raise OptionError(f"{value!r} is not text", f'write it in quotes, such as "{example}"')
    return value


def _flag(value: Any, folder: Path) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{value!r} is neither true nor false", "write true or false, without quotes")
    return value


def _name(value: Any, folder: Path) -> str:
    text = text_of(value, "radar")
    if not 1 <= len(text) <= NAME_MAX or not text.isprintable() or text != text.strip():
        raise OptionError(f"{text[:80]!r} is not a name", f"use 1 to {NAME_MAX} printable characters")
    return text


def choice(*names: str) -> Kind:
    def read(value: Any, folder: Path) -> str:
        if value not in names:
            raise OptionError(f"{value!r} is unknown", "choose one of " + ", ".join(f'"{name}"' for name in names))
        return str(value)

    return Kind(" or ".join(f'`"{name}"`' for name in names), read)


FLAG = Kind("`true` or `false`", _flag)
NAME = Kind("text", _name)


# --- quantities -----------------------------------------------------------------------------------


def with_unit(value: Any, what: str, example: str) -> str:
    """The text of a quantity; numbers, and texts that are numbers alone, are refused."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and value.strip()[-1:].isdigit()):
        raise OptionError(f"{value!r} has no unit", f'write {what} with its unit, such as "{example}"')
    if not isinstance(value, str):
        raise OptionError(f"{value!r} is not {what}", f'write a number and a unit, such as "{example}"')
    return value


def age(low_s: float, high_s: float, example: str) -> Kind:
    def read(value: Any, folder: Path) -> float:
        seconds = seconds_of(value, example)
        if not low_s <= seconds <= high_s:
            span = f'choose between "{age_text(low_s)}" and "{age_text(high_s)}"'
            raise OptionError(f"{value!r} is out of range", f"{span}, such as {example!r}")
        return seconds

    return Kind("age", read, age_text)


def seconds_of(value: Any, example: str) -> float:
    return parse_age(with_unit(value, "a length of time", example), "")


def bytes_of(value: Any, example: str) -> int:
    return parse_size(with_unit(value, "a size", example), "")


def size(low: int, high: int, example: str) -> Kind:
    def read(value: Any, folder: Path) -> int:
        count = bytes_of(value, example)
        if not low <= count <= high:
            span = f'choose between "{size_text(low)}" and "{size_text(high)}"'
            raise OptionError(f"{value!r} is out of range", f"{span}, such as {example!r}")
        return count

    return Kind("size", read, size_text)


def count(low: int, high: int) -> Kind:
    def read(value: Any, folder: Path) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise OptionError(f"{value!r} will not do", f"give a whole number from {low} to {high:,}")
        return value

    return Kind("number", read)


def age_text(seconds: float) -> str:
    """The shortest text that is read back as exactly this."""
    units = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 0.001))
    texts = (f"{round(seconds / length)}{unit}" for unit, length in units)
    return next((text for text in texts if parse_age(text) == seconds), None) or max_age_text(seconds)


def size_text(size: int) -> str:
    return next((f"{size // unit}{name}" for name, unit in _SIZES.items() if size % unit == 0), f"{size}B")


# --- what is selected, and where from -------------------------------------------------------------


def _selection(value: Any, folder: Path) -> Selection:
    if not isinstance(value, str):
        raise SelectionError(f"{value!r} is not text", 'write a feed pattern, "wx/radar/**", or a selection')
    return Selection.parse(value)


def _start(value: Any, folder: Path) -> str | float:
    if value in ("now", "oldest"):
        return str(value)
    try:
        seconds = seconds_of(value, "1h")
    except OptionError:
        seconds = 0.0
    if not seconds:
        raise OptionError(f"{value!r} is no beginning", 'write "now", "oldest", or how far back, such as "1h"')
    return seconds


def _start_text(start: str | float) -> str:
    return start if isinstance(start, str) else age_text(start)


SELECTION = Kind("selection", _selection, str)
START = Kind('`"now"`, `"oldest"` or age', _start, _start_text)

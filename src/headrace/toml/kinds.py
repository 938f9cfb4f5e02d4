"""Kinds of values: how each is written in a file, and how a struct keeps it.

A field of a struct carries its kind. `read` takes the TOML value, and the folder of the file, and returns what the
struct keeps, or raises an InvalidError; `write` is the way back, and `toml_lines` makes text of what it returns. A
quantity without a unit is refused, because `beat = 500` does not say whether seconds are meant. Relative paths start
from the folder of the file; nothing is created here.

Not here: kinds that only one package has (site/kinds.py, pipeline/rules/kinds.py), selections
(selection/table_keys.py), and whether values go together.
"""

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import OptionError
from headrace.units import exact_age, exact_size, parse_age, parse_size

NAME_MAX = 255
_NUMBER_MAX = 1e15
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")  # keys without quotes


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
    """A list of values of one kind, without repetition unless `is_sequence`; kept as a tuple.

    The text `alone` may be written instead of a list.
    """

    name: str
    item: Kind
    alone: str = ""
    is_sequence: bool = False

    def write(self, values: Any) -> Any:
        return self.alone if values == (self.alone,) else [self.item.write(value) for value in values]


# --- texts and flags ------------------------------------------------------------------------------


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
    """The text of a quantity; a number without a unit is refused."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and not value:
        return "0"  # which needs no unit
    if is_number or (isinstance(value, str) and value.strip()[-1:].isdigit() and value.strip() != "0"):
        raise OptionError(f"{value!r} has no unit", f'write {what} with its unit, such as "{example}"')
    if not isinstance(value, str):
        raise OptionError(f"{value!r} is not {what}", f'write a number and a unit, such as "{example}"')
    return value


def age(low_s: float, high_s: float, example: str) -> Kind:
    def read(value: Any, folder: Path) -> float:
        seconds = seconds_of(value, example)
        if not low_s <= seconds <= high_s:
            span = f'choose between "{exact_age(low_s)}" and "{exact_age(high_s)}"'
            raise OptionError(f"{value!r} is out of range", f"{span}, such as {example!r}")
        return seconds

    return Kind("age", read, exact_age)


def seconds_of(value: Any, example: str) -> float:
    return parse_age(with_unit(value, "a duration", example), "")


def bytes_of(value: Any, example: str) -> int:
    return parse_size(with_unit(value, "a size", example), "")


def size(low: int, high: int, example: str) -> Kind:
    def read(value: Any, folder: Path) -> int:
        count = bytes_of(value, example)
        if not low <= count <= high:
            span = f'choose between "{exact_size(low)}" and "{exact_size(high)}"'
            raise OptionError(f"{value!r} is out of range", f"{span}, such as {example!r}")
        return count

    return Kind("size", read, exact_size)


def count(low: int, high: int) -> Kind:
    def read(value: Any, folder: Path) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise OptionError(f"{value!r} is out of range", f"give a whole number from {low} to {high:,}")
        return value

    return Kind("number", read)


def positive(example: str) -> Kind:
    """A number above 0 that needs no unit."""

    def read(value: Any, folder: Path) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value <= _NUMBER_MAX:
            raise OptionError(f"{value!r} is out of range", f"give a number above 0, such as {example}")
        return float(value)

    return Kind("number", read)


# --- where to begin -------------------------------------------------------------------------------


def _start(value: Any, folder: Path) -> str | float:
    if value in ("now", "oldest"):
        return str(value)
    try:
        seconds = seconds_of(value, "1h")
    except OptionError:
        seconds = 0.0
    if not seconds:
        raise OptionError(f"{value!r} is not a start", 'write "now", "oldest", or how far back, such as "1h"')
    return seconds


def _start_text(start: str | float) -> str:
    return start if isinstance(start, str) else exact_age(start)


START = Kind('`"now"`, `"oldest"` or age', _start, _start_text)


# --- files and folders ---------------------------------------------------------------------------


def path_of(value: Any, folder: Path) -> Path:
    text = text_of(value, "site.pem")
    if not text or "\0" in text:
        raise OptionError(f"{text!r} is not a path", "write the path of a file or folder")
    return Path(os.path.normpath(folder / text))


def readable(value: Any, folder: Path) -> Path:
    """A file that exists and is readable."""
    path = path_of(value, folder)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise OptionError(f"{path} is not readable: {error.strerror}", "correct the path, or create the file") from None
    if not stat.S_ISREG(mode):
        raise OptionError(f"{path} is not a file", "give the path of a file")
    if not os.access(path, os.R_OK):
        raise OptionError(f"{path} is not readable by this user", "change its owner or its permissions")
    return path


def to_be_written(value: Any, folder: Path) -> Path:
    """A file that is writable, in a folder that exists."""
    path = path_of(value, folder)
    if path.is_dir():
        raise OptionError(f"{path} is a folder", "give the path of a file")
    if not path.parent.is_dir():
        raise OptionError(f"the folder {path.parent} does not exist", "create it, or choose another path")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OptionError(f"{path} is not writable by this user", "change its owner or its permissions")
    return path


def to_be_filled(value: Any, folder: Path) -> Path:
    """A folder that exists and is writable, or that can be created."""
    path = path_of(value, folder)
    held = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not held.is_dir():
        raise OptionError(f"{path} is invalid: {held} is not a folder", "choose another path")
    if not os.access(held, os.W_OK | os.X_OK):
        what = "is not writable" if held == path else f"cannot be created: {held} is not writable"
        raise OptionError(f"{path} {what} by this user", "choose another path, or change its owner or permissions")
    return path


def path_kind(read: Callable[[Any, Path], Path]) -> Kind:
    return Kind("path", read, str)


FOLDER = path_kind(path_of)
FILE = path_kind(readable)
OUTPUT_FILE = path_kind(to_be_written)
OUTPUT_FOLDER = path_kind(to_be_filled)


# --- values as text -------------------------------------------------------------------------------


def toml_lines(table: Mapping[str, Any], *, literal: bool = False) -> list[str]:
    """One line for each key; with `literal`, texts with backslashes or double quotes are written in single quotes."""
    return [f"{_key_text(key)} = {_value_text(value, literal)}" for key, value in table.items()]


def _key_text(key: str) -> str:
    return key if key and set(key) <= _BARE else _quoted(key, False)


def _value_text(value: Any, literal: bool) -> str:
    if isinstance(value, str):
        return _quoted(value, literal)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(toml_lines(value, literal=literal)) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value_text(each, literal) for each in value) + "]"
    return repr(value)


def _quoted(text: str, literal: bool) -> str:
    """As in JSON, except for DEL."""
    if literal and ("\\" in text or '"' in text) and "'" not in text and text.isprintable():
        return f"'{text}'"
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")

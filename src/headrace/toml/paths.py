"""Paths that a file names: whether they lead where they must.

Relative paths are meant from the folder of the file that names them. Nothing is created here.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import OptionError
from headrace.toml.kinds import Kind, text_of


def path_of(value: Any, folder: Path) -> Path:
    text = text_of(value, "site.pem")
    if not text or "\0" in text:
        raise OptionError(f"{text!r} is not a path", "write the path of a file or folder")
    return Path(os.path.normpath(folder / text))


def readable(value: Any, folder: Path) -> Path:
    """A file that is there and can be read."""
    path = path_of(value, folder)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise OptionError(
            f"{path} cannot be read: {error.strerror}", "correct the path, or put the file there"
        ) from None
    if not stat.S_ISREG(mode):
        raise OptionError(f"{path} is not a file", "give the path of a file")
    if not os.access(path, os.R_OK):
        raise OptionError(f"{path} cannot be read by this user", "change its owner or its rights")
    return path


def to_be_written(value: Any, folder: Path) -> Path:
    """A file that can be written in a folder that is there."""
    path = path_of(value, folder)
    if path.is_dir():
        raise OptionError(f"{path} is a folder", "give the path of a file")
    if not path.parent.is_dir():
        raise OptionError(f"the folder {path.parent} does not exist", "make it, or choose another path")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OptionError(f"{path} cannot be written by this user", "change its owner or its rights")
    return path


def to_be_filled(value: Any, folder: Path) -> Path:
    """A folder that is there, or can be made, and can be written into."""
    path = path_of(value, folder)
    held = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not held.is_dir():
        raise OptionError(f"{path} cannot be: {held} is not a folder", "choose another path")
    if not os.access(held, os.W_OK | os.X_OK):
        what = "cannot be written" if held == path else f"cannot be made: {held} cannot be written"
        raise OptionError(f"{path} {what} by this user", "choose another path, or change its owner or rights")
    return path


def path_kind(read: Callable[[Any, Path], Path]) -> Kind:
    return Kind("path", read, str)


FOLDER = path_kind(path_of)
FILE = path_kind(readable)
OUTPUT_FILE = path_kind(to_be_written)
OUTPUT_FOLDER = path_kind(to_be_filled)

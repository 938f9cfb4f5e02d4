"""Files that a configuration names: each must be there, be readable, and have the shape that is expected.

Relative paths are meant from the folder of the configuration. What is in a file of secrets is looked at here and is
neither kept nor shown.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import FabricError, OptionError
from headrace.fabric.credentials import UserTerms, check_users_file
from headrace.site.kinds import Kind, text_of

PASSWORD_BYTES_MAX = 4096


def path_of(value: Any, folder: Path) -> Path:
    text = text_of(value, "site.pem")
    if not text or "\0" in text:
        raise OptionError(f"{text!r} is not a path", "write the path of a file or folder")
    return Path(os.path.normpath(folder / text))


def _readable(value: Any, folder: Path) -> Path:
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


def _password(value: Any, folder: Path) -> Path:
    path = _readable(value, folder)
    try:
        lines = path.read_text("utf-8").splitlines() if path.stat().st_size <= PASSWORD_BYTES_MAX else []
    except UnicodeDecodeError:
        lines = []
    if len(lines) != 1:
        raise OptionError(f"{path} does not have one line of text", "a password file has one line, the password")
    UserTerms("this site", lines[0])
    return path


def _dictionary(value: Any, folder: Path) -> Path:
    path = _readable(value, folder)
    try:
        check_users_file(path)
    except FabricError as error:
        raise OptionError(error.problem, error.hint) from None
    return path


def _user(value: Any, folder: Path) -> str:
    return UserTerms(text_of(value, "site1"), "any").name


def _to_be_written(value: Any, folder: Path) -> Path:
    path = path_of(value, folder)
    if path.is_dir():
        raise OptionError(f"{path} is a folder", "give the path of a file")
    if not path.parent.is_dir():
        raise OptionError(f"the folder {path.parent} does not exist", "make it, or choose another path")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OptionError(f"{path} cannot be written by this user", "change its owner or its rights")
    return path


def _kind(name: str, read: Callable[[Any, Path], Path]) -> Kind:
    return Kind(name, read, str)


FOLDER = _kind("path", path_of)
FILE = _kind("path", _readable)
USER = Kind("text", _user)
PASSWORD_FILE = _kind("path", _password)
DICTIONARY_FILE = _kind("path", _dictionary)
OUTPUT_FILE = _kind("path", _to_be_written)

"""Files with secrets that a configuration names: each must be there, be readable, and have the shape that is expected.

What is in them is looked at here and is neither kept nor shown.
"""

from pathlib import Path
from typing import Any

from headrace.errors import FabricError, OptionError
from headrace.link.credentials import UserTerms, check_users_file
from headrace.toml.kinds import Kind, path_kind, readable, text_of

PASSWORD_BYTES_MAX = 4096


def _password(value: Any, folder: Path) -> Path:
    path = readable(value, folder)
    try:
        lines = path.read_text("utf-8").splitlines() if path.stat().st_size <= PASSWORD_BYTES_MAX else []
    except UnicodeDecodeError:
        lines = []
    if len(lines) != 1:
        raise OptionError(f"{path} does not have one line of text", "a password file has one line, the password")
    UserTerms("this site", lines[0])
    return path


def _dictionary(value: Any, folder: Path) -> Path:
    path = readable(value, folder)
    try:
        check_users_file(path)
    except FabricError as error:
        raise OptionError(error.problem, error.hint) from None
    return path


def _user(value: Any, folder: Path) -> str:
    return UserTerms(text_of(value, "site1"), "any").name


USER = Kind("text", _user)
PASSWORD_FILE = path_kind(_password)
DICTIONARY_FILE = path_kind(_dictionary)

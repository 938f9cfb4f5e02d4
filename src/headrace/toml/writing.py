"""Writing: values as lines of TOML: texts, numbers, booleans, lists, and tables of these."""

from collections.abc import Mapping
from typing import Any

import msgspec

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def toml_lines(table: Mapping[str, Any], *, literal: bool = False) -> list[str]:
    """One line for each key; with `literal`, texts with backslashes or double quotes are written in single quotes."""
    return [f"{_key(key)} = {_value(value, literal)}" for key, value in table.items()]


def _key(key: str) -> str:
    return key if key and set(key) <= _BARE else _text(key, False)


def _text(text: str, literal: bool) -> str:
    """As in JSON, except for DEL."""
    if literal and ("\\" in text or '"' in text) and "'" not in text and text.isprintable():
        return f"'{text}'"
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _value(value: Any, literal: bool) -> str:
    if isinstance(value, str):
        return _text(value, literal)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(toml_lines(value, literal=literal)) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(each, literal) for each in value) + "]"
    return repr(value)

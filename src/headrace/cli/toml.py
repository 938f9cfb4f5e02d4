"""A few values as lines of TOML: texts, numbers, truth values, lists, and tables of these."""

from collections.abc import Mapping
from typing import Any

import msgspec

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def toml_lines(table: Mapping[str, Any]) -> list[str]:
    """One line for each key."""
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(key: str) -> str:
    return key if key and set(key) <= _BARE else _text(key)


def _text(text: str) -> str:
    """As in JSON, but for DEL."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(toml_lines(value)) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value)

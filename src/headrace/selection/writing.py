"""Writing: the canonical text of a selection.

The inverse of parsing.py: parsing the text gives an equal selection. Clauses have a fixed order, with the condition
last because it extends to the end. A selection of everything is `**`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from headrace.product.properties import PropertyValue
from headrace.selection import values
from headrace.selection.clauses import Tags, is_plain

CLAUSES = (
    "ident",
    "tag",
    "priority",
    "origin",
    "slice",
    "created",
    "age",
    "replay",
    "every",
    "xpath",
    "function",
    "where",
)
KEYWORD = re.compile(r"[A-Za-z_]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def write(found: Mapping[str, Any]) -> str:
    """The text of canonical arguments; those that are None are left out."""
    parts = [_pattern_text(found["feed"])] if found["feed"] is not None else []
    writers: Mapping[str, Callable[[Any], str]] = {
        "ident": lambda value: f"ident ~ {quoted(value)}",
        "not_ident": lambda value: f"ident !~ {quoted(value)}",
        "tags": _tags_text,
        "priority": lambda value: f"priority {values.priority_text(value)}",
        "origin": lambda value: f"origin {','.join(value)}",
        "slices": lambda value: f"slice {values.slices_text(value)}",
        "created": lambda value: f"created {values.created_text(value)}",
        "max_age_s": lambda value: f"age < {values.max_age_text(value)}",
        "replay": lambda value: f"replay {values.replay_text(value)}",
        "every": lambda value: f"every {value}" if value > 1 else "",
        "xpath": lambda value: f"xpath {quoted(value)}",
        "function": lambda value: f"function {_function_text(value)}",
        "where": lambda value: f"where {value}",
    }
    parts += [writer(found[name]) for name, writer in writers.items() if found[name] is not None]
    return " ".join(part for part in parts if part) or "**"


def begins_with_clause(text: str) -> bool:
    """Whether the first word is a keyword and not a feed."""
    found = KEYWORD.match(text)
    if found is None or found[0].lower() not in CLAUSES:
        return False
    rest = text[found.end() :]
    return not rest or rest[0].isspace() or rest[0] in "~!<>="


def quoted(text: str) -> str:
    """In double quotes, unless single quotes avoid doubling."""
    quote = "'" if '"' in text and "'" not in text else '"'
    return quote + text.replace(quote, quote * 2) + quote


def _pattern_text(pattern: str) -> str:
    return quoted(pattern) if begins_with_clause(pattern) else pattern


def _tags_text(tags: Tags) -> str:
    return " ".join(_tag_text(name, listed) for name, listed in tags)


def _tag_text(name: str, listed: tuple[PropertyValue, ...]) -> str:
    if is_plain(((name, listed),)):
        return f"tag {','.join(map(str, listed))}"
    return f"tag {_tag_name(name)}={','.join(map(_tag_value_text, listed))}"


def _function_text(function: Any) -> str:
    """A name; what it cannot be, in angle brackets."""
    if isinstance(function, str):
        return function
    return f"<{getattr(function, '__qualname__', type(function).__name__)}>"


def _tag_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else quoted(name)


def _tag_value_text(value: PropertyValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str) else repr(value)

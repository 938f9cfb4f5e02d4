"""For `headrace config show`: the values of a configuration, where each comes from, and all of them as TOML."""

from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.site.config import LAYOUT, REPEATED, TABLES
from headrace.site.functions import TABLE as FUNCTIONS
from headrace.site.loading import Loaded
from headrace.toml.document import KeyPath
from headrace.toml.kinds import toml_lines
from headrace.toml.layout import keys_of

_COMMENT_COLUMN = 48
GIVEN, _DEFAULT, _QUEUE = "file", "default", "queue"  # where a value comes from


class Value(msgspec.Struct, frozen=True):
    """One key, and where its value comes from."""

    table: str
    place: int | None  # of a repeated table, from 1
    key: str
    value: Any  # as in TOML; None: not set
    source: str


def values_of(loaded: Loaded) -> Iterator[Value]:
    """Every key of every table in the file."""
    for table in TABLES:
        content = getattr(loaded.config, table)
        if table in REPEATED:
            for index, element in enumerate(content):
                yield from _keys(loaded, (table, index), element)
        elif content is not None:
            yield from _keys(loaded, (table,), content)
    for name, place in loaded.config.functions.items():
        yield Value(FUNCTIONS, None, name, place, GIVEN)


def _keys(loaded: Loaded, path: KeyPath, struct: msgspec.Struct) -> Iterator[Value]:
    table, place = str(path[0]), int(path[1]) + 1 if len(path) > 1 else None
    for key in keys_of(type(struct)):
        held = getattr(struct, key.field)
        value = None if held is None else key.kind.write(held)
        yield Value(table, place, key.name, value, _source(loaded, (*path, key.name)))


def _source(loaded: Loaded, path: KeyPath) -> str:
    if path in loaded.given:
        return GIVEN
    is_of_queue = path[0] == "queue" or path == ("site", "name")
    return _QUEUE if is_of_queue and loaded.queue_exists else _DEFAULT


# --- as TOML --------------------------------------------------------------------------------------


def toml_of(values: list[Value], loaded: Loaded, effective: bool) -> Iterator[str]:
    """The lines of a file with these values; `effective`: with marks, and with the tables that it does not have."""
    yield "# values in effect; marked values are not in the file" if effective else "# values in the file"
    above: tuple[str, int | None] | None = None
    for value in values:
        if (value.table, value.place) != above:
            above = (value.table, value.place)
            yield ""
            yield LAYOUT.bracketed(value.table)
        yield _line(value)
    tables = (*TABLES, FUNCTIONS)
    missing = [LAYOUT.bracketed(table) for table in tables if not getattr(loaded.config, table)]
    if effective and missing:
        yield ""
        yield f"# not in the file: {', '.join(missing)}"


def _line(value: Value) -> str:
    if value.value is None:
        return f"# {value.key} is not set"
    (line,) = toml_lines({value.key: value.value})
    marks = {_DEFAULT: "# default", _QUEUE: "# from the queue"}
    return f"{line:<{_COMMENT_COLUMN}}  {marks[value.source]}" if value.source in marks else line

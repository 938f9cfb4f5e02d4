"""Layout: which tables a file may have, which keys they have, and of what kind the values are.

A table is a struct: a field annotated with a kind (kinds.py) is a key, and its default is the one in force. Where the
name of a field has a unit or is a keyword of Python, `rename` has the name of the key. Tables may be nested:
`[rule.file]` is the inner table `file` of `rule`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgspec

from headrace.toml.kinds import Kind, Listed


class Key(NamedTuple):
    """One key of a table."""

    name: str  # in the file
    field: str  # in the struct
    kind: Kind | Listed
    default: Any  # NODEFAULT: the key is required

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.NODEFAULT


@dataclass(frozen=True, slots=True)
class Table:
    """One table."""

    struct: type[msgspec.Struct]
    is_repeated: bool = False  # [[…]]
    also: tuple[str, ...] = ()  # keys that are not fields: the clauses of a selection
    inner: Mapping[str, "Table"] = field(default_factory=dict)

    def key_names(self) -> list[str]:
        return [*(key.name for key in keys_of(self.struct)), *self.inner, *self.also]


@dataclass(frozen=True, slots=True)
class Layout:
    """All tables of a file, and the hints for keys that it does not have."""

    tables: Mapping[str, Table]
    example: str  # what to do if there is no file
    examples: Mapping[str, str]  # values of required keys
    elsewhere: Mapping[tuple[str, str], str] = field(
        default_factory=dict
    )  # hints for keys that people expect in a table

    def bracketed(self, name: str) -> str:
        """`[site]`, `[[request]]`; `[rule.file]`."""
        return f"[[{name}]]" if name in self.repeated() else f"[{name}]"

    def repeated(self) -> list[str]:
        return [name for name, table in self.tables.items() if table.is_repeated]

    def homes(self, key: str) -> list[str]:
        """The tables that have a key of that name."""
        return [self.bracketed(name) for name, table in _walked(self.tables) if key in _own_names(table)]


def _walked(tables: Mapping[str, Table], above: str = "") -> Iterator[tuple[str, Table]]:
    for name, table in tables.items():
        yield above + name, table
        yield from _walked(table.inner, f"{above}{name}.")


def _own_names(table: Table) -> list[str]:
    return [key.name for key in keys_of(table.struct)]


@lru_cache
def keys_of(struct: type[msgspec.Struct]) -> tuple[Key, ...]:
    """The keys of a table, in their order. Fields without a kind are not keys."""
    fields = msgspec.structs.fields(struct)
    return tuple(
        Key(each.encode_name, each.name, get_args(each.type)[1], each.default)
        for each in fields
        if get_origin(each.type) is Annotated
    )

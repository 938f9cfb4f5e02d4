"""Fields: the parts of a template between braces.

    {feed}  {feed.2}  {feed.-1}     the feed; its second level; its last level
    {ident}  {0}  {1}  {station}    the ident; the match of the selection's pattern in it; groups of the pattern
    {created:%Y%m%d}                a time, in a format of template_time.py
    {time(1):%Y%m%d%H}              the time in digits of the ident (`{time(1,2)}`: in two groups)
    {properties.level}              a property
    {temperature}                   any other column of the rows
    {sequence:08}  {gust:.1}        a number with eight digits; with one decimal
    {1:lower}  {1:upper}  {1:path}  text in lower or upper case; text that keeps its `/`
    {1|none}                        a default for a missing or empty value

A field reads at most two columns, so that each distinct value of a batch is formatted once.
"""

import re
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import re2

from headrace.errors import RuleError
from headrace.pipeline.rules.template_time import FULL, check_format, format_moment, moment_in

CASES = ("lower", "upper")
PATH = "path"
_SHAPE = re.compile(r"(?s)(?P<name>time\([^)]*\)|[^:|]+)(?::(?P<format>[^|]*))?(?:\|(?P<default>.*))?")
_LEVEL = re.compile(r"feed\.(-?[1-9][0-9]?)")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER_FORMAT = re.compile(r"0[1-9][0-9]?|\.[0-9]")
_DIGITS_MAX = 300  # of text that is formatted as a number; a longer one exceeds every double
_HINT = "write a column, {1} for a group of the ident, {feed.2} for a level, or {time(1):%Y%m%d}"


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `columns` are those that it reads; `text` formats their values."""

    source: str  # the text between the braces
    name: str
    columns: tuple[str, ...]
    groups: tuple[str, ...] = ()  # of the ident, by number or name
    level: int = 0  # of the feed, from 1, or from the end
    key: str = ""  # of the properties
    format: str = ""
    default: str | None = None

    @property
    def keeps_slashes(self) -> bool:
        return self.format == PATH or (self.name == "feed" and not self.level)

    @property
    def is_moment(self) -> bool:
        return self.name == "time"

    @property
    def time_format(self) -> str:
        """The format without the letter case that may follow it."""
        head, _, last = self.format.rpartition(":")
        return head if last in CASES else self.format

    def text(self, values: tuple[Any, ...], pattern: str | None) -> str | None:
        """The text for the values of its columns; None: it is missing. RuleError: the format does not fit the value."""
        value = self._value(values, pattern)
        if value is None or value == "":
            return self.default
        return _cased(_shown(value, self), self.format.rpartition(":")[2])

    def _value(self, values: tuple[Any, ...], pattern: str | None) -> Any:
        if self.groups:
            found = [group_of(pattern or "", group, values[0]) for group in self.groups]
            if not self.is_moment:
                return found[0]
            return None if values[1] is None else moment_in("".join(part or "" for part in found), values[1])
        value = values[0]
        if self.level and value is not None:
            levels = value.split("/")
            place = self.level - 1 if self.level > 0 else self.level
            return levels[place] if -len(levels) <= place < len(levels) else None
        return dict(value or ()).get(self.key) if self.key else value


def parse_field(source: str, groups: frozenset[str]) -> Field:
    """Parse a field; `groups` are the names of the pattern's groups. RuleError: it is invalid."""
    found = _SHAPE.fullmatch(source)
    name = found["name"].strip() if found else ""
    if found is None or not name:
        raise RuleError(f"{{{source}}} has no name", _HINT)
    format_, default = found["format"] or "", found["default"]
    _check_format(source, format_)
    field = Field(source, name, (name,), format=format_, default=default)
    if name.startswith("time("):
        return replace(field, name="time", columns=("ident", "created"), groups=_group_list(source, name))
    if name.isdecimal() or name in groups:
        return replace(field, columns=("ident",), groups=(name,))
    if level := _LEVEL.fullmatch(name):
        return replace(field, name="feed", columns=("feed",), level=int(level[1]))
    if name.startswith("properties.") and len(name) > len("properties."):
        return replace(field, columns=("properties",), key=name.removeprefix("properties."))
    if not _COLUMN.fullmatch(name) or name in ("payload", "properties"):
        raise RuleError(f"{{{source}}} is not allowed in a template", _HINT)
    return field


def _group_list(source: str, name: str) -> tuple[str, ...]:
    groups = tuple(part.strip() for part in name.removeprefix("time(").removesuffix(")").split(","))
    if not all(groups):
        raise RuleError(f"{{{source}}} names no group", "write the groups that have the digits: {time(1):%Y%m%d}")
    return groups


def _check_format(source: str, text: str) -> None:
    if not text or text in (*CASES, PATH) or _NUMBER_FORMAT.fullmatch(text):
        return
    if "%" not in text:
        raise RuleError(
            f"{{{source}}} has the unknown format {text!r}",
            "formats are %Y%m%d for times, 08 or .1 for numbers, lower, upper and path for text",
        )
    check_format(text)


# --- values as texts ------------------------------------------------------------------------------


def _shown(value: Any, field: Field) -> str:
    if isinstance(value, datetime | date):
        return format_moment(value, field.time_format or FULL)
    if "%" in field.format:
        raise RuleError(f"{{{field.source}}} is {value!r:.60}, not a time", "leave the time format out")
    if _NUMBER_FORMAT.fullmatch(field.format):
        return _number(value, field)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _number(value: Any, field: Field) -> str:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        if len(value) > _DIGITS_MAX:
            raise RuleError(f"{{{field.source}}} has {len(value):,} digits", f"a number has at most {_DIGITS_MAX}")
        value = int(value)  # a group with digits
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise RuleError(f"{{{field.source}}} is {value!r:.60}, not a number", "leave the number format out")
    if field.format.startswith(".") or isinstance(value, Decimal):
        return f"{value:{field.format}f}"
    return f"{value:{field.format}{'d' if isinstance(value, int) else ''}}"


def _cased(text: str, case: str) -> str:
    return text.lower() if case == "lower" else text.upper() if case == "upper" else text


# --- groups of the pattern ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a pattern."""

    count: int
    names: frozenset[str]


_PATTERNS = 16_384  # imported files have thousands of rules, and each batch may use all of them


@lru_cache(_PATTERNS)
def groups_in(pattern: str) -> Groups:
    compiled = _compiled(pattern)
    return Groups(compiled.groups, frozenset(compiled.groupindex))


def group_of(pattern: str, group: str, ident: str | None) -> str | None:
    """The match of a group in an ident; None: the pattern does not match; empty: the group did not take part."""
    found = None if ident is None else _match(pattern, ident)
    if found is None:
        return None
    return found.group(int(group) if group.isdecimal() else group) or ""


@lru_cache(4096)  # the fields of a template ask for the same match, one field after the other
def _match(pattern: str, ident: str) -> Any:
    return _compiled(pattern).search(ident)


@lru_cache(_PATTERNS)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)

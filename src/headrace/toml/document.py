"""Document: a TOML file as data, with the place of every key in its text, or the problem that makes it invalid.

`tomllib` of the standard library decides what the file says, and whether it is TOML at all; it keeps no places. The
places come from the syntax tree of tree-sitter, which is walked only once the text is known to be valid and which does
not decide about values. A path names a thing in both: `("request", 1, "select")` is the key `select` of the second
`[[request]]`.

Not here: what the keys mean (layout.py), and where further problems are collected (report.py).
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import tree_sitter_toml
from tree_sitter import Language, Node, Parser

from headrace.errors import ConfigError, excerpt_of
from headrace.files import open_to_read
from headrace.toml.layout import Layout

FILE_BYTES_MAX = 1 << 20
KeyPath = tuple[str | int, ...]
_SYNTAX = re.compile(r"(?s)(.*) \(at (?:line ([0-9]+), column ([0-9]+)|end of document)\)")
_REMEDIES = {
    "Cannot declare": "write a table once; only {repeated}, in double brackets, may be repeated",
    "Cannot overwrite": "it is defined already: keep one; {repeated}, in double brackets, may be repeated",
    "Invalid value": 'write text in quotes, "1h"; booleans are true and false',
    "Expected newline": 'write text in quotes, "1h", and each key on a line of its own',
    "Expected '='": "write key = value; write the name of a table in brackets, {first}",
    "Invalid statement": "write key = value, [table], or # and a comment",
    "Unescaped '\\'": "double the backslash, or write the text in 'single quotes'",
    "Illegal character": 'end a text on the line where it begins; write a longer one in """three quotes"""',
    "Unclosed array": "end the list with ]",
}
_NO_REMEDY = "correct the text above the caret"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem in a file: where it is, what is wrong, and what to do. `str()` has all but hint and excerpt."""

    file: str
    line: int | None = None  # from 1; None: the file as a whole
    column: int | None = None  # from 1, in that line; only where the key alone does not locate it
    table: str = ""  # as people write it: "[site]", "[[request]] 2"
    key: str = ""
    problem: str
    hint: str = ""
    excerpt: str = ""  # two lines: a text, and a caret below the problem

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        about = " ".join(part for part in (self.table, self.key) if part)
        return f"{place}: {about}: {self.problem}" if about else f"{place}: {self.problem}"


def config_error(problems: Sequence[Problem], check: str) -> ConfigError:
    """The error that shows the first problem and carries all; `check` is the command that lists all."""
    first, more = problems[0], len(problems) - 1
    if not more:
        return ConfigError(str(first), first.hint, tuple(problems))
    others = f"{more} more problem" + "s" * (more > 1)
    hint = f"{first.hint}; list all with: {check}"
    return ConfigError(f"{first} (and {others})", hint, tuple(problems))


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a key and its value are; lines and columns count from 1."""

    line: int
    value_line: int
    value_column: int
    source: str  # the value as it is written


@dataclass(frozen=True, slots=True)
class Document:
    """A file that is TOML."""

    file: str
    folder: Path
    data: dict[str, Any]
    spots: dict[KeyPath, Spot]
    has_lines: bool = True  # False: a program made it, so there is no text

    def line(self, path: KeyPath) -> int | None:
        """The line of a key or table; if it is not written itself, of the first thing in it or of what holds it."""
        if not self.has_lines:
            return None
        while path:
            inside = (spot.line for at, spot in self.spots.items() if at[: len(path)] == path)
            if (line := min(inside, default=0)) > 0:
                return line
            path = path[:-1]
        return 1

    def place_within(self, path: KeyPath, column: int) -> tuple[int | None, int]:
        """Line and column in the file of the n-th character of a text; where the value begins if it has escapes."""
        path = self._written(path)
        spot = self.spots.get(path)
        value = self.at(path)
        if spot is None:
            return self.line(path), 1
        verbatim = isinstance(value, str) and spot.source[1:-1] == value and "\n" not in value
        return spot.value_line, spot.value_column + (column if verbatim else 0)

    def _written(self, path: KeyPath) -> KeyPath:
        """The path as it is written where a key is left out: `file = "…"` for `path` in [rule.file]."""
        shorter = (path[:place] + path[place + 1 :] for place in reversed(range(len(path))))
        return path if path in self.spots else next((each for each in shorter if each in self.spots), path)

    def at(self, path: KeyPath) -> Any:
        """The value at a path; None if there is none."""
        data: Any = self.data
        for part in path:
            if isinstance(data, dict):
                data = data.get(part)
            else:
                is_there = isinstance(data, list) and isinstance(part, int) and part < len(data)
                data = data[part] if is_there else None
        return data


def read_document(path: Path, layout: Layout) -> Document | Problem:
    """The file as a document, or the one problem that makes it invalid."""
    file = str(path)
    try:
        with open_to_read(path, follow=True) as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return Problem(file=file, problem="the file does not exist", hint=layout.example)
    except OSError as error:
        return Problem(
            file=file, problem=f"it is not readable: {error.strerror}", hint="check its path and its permissions"
        )
    if len(content) > FILE_BYTES_MAX:
        return Problem(
            file=file, problem=f"it is longer than {FILE_BYTES_MAX:,} bytes", hint="give a configuration file"
        )
    return parsed(file, path.absolute().parent, content, layout)


def parsed(file: str, folder: Path, content: bytes, layout: Layout) -> Document | Problem:
    """The content of a file as a document, or the one problem that makes it invalid."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return Problem(file=file, line=line, problem="this line is not UTF-8", hint="save the file as UTF-8")
    try:
        data = tomllib.loads(text)
        return Document(file, folder, data, dict(_spots(text.encode())))
    except ValueError as error:  # TOMLDecodeError, or a number with too many digits
        return _syntax(file, text, str(error), layout)
    except RecursionError:
        return Problem(file=file, problem="lists or tables are nested too deeply", hint="use fewer levels")


def _syntax(file: str, text: str, message: str, layout: Layout) -> Problem:
    """The parser's message, with the line that it means."""
    found = _SYNTAX.fullmatch(message)
    if found is None:
        return Problem(file=file, problem=f"not TOML: {message}", hint="correct the text")
    lines = text.split("\n")
    line = int(found[2] or text.rstrip().count("\n") + 1)
    shown = lines[line - 1].rstrip("\r")
    column = int(found[3] or len(shown) + 1)
    remedy = next((hint for begin, hint in _REMEDIES.items() if found[1].startswith(begin)), _NO_REMEDY)
    repeated = " and ".join(map(layout.bracketed, layout.repeated()))
    hint = remedy.format(repeated=repeated, first=layout.bracketed(next(iter(layout.tables))))
    return Problem(
        file=file, line=line, column=column, problem=f"not TOML: {found[1]}",
        hint=hint, excerpt=excerpt_of(shown, column - 1),
    )  # fmt: skip


# --- places ---------------------------------------------------------------------------------------


def _spots(source: bytes) -> Iterator[tuple[KeyPath, Spot]]:
    """Every key, table and list element, in the order of the text."""
    root = Parser(Language(tree_sitter_toml.language())).parse(source).root_node
    lines = source.split(b"\n")
    counts: dict[KeyPath, int] = {}  # elements so far of each list of tables
    for node in root.named_children:
        at: KeyPath = ()
        if node.type in ("table", "table_array_element"):
            at = _header(node, counts)
            yield at, _spot(node, node, lines)
        yield from _pairs(at, [node] if node.type == "pair" else node.named_children, lines)


def _header(node: Node, counts: dict[KeyPath, int]) -> KeyPath:
    """The path that a header opens. Within a list of tables, a name leads into the last element."""
    at: KeyPath = ()
    *outer, last = _names(node.named_children[0])
    for name in outer:
        at = (*at, name)
        at = (*at, counts[at] - 1) if at in counts else at
    at = (*at, last)
    if node.type == "table":
        return at
    counts[at] = counts.get(at, 0) + 1
    return (*at, counts[at] - 1)


def _pairs(at: KeyPath, nodes: list[Node], lines: list[bytes]) -> Iterator[tuple[KeyPath, Spot]]:
    for node in nodes:
        if node.type == "pair":
            key, value = [child for child in node.named_children if child.type != "comment"][:2]
            yield from _value((*at, *_names(key)), key, value, lines)


def _value(at: KeyPath, key: Node, value: Node, lines: list[bytes]) -> Iterator[tuple[KeyPath, Spot]]:
    yield at, _spot(key, value, lines)
    if value.type == "inline_table":
        yield from _pairs(at, value.named_children, lines)
    elif value.type == "array":
        elements = (child for child in value.named_children if child.type != "comment")
        for place, element in enumerate(elements):
            yield from _value((*at, place), element, element, lines)


def _names(key: Node) -> list[str]:
    """The names that a key consists of."""
    if key.type == "dotted_key":
        return [name for part in key.named_children for name in _names(part)]
    written = (key.text or b"").decode()
    return [written] if key.type == "bare_key" else list(tomllib.loads(f"{written} = 0"))


def _spot(key: Node, value: Node, lines: list[bytes]) -> Spot:
    """The tree counts from 0, and columns in bytes; a Spot counts from 1, in characters."""
    begin = value.start_point
    column = len(lines[begin.row][: begin.column].decode()) + 1
    return Spot(key.start_point.row + 1, begin.row + 1, column, (value.text or b"").decode())

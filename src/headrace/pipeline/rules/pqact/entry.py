"""Entries of a pqact.conf: feed type, pattern, action and arguments, separated by tabs.

A line that begins with white space continues the entry above it. Comments begin with `#` in the first column and may
occur between the lines of an entry. Arguments are separated by blanks and tabs; "double quotes" group them.

`include "path"` stands for the entries of another file; the path is relative to the file that has the line. A file that
includes itself, directly or through others, is an error of that line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import RuleError
from headrace.files import open_to_read

INCLUDES_MAX = 16  # files within files
FILE_BYTES_MAX = 16 << 20
_INCLUDE = re.compile(r"(?i)include\s+(?:\"([^\"]*)\"|(\S+))\s*")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry; missing fields are empty."""

    line: int  # its first line, from 1
    text: str  # all its lines, unchanged
    feedtype: str = ""
    pattern: str = ""
    action: str = ""
    arguments: str = ""
    source: str = ""  # the included file that has it; empty: the file itself
    error: RuleError | None = None  # why the entries that it includes are missing


def entries_of(text: str, path: Path | None = None) -> Iterator[Entry]:
    """Every entry of a file, in order, with those of files that it includes. `path`: of the file; None: unknown."""
    yield from _entries(text, "", path, () if path is None else (path.resolve(),))


def _entries(text: str, source: str, path: Path | None, above: tuple[Path, ...]) -> Iterator[Entry]:
    for line, lines in _joined_lines(text):
        found = _INCLUDE.fullmatch(" ".join(each.strip() for each in lines))
        if found is None:
            yield _entry(line, lines, source)
            continue
        try:
            name = found[1] or found[2] or ""
            inner = _included(name, path, above)
            content = _content(inner)
        except RuleError as error:
            yield Entry(line, "\n".join(lines), source=source, error=error)
            continue
        yield from _entries(content, name, inner, (*above, inner.resolve()))


def _joined_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of each entry, and the number of the first."""
    begin, lines = 0, list[str]()
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        if line[0] in " \t" and lines:
            lines.append(line)
            continue
        if lines:
            yield begin, lines
        begin, lines = number, [line]
    if lines:
        yield begin, lines


def _included(name: str, path: Path | None, above: tuple[Path, ...]) -> Path:
    if path is None:
        raise RuleError(f"the entry includes {name!r}, and the place of this file is unknown", "import it as a file")
    inner = path.parent / name
    if inner.resolve() in above:
        raise RuleError(f"the file {name!r} includes itself", "remove the line, here or there")
    if len(above) > INCLUDES_MAX:
        raise RuleError(f"more than {INCLUDES_MAX} files include each other", f"import {name!r} separately")
    return inner


def _content(path: Path) -> str:
    try:
        with open_to_read(path, follow=True) as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RuleError(f"{path} is not readable: {reason}", "correct the path, or remove the line") from None
    except ValueError as error:
        raise RuleError(f"{str(path)!r} is not a path: {error}", "correct the path, or remove the line") from None
    if len(data) > FILE_BYTES_MAX:
        raise RuleError(f"{path} has more than {FILE_BYTES_MAX >> 20} MiB", "import it in parts")
    return data.decode("utf-8", "surrogateescape")


def _entry(line: int, lines: list[str], source: str) -> Entry:
    whole = "\t".join(each.strip() for each in lines)
    fields = [field for field in whole.split("\t") if field]
    feedtype, pattern, action, *arguments = (*fields, "", "", "")[: max(3, len(fields))]
    return Entry(line, "\n".join(lines), feedtype.strip(), pattern, action.strip(), " ".join(arguments), source)


def words_of(arguments: str) -> list[str]:
    """Split arguments as pqact does: at white space outside of quotes. Quotes are dropped."""
    words, word, is_quoted, is_open = list[str](), "", False, False
    for sign in arguments:
        if sign == '"':
            is_quoted, is_open = not is_quoted, True
        elif sign in " \t" and not is_quoted:
            if is_open:
                words.append(word)
            word, is_open = "", False
        else:
            word, is_open = word + sign, True
    return [*words, word] if is_open else words

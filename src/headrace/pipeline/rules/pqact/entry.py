"""Entries of a pqact.conf: feed type, pattern, action and arguments, separated by tabs.

A line that begins with white space continues the entry above it. Comments begin with `#` in the first column and may
occur between the lines of an entry. Arguments are separated by blanks and tabs; "double quotes" group them.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry; missing fields are empty."""

    line: int  # its first line, from 1
    text: str  # all its lines, unchanged
    feedtype: str = ""
    pattern: str = ""
    action: str = ""
    arguments: str = ""


def entries_of(text: str) -> Iterator[Entry]:
    """Every entry of a file, in order."""
    begin, lines = 0, list[str]()
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        if line[0] in " \t" and lines:
            lines.append(line)
            continue
        if lines:
            yield _entry(begin, lines)
        begin, lines = number, [line]
    if lines:
        yield _entry(begin, lines)


def _entry(line: int, lines: list[str]) -> Entry:
    whole = "\t".join(each.strip() for each in lines)
    fields = [field for field in whole.split("\t") if field]
    feedtype, pattern, action, *arguments = (*fields, "", "", "")[: max(3, len(fields))]
    return Entry(line, "\n".join(lines), feedtype.strip(), pattern, action.strip(), " ".join(arguments))


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

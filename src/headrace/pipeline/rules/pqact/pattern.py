"""Patterns: POSIX extended regular expressions, as pqact has them, in the syntax of RE2.

What differs: a backslash within brackets is a character of its own there; `\\<` and `\\>` are word boundaries. What RE2
would understand otherwise, `\\d` and the like, is refused. Both search anywhere. Where several ways of matching are
possible, POSIX takes the longest and RE2 the first: groups of alternatives that begin alike may then differ.
"""

import re

from headrace.errors import RuleError, SelectionError
from headrace.selection.regex import check_regex

ELSE = "_ELSE_"
_PIECE = re.compile(r"(?s)\\.|\[\^?\]?(?:\[[:.=][^]]*[:.=]\]|[^]])*\]|.")
_ESCAPES = frozenset(r".[]{}()*+?|^$\/-\"'# _,:;<>=!&@%~`") | frozenset("wWsSbB")
_GROUP = re.compile(r"(?s)\\.|\[\^?\]?(?:\[[:.=][^]]*[:.=]\]|[^]])*\]|\(|\)|.")


def re2_of(pattern: str) -> str:
    """The same pattern for RE2; RuleError says why there is none."""
    return checked("".join(_translated(found[0]) for found in _PIECE.finditer(pattern)))


def checked(pattern: str) -> str:
    """A pattern that selections take; RuleError says why they do not."""
    try:
        return check_regex(pattern, "ident")
    except SelectionError as error:
        raise RuleError(error.problem, error.hint) from None


def _translated(piece: str) -> str:
    if piece in (r"\<", r"\>"):
        return r"\b"
    if piece.startswith("\\"):
        if piece[1:] not in _ESCAPES:
            raise RuleError(f"{piece} means something else in a POSIX pattern", "write what is meant")
        return piece if piece[1:].isalnum() or piece[1] in r".[]{}()*+?|^$\/-" else re.escape(piece[1:])
    if piece.startswith("[") and len(piece) > 1:
        return piece.replace("\\", "\\\\")
    return piece


def group_sources(pattern: str) -> list[str]:
    """The text of each group of a pattern, by its number from 1."""
    opened: list[tuple[int, int]] = []
    groups: dict[int, str] = {}
    count = 0
    for found in _GROUP.finditer(pattern):
        if found[0] == "(":
            count += 1
            opened.append((count, found.end()))
        elif found[0] == ")" and opened:
            number, begin = opened.pop()
            groups[number] = pattern[begin : found.start()]
    return [groups.get(number, "") for number in range(1, count + 1)]


def may_have_slash(group: str) -> bool:
    """Whether a group may match a `/`, as far as its text tells."""
    plain = re.sub(r"\\\.", "", group)
    return "." in plain or "/" in plain or "[^" in plain or "[:" in plain or r"\S" in plain or r"\W" in plain

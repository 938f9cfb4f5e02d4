"""What an entry selects: an expression of LDM's feed types as one feed pattern, and a POSIX pattern as RE2.

The feeds of each type are in product/ldm_feedtypes.py; a caller may change them. An expression becomes one feed
pattern, with alternatives if necessary, so that one entry is one rule: PPS, DDS and IDS together are `wx/text/**`.

pqact's patterns are POSIX extended regular expressions. They differ from RE2: a backslash within brackets is a literal
character, and `\\<` and `\\>` are word boundaries. Escapes that RE2 would understand differently, such as `\\d`, are
refused. Both engines search anywhere. If several matches are possible, POSIX takes the longest and RE2 the first:
groups of alternatives with a common beginning may differ.
"""

import re
from collections.abc import Mapping

import re2

from headrace.errors import FeedError, RuleError, SelectionError
from headrace.product.ldm_expression import types_in
from headrace.product.ldm_feedtypes import FEEDS, Feeds
from headrace.selection.clauses import check_regex


def feeds_with(changes: Mapping[str, str]) -> Feeds:
    """The feeds of all types, with those that the user has mapped. RuleError: feeds of two types are nested."""
    feeds = {**FEEDS, **{name.upper(): (feed,) for name, feed in changes.items()}}
    for name in (name.upper() for name in changes):
        for other, theirs in feeds.items():
            for ours in feeds[name]:
                nested = [feed for feed in theirs if ours != feed and _is_within(ours, feed)]
                if other != name and nested:
                    problem = f"the feed {ours} of {name} and the feed {nested[0]} of {other} contain each other"
                    raise RuleError(problem, f"map {other} to another feed, too: {other}=wx/…")
    return feeds


def _is_within(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def types_of(expression: str, feeds: Feeds) -> frozenset[str]:
    """The single feed types of an expression. RuleError: it is invalid."""
    try:
        return types_in(expression, feeds)
    except FeedError as error:
        raise RuleError(error.problem, error.hint) from None


# --- patterns ---------------------------------------------------------------------------------------


ELSE = "^_ELSE_$"  # this text and no other
_PIECE = re.compile(r"(?s)\\.|\[\^?\]?(?:\[[:.=][^]]*[:.=]\]|[^]])*\]|.")  # an escape, brackets, or a character
_ESCAPES = frozenset(r".[]{}()*+?|^$\/-\"'# _,:;<>=!&@%~`") | frozenset("wWsSbB")


def re2_of(pattern: str) -> str:
    """The same pattern for RE2. RuleError: there is none."""
    return checked("".join(_translated(found[0]) for found in _PIECE.finditer(pattern)))


def checked(pattern: str) -> str:
    """The pattern, if selections accept it. RuleError: they do not."""
    try:
        return check_regex(pattern, "ident")
    except SelectionError as error:
        raise RuleError(error.problem, error.hint) from None


def _translated(piece: str) -> str:
    if piece in (r"\<", r"\>"):
        return r"\b"
    if piece.startswith("\\"):
        if piece[1:] not in _ESCAPES:
            raise RuleError(f"{piece} has another meaning in a POSIX pattern", "write the characters that you mean")
        return piece if piece[1:].isalnum() or piece[1] in r".[]{}()*+?|^$\/-" else re.escape(piece[1:])
    if piece.startswith("[") and len(piece) > 1:
        return piece.replace("\\", "\\\\")
    return piece


def group_sources(pattern: str) -> list[str]:
    """The text of each group of a pattern, in the order of their numbers."""
    opened: list[tuple[int, int]] = []
    groups: dict[int, str] = {}
    count = 0
    for found in _PIECE.finditer(pattern):
        if found[0] == "(":
            count += 1
            opened.append((count, found.end()))
        elif found[0] == ")" and opened:
            number, begin = opened.pop()
            groups[number] = pattern[begin : found.start()]
    return [groups.get(number, "") for number in range(1, count + 1)]


def may_be_empty(pattern: str) -> list[bool]:
    """For each group of a pattern, whether it may be empty, or not take part in a match; pqact writes nothing then.

    Judged by the text: a group is never empty if its text does not match nothing, and neither it nor a group around it
    is optional or an alternative.
    """
    opened: list[tuple[int, int]] = []
    optional = dict[int, bool]()
    inner: dict[int, list[int]] = {0: []}  # the groups within each
    choices: set[int] = set()  # groups with alternatives; 0: the whole pattern
    pieces, count = list(_PIECE.finditer(pattern)), 0
    for place, found in enumerate(pieces):
        if found[0] == "(":
            count += 1
            for number, _ in [(0, 0), *opened]:
                inner[number].append(count)
            inner[count] = []
            opened.append((count, found.end()))
        elif found[0] == ")" and opened:
            number, begin = opened.pop()
            follows = pieces[place + 1][0] if place + 1 < len(pieces) else ""
            optional[number] = follows in ("?", "*", "{") or _matches_nothing(pattern[begin : found.start()])
        elif found[0] == "|":
            choices.add(opened[-1][0] if opened else 0)
    outer = {each for number in choices for each in inner[number]}
    outer |= {each for number, is_optional in optional.items() if is_optional for each in inner[number]}
    return [optional.get(number, True) or number in outer for number in range(1, count + 1)]


def _matches_nothing(group: str) -> bool:
    try:
        return re2.fullmatch(re2_of(group), "") is not None
    except RuleError:
        return True


def may_have_slash(group: str) -> bool:
    """Whether a group can match a `/`, judged by its text."""
    plain = re.sub(r"\\\.", "", group)
    return "." in plain or "/" in plain or "[^" in plain or "[:" in plain or r"\S" in plain or r"\W" in plain

"""Substitutions in the arguments of pqact, translated into templates or SQL expressions.

    \\1, \\(12)           group of the pattern                      {1}, {12}; {1|} if it may be empty
    &, \\0               the whole match                           {0}
    (\\1:yyyy)           year of the day of the month in group 1   {time(1):%Y}
    %Y                  creation time, as in strftime             {created:%Y}
    (seq)               sequence number at the origin             {origin_sequence}

`(\\1:…)` supports yyyy, yy, mm, mmm, dd, ddd (day of the year) and hh (of the creation time); several groups may form
the day. LDM and Headrace complete a day of the month in the same way: decoders/day_of_month.py. `\\&` and `\\\\` are
literal; every other backslash stands for itself.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.errors import RuleError
from headrace.pipeline.rules.pqact.ere import parsed
from headrace.pipeline.rules.pqact.ere_re2 import GroupFacts, groups_of

_PIECE = re.compile(
    r"(?s)\((?P<day>(?:\\[0-9]|[0-9])+):(?P<item>[A-Za-z]*)\)|(?P<seq>\(seq\))|\\(?P<group>[0-9])"
    r"|\\\((?P<long>[0-9]{1,3})\)|(?P<whole>&)|\\(?P<escape>[\\&])|%(?P<time>.?)|(?P<text>[^\\(%&]+|.)"
)
_DATE_ITEMS = {"yyyy": "%Y", "yy": "%y", "mm": "%m", "mmm": "%b:lower", "dd": "%d", "ddd": "%j"}
_TIMES = {**{sign: f"%{sign}" for sign in "YymdHMSjbBaA"}, "h": "%b", "D": "%m/%d/%y", "F": "%Y-%m-%d", "T": "%H:%M:%S",
          "R": "%H:%M"}  # fmt: skip
_SQL_TIMES = {"%Y": "yyyy", "%y": "yy", "%m": "MM", "%d": "dd", "%H": "HH", "%M": "mm", "%S": "ss", "%j": "DDD"}

_WHOLE = GroupFacts(may_be_empty=False, may_have_slash=True)  # group 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Text, or a substitution."""

    text: str = ""
    group: int | None = None
    days: tuple[str, ...] = ()  # groups that form the day of the month
    time: str = ""  # format of the creation time, or of the day
    is_sequence: bool = False


def pieces_of(argument: str, groups: int) -> list[Piece]:
    """The parts of an argument. RuleError names an unknown substitution."""
    pieces: list[Piece] = []
    for found in _PIECE.finditer(argument):
        piece = _piece(found, groups)
        last = pieces[-1] if pieces else None
        if last is not None and _is_text(last) and _is_text(piece):
            pieces[-1] = Piece(last.text + piece.text)
        elif last is not None and _is_creation(last) and _is_creation(piece):
            pieces[-1] = Piece(time=last.time + piece.time)
        else:
            pieces.append(piece)
    return pieces


def _is_text(piece: Piece) -> bool:
    return bool(piece.text)


def _is_creation(piece: Piece) -> bool:
    return bool(piece.time) and not piece.days


def _piece(found: re.Match[str], groups: int) -> Piece:
    if found["day"]:
        return _day(found["day"], found["item"].lower(), groups)
    if found["seq"]:
        return Piece(is_sequence=True)
    if found["group"] is not None or found["long"] is not None:
        return Piece(group=_counted(int(found["group"] or found["long"]), groups))
    if found["whole"]:
        return Piece(group=0)
    if found["escape"] is not None:
        return Piece(text=found["escape"])
    if found["time"] is not None:
        return _time(found["time"])
    return Piece(text=found["text"])


def _counted(group: int, groups: int) -> int:
    if group > groups:
        has = f"{groups} group" + "s" * (groups != 1)
        raise RuleError(f"\\{group} is used, and the pattern has {has}", "correct the entry")
    return group


def _day(day: str, item: str, groups: int) -> Piece:
    if item == "hh":
        return Piece(time="%H")
    if item not in _DATE_ITEMS:
        raise RuleError(f"(…:{item}) is unknown", f"use {', '.join(_DATE_ITEMS)} or hh")
    used = re.findall(r"\\([0-9])", day)
    if len(used) * 2 != len(day):
        raise RuleError(f"({day}:{item}) has a fixed day", "write the date itself")
    return Piece(days=tuple(str(_counted(int(group), groups)) for group in used), time=_DATE_ITEMS[item])


def _time(sign: str) -> Piece:
    if sign == "%":
        return Piece(text="%")
    if sign not in _TIMES:
        raise RuleError(f"%{sign} is not supported", f"use {' '.join(f'%{each}' for each in _TIMES)}")
    return Piece(time=_TIMES[sign])


# --- as a template --------------------------------------------------------------------------------


def template_of(pieces: list[Piece], pattern: str, is_path: bool) -> str:
    """The equivalent template. In paths, groups that can match `/` create folders, as with pqact."""
    return "".join(_joined(pieces, pattern, is_path))


def _joined(pieces: list[Piece], pattern: str, is_path: bool) -> Iterator[str]:
    groups = [_WHOLE, *groups_of(parsed(pattern))]
    for piece in pieces:
        if piece.group is not None:
            group = groups[piece.group]
            kept = ":path" if is_path and group.may_have_slash else ""
            yield f"{{{piece.group}{kept}{'|' if group.may_be_empty else ''}}}"
        elif piece.days:
            yield f"{{time({','.join(piece.days)}):{piece.time}}}"
        elif piece.time:
            yield f"{{created:{piece.time}}}"
        elif piece.is_sequence:
            yield "{origin_sequence}"
        else:
            yield piece.text.replace("{", "{{").replace("}", "}}")


def fixed_folder(pieces: list[Piece]) -> tuple[str, list[Piece]]:
    """The constant folders at the beginning, and the rest."""
    first = pieces[0].text if pieces else ""
    folder, slash, rest = first.rpartition("/")
    if not slash:
        return "", pieces
    return folder or "/", [*([Piece(rest)] if rest else []), *pieces[1:]]


# --- as SQL ---------------------------------------------------------------------------------------


def sql_of(pieces: list[Piece], pattern: str) -> str:
    """The equivalent SQL expression over `products`. RuleError: there is none."""
    parts = [_sql_part(piece, pattern) for piece in pieces]
    return parts[0] if len(parts) == 1 else f"concat({', '.join(parts)})"


def _sql_part(piece: Piece, pattern: str) -> str:
    if piece.group is not None:
        return f"regexp_extract(ident, {_literal(pattern)}, {piece.group})"
    if piece.days:
        raise RuleError("a key with a date from a day of the month is not supported", "write the key as sql")
    if piece.is_sequence:
        return "cast(origin_sequence as string)"
    if piece.time:
        return f"date_format(created, {_literal(_sql_format(piece.time))})"
    return _literal(piece.text)


def _sql_format(text: str) -> str:
    unknown = [found for found in re.findall(r"%.", text) if found not in _SQL_TIMES]
    if unknown:
        raise RuleError(f"a key with {unknown[0]} is not supported", "write the key as sql")
    return re.sub(r"%.", lambda found: _SQL_TIMES[found[0]], text)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

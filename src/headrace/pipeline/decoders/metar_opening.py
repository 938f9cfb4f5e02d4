"""Openings of METAR reports: kind, station and time; and where a report begins if the `=` before it is missing.

    KDEN 060053Z …                  the usual form
    METAR COR KDEN 060053Z …        TTF METAR, METAR METAR, SPECI COR: any of the words of `_PREFIX`
    METAR HLLT NIL                  no report from this station, and no time
    METAR NIL                       no report at all

Two reports that are joined are found by the kind or by what follows station and time: `NEXT 071200Z` in a remark does
not begin a report. TAF and Canadian SA reports (metar_sa.py) are found in the same way, for the decoder `wmo`. Patterns
have fixed bounds, so they take time in proportion to the text.
"""

import re
from itertools import accumulate, pairwise
from typing import NamedTuple

SPECI = "SPECI"

_PREFIX = r"(?:METAR|SPECI|TTF|LOCAL|COR|CORR|CC[A-J]|AMD|RTD|TEST|AUTO)"
_STATION = r"(?!AUTO|CORR|TEST|NEXT|LAST|UNTL|TILL|FROM)[A-Z][A-Z0-9]{3}"
_WIND = r"(?:[0-9]{3}|VRB|///)P?[0-9/]{2,3}(?:G[P0-9/]{2,4})?(?:KT|MPS|KMH)"
_USUAL = re.compile(rf"(?:(METAR|SPECI)\s)?({_STATION})\s([0-9]{{6}})Z?(?:\s|$)")
_OTHER = re.compile(rf"((?:{_PREFIX}\s){{0,6}})({_STATION})\s((?:COR|CORR|CC[A-J]|AUTO)\s)?([0-9]{{6}})Z?(?:\s|$)")
_NIL = re.compile(rf"((?:{_PREFIX}\s){{0,6}})(?:({_STATION})\s)?(?=NIL(?:\s|$))")
_TIMES = re.compile(r" (?:[0-9]{6}[Zz]?|S[AP] (?:COR )?[0-9]{4})(?= )")
_NEXT = re.compile(
    rf"\s(?=(?:(?:TTF|COR)\s)?(?:METAR|SPECI)\s(?:{_PREFIX}\s){{0,4}}{_STATION}\s(?:[0-9]{{6}}Z?|NIL)(?:\s|$))"
    rf"|\s(?=(?:COR\s)?{_STATION}\s[0-9]{{6}}Z?\s(?:AUTO|COR|CC[A-J]|NIL|{_WIND})(?:\s|$))"
    rf"|\n(?=(?:COR\s)?{_STATION}\s[0-9]{{6}}Z\s)"
    rf"|(?<=\sNIL)\s(?={_STATION}\sNIL(?:\s|$))"
    rf"|\s(?=TAF\s(?:(?:AMD|COR)\s)?{_STATION}\s[0-9]{{6}}Z\s)"
    rf"|\s(?={_STATION}\s[0-9]{{6}}Z\s[0-9]{{4}}/[0-9]{{4}}\s)"
    r"|\n(?=(?:COR\s)?[A-Z][A-Z0-9]{2,3}\sS[AP]\s(?:COR\s)?[0-9]{4}\s)"
)
_TAF = re.compile(rf"TAF\s(?:(?:AMD|COR)\s)?{_STATION}\s[0-9]{{6}}Z\s")
_WORD = re.compile(r"\S+")
_UPPER = {low: low - 32 for low in range(ord("a"), ord("z") + 1)}


class Opening(NamedTuple):
    kind: str | None  # METAR or SPECI; None: not said
    station: str | None  # None: NIL for all stations
    time: str | None  # six digits; None: NIL without a time
    modifiers: tuple[str, ...]  # words before the time that are groups of the body, such as COR and AUTO
    end: int  # where the body begins


def upper(text: str) -> str:
    """The text with capital letters A to Z, and of the same length."""
    return text.upper() if text.isascii() else text.translate(_UPPER)


def read_opening(text: str, at: int = 0) -> Opening | None:
    """The opening at this place of a text in capital letters; None if there is none."""
    usual = _USUAL.match(text, at)
    if usual is not None:
        return Opening(usual[1], usual[2], usual[3], (), usual.end())
    other = _OTHER.match(text, at)
    if other is not None:
        return _opening(f"{other[1]} {other[3] or ''}".split(), other[2], other[4], other.end())
    nil = _NIL.match(text, at)
    return None if nil is None else _opening(nil[1].split(), nil[2], None, nil.end())


def _opening(words: list[str], station: str | None, time: str | None, end: int) -> Opening:
    kinds = [word for word in words if word in ("METAR", SPECI)]
    modifiers = tuple(word for word in words if word not in ("METAR", SPECI, "TTF", "LOCAL", "AMD"))
    return Opening(kinds[-1] if kinds else None, station, time, modifiers, end)


def single_reports(raw: str) -> list[str]:
    """The text of each report on one line: more than one if `=` is missing between them."""
    line = " ".join(raw.split())
    return [" ".join(report.split()) for report in _separated(raw)] if _may_be_several(line) else [line]


def separated(raw: str) -> list[str]:
    """The text of each report, with its line breaks: more than one if `=` is missing between them."""
    return _separated(raw) if _may_be_several(" ".join(raw.split())) else [raw]


def _may_be_several(line: str) -> bool:
    """Whether a text on one line has two times, or says NIL twice; a single report, as most are, seldom has."""
    return len(_TIMES.findall(line)) > 1 or line.count("NIL") > 1


def _separated(raw: str) -> list[str]:
    words = list(_WORD.finditer(raw))
    # A line break remains where a line is not indented: there a report may begin.
    text = "".join(("\n" if _begins_line(raw, word.start()) else " ") + word[0] for word in words)[1:]
    capitals, begins, begin = upper(text), [0], 0
    while True:
        found = _NEXT.search(capitals, max(begin, _opening_end(capitals, begin) - 1))
        if found is None:
            break
        begin = found.start() + 1
        begins.append(begin)
    places = dict(zip(accumulate((len(word[0]) + 1 for word in words), initial=0), words, strict=False))
    cuts = [*(places[begin].start() for begin in begins[1:]), len(raw)]
    return [raw[start:end].strip() for start, end in pairwise([0, *cuts])]


def _begins_line(raw: str, at: int) -> bool:
    return at > 0 and raw[at - 1] == "\n"


def _opening_end(capitals: str, begin: int) -> int:
    """Where a search for the next report begins: behind the opening of this one."""
    taf = _TAF.match(capitals, begin)
    if taf is not None:
        return taf.end()
    opening = read_opening(capitals, begin)
    return opening.end if opening else begin + 1

"""LikePattern: SQL's LIKE, in time linear in the text for one text and by RE2 for a column.

`%` stands for any text, `_` for one character, and either for itself behind the escape character. Upper and lower case
differ unless `any_case` says otherwise, and then for the letters A to Z alone.
"""

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


class LikePattern:
    """One pattern, ready to be matched."""

    __slots__ = ("_any_case", "_first", "_last", "_middle", "_regex")

    def __init__(self, pattern: str, escape: str = "", any_case: bool = False) -> None:
        self._any_case = any_case
        pieces = _pieces(pattern.translate(_LOWER) if any_case else pattern, escape)
        regexes = ["".join("." if char is None else re.escape(char) for char in piece) for piece in pieces]
        self._regex = "(?s)^" + ".*".join(_re2(piece) for piece in pieces) + "$"
        self._first = re.compile(regexes[0], re.S)
        self._middle = [re.compile(regex, re.S) for regex in regexes[1:-1]]
        self._last = (re.compile(regexes[-1], re.S), len(pieces[-1])) if len(pieces) > 1 else None

    def matches(self, text: str) -> bool:
        """The first piece at the beginning, the last at the end, the others one after the other in between."""
        if self._any_case:
            text = text.translate(_LOWER)
        if self._last is None:
            return self._first.fullmatch(text) is not None
        begin, (last, length) = self._first.match(text), self._last
        if begin is None or len(text) - length < begin.end() or not last.fullmatch(text, len(text) - length):
            return False
        place, end = begin.end(), len(text) - length
        for piece in self._middle:
            found = piece.search(text, place, end)
            if found is None:
                return False
            place = found.end()
        return True

    def mask(self, texts: Any) -> npt.NDArray[np.bool_]:
        """For an Arrow array of texts; False where there is none."""
        if self._any_case:
            texts = pc.ascii_lower(texts)
        matched = pc.fill_null(pc.match_substring_regex(texts, self._regex), False)
        found: npt.NDArray[np.bool_] = matched.to_numpy(zero_copy_only=False)
        return found


def _pieces(pattern: str, escape: str) -> list[list[str | None]]:
    """The pattern between its `%`; None is any one character."""
    pieces: list[list[str | None]] = [[]]
    signs = iter(pattern)
    for sign in signs:
        if escape and sign == escape:
            pieces[-1].append(next(signs))
        elif sign == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if sign == "_" else sign)
    return pieces


def _re2(piece: list[str | None]) -> str:
    return "".join("." if char is None else _re2_literal(char) for char in piece)


def _re2_literal(char: str) -> str:
    return char if char.isalnum() or char in " _" else f"\\x{{{ord(char):x}}}"

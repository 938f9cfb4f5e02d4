"""Expressions of LDM's feed types: `IDS|DDPLUS`, `ANY-NEXRAD2`, `~WMO`, `15`.

    expression = term {("|" | "+") term}
    term       = primary {("-" | "&") primary}
    primary    = "~" primary | "(" expression ")" | name | number

`|` and `+` are union, `-` is difference, `&` is intersection, `~` is complement. A name is that of a type, a union or
an older name, in any case; a number, decimal or with 0x, is the sum of bits.
"""

import re
from collections.abc import Collection

from headrace.errors import FeedError
from headrace.product.ldm_feedtypes import ALIASES, ANY, FEEDTYPES, UNIONS, names_in

_TOKEN = re.compile(r"\s*([A-Za-z0-9_]+|[|+\-~()&])")
_NUMBER = re.compile(r"0[xX][0-9A-Fa-f]{1,8}|[0-9]{1,10}")


def types_in(expression: str, known: Collection[str] = FEEDTYPES) -> frozenset[str]:
    """The single feed types of an expression; `known` may have more than LDM's own. FeedError: it is invalid."""
    return _Expression(expression, frozenset(known)).read()


class _Expression:
    """Reads a text once, from left to right."""

    def __init__(self, text: str, known: frozenset[str]) -> None:
        self._text, self._known = text, known
        self._tokens: list[str] = _TOKEN.findall(text)
        self._place = 0
        if "".join(self._tokens) != re.sub(r"\s", "", text):
            raise self._wrong("has unknown characters")

    def read(self) -> frozenset[str]:
        found = self._union()
        if self._place < len(self._tokens):
            raise self._wrong(f"has an unexpected {self._tokens[self._place]!r}")
        return found

    def _next(self, *signs: str) -> str:
        """Consume and return the next token if it is one of these."""
        if self._place < len(self._tokens) and self._tokens[self._place] in signs:
            self._place += 1
            return self._tokens[self._place - 1]
        return ""

    def _union(self) -> frozenset[str]:
        found = self._term()
        while self._next("|", "+"):
            found |= self._term()
        return found

    def _term(self) -> frozenset[str]:
        found = self._primary()
        while sign := self._next("-", "&"):
            other = self._primary()
            found = found - other if sign == "-" else found & other
        return found

    def _primary(self) -> frozenset[str]:
        if self._next("~"):
            return self._known - self._primary()
        if self._next("("):
            found = self._union()
            if not self._next(")"):
                raise self._wrong("lacks a closing parenthesis")
            return found
        if self._place == len(self._tokens) or self._tokens[self._place] in "|+-~()&":
            raise self._wrong("ends too early")
        self._place += 1
        return self._named(self._tokens[self._place - 1])

    def _named(self, word: str) -> frozenset[str]:
        name = word.upper()
        name = name if name in self._known else ALIASES.get(name, name)
        if name in self._known:
            return frozenset([name])
        if name == "ANY":
            return self._known
        if name in UNIONS:
            return names_in(UNIONS[name])
        if _NUMBER.fullmatch(word):
            mask = int(word, 0) if word[:2] in ("0x", "0X") else int(word)
            if mask <= ANY:
                return self._known if mask == ANY else names_in(mask)
        raise FeedError(f"the feed type {name} is unknown", f"map it to a feed: {name}=wx/…")

    def _wrong(self, what: str) -> FeedError:
        return FeedError(f"the feed type {self._text!r} {what}", "write NAME|NAME")

"""Literals: text that every ident matched by a regular expression must contain.

    required(r"^S[AP]US\\d\\d (KFTG|KDEN)")    ->  {"⊢SAUS", "⊢SPUS"} and {" KFTG", " KDEN"}

Each set is a clause: at least one of its texts is in every ident that the pattern finds (⊢ and ⊣ stand for the ends of
the ident). The subscription table looks patterns up by such texts instead of trying them one by one. What is said here
is only necessary, never sufficient: RE2 decides. Where this reader does not know a construct for certain, it says that
nothing is required, so an error on the safe side costs time and never a product.

The reading is by value. An expression is either *exact*, a small set of texts of which it is one, or a list of
clauses. Concatenation joins exact sets while they stay small; alternation unites them; whatever repeats or stands for
many characters ends the text that was being joined.

Not here: how texts are chosen and looked up (`regex_index.py`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

BEGIN, END = "\ud800", "\ud801"  # the ends of an ident; lone surrogates cannot occur in one
EXACT_MAX = 16  # texts in one clause
DEPTH_MAX = 40  # groups in groups

Clause = frozenset[str]

_REPEAT = re.compile(r"(?:[*+?]|\{([0-9]+)(?:(,)[0-9]*)?\})\??")
_GROUP = re.compile(r"\((?:\?(?:P?<\w+>|[imsU-]*(?P<end>[:)])))?")
_PLAIN_CLASS = re.compile(r"\[([^\]\\^\[-][^\]\\\[-]*)\]")
_CONTROL = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_PROPERTY = re.compile(r"\\[pP](?:\{\^?\w+\}|\w)")


@dataclass(frozen=True, slots=True)
class Required:
    """What a pattern requires; `folded` texts are in lower case and to be looked for in `fold(ident)`."""

    clauses: tuple[Clause, ...] = ()
    folded: bool = False


def fold(ident: str) -> str:
    """An ident in which RE2's case-blind ASCII letters are all lower case (the long s is an s to it)."""
    return ident.lower().replace("ſ", "s")


def required(pattern: str) -> Required:
    """The clauses of a pattern that RE2 accepts; none if nothing is certain."""
    folded = re.search(r"\(\?[a-zA-Z]*i", pattern) is not None
    lines = re.search(r"\(\?[a-zA-Z]*m", pattern) is not None
    try:
        found = _Reader(pattern, folded, anchors=not lines).whole()
    except _UnknownError:
        return Required()
    clauses = found.clauses if found.exact is None else (*found.clauses, found.exact)
    return Required(tuple(dict.fromkeys(clause for clause in clauses if "" not in clause)), folded)


class _UnknownError(Exception):
    """The pattern has something that this reader does not know for certain."""


@dataclass(frozen=True, slots=True)
class _Part:
    exact: Clause | None = None  # it is one of these
    clauses: tuple[Clause, ...] = ()  # it contains one of each of these

    def certain(self) -> tuple[Clause, ...]:
        return self.clauses if self.exact is None else (*self.clauses, self.exact)


_ANYTHING = _Part()
_NOTHING = _Part(frozenset([""]))


class _Reader:
    """Walks over one pattern; each method leaves `place` behind what it has read."""

    def __init__(self, pattern: str, folded: bool, anchors: bool) -> None:
        self.pattern, self.place, self.depth = pattern, 0, 0
        self.fold: Callable[[str], str] = _fold_literal if folded else str
        self.begin = _Part(frozenset([BEGIN])) if anchors else _NOTHING
        self.end = _Part(frozenset([END])) if anchors else _NOTHING

    def whole(self) -> _Part:
        part = self.alternatives()
        if self.place != len(self.pattern):
            raise _UnknownError
        return part

    def alternatives(self) -> _Part:
        parts = [self.sequence()]
        while self.pattern.startswith("|", self.place):
            self.place += 1
            parts.append(self.sequence())
        return parts[0] if len(parts) == 1 else _either(parts)

    def sequence(self) -> _Part:
        parts = []
        while self.place < len(self.pattern) and self.pattern[self.place] not in "|)":
            parts += self.repeated(self.atom())
        return _joined(parts)

    def repeated(self, parts: list[_Part]) -> list[_Part]:
        """What stands here, with the repetition behind it; a repetition concerns the last part alone."""
        while repeat := _REPEAT.match(self.pattern, self.place):
            self.place = repeat.end()
            if not parts:
                raise _UnknownError
            parts = [*parts[:-1], _repeat(parts[-1], repeat)]
        return parts

    def atom(self) -> list[_Part]:
        mark = self.pattern[self.place]
        if mark == "(":
            return self.group()
        if mark == "[":
            return [self.char_class()]
        if mark == "\\":
            return self.escape()
        self.place += 1
        if mark == ".":
            return [_ANYTHING]
        if mark == "^":
            return [self.begin]
        if mark == "$":
            return [self.end]
        return [self.literal(mark)]

    def literal(self, char: str) -> _Part:
        text = self.fold(char)
        return _Part(frozenset([text])) if text else _ANYTHING

    def group(self) -> list[_Part]:
        head = _GROUP.match(self.pattern, self.place)
        if head is None or self.pattern.startswith("?", head.end()) or self.depth >= DEPTH_MAX:
            raise _UnknownError
        self.place = head.end()
        if head["end"] == ")":  # flags for what follows: no part of its own that could be repeated
            return []
        self.depth += 1
        part = self.alternatives()
        self.depth -= 1
        if not self.pattern.startswith(")", self.place):
            raise _UnknownError
        self.place += 1
        return [part]

    def char_class(self) -> _Part:
        """A few plain characters are alternatives; any other class is some character."""
        if plain := _PLAIN_CLASS.match(self.pattern, self.place):
            self.place = plain.end()
            texts = frozenset(map(self.fold, plain[1]))
            return _Part(texts) if len(texts) <= EXACT_MAX and "" not in texts else _ANYTHING
        self.place = self.class_end()
        return _ANYTHING

    def class_end(self) -> int:
        pattern, place = self.pattern, self.place + 1
        place += pattern.startswith("^", place)
        place += pattern.startswith("]", place)
        while place < len(pattern):
            if pattern[place] == "]":
                return place + 1
            if pattern[place] == "\\":
                place += 2
            elif pattern.startswith("[:", place) and (end := pattern.find(":]", place + 2)) >= 0:
                place = end + 2
            else:
                place += 1
        raise _UnknownError

    def escape(self) -> list[_Part]:
        if named := _PROPERTY.match(self.pattern, self.place):
            self.place = named.end()
            return [_ANYTHING]
        char = self.pattern[self.place + 1 : self.place + 2]
        self.place += 2
        if char == "Q":
            return self.quoted()
        if char and char in "dDsSwW":
            return [_ANYTHING]
        if char and char in "bB":
            return [_NOTHING]
        if char == "A":
            return [_Part(frozenset([BEGIN]))]
        if char == "z":
            return [_Part(frozenset([END]))]
        if char in _CONTROL:
            return [self.literal(_CONTROL[char])]
        if not char or not char.isascii() or char.isalnum():
            raise _UnknownError
        return [self.literal(char)]

    def quoted(self) -> list[_Part]:
        end = self.pattern.find("\\E", self.place)
        text = self.pattern[self.place : end if end >= 0 else None]
        self.place = end + 2 if end >= 0 else len(self.pattern)
        return [self.literal(char) for char in text]


def _fold_literal(char: str) -> str:
    """Lower case for ASCII; nothing for others, whose folding is left to RE2."""
    return char.lower() if char.isascii() else ""


def _repeat(part: _Part, repeat: re.Match[str]) -> _Part:
    sign = repeat[0][0]
    if sign == "?" and part.exact is not None and len(part.exact) < EXACT_MAX:
        return _Part(part.exact | {""})
    least = {"*": 0, "?": 0, "+": 1}.get(sign)
    if least is None:
        least = int(repeat[1])
        if least == 1 and repeat[2] is None:
            return part
    return _Part(None, part.certain()) if least else _ANYTHING


def _either(parts: list[_Part]) -> _Part:
    """One of several: their exact texts together, or one clause made of the best clause of each."""
    if all(part.exact is not None for part in parts):
        together = frozenset(text for part in parts for text in part.exact or ())
        if len(together) <= EXACT_MAX:
            return _Part(together)
    clause: set[str] = set()
    for part in parts:
        best = max(part.certain(), key=lambda texts: min(map(len, texts)), default=frozenset([""]))
        clause |= best
    return _Part(None, (frozenset(clause),)) if len(clause) <= EXACT_MAX else _ANYTHING


def _joined(parts: list[_Part]) -> _Part:
    """One after the other."""
    run: Clause = frozenset([""])
    clauses: list[Clause] = []
    broken = False
    for part in parts:
        if part.exact is not None and _can_join(run, part.exact):
            run = frozenset(left + right for left in run for right in part.exact)
            continue
        broken = True
        clauses += [run, *part.clauses]
        run = part.exact or frozenset([""])
    return _Part(None, (*clauses, run)) if broken else _Part(run)


def _can_join(left: Clause, right: Clause) -> bool:
    """Small enough, and no end of the ident in the middle: `^^a` requires the begin once."""
    if len(left) * len(right) > EXACT_MAX:
        return False
    if any(END in text for text in left):
        return False
    return left == {""} or not any(BEGIN in text for text in right)

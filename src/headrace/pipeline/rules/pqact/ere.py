r"""POSIX extended regular expressions, parsed into a tree as glibc's regcomp reads them.

The same text can mean something else to RE2. `a+?` is a repetition of a repetition and not a lazy one, `a{,3}` is a
repetition and not literal, a backslash within brackets is a literal character, `\s` includes the vertical tab, and `)`
alone is literal. The tree has the meaning of POSIX; ere_re2.py writes it for RE2. A pattern that regcomp refuses is
refused here, too, such as `(?i)a`, `a{` and `[[:word:]]`: pqact would not have used it.

Escaped letters and digits besides those of GNU (`\w \W \s \S \b \B`) are refused: to glibc `\d` is the letter d, and
`\1` repeats a group. Classes become ranges, because `[[:alpha:]]` has another meaning in Java, which runs the pattern
in SQL. The characters of a set are those of ASCII, and one that stands for all others.
"""

from dataclasses import dataclass

from headrace.errors import RuleError
from headrace.selection.clauses import TEXT_MAX

Signs = frozenset[int]  # code points below 128, and 128 for all others

_OTHER = 128
_ALL: Signs = frozenset(range(_OTHER + 1))
_REPEATS_MAX = 0x7FFF
_DEPTH_MAX = 50
_SPECIAL = frozenset(r"\.[]{}()*+?|^$")
_CLASSES = {  # the ends of their ranges
    "alnum": "09AZaz", "alpha": "AZaz", "blank": "\t\t  ", "cntrl": "\x00\x1f\x7f\x7f", "digit": "09", "graph": "!~",
    "lower": "az", "print": " ~", "punct": "!/:@[`{~", "space": "\t\r  ", "upper": "AZ", "xdigit": "09AFaf",
}  # fmt: skip
_ANCHORS = {"b": r"\b", "B": r"\B", "<": r"\<", ">": r"\>", "`": r"\A", "'": r"\z"}


# --- the tree -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class One:
    """One character of a set."""

    text: str  # for RE2
    signs: Signs


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place between characters; `\\<` and `\\>` are not RE2's."""

    text: str


@dataclass(frozen=True, slots=True)
class Group:
    inner: "Node"


@dataclass(frozen=True, slots=True)
class Repeat:
    part: "Node"
    low: int
    high: int | None  # None: any number


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    parts: tuple["Node", ...]


Node = One | Anchor | Group | Repeat | Sequence | Choice


# --- reading --------------------------------------------------------------------------------------


def parsed(pattern: str) -> Node:
    """The tree of a pattern. RuleError: pqact would refuse it, or it has an escape with another meaning."""
    if len(pattern) > TEXT_MAX:
        raise RuleError(f"the pattern has {len(pattern)} characters, more than {TEXT_MAX}", "shorten it")
    return _Reader(pattern).choice(0)


def _refused(why: str) -> RuleError:
    return RuleError(f"the pattern is not a POSIX pattern: {why}", "correct it; pqact would refuse it, too")


class _Reader:
    """Reads a pattern from left to right; one use."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def take(self, text: str) -> bool:
        """Whether `text` is next; it is read if so."""
        is_next = self.peek(text)
        self.at += len(text) * is_next
        return is_next

    def next(self, missing: str) -> str:
        if self.at >= len(self.text):
            raise _refused(missing)
        self.at += 1
        return self.text[self.at - 1]

    def choice(self, depth: int) -> Node:
        parts = [self.sequence(depth)]
        while self.take("|"):
            parts.append(self.sequence(depth))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.at < len(self.text) and not self.peek("|") and not (depth and self.peek(")")):
            part = self.atom(depth)
            while not isinstance(part, Anchor) and (counts := self.counts()) is not None:
                part = _repeated(part, *counts)
            parts.append(part)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def atom(self, depth: int) -> Node:
        sign = self.next("")
        if sign in "*+?{":
            raise _refused(f"{sign} has nothing to repeat")
        if sign == "(":
            if depth >= _DEPTH_MAX:
                raise RuleError(f"the pattern has more than {_DEPTH_MAX} nested groups", "simplify it")
            group = Group(self.choice(depth + 1))
            if not self.take(")"):
                raise _refused("a ( has no )")
            return group
        if sign == "[":
            return self.brackets()
        if sign == "\\":
            return _escaped(self.next("it ends with a backslash"))
        if sign in "^$":
            return Anchor(sign)
        return One(".", _ALL) if sign == "." else _literal(sign)

    def counts(self) -> tuple[int, int | None] | None:
        """The bounds of a repetition that is next; None: there is none."""
        for sign, low, high in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self.take(sign):
                return low, high
        if not self.take("{"):
            return None
        inside, end, _ = self.text[self.at :].partition("}")
        first, comma, last = inside.partition(",")
        if not end or any(not (each.isascii() and each.isdigit()) for each in (first, last) if each):
            raise _refused(f"{{{inside}{end} is not a repetition; a literal brace is \\{{")
        if not first and not comma:
            raise _refused("{} is not a repetition")
        self.at += len(inside) + 1
        low = int(first or 0)
        high = (int(last) if last else None) if comma else low
        if max(low, high or 0) > _REPEATS_MAX or (high is not None and high < low):
            raise _refused(f"{{{inside}}} has invalid bounds")
        return low, high

    # --- brackets ---

    def brackets(self) -> One:
        is_inverted = self.take("^")
        texts, signs, is_first = list[str](), set[int](), True
        while is_first or not self.take("]"):
            text, found = self.element(is_first)
            texts.append(text)
            signs |= found
            is_first = False
        written = f"[{'^' * is_inverted}{''.join(dict.fromkeys(texts))}]"
        return One(written, _ALL - (signs - {_OTHER}) if is_inverted else frozenset(signs))

    def element(self, is_first: bool) -> tuple[str, Signs]:
        """A class, a character or a range: for RE2, and its characters."""
        if self.take("[:"):
            name = self.name(":]")
            if name not in _CLASSES:
                raise _refused(f"there is no class [:{name}:]")
            if self.peek("-") and not self.peek("-]"):
                raise _refused(f"a range begins with [:{name}:]")
            return _class(name)
        is_range_possible = not self.peek("[=")
        if self.peek("-") and not is_first and not self.peek("-]"):
            raise _refused("a - within brackets is neither first nor last, nor in a range")
        begin = self.sign()
        if not self.peek("-") or self.peek("-]"):
            return _range(begin, begin)
        self.at += 1
        if not is_range_possible or self.peek("[=") or self.peek("[:"):
            raise _refused("a range begins or ends with a class")
        end = self.sign()
        if ord(end) < ord(begin):
            raise _refused(f"the range {begin}-{end} is empty")
        return _range(begin, end)

    def sign(self) -> str:
        """One character within brackets, perhaps as `[.x.]` or `[=x=]`."""
        for mark in ".=":
            if self.take(f"[{mark}"):
                name = self.name(f"{mark}]")
                if len(name) != 1:
                    raise _refused(f"[{mark}{name}{mark}] is not one character")
                return name
        return self.next("a [ has no ]")

    def name(self, end: str) -> str:
        found = self.text.find(end, self.at + (end != ":]"))  # `[.].]` names a bracket
        if found < 0:
            raise _refused("a [ has no ]")
        name = self.text[self.at : found]
        self.at = found + len(end)
        return name


def _repeated(part: Node, low: int, high: int | None) -> Repeat:
    """A repetition; one of a simple repetition is one itself: `a+?` is `a*`."""
    simple = ((0, None), (1, None), (0, 1))
    if isinstance(part, Repeat) and (part.low, part.high) in simple and (low, high) in simple:
        return Repeat(part.part, part.low * low, 1 if part.high == high == 1 else None)
    return Repeat(part, low, high)


def _escaped(sign: str) -> Node:
    if sign in _ANCHORS:
        return Anchor(_ANCHORS[sign])
    if sign in "wW":
        return One(f"\\{sign}", WORD if sign == "w" else _ALL - WORD)
    if sign in "sS":
        text, signs = _class("space")
        return One(f"[{text}]", signs) if sign == "s" else One(f"[^{text}]", _ALL - signs)
    if sign.isalnum() or not sign.isascii() or not sign.isprintable():
        raise RuleError(f"\\{sign} has another meaning in a POSIX pattern", "write the characters that you mean")
    return _literal(sign)


def _literal(sign: str) -> One:
    return One(f"\\{sign}" if sign in _SPECIAL else sign, frozenset({_place(sign)}))


def _within(sign: str) -> str:
    """A character within brackets; `&` has a meaning there in Java."""
    if sign < " " or sign == "\x7f":
        return f"\\x{ord(sign):02x}"
    return f"\\{sign}" if sign in r"\[]^-&" else sign


def _range(begin: str, end: str) -> tuple[str, Signs]:
    text = _within(begin) if begin == end else f"{_within(begin)}-{_within(end)}"
    return text, frozenset(range(_place(begin), _place(end) + 1))


def _class(name: str) -> tuple[str, Signs]:
    """The ranges of a class, and its characters."""
    ends = _CLASSES[name]
    ranges = [_range(*pair) for pair in zip(ends[::2], ends[1::2], strict=True)]
    return "".join(text for text, _ in ranges), frozenset[int]().union(*(signs for _, signs in ranges))


def _place(sign: str) -> int:
    return min(ord(sign), _OTHER)


WORD: Signs = _class("alnum")[1] | {ord("_")}

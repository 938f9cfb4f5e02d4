"""Path: an XPath expression read into signs, made safe, and rewritten for documents with namespaces.

XPath 1.0 in the hands of a stranger can keep libxml2 busy for hours: every `//` inside a predicate multiplies the work
by the size of the document. So an expression is read here first, and what cannot be bounded is refused: axes that
reach sideways or upwards without end, functions that search at length, variables, prefixes. What is left has a degree:
evaluating it takes time that grows no faster than (nodes of the document) to that power.

    degree = one for the way through the document, one more for each further `//` or `..` on that way and for `|`
           + one for each `//`, `..`, `|` or absolute path inside its predicates, along the deepest nesting

Operands of `and`, `or`, `+` and the like, and arguments of functions, are ways of their own: the dearest counts.

A name without a prefix matches an element of that name in any namespace: `//alert` becomes
`//*[local-name()='alert']`. `namespace-uri()` tells namespaces apart where that matters.
"""

import re
from dataclasses import dataclass

from headrace.errors import SelectionError

TEXT_MAX, LITERAL_MAX, NESTING_MAX, DEGREE_MAX = 1024, 128, 16, 3
AXES = ("attribute", "child", "descendant", "descendant-or-self", "parent", "self")
FUNCTIONS = frozenset(
    [
        "boolean", "ceiling", "concat", "contains", "count", "false", "floor", "lang", "last", "local-name", "name",
        "namespace-uri", "normalize-space", "not", "number", "position", "round", "starts-with", "string",
        "string-length", "substring", "substring-after", "substring-before", "sum", "true",
    ]
)  # fmt: skip
_NODE_TYPES = frozenset(["comment", "node", "processing-instruction", "text"])
_OPERATORS = frozenset(["and", "div", "mod", "or"])
_OPERANDS = frozenset(["literal", "number", "name", "operand"])  # what may stand before an operator
_PARTING = frozenset("+-*,")  # behind them another way begins
_SIGN = re.compile(
    r"""\s+ | (?P<literal>"[^"]*"|'[^']*') | (?P<number>\d+(?:\.\d*)?|\.\d+) | (?P<variable>\$)
    | (?P<axis>[A-Za-z-]+)\s*:: | (?P<prefixed>[^\W\d][\w.-]*:(?:\*|[^\W\d][\w.-]*))
    | (?P<name>[^\W\d][\w.-]*) | (?P<sign>//|\.\.|!=|<=|>=|[/()\[\].@,|+=<>*-])""",
    re.X,
)


@dataclass(frozen=True, slots=True)
class Path:
    """An expression that may be evaluated: as it was written, as libxml2 gets it, and what it can cost."""

    text: str
    rewritten: str
    degree: int


def parse_path(text: str) -> Path:
    """Read an expression; SelectionError has the column of what cannot be offered."""
    if not isinstance(text, str) or not text.strip():
        raise SelectionError(f"xpath {text!r} is not an expression", "write one such as //alert[@severity='3']")
    text = text.strip()
    if len(text) > TEXT_MAX:
        raise SelectionError(f"the XPath has {len(text)} characters, more than {TEXT_MAX}", "shorten it")
    reader = _Reader(text)
    rewritten = "".join(reader.pieces())
    if reader.degree > DEGREE_MAX:
        problem = f"the XPath walks through the document {reader.degree} times over"
        raise SelectionError.at(problem, f"use at most {DEGREE_MAX} of // .. | within each other", text, reader.dearest)
    return Path(text, rewritten, max(1, reader.degree))


class _Reader:
    """Goes through an expression sign by sign; `degree` is known when it is done."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.degree, self.dearest = 1, 0
        self._levels = [0]  # walks at each level of predicates
        self._brackets: list[str] = []
        self._before = ""  # what stands before: nothing, an operand, "::" within a step, or another sign
        self._after_at = False

    def pieces(self) -> list[str]:
        pieces, place = [], 0
        while place < len(self.text):
            found = _SIGN.match(self.text, place)
            if found is None:
                raise self._mistake(f"{self.text[place]!r} cannot stand here", place, "see XPath 1.0")
            if found.lastgroup is None:
                pieces.append(" ")
            else:
                pieces.append(self._piece(found.lastgroup, found, place))
            place = found.end()
        if self._brackets:
            raise self._mistake(f"{self._brackets[-1]!r} is not closed", len(self.text), "close it")
        return pieces

    def _piece(self, kind: str, found: re.Match[str], place: int) -> str:
        text = found[0]
        if kind == "variable":
            raise self._mistake("there are no variables", place, "write the value itself")
        if kind == "prefixed":
            name = text.partition(":")[2]
            raise self._mistake(
                f"prefixes such as {text!r} are not known", place,
                f"write {name}, which matches in any namespace; [namespace-uri()='…'] demands one",
            )  # fmt: skip
        if kind == "literal" and len(text) - 2 > LITERAL_MAX:
            raise self._mistake(f"a text has more than {LITERAL_MAX} characters", place, "shorten it")
        if kind == "axis":
            return self._axis(found["axis"], place)
        if kind == "name":
            return self._name(text, found.end(), place)
        if kind == "sign":
            self._sign(text, place)
            return text
        self._before = kind
        return text

    def _axis(self, axis: str, place: int) -> str:
        if axis not in AXES:
            raise self._mistake(f"the axis {axis!r} is not offered", place, f"there are {', '.join(AXES)}")
        if axis in ("descendant", "descendant-or-self", "parent"):
            self._walk(place)
        self._after_at = axis == "attribute"
        self._before = "::"
        return f"{axis}::"

    def _name(self, name: str, end: int, place: int) -> str:
        """An operator, a function, or the name of elements or attributes."""
        operand_before = self._before in _OPERANDS
        self._before, after_at, self._after_at = "name", self._after_at, False
        if operand_before and name in _OPERATORS:
            self._before = "sign"
            self._levels[-1] = 0
            return f" {name} "
        if self.text[end:].lstrip().startswith("("):
            if name not in FUNCTIONS and name not in _NODE_TYPES:
                known = ", ".join(sorted(FUNCTIONS))
                raise self._mistake(f"the function {name}() is not offered", place, f"there are {known}")
            return name
        return name if after_at else f"*[local-name()='{name}']"

    def _sign(self, sign: str, place: int) -> None:
        begins = self._before not in _OPERANDS  # nothing stands before it that it could belong to
        if sign in "([":
            self._open(sign, place)
        elif sign in ")]":
            self._close(sign, place)
        elif sign in ("//", "..") or (sign == "/" and self._before in ("", "sign") and len(self._levels) > 1):
            self._walk(place)
        elif sign == "|":
            self._levels[-1] = 0
            self._walk(place)
        elif sign in _PARTING and not begins:
            self._levels[-1] = 0
        self._after_at = sign == "@"
        if sign in (")", "]", ".", "..") or (sign == "*" and begins):
            self._before = "operand"
        else:
            self._before = "::" if sign in ("/", "//", "@") else "sign"

    def _open(self, sign: str, place: int) -> None:
        self._brackets.append(sign)
        if len(self._brackets) > NESTING_MAX:
            raise self._mistake("the XPath nests too deeply", place, "take out brackets")
        if sign == "[":
            self._levels.append(0)

    def _close(self, sign: str, place: int) -> None:
        if not self._brackets or self._brackets.pop() != {")": "(", "]": "["}[sign]:
            raise self._mistake(f"{sign!r} closes nothing", place, "take it out")
        if sign == "]":
            self._levels.pop()

    def _walk(self, place: int) -> None:
        self._levels[-1] += 1
        degree = max(1, self._levels[0]) + sum(self._levels[1:])
        if degree > self.degree:
            self.degree, self.dearest = degree, place

    def _mistake(self, problem: str, place: int, hint: str) -> SelectionError:
        return SelectionError.at(problem, hint, self.text, place)

"""XPath: whether a payload is XML in which an expression finds something.

    XPath("//alert[@severity='3']").test(payload)

The result counts as XPath's own `boolean()` defines it: a node set is true if it is not empty, a number if it is
neither 0 nor NaN, a text if it is not empty. A payload is not selected if it is not well-formed XML, if it exceeds a
limit of size, depth or nodes, or if it declares entities, so that nothing can expand. No file and no address is ever
opened: external entities and DTDs are not loaded.

Documents are parsed by libxml2, which has limits of its own.

XPath 1.0 from a stranger can keep libxml2 busy for hours: every `//` inside a predicate multiplies the work by the size
of the document. So an expression is parsed here first, and constructs of unbounded cost are refused: axes that reach
sideways or upwards without end, functions that search at length, variables, prefixes. What is left has a degree:
evaluating it takes time that grows no faster than (nodes of the document) to that power, and a document is refused if
nodes ** degree exceeds `STEPS_MAX`.

    degree = one for the path through the document, one more for each further `//` or `..` on that path and for `|`
           + one for each `//`, `..`, `|` or absolute path inside its predicates, along the deepest nesting

Operands of `and`, `or`, `+` and the like, and arguments of functions, are paths of their own: the costliest counts.

A name without a prefix matches an element of that name in any namespace: `//alert` becomes
`//*[local-name()='alert']`. `namespace-uri()` distinguishes namespaces where that matters.
"""

import re
from dataclasses import dataclass
from typing import Any

from lxml import etree

from headrace.errors import SelectionError

DOCUMENT_BYTES_MAX = 256 << 10
DEPTH_MAX = 32
NODES_MAX = 50_000
STEPS_MAX = 1_000_000  # for expressions of degree two and three; one walk is bounded by NODES_MAX

_BLANK = b" \t\r\n"
_OPENINGS = (b"<", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")  # byte order marks announce XML too
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TOO_DEEP = etree.XPath("boolean(" + "/*" * (DEPTH_MAX + 1) + ")")
_COUNT = etree.XPath("count(//node()) + count(//@*)")


class XPath:
    """An expression, ready to test payloads; equal to another one with the same text."""

    def __init__(self, text: str) -> None:
        path = parse_path(text)
        self.text = path.text
        self.degree = path.degree
        odd = _NOT_XML.search(path.text)
        if odd is not None:
            problem = f"character {odd[0]!r} occurs in no XML document"
            raise SelectionError.at(problem, "leave it out", path.text, odd.start())
        try:
            self._find = etree.XPath(path.rewritten, smart_strings=False, regexp=False)
        except etree.XPathSyntaxError:
            problem = "this is not an XPath 1.0 expression"
            raise SelectionError.at(
                problem, "compare with //alert[@severity='3']", path.text, _first_fault(path.text)
            ) from None

    def test(self, payload: Any) -> bool:
        """Whether the expression is true for a payload; False for a payload that is not XML within the limits."""
        return self.refusal(payload) is None

    def refusal(self, payload: Any) -> str | None:
        """Why the payload is not selected; None if it is."""
        if len(payload) > DOCUMENT_BYTES_MAX:
            return f"the payload has more than {DOCUMENT_BYTES_MAX} bytes"
        if not bytes(payload[:64]).lstrip(_BLANK).startswith(_OPENINGS):
            return "the payload is not XML"
        try:
            root = etree.fromstring(bytes(payload), _parser())
            return self._refusal_of(root)
        except (etree.LxmlError, ValueError, MemoryError) as error:
            return f"the payload is not valid XML: {str(error)[:200]}"

    def _refusal_of(self, root: Any) -> str | None:
        if any(_entities(root)):
            return "the payload declares entities"
        if _TOO_DEEP(root):
            return f"the payload nests more than {DEPTH_MAX} elements"
        nodes = int(_COUNT(root))
        if nodes > NODES_MAX:
            return f"the payload has more than {NODES_MAX} nodes"
        if self.degree > 1 and nodes**self.degree > STEPS_MAX:
            return f"{nodes} nodes are too many for an expression that walks through them {self.degree} times"
        found = self._find(root)
        return None if found and found == found else "the expression finds nothing"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, XPath) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"XPath({self.text!r})"


def _parser() -> etree.XMLParser:
    """A new one each time: parsers belong to one thread."""
    return etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, attribute_defaults=False,
        huge_tree=False, recover=False, remove_pis=True, remove_comments=True,
    )  # fmt: skip


def _entities(root: Any) -> Any:
    dtd = root.getroottree().docinfo.internalDTD
    return () if dtd is None else dtd.iterentities()


def _first_fault(text: str) -> int:
    """Where libxml2 stops parsing: after the longest prefix that is an expression."""
    for end in range(len(text), 0, -1):
        try:
            etree.XPath(parse_path(text[:end]).rewritten)
        except (SelectionError, etree.XPathSyntaxError):
            continue
        return end
    return 0


# --- expressions ----------------------------------------------------------------------------------

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
_OPERANDS = frozenset(["literal", "number", "name", "operand"])  # what may precede an operator
_PARTING = frozenset("+-*,")  # another path begins after them
_SIGN = re.compile(
    r"""\s+ | (?P<literal>"[^"]*"|'[^']*') | (?P<number>\d+(?:\.\d*)?|\.\d+) | (?P<variable>\$)
    | (?P<axis>[A-Za-z-]+)\s*:: | (?P<prefixed>[^\W\d][\w.-]*:(?:\*|[^\W\d][\w.-]*))
    | (?P<name>[^\W\d][\w.-]*) | (?P<sign>//|\.\.|!=|<=|>=|[/()\[\].@,|+=<>*-])""",
    re.X,
)


@dataclass(frozen=True, slots=True)
class Path:
    """An expression that may be evaluated: as written, as libxml2 gets it, and what it can cost."""

    text: str
    rewritten: str
    degree: int


def parse_path(text: str) -> Path:
    """Parse an expression; SelectionError has the column of what is not supported."""
    if not isinstance(text, str) or not text.strip():
        raise SelectionError(f"xpath {text!r} is not an expression", "write one such as //alert[@severity='3']")
    text = text.strip()
    if len(text) > TEXT_MAX:
        raise SelectionError(f"the XPath has {len(text)} characters, more than {TEXT_MAX}", "shorten it")
    reader = _Reader(text)
    rewritten = "".join(reader.pieces())
    if reader.degree > DEGREE_MAX:
        problem = f"the XPath walks through the document {reader.degree} times"
        raise SelectionError.at(problem, f"nest at most {DEGREE_MAX} of // .. |", text, reader.costliest)
    return Path(text, rewritten, max(1, reader.degree))


class _Reader:
    """Goes through an expression token by token; `degree` is known at the end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.degree, self.costliest = 1, 0
        self._levels = [0]  # walks at each level of predicates
        self._brackets: list[str] = []
        self._before = ""  # the token before: none, an operand, "::" within a step, or another sign
        self._after_at = False

    def pieces(self) -> list[str]:
        pieces, place = [], 0
        while place < len(self.text):
            found = _SIGN.match(self.text, place)
            if found is None:
                raise self._error(f"{self.text[place]!r} is not allowed here", place, "see XPath 1.0")
            if found.lastgroup is None:
                pieces.append(" ")
            else:
                pieces.append(self._piece(found.lastgroup, found, place))
            place = found.end()
        if self._brackets:
            raise self._error(f"{self._brackets[-1]!r} is not closed", len(self.text), "close it")
        return pieces

    def _piece(self, kind: str, found: re.Match[str], place: int) -> str:
        text = found[0]
        if kind == "variable":
            raise self._error("variables are not supported", place, "write the value itself")
        if kind == "prefixed":
            name = text.partition(":")[2]
            raise self._error(
                f"prefixes such as {text!r} are not supported", place,
                f"write {name}, which matches in any namespace; [namespace-uri()='…'] requires one",
            )  # fmt: skip
        if kind == "literal" and len(text) - 2 > LITERAL_MAX:
            raise self._error(f"a text has more than {LITERAL_MAX} characters", place, "shorten it")
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
            raise self._error(f"the axis {axis!r} is not supported", place, f"there are {', '.join(AXES)}")
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
                raise self._error(f"the function {name}() is not supported", place, f"there are {known}")
            return name
        return name if after_at else f"*[local-name()='{name}']"

    def _sign(self, sign: str, place: int) -> None:
        begins = self._before not in _OPERANDS  # there is no operand before it
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
            raise self._error("the XPath nests too deeply", place, "remove brackets")
        if sign == "[":
            self._levels.append(0)

    def _close(self, sign: str, place: int) -> None:
        if not self._brackets or self._brackets.pop() != {")": "(", "]": "["}[sign]:
            raise self._error(f"{sign!r} has no matching bracket", place, "remove it")
        if sign == "]":
            self._levels.pop()

    def _walk(self, place: int) -> None:
        self._levels[-1] += 1
        degree = max(1, self._levels[0]) + sum(self._levels[1:])
        if degree > self.degree:
            self.degree, self.costliest = degree, place

    def _error(self, problem: str, place: int, hint: str) -> SelectionError:
        return SelectionError.at(problem, hint, self.text, place)

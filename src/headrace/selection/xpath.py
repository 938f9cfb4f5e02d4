"""XPath: whether a payload is XML in which an expression finds something.

    XPath("//alert[@severity='3']").test(payload)

The result counts as XPath's own `boolean()` has it: a set of nodes if it is not empty, a number if it is neither 0 nor
NaN, a text if it is not empty. A payload that is not well-formed XML, or larger, deeper or fuller than the limits, is
not wanted; neither is one that declares entities, so that nothing can expand. No file and no address is ever opened:
external entities and DTDs are not loaded.

Documents are parsed by libxml2, which has limits of its own. The time of an evaluation is bounded by the degree of the
expression (path.py): a document is refused if (its nodes) ** degree exceeds `STEPS_MAX`.
"""

from typing import Any

from lxml import etree

from headrace.errors import SelectionError
from headrace.selection.path import parse_path

DOCUMENT_BYTES_MAX = 256 << 10
DEPTH_MAX = 32
NODES_MAX = 50_000
STEPS_MAX = 1_000_000  # for expressions of degree two and three; one walk is bounded by NODES_MAX

_BLANK = b" \t\r\n"
_OPENINGS = (b"<", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")  # byte order marks announce XML too
_TOO_DEEP = etree.XPath("boolean(" + "/*" * (DEPTH_MAX + 1) + ")")
_COUNT = etree.XPath("count(//node()) + count(//@*)")


class XPath:
    """An expression, ready to be tried on payloads; equal to another one with the same text."""

    def __init__(self, text: str) -> None:
        path = parse_path(text)
        self.text = path.text
        self.degree = path.degree
        try:
            self._find = etree.XPath(path.rewritten, smart_strings=False, regexp=False)
        except etree.XPathSyntaxError:
            problem = "this is no XPath 1.0 expression"
            raise SelectionError.at(
                problem, "compare with //alert[@severity='3']", path.text, _first_fault(path.text)
            ) from None

    def test(self, payload: Any) -> bool:
        """Whether the expression is true of a payload; False for whatever is no XML within the limits."""
        return self.refusal(payload) is None

    def refusal(self, payload: Any) -> str | None:
        """None if the payload is wanted, or why it is not."""
        if len(payload) > DOCUMENT_BYTES_MAX:
            return f"the payload has more than {DOCUMENT_BYTES_MAX} bytes"
        if not bytes(payload[:64]).lstrip(_BLANK).startswith(_OPENINGS):
            return "the payload is not XML"
        try:
            root = etree.fromstring(bytes(payload), _parser())
            return self._refusal_of(root)
        except (etree.LxmlError, ValueError, MemoryError) as error:
            return f"the payload is not XML that can be read: {str(error)[:200]}"

    def _refusal_of(self, root: Any) -> str | None:
        if any(_entities(root)):
            return "the payload declares entities"
        if _TOO_DEEP(root):
            return f"the payload nests more than {DEPTH_MAX} elements"
        nodes = int(_COUNT(root))
        if nodes > NODES_MAX:
            return f"the payload has more than {NODES_MAX} nodes"
        if self.degree > 1 and nodes**self.degree > STEPS_MAX:
            return f"{nodes} nodes are too many for an expression that walks through them {self.degree} times over"
        found = self._find(root)
        return None if found and found == found else "it finds nothing"

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
    """Where libxml2 stops understanding: behind the longest beginning that is an expression."""
    for end in range(len(text), 0, -1):
        try:
            etree.XPath(parse_path(text[:end]).rewritten)
        except (SelectionError, etree.XPathSyntaxError):
            continue
        return end
    return 0

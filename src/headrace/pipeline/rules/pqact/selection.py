"""What an entry selects: feed types of the LDM as feed patterns, and POSIX patterns as RE2.

The LDM has 32 feed types, names for sets of them, and expressions: `IDS|DDPLUS`, `ANY-NEXRAD2`, `~WMO`. `FEEDS` maps
each single type to a feed; a caller may change the mapping. A set becomes the fewest feed patterns that select exactly
its feeds among the mapped ones: PPS, DDS and IDS together are `wx/text/**`.

pqact's patterns are POSIX extended regular expressions. They differ from RE2: a backslash within brackets is a literal
character, and `\\<` and `\\>` are word boundaries. Escapes that RE2 would understand differently, such as `\\d`, are
refused. Both engines search anywhere. If several matches are possible, POSIX takes the longest and RE2 the first:
groups of alternatives with a common beginning may differ.
"""

import re
from collections.abc import Iterable, Mapping

from headrace.errors import RuleError, SelectionError
from headrace.product.feed import FeedPattern
from headrace.selection.clauses import check_regex

FEEDS: Mapping[str, str] = {
    "PPS": "wx/text/ddplus/pps", "DDS": "wx/text/ddplus/dds", "IDS": "wx/text/ids", "HDS": "wx/model/hds",
    "SPARE": "wx/spare", "UNIWISC": "wx/satellite/uniwisc", "PCWS": "wx/fsl/pcws", "FSL2": "wx/fsl/fsl2",
    "FSL3": "wx/fsl/fsl3", "FSL4": "wx/fsl/fsl4", "FSL5": "wx/fsl/fsl5", "GPSSRC": "wx/nmc/gpssrc",
    "CONDUIT": "wx/nmc/conduit", "FNEXRAD": "wx/nmc/fnexrad", "LIGHTNING": "wx/lightning", "WSI": "wx/wsi",
    "DIFAX": "wx/difax", "FAA604": "wx/faa604", "GPS": "wx/gps", "FNMOC": "wx/model/fnmoc", "GEM": "wx/model/gem",
    "NIMAGE": "wx/noaaport/image", "NTEXT": "wx/noaaport/text", "NGRID": "wx/noaaport/grid",
    "NPOINT": "wx/noaaport/point", "NGRAPH": "wx/noaaport/graph", "NOTHER": "wx/noaaport/other",
    "NEXRAD3": "wx/radar/nexrad3", "NEXRAD2": "wx/radar/nexrad2", "NXRDSRC": "wx/radar/nxrdsrc", "EXP": "wx/exp",
}  # fmt: skip
SETS: Mapping[str, tuple[str, ...]] = {
    "NONE": (), "DDPLUS": ("PPS", "DDS"), "WMO": ("PPS", "DDS", "HDS", "IDS"),
    "UNIDATA": ("PPS", "DDS", "HDS", "IDS", "UNIWISC"), "FSL": ("PCWS", "FSL2", "FSL3", "FSL4", "FSL5"),
    "NMC": ("GPSSRC", "CONDUIT", "FNEXRAD"), "NPORT": ("NIMAGE", "NTEXT", "NGRID", "NPOINT", "NGRAPH", "NOTHER"),
    "ANY": tuple(FEEDS),
}  # fmt: skip
ALIASES: Mapping[str, str] = {
    "DOMESTIC": "DDS", "HRS": "HDS", "INTNL": "IDS", "NPS": "SPARE", "MCIDAS": "UNIWISC", "ACARS": "PCWS",
    "PROFILER": "FSL2", "PROFS": "FSL", "AFOS": "GPSSRC", "NMC1": "GPSSRC", "NMC2": "CONDUIT", "NCEPH": "CONDUIT",
    "NMC3": "FNEXRAD", "NLDN": "LIGHTNING", "FAA": "FAA604", "604": "FAA604", "NOGAPS": "FNMOC", "SEISMIC": "FNMOC",
    "CMC": "GEM", "IMAGE": "NIMAGE", "TEXT": "NTEXT", "GRID": "NGRID", "POINT": "NPOINT", "NBUFR": "NPOINT",
    "BUFR": "NPOINT", "GRAPH": "NGRAPH", "OTHER": "NOTHER", "NNEXRAD": "NEXRAD3", "NEXRAD": "NEXRAD3",
    "NEXRD2": "NEXRAD2", "CRAFT": "NEXRAD2", **{f"FT{number}": name for number, name in enumerate(FEEDS)},
}  # fmt: skip
_TOKEN = re.compile(r"\s*([A-Za-z0-9]+|[|+\-~()&])")


def types_in(expression: str, feeds: Mapping[str, str]) -> frozenset[str]:
    """The single feed types of an expression. RuleError: it is invalid."""
    return _Expression(expression, feeds).read()


def patterns_of(types: Iterable[str], feeds: Mapping[str, str]) -> list[str]:
    """The fewest feed patterns that match the feeds of these types, and no other mapped feeds."""
    wanted = {feeds[name] for name in types}
    others = set(feeds.values()) - wanted
    if not others:
        return ["**"]
    patterns: list[str] = []
    for feed in sorted(wanted):
        if any(FeedPattern(pattern).matches(feed) for pattern in patterns):
            continue
        patterns.append(_widest(feed, wanted, others))
    return patterns


def _widest(feed: str, wanted: set[str], others: set[str]) -> str:
    """The widest pattern for a feed that also matches others of `wanted`, and none of `others`."""
    levels = feed.split("/")
    for length in range(1, len(levels)):
        pattern = "/".join([*levels[:length], "**"])
        matches = FeedPattern(pattern).matches
        if sum(map(matches, wanted)) > 1 and not any(map(matches, others)):
            return pattern
    return feed


class _Expression:
    """`|` and `+` are union, `-` is difference, `&` is intersection, `~` is complement; parentheses group."""

    def __init__(self, text: str, feeds: Mapping[str, str]) -> None:
        self._text, self._feeds = text, feeds
        self._tokens = _TOKEN.findall(text)
        self._all = frozenset(feeds)
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
            return str(self._tokens[self._place - 1])
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
            return self._all - self._primary()
        if self._next("("):
            found = self._union()
            if not self._next(")"):
                raise self._wrong("lacks a closing parenthesis")
            return found
        if self._place == len(self._tokens) or not self._tokens[self._place].isalnum():
            raise self._wrong("ends too early")
        self._place += 1
        return self._named(self._tokens[self._place - 1])

    def _named(self, name: str) -> frozenset[str]:
        name = name.upper()
        if name in self._feeds:
            return frozenset([name])
        name = ALIASES.get(name, name)
        if name == "ANY":
            return self._all
        members = SETS.get(name, (name,))
        if not all(member in self._feeds for member in members):
            raise RuleError(f"the feed type {name} is unknown", f"map it: {{{name!r}: 'wx/…'}}")
        return frozenset(members)

    def _wrong(self, what: str) -> RuleError:
        return RuleError(f"the feed type {self._text!r} {what}", "write NAME|NAME")


# --- patterns ---------------------------------------------------------------------------------------


ELSE = "_ELSE_"
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


def may_have_slash(group: str) -> bool:
    """Whether a group can match a `/`, judged by its text."""
    plain = re.sub(r"\\\.", "", group)
    return "." in plain or "/" in plain or "[^" in plain or "[:" in plain or r"\S" in plain or r"\W" in plain

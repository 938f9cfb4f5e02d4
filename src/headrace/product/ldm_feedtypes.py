"""LDM's feed types, and the feeds that correspond to them.

LDM has one bit for each feed type, names for unions of them, and older names. This is the only table of them: the
import of a pqact.conf selects by it, the generator names its feeds by it, and metadata for LDM's decoders and a
gateway to LDM translate by it.

    NEXRAD2   bit 28   wx/radar/nexrad2, and everything below it: wx/radar/nexrad2/KFTG
    WMO       bits 0 to 3, a union: PPS, DDS, HDS and IDS

A type has one feed or more; each stands for itself and everything below it. Products that come from an LDM belong below
the first one. A feed may have several types, where products of them are not kept apart here: `wx/text/metar` has
national (DDS) and international (IDS) bulletins. `feedtype_of` takes the type with the lowest bit then.

Not here: expressions such as `ANY-NEXRAD2` (ldm_expression.py).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from headrace.product.feed import FeedPattern

Feeds = Mapping[str, tuple[str, ...]]  # by the name of a feed type


@dataclass(frozen=True, slots=True)
class FeedType:
    """One bit."""

    name: str
    number: int  # of the bit, from 0
    feeds: tuple[str, ...]
    aliases: tuple[str, ...] = ()

    @property
    def bit(self) -> int:
        return 1 << self.number


_METAR, _BULLETIN, _BUFR = "wx/text/metar", "wx/text/bulletin", "wx/obs/bufr"
_TYPES = (
    FeedType("PPS", 0, ("wx/text/ddplus/pps",)),
    FeedType("DDS", 1, ("wx/text/ddplus/dds", _METAR, _BULLETIN), ("DOMESTIC",)),
    FeedType("HDS", 2, ("wx/model/hds", _BUFR), ("HRS",)),
    FeedType("IDS", 3, ("wx/text/ids", _METAR, _BULLETIN), ("INTNL",)),
    FeedType("SPARE", 4, ("wx/spare",), ("NPS",)),
    FeedType("UNIWISC", 5, ("wx/satellite/uniwisc",), ("MCIDAS",)),
    FeedType("PCWS", 6, ("wx/fsl/pcws",), ("ACARS", "FSL1")),
    FeedType("FSL2", 7, ("wx/fsl/fsl2",), ("PROFILER",)),
    FeedType("FSL3", 8, ("wx/fsl/fsl3",)),
    FeedType("FSL4", 9, ("wx/fsl/fsl4",)),
    FeedType("FSL5", 10, ("wx/fsl/fsl5",)),
    FeedType("GPSSRC", 11, ("wx/nmc/gpssrc",), ("AFOS", "NMC1")),
    FeedType("CONDUIT", 12, ("wx/grid/conduit",), ("NCEPH", "NMC2")),
    FeedType("FNEXRAD", 13, ("wx/radar/fnexrad",), ("NMC3",)),
    FeedType("LIGHTNING", 14, ("wx/lightning",), ("NLDN",)),
    FeedType("WSI", 15, ("wx/wsi",)),
    FeedType("DIFAX", 16, ("wx/difax",)),
    FeedType("FAA604", 17, ("wx/faa604",), ("FAA", "604")),
    FeedType("GPS", 18, ("wx/gps",)),
    FeedType("FNMOC", 19, ("wx/model/fnmoc",), ("NOGAPS", "SEISMIC")),
    FeedType("GEM", 20, ("wx/model/gem",), ("CMC",)),
    FeedType("NIMAGE", 21, ("wx/satellite/nimage", "wx/satellite/goes16"), ("IMAGE",)),
    FeedType("NTEXT", 22, ("wx/noaaport/text",), ("TEXT",)),
    FeedType("NGRID", 23, ("wx/grid/ngrid",), ("GRID",)),
    FeedType("NPOINT", 24, ("wx/noaaport/point", _BUFR), ("POINT", "NBUFR", "BUFR")),
    FeedType("NGRAPH", 25, ("wx/noaaport/graph",), ("GRAPH",)),
    FeedType("NOTHER", 26, ("wx/noaaport/other",), ("OTHER",)),
    FeedType("NEXRAD3", 27, ("wx/radar/nexrad3",), ("NNEXRAD", "NEXRAD")),
    FeedType("NEXRAD2", 28, ("wx/radar/nexrad2",), ("NEXRD2", "CRAFT")),
    FeedType("NXRDSRC", 29, ("wx/radar/nxrdsrc",)),
    FeedType("EXP", 30, ("wx/exp",)),
)

FEEDTYPES: Mapping[str, FeedType] = MappingProxyType({each.name: each for each in _TYPES})
FEEDS: Feeds = MappingProxyType({each.name: each.feeds for each in _TYPES})
NONE, ANY = 0, 0xFFFFFFFF
UNIONS: Mapping[str, int] = MappingProxyType({
    "NONE": NONE, "DDPLUS": 0x3, "WMO": 0xF, "UNIDATA": 0x2F, "FSL": 0x7C0, "PROFS": 0x7C0, "NMC": 0x3800,
    "NPORT": 0x7E00000, "ANY": ANY,
})  # fmt: skip
ALIASES: Mapping[str, str] = MappingProxyType(
    {alias: each.name for each in _TYPES for alias in (*each.aliases, f"FT{each.number}")}
)


def names_in(mask: int) -> frozenset[str]:
    """The names of the types whose bits are set; bit 31 has no name."""
    return frozenset(each.name for each in _TYPES if each.bit & mask)


def feedtype_of(feed: str) -> FeedType:
    """The type of the products of a feed; EXP, experimental, if no type has the feed."""
    for each in _TYPES:
        if any(feed == root or feed.startswith(f"{root}/") for root in each.feeds):
            return each
    return FEEDTYPES["EXP"]


def pattern_of(types: Iterable[str], feeds: Feeds = FEEDS) -> str:
    """The feed pattern of some types: it matches their feeds, and no feeds of other types in `feeds`.

    It is as short as that allows: PPS, DDS and IDS together are `wx/text/**`, and all types are `**`.
    """
    wanted = frozenset(feed for name in types for feed in feeds[name])
    return _pattern_of(wanted, frozenset(feed for roots in feeds.values() for feed in roots) - wanted)


def ldm_pattern(text: str) -> str | None:
    """The feed pattern that was probably meant, if a pattern consists of names of feed types: `IDS|DDPLUS`.

    None if it does not. Names in lower case are taken for feeds, and so is `604`.
    """
    mask, names = 0, text.split("|")
    for name in names:
        kind = FEEDTYPES.get(ALIASES.get(name, name))
        if name.isdigit() or (kind is None and not UNIONS.get(name)):
            return None
        mask |= kind.bit if kind is not None else UNIONS[name]
    return pattern_of(names_in(mask))


def ldm_warning(feed: str | None) -> str | None:
    """What to say about the feed pattern of a selection that consists of names of feed types; None if it does not."""
    meant = ldm_pattern(feed or "")
    return meant and f"{feed} is a feed type of LDM; here it selects only feeds of that very name, not {meant}"


@lru_cache(256)  # a pqact.conf has thousands of entries with a handful of expressions
def _pattern_of(wanted: frozenset[str], others: frozenset[str]) -> str:
    if not others:
        return "**"
    patterns: list[str] = []
    for feed in sorted(wanted):
        if not any(FeedPattern(pattern).matches(feed) for pattern in patterns):
            patterns.append(_widest(feed, wanted, others))
    return "|".join(patterns)


def _widest(feed: str, wanted: frozenset[str], others: frozenset[str]) -> str:
    """The widest subtree with a feed that has other ones of `wanted`, too, and none of `others`."""
    levels = feed.split("/")
    for length in range(1, len(levels)):
        pattern = "/".join([*levels[:length], "**"])
        matches = FeedPattern(pattern).matches
        if sum(map(matches, wanted)) > 1 and not any(map(matches, others)):
            return pattern
    return f"{feed}/**"

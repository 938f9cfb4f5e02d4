"""Election: from the samples of several servers to one offset and one interval (RFC 5905, section 11.2).

    selection      the intervals of truechimers have a point in common; a server whose interval does not reach it lies
    clustering     of the truechimers, those that are far from the others are set aside, down to three
    combination    the average of the rest, weighted by the inverse of their distances

The interval that is stated is not the intersection of all: a server that lies by little reaches the intersection and
narrows it away from the truth. With m servers, `(m - 1) // 2` of them may lie, so the truth is somewhere where at least
`m - (m - 1) // 2` intervals overlap, and the interval spans all such places. It holds the truth as long as fewer than
half of the servers lie, however they lie. Unlike RFC 5905, no middle of an interval has to be in the intersection: an
honest server behind a link that is slow in one direction has its middle elsewhere.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal

from headrace.timing.clock.samples import Sample

KEPT_MIN = 3  # clustering leaves so many
Verdict = Literal["truechimer", "outlier", "falseticker", "undecided"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One server, with its best sample at this moment."""

    name: Hashable
    sample: Sample
    jitter_ns: int
    stratum: int


@dataclass(frozen=True, slots=True)
class Elected:
    """What the servers say together, if a majority agrees."""

    verdicts: Mapping[Hashable, Verdict]
    offset_ns: int
    low_ns: int
    high_ns: int
    agreeing: int  # truechimers and outliers


def elect(candidates: Sequence[Candidate]) -> Elected | None:
    """None if there are none, or if no majority agrees."""
    if not candidates:
        return None
    count = len(candidates)
    liars_max = (count - 1) // 2
    span = overlap(candidates, count - liars_max)
    if span is None:
        return None
    narrowest = next(
        found for liars in range(liars_max + 1) if (found := overlap(candidates, count - liars)) is not None
    )
    honest = [each for each in candidates if each.sample.low_ns <= narrowest[1] and each.sample.high_ns >= narrowest[0]]
    kept = cluster(honest)
    verdicts: dict[Hashable, Verdict] = dict.fromkeys((each.name for each in candidates), "falseticker")
    verdicts.update(dict.fromkeys((each.name for each in honest), "outlier"))
    verdicts.update(dict.fromkeys((each.name for each in kept), "truechimer"))
    offset_ns = min(max(combine(kept), span[0]), span[1])
    return Elected(verdicts, offset_ns, *span, len(honest))


def overlap(candidates: Sequence[Candidate], needed: int) -> tuple[int, int] | None:
    """The lowest and the highest place that lie in at least `needed` intervals."""
    edges = sorted(
        [(each.sample.low_ns, 0) for each in candidates] + [(each.sample.high_ns, 1) for each in candidates]
    )  # at one place, intervals begin before others end
    inside, low, high = 0, None, None
    for place, ends in edges:
        if not ends:
            inside += 1
            if inside == needed and low is None:
                low = place
        else:
            if inside == needed:
                high = place
            inside -= 1
    return None if low is None or high is None else (low, high)


def cluster(honest: Sequence[Candidate]) -> list[Candidate]:
    """Without those that are further from the others than the servers themselves jitter."""
    kept = sorted(honest, key=lambda each: (each.stratum, each.sample.distance_ns))
    while len(kept) > KEPT_MIN:
        spreads = [_spread(each, kept) for each in kept]
        worst = max(range(len(kept)), key=spreads.__getitem__)
        if spreads[worst] <= min(each.jitter_ns for each in kept):
            break
        del kept[worst]
    return kept


def combine(kept: Sequence[Candidate]) -> int:
    """The weighted average of the offsets."""
    first = kept[0].sample.offset_ns  # offsets are large numbers with small differences
    weights = [1.0 / max(1, each.sample.distance_ns) for each in kept]
    sums = sum(weight * (each.sample.offset_ns - first) for weight, each in zip(weights, kept, strict=True))
    return first + round(sums / sum(weights))


def _spread(one: Candidate, others: Sequence[Candidate]) -> float:
    squares = sum((each.sample.offset_ns - one.sample.offset_ns) ** 2 for each in others)
    return sqrt(squares / (len(others) - 1))

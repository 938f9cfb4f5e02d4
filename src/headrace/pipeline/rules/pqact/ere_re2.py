r"""A POSIX pattern written for RE2, and what its tree says about its groups.

`\<` and `\>`, which RE2 does not have, become `\b` if the character after or before them is always one of a word.

Both engines find the same idents. If several matches begin at one place, POSIX takes the longest and RE2 the first.
This is the same for most patterns; `prefers_the_first` finds alternatives for which it may not be.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.errors import RuleError
from headrace.pipeline.rules.pqact.ere import WORD, Anchor, Choice, Group, Node, One, Repeat, Sequence, Signs

# --- writing --------------------------------------------------------------------------------------


def written(node: Node) -> str:
    """The pattern for RE2. RuleError: RE2 has no such pattern."""
    match node:
        case One(text):
            return text
        case Anchor(text):
            if text in (r"\<", r"\>"):
                raise _no_edge(text)
            return text
        case Group(inner):
            return f"({written(inner)})"
        case Repeat(part, low, high):
            text = written(part)
            return (f"(?:{text})" if isinstance(part, Repeat) else text) + _bounds(low, high)
        case Sequence(parts):
            return "".join(_beside(parts, place) for place in range(len(parts)))
        case Choice(parts):
            return "|".join(written(part) for part in parts)


def _bounds(low: int, high: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    return short.get((low, high)) or (f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}")


def _beside(parts: tuple[Node, ...], place: int) -> str:
    r"""One part of a sequence; `\<` and `\>` as `\b`, if the character beside them is one of a word."""
    part = parts[place]
    if not isinstance(part, Anchor) or part.text not in (r"\<", r"\>"):
        return written(part)
    is_end = part.text == r"\>"
    near = Sequence(parts[:place] if is_end else parts[place + 1 :])
    signs, _ = _leading(near, is_end)
    if not signs or not signs[0] <= WORD:
        raise _no_edge(part.text)
    return r"\b"


def _no_edge(text: str) -> RuleError:
    beside = "before" if text == r"\>" else "after"
    return RuleError(f"RE2 has no {text}; {beside} it, there may be something else than a word", r"write \b")


# --- asking ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What is known of a group from the tree."""

    may_be_empty: bool  # or take no part in a match; pqact writes nothing then
    may_have_slash: bool


def groups_of(node: Node, is_optional: bool = False) -> Iterator[GroupFacts]:
    """The groups of a pattern, in the order of their numbers."""
    match node:
        case Group(inner):
            yield GroupFacts(is_optional or _is_nullable(inner), _has(inner, ord("/")))
            yield from groups_of(inner, is_optional)
        case Repeat(part, low):
            yield from groups_of(part, is_optional or low == 0)
        case Sequence(parts):
            for part in parts:
                yield from groups_of(part, is_optional)
        case Choice(parts):
            for part in parts:
                yield from groups_of(part, True)


def _is_nullable(node: Node) -> bool:
    match node:
        case One():
            return False
        case Anchor():
            return True
        case Group(inner):
            return _is_nullable(inner)
        case Repeat(part, low):
            return low == 0 or _is_nullable(part)
        case Sequence(parts):
            return all(map(_is_nullable, parts))
        case Choice(parts):
            return any(map(_is_nullable, parts))


def _has(node: Node, sign: int) -> bool:
    match node:
        case One(_, signs):
            return sign in signs
        case Anchor():
            return False
        case Group(part) | Repeat(part):
            return _has(part, sign)
        case Sequence(parts) | Choice(parts):
            return any(_has(part, sign) for part in parts)


def prefers_the_first(node: Node) -> bool:
    """Whether an alternative can match where a later one matches more: POSIX takes the later one, RE2 the first."""
    match node:
        case One() | Anchor():
            return False
        case Group(part) | Repeat(part):
            return prefers_the_first(part)
        case Sequence(parts):
            return any(map(prefers_the_first, parts))
        case Choice(parts):
            ways = [_leading(part) for part in parts]
            pairs = ((one, other) for place, one in enumerate(ways) for other in ways[place + 1 :])
            return any(_may_hide(one, other) for one, other in pairs) or any(map(prefers_the_first, parts))


Leading = tuple[tuple[Signs, ...], bool]
_LEADING_MAX = 64  # characters that are looked at


def _may_hide(one: Leading, other: Leading) -> bool:
    is_apart = any(not first & second for first, second in zip(one[0], other[0], strict=False))
    is_long = one[1] and other[1] and len(one[0]) >= len(other[0])
    return not is_apart and not is_long


def _leading(node: Node, is_reversed: bool = False) -> Leading:
    """The characters that each match begins with (reversed: ends with), and whether they are the whole match."""
    match node:
        case One(_, one):
            return (one,), True
        case Anchor():
            return (), True
        case Group(inner):
            return _leading(inner, is_reversed)
        case Repeat(part, low, high):
            return _bounded(*_repeated(_leading(part, is_reversed), low, high))
        case Sequence(parts):
            found: tuple[Signs, ...] = ()
            for part in reversed(parts) if is_reversed else parts:
                signs, is_whole = _leading(part, is_reversed)
                found += signs
                if not is_whole:
                    return _bounded(found, False)
            return _bounded(found, True)
        case Choice(parts):
            ways = [_leading(part, is_reversed) for part in parts]
            together = tuple(frozenset[int]().union(*each) for each in zip(*(way[0] for way in ways), strict=False))
            return together, all(way[1] for way in ways) and len({len(way[0]) for way in ways}) == 1


def _repeated(once: Leading, low: int, high: int | None) -> Leading:
    signs, is_whole = once
    if is_whole:
        return signs * min(low, _LEADING_MAX), low == high and low <= _LEADING_MAX
    return signs if low else (), False


def _bounded(signs: tuple[Signs, ...], is_whole: bool) -> Leading:
    return signs[:_LEADING_MAX], is_whole and len(signs) <= _LEADING_MAX

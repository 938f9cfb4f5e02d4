"""Ways: how a selection can be looked up.

A selection is a conjunction: feed and ident and tags and so on. Any one of these can serve as the way in; the others
are checked for those that were found by it. `ways` lists what one selection offers, the most telling first.

    tags, or equalities in `where` over properties   by TagIndex     decides the tags, but not `where`
    a feed without wildcards, or `feed = '…'`        by FieldIndex   decides the feed
    an ident pattern that requires some text         by RegexIndex   decides nothing: RE2 does
    slices, origins                                  by FieldIndex   decides them
    a feed pattern                                   by FeedIndex    decides the feed
    nothing of these                                 Residue

An index may find too much where it does not decide, and never too little. Python's equality, by which dictionaries
find, holds wherever that of a selection does; it also takes True for 1, so tags with these values are not decided.
"""

from collections.abc import Iterator, Mapping
from itertools import product as combinations
from typing import Any

from headrace.product.properties import PropertyValue
from headrace.selection.access import Access
from headrace.selection.expression import FIELDS, PROPERTIES
from headrace.selection.feed_index import levels_of
from headrace.selection.literals import BEGIN, END, Required, required
from headrace.selection.regex_index import usable
from headrace.selection.selection import Selection

ALTERNATIVES_MAX = 1024  # places at which one subscription may stand


def ways(selection: Selection) -> list[Access]:
    """All ways, the most telling first; the last resort, if there is no other, is to be checked for every product."""
    found = list(_ways(selection))
    return found or [Access("residue", (None,))]


def undecided(selection: Selection, access: Access) -> bool:
    """Whether something is left to be checked for who was found by this way."""
    return any(clause != "every" and clause not in access.decides for clause in selection.given())


def _ways(selection: Selection) -> Iterator[Access]:
    equal = _equalities(selection)
    yield from _by_tags(selection, equal)
    pattern = selection.feed
    if pattern is not None and "*" not in pattern:
        yield Access("feed", (pattern,), frozenset(["feed"]))
    elif isinstance(equal.get("feed"), str):
        yield Access("feed", (equal["feed"],))
    yield from _by_ident(selection, equal)
    yield from _by_values("slice", selection.slices, "slices", equal)
    yield from _by_values("origin", selection.origin, "origin", equal)
    if pattern is not None and "*" in pattern:
        yield from _by_pattern(selection, pattern)


def _equalities(selection: Selection) -> dict[str, Any]:
    where = selection.compiled.where
    return {} if where is None else {name: value for name, value in where.equalities.items() if value is not None}


def _by_tags(selection: Selection, equal: Mapping[str, Any]) -> Iterator[Access]:
    """By all pairs at once; a name with several values makes so many combinations."""
    wanted: dict[str, tuple[PropertyValue, ...]] = {
        name: (value,) for name, value in equal.items() if name not in FIELDS and not name.startswith(f"{PROPERTIES}.")
    }
    wanted |= {name: tuple(dict.fromkeys(some)) for name, some in selection.tags or ()}
    values: dict[str, tuple[PropertyValue, ...]] = {}
    places = 1
    for name in sorted(wanted, key=lambda name: len(wanted[name])):
        if places * len(wanted[name]) <= ALTERNATIVES_MAX:
            places *= len(wanted[name])
            values[name] = wanted[name]
    if values:
        terms = tuple(dict(zip(values, some, strict=True)) for some in combinations(*values.values()))
        decided = all(name in values and all(map(_is_plain, some)) for name, some in selection.tags or ())
        yield Access("tags", terms, frozenset(["tags"] if decided else []))


def _is_plain(value: PropertyValue) -> bool:
    """Whether only values of the same kind are equal to it."""
    return value not in (0, 1)


def _by_ident(selection: Selection, equal: Mapping[str, Any]) -> Iterator[Access]:
    found = []
    if isinstance(equal.get("ident"), str):
        found.append(Required((frozenset([BEGIN + equal["ident"] + END]),)))
    if selection.ident is not None:
        found.append(required(selection.ident))
    for some in map(usable, found):
        if some.clauses:
            yield Access("ident", (some,))


def _by_values(field: str, values: tuple[Any, ...] | None, clause: str, equal: Mapping[str, Any]) -> Iterator[Access]:
    if values is not None and len(values) <= ALTERNATIVES_MAX:
        yield Access(field, values, frozenset([clause]))
    elif values is None and field in equal:
        yield Access(field, (equal[field],))


def _by_pattern(selection: Selection, pattern: str) -> Iterator[Access]:
    """A pattern without any name finds nearly everything, so it helps only where it decides all."""
    levels = levels_of(pattern)
    access = Access("feed pattern", (levels,), frozenset(["feed"]))
    if levels and (any("*" not in level for level in levels) or not undecided(selection, access)):
        yield access

"""Plan: how a selection can be looked up.

A selection is a conjunction: feed and ident and tags and so on. Any one of these can serve as the access path; the
others are checked for the subscriptions that it finds. `access_paths` lists what a selection offers, the most selective
first.

    tags, or equalities in `where` over properties   TagIndex     decides the tags, but not `where`
    a feed without wildcards, or `feed = '…'`        FieldIndex   decides the feed
    an ident pattern that requires some text         RegexIndex   decides nothing: RE2 does
    slices, origins                                  FieldIndex   decides them
    a feed pattern                                   FeedIndex    decides the feed
    none of these                                    Unindexed

An index may find too much where it does not decide, and never too little. Python's equality, by which dictionaries
find, holds wherever that of a selection does; it also takes True for 1, so tags with these values are not decided.
"""

from collections.abc import Iterator, Mapping
from itertools import product as combinations
from typing import Any

from headrace.product.properties import PropertyValue
from headrace.selection.selection import Selection
from headrace.selection.table.field_indexes import levels_of
from headrace.selection.table.literals import BEGIN, END, Required, required
from headrace.selection.table.regex_index import usable
from headrace.selection.table.subscription import Access
from headrace.selection.where.expression import FIELDS, PROPERTIES

ALTERNATIVES_MAX = 1024  # terms under which one subscription may stand


def access_paths(selection: Selection) -> list[Access]:
    """All access paths, the most selective first; without any, the subscription is checked for every product."""
    found = list(_paths(selection))
    return found or [Access("unindexed", (None,))]


def undecided(selection: Selection, access: Access) -> bool:
    """Whether clauses are left to be checked for a subscription that was found by this access."""
    return any(clause != "every" and clause not in access.decides for clause in selection.given())


def _paths(selection: Selection) -> Iterator[Access]:
    equal = _equalities(selection)
    yield from _by_tags(selection, equal)
    pattern = selection.feed
    if pattern is not None and "*" not in pattern:
        yield Access("feed", tuple(pattern.split("|")), frozenset(["feed"]))
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
    """By all pairs at once; names with several values multiply the combinations."""
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
    """Whether only values of the same kind equal it."""
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
    """An alternative without any name finds nearly everything, so it helps only if it decides everything."""
    terms = tuple(levels_of(alternative) for alternative in pattern.split("|"))
    access = Access("feed pattern", terms, frozenset(["feed"]))
    has_names = all(any("*" not in level for level in levels) for levels in terms)
    if all(terms) and (has_names or not undecided(selection, access)):
        yield access

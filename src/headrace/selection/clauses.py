"""Clauses of a selection that are more than a range of numbers: ident patterns and tags.

Ident patterns have the syntax of RE2 and match anywhere in the ident, a column at a time by Arrow; a single ident is
matched by RE2 directly. RE2 runs in time linear in the ident, but a pattern with large repetitions (`.{999}`) makes
every byte expensive, so the size of the program that RE2 makes of a pattern is bounded.

SQL conditions are in where/, XPath in xpath.py, functions of users in functions.py, the simple clauses in values.py.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import re2

from headrace.errors import PropertyError, SelectionError
from headrace.product.properties import PropertyValue, encode_properties
from headrace.selection.values import is_whole

if TYPE_CHECKING:
    from headrace.selection.where.expression import Expression

TEXT_MAX = 1024
INSTRUCTIONS_MAX = 2000
_KEPT_MAX = 256

# --- ident ----------------------------------------------------------------------------------------


def check_regex(pattern: str, what: str) -> str:
    """Return the pattern if it is valid; SelectionError says why it is not."""
    if not isinstance(pattern, str):
        raise SelectionError(f"{what} pattern {pattern!r} is not text", "write a regular expression (RE2)")
    if len(pattern) > TEXT_MAX:
        raise SelectionError(f"the {what} pattern has {len(pattern)} characters, more than {TEXT_MAX}", "shorten it")
    try:
        instructions = compiled(pattern).programsize
    except re2.error as error:
        raise SelectionError(
            f"{what} pattern {pattern!r} is not a regular expression: {error.args[0].decode(errors='replace')}",
            "see the syntax of RE2, which has no look-around and no back-references",
        ) from None
    except UnicodeEncodeError:
        raise SelectionError(f"{what} pattern {pattern!r} is not valid UTF-8", "remove lone surrogates") from None
    if instructions > INSTRUCTIONS_MAX:
        raise SelectionError(
            f"{what} pattern {pattern!r} is too large once its repetitions are expanded",
            "use smaller numbers in {…} and fewer character classes, or + and *",
        )
    return pattern


def found_in(pattern: str, texts: Any) -> npt.NDArray[np.bool_]:
    """For an Arrow string array: where the pattern is found."""
    import pyarrow.compute as pc  # slow to load, and needed only to match

    from headrace.product.arrow import truths

    return truths(pc.match_substring_regex(texts, pattern))


@lru_cache(_KEPT_MAX)
def compiled(pattern: str) -> Any:
    """The pattern for single idents; recently used ones stay compiled."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    return re2.compile(pattern, options)


# --- tags -----------------------------------------------------------------------------------------

# tags=[7, 9]                         the property "tag" is 7 or 9
# tags={"run": 5, "type": "physics"}  both hold
# tags={"site": ["KFTG", "KDEN"]}     one of these
#
# Kept as pairs of a name and the values it may have, both sorted. Numbers are compared by value (5 equals 5.0), and
# values of different kinds are never equal: "5" is not 5, and True is not 1.

Tags = tuple[tuple[str, tuple[PropertyValue, ...]], ...]

TAG = "tag"  # the property that bare integers mean
VALUES_MAX = 10_000
_HINT = 'give integers ([7, 9]), or values by property name ({"run": 5, "type": "physics"})'


def tags_of(value: Any) -> Tags:
    """Canonical tags from integers, or from a mapping of name to value or values."""
    if is_whole(value):
        value = [value]
    if isinstance(value, Mapping):
        pairs = value.items()
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        listed = list(value)
        if listed and all(isinstance(pair, tuple) and len(pair) == 2 for pair in listed):
            pairs = dict(listed).items()  # already canonical
        elif all(map(is_whole, listed)):
            pairs = ({TAG: listed} if listed else {}).items()
        else:
            raise SelectionError(f"tags {value!r} are invalid", _HINT)
    else:
        raise SelectionError(f"tags {value!r} are invalid", _HINT)
    tags = tuple(sorted((name, _values_of(name, values)) for name, values in pairs))
    if not tags:
        raise SelectionError("the list of tags is empty", _HINT)
    return tags


def _values_of(name: Any, values: Any) -> tuple[PropertyValue, ...]:
    single = isinstance(values, str | bytes) or not isinstance(values, Iterable)
    listed = [values] if single else list(values)
    if not 1 <= len(listed) <= VALUES_MAX:
        raise SelectionError(f"tag {name!r} has {len(listed)} values", f"give 1 to {VALUES_MAX}")
    distinct = {_order(_checked(name, value)): _checked(name, value) for value in listed}
    return tuple(distinct[key] for key in sorted(distinct))


def _checked(name: Any, value: Any) -> PropertyValue:
    """A value that a property can have, in its simplest form."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 63:
        value = int(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise SelectionError(f"tag {name!r} is {value}", "give a finite number")
    try:
        encode_properties({name: value})
    except PropertyError as error:
        raise SelectionError(error.problem, error.hint) from None
    simple: PropertyValue = value
    return simple


def _order(value: PropertyValue) -> tuple[int, Any]:
    """Numbers first, then booleans, then texts."""
    kind = 2 if isinstance(value, str) else 1 if isinstance(value, bool) else 0
    return kind, value


def tags_dict(tags: Tags) -> Any:
    """As in TOML and JSON: a list of integers, or a table."""
    if is_plain(tags):
        return list(tags[0][1])
    return {name: values[0] if len(values) == 1 else list(values) for name, values in tags}


def is_plain(tags: Tags) -> bool:
    """Whether they are only integers for the property "tag"."""
    return len(tags) == 1 and tags[0][0] == TAG and all(map(is_whole, tags[0][1]))


def tags_expression(tags: Tags) -> "Expression":
    """The tags as an expression to evaluate."""
    from headrace.selection.where.expression import And, In, Name  # slow to load, and few selections have tags

    return And(tuple(In(Name(name, False), values) for name, values in tags))

"""Tags: properties that must have certain values.

    tags=[7, 9]                         the property "tag" is 7 or 9
    tags={"run": 5, "type": "physics"}  both hold
    tags={"site": ["KFTG", "KDEN"]}     one of these

Kept as pairs of a name and the values it may have, both sorted. Numbers are compared by value (5 is 5.0), and values of
different kinds are never equal: "5" is not 5, and True is not 1.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.errors import PropertyError, SelectionError
from headrace.product.properties import PropertyValue, encode_properties
from headrace.selection.expression import And, Expression, In, Name
from headrace.selection.values import is_whole

Tags = tuple[tuple[str, tuple[PropertyValue, ...]], ...]

TAG = "tag"  # the property that bare integers speak of
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
            raise SelectionError(f"tags {value!r} are not understood", _HINT)
    else:
        raise SelectionError(f"tags {value!r} are not understood", _HINT)
    tags = tuple(sorted((name, _values_of(name, values)) for name, values in pairs))
    if not tags:
        raise SelectionError("there are no tags in the list", _HINT)
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
        raise SelectionError(f"tag {name!r} cannot be {value}", "give a number that is one")
    try:
        encode_properties({name: value})
    except PropertyError as error:
        raise SelectionError(error.problem, error.hint) from None
    simple: PropertyValue = value
    return simple


def _order(value: PropertyValue) -> tuple[int, Any]:
    """Numbers first, then truth values, then texts."""
    kind = 2 if isinstance(value, str) else 1 if isinstance(value, bool) else 0
    return kind, value


def tags_dict(tags: Tags) -> Any:
    """As TOML and JSON have them: a list of integers, or a table."""
    if is_plain(tags):
        return list(tags[0][1])
    return {name: values[0] if len(values) == 1 else list(values) for name, values in tags}


def is_plain(tags: Tags) -> bool:
    """Whether they are nothing but integers for the property "tag"."""
    return len(tags) == 1 and tags[0][0] == TAG and all(map(is_whole, tags[0][1]))


def tags_expression(tags: Tags) -> Expression:
    """What they demand, for evaluation."""
    return And(tuple(In(Name(name, False), values) for name, values in tags))

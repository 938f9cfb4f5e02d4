"""Replies of a site that is newer than this program: members that this version does not know are left out.

msgspec ignores unknown members of most structs by itself. The configuration of a queue and the terms of stations and
channels are also the content of files, where an unknown member is an error; in a reply it is not. `without_unknown` is
called only for a reply that failed to decode, so that other replies cost nothing more.
"""

from typing import Any

from msgspec import inspect


def without_unknown(value: Any, kind: inspect.Type) -> Any:
    """A decoded message without the members that the structs in `kind` do not have, at any depth."""
    if isinstance(kind, inspect.Metadata):
        return without_unknown(value, kind.type)
    if isinstance(kind, inspect.UnionType):
        chosen = [each for each in kind.types if _is_meant(value, each)]
        return without_unknown(value, chosen[0]) if chosen else value
    if isinstance(kind, inspect.StructType | inspect.DataclassType) and isinstance(value, dict):
        known = {field.encode_name: field.type for field in kind.fields}
        tag = getattr(kind, "tag_field", None)
        return {
            name: without_unknown(member, known[name]) if name in known else member
            for name, member in value.items()
            if name in known or name == tag
        }
    if isinstance(kind, inspect.ListType | inspect.VarTupleType) and isinstance(value, list):
        return [without_unknown(each, kind.item_type) for each in value]
    return value


def _is_meant(value: Any, kind: inspect.Type) -> bool:
    """Whether a value of a union is of this kind."""
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        return kind.tag_field is None or value.get(kind.tag_field) == kind.tag
    return isinstance(kind, inspect.ListType | inspect.VarTupleType) and isinstance(value, list)

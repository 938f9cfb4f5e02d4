"""Groups: open, create and list the groups of nodes of a queue, on the machine of the queue.

The first node that names a group creates it, with its terms; others may leave them out, or must agree. Two processes
may do so at once: one of them creates it, and both get the same.
"""

import uuid
from typing import Any

import msgspec

from headrace.channel.assigner import put_in_force
from headrace.channel.context import definition_of
from headrace.channel.document import Definition, DefinitionFile
from headrace.errors import OptionError, ShareError, ShareExistsError, ShareMissingError
from headrace.log.cursor import check_name
from headrace.log.log import Log
from headrace.log.read import Start
from headrace.selection.values import slices_of, slices_text
from headrace.share import file as files
from headrace.share.interface import ShareTerms
from headrace.share.share import LEASE_S_MAX, MAIN, Share
from headrace.station.terms import Age
from headrace.units import parse_age

GROUPS_MAX = 1024


def open_share(
    log: Log, stream: str, group: str = MAIN, *, create: bool = True, start: Start = "oldest",
    slices: int | None = None, only: Any = None, dead_after: Age | None = None, tries_max: int | None = None,
) -> Share:  # fmt: skip
    """A group of a stream; it is made if there is none, unless `create` is off.

    ShareExistsError names every term that it has otherwise. `slices` is what the caller expects of the stream.
    """
    check_name(group, "group", OptionError)
    document = DefinitionFile(log.path).read()
    put_in_force(log.kernel, document)  # the process that created the channel may have died before it did
    definition = definition_of(log.path, document, stream)
    count = _slices_of(definition, slices)
    given = _given(count, only, dead_after, tries_max)
    existing = files.read_document(log.path).find(stream, group)
    if existing is None and create:
        existing = _create(log, definition, group, count, given, start)
    if existing is None:
        raise ShareMissingError(f"stream {stream!r} has no group {group!r}", "start a node: headrace slices run")
    _check_same(existing, definition, given)
    return Share(log, existing, definition)


def groups_of(log: Log, stream: str) -> list[str]:
    """The names of the groups of one stream."""
    return [group for of, group in list_shares(log) if of == stream]


def list_shares(log: Log) -> list[tuple[str, str]]:
    """Stream and name of every group."""
    return sorted((each.stream, each.group) for each in files.read_document(log.path).groups)


def _slices_of(definition: Definition, expected: int | None) -> int:
    if definition.slicing is None:
        raise ShareMissingError(
            f"channel {definition.name!r} has no slices",
            "create a channel with slices: headrace channel create --slices",
        )
    if expected is not None and expected != definition.slicing.slices:
        raise ShareExistsError(
            f"stream {definition.name!r} has {definition.slicing.slices} slices, not {expected}",
            "the number is fixed for the life of a channel: leave it out, or use another channel",
        )
    return definition.slicing.slices


def _given(count: int, only: Any, dead_after: Age | None, tries_max: int | None) -> dict[str, Any]:
    """The terms that the caller sets, checked."""
    given: dict[str, Any] = {}
    if only is not None:
        chosen = slices_of(only)
        if chosen[-1] >= count:
            raise OptionError(f"slice {chosen[-1]} is out of range", f"the stream has slices 0 to {count - 1}")
        given["only"] = slices_text(chosen) if len(chosen) < count else ""
    if dead_after is not None:
        given["dead_after_s"] = parse_age(dead_after, "dead_after")
        if not 0.2 <= given["dead_after_s"] <= LEASE_S_MAX:
            raise OptionError(f"dead_after {dead_after!r} is out of range", "use 0.2 s to an hour")
    if tries_max is not None:
        if isinstance(tries_max, bool) or not isinstance(tries_max, int) or not 1 <= tries_max <= 255:
            raise OptionError(f"tries_max {tries_max!r} is out of range", "use 1 to 255")
        given["tries_max"] = tries_max
    return given


def _create(
    log: Log, definition: Definition, group: str, count: int, given: dict[str, Any], start: Start
) -> ShareTerms:
    position = log.resolve(start)
    with files.changing(log.path) as document:
        existing = document.find(definition.name, group)
        if existing is not None:
            return existing
        if len(document.groups) >= GROUPS_MAX:
            raise ShareError(f"the queue has {GROUPS_MAX} groups, the maximum", "delete one: headrace slices delete")
        terms = ShareTerms(
            group=group, stream=definition.name, channel=definition.number, number=document.next_number,
            id=str(uuid.uuid4()), slices=count, created_ns=log.now_ns(),
            **{"dead_after_s": 3.0, "tries_max": 3, **given},
        )  # fmt: skip
        files.make_table(log.path, terms, position, slices_of(terms.only) if terms.only else None)
        groups = (*document.groups, terms)
        files.write_document(log.path, msgspec.structs.replace(document, next_number=terms.number + 1, groups=groups))
    return terms


def _check_same(existing: ShareTerms, definition: Definition, given: dict[str, Any]) -> None:
    if existing.channel != definition.number or existing.slices != _slices_of(definition, None):
        raise ShareExistsError(
            f"group {existing.group!r} belongs to an earlier channel {definition.name!r}, "
            f"which had {existing.slices} slices",
            "delete the group, or choose another name for it: headrace slices delete",
        )
    differences = [
        _difference(field, getattr(existing, field), value)
        for field, value in given.items()
        if getattr(existing, field) != value
    ]
    if differences:
        raise ShareExistsError(
            f"group {existing.group!r} exists on other terms: it has {'; '.join(differences)}",
            "leave these options out, or choose another name",
        )


def _difference(field: str, existing: Any, given: Any) -> str:
    if field == "only" and not (existing and given):
        return f"all slices, not only {given}" if given else f"only {existing}, not all slices"
    return f"{field} {existing}, not {given}"

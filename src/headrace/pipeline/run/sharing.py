"""Sharing: which rules run in one Spark query.

A query costs a Python process, a station, and work for every micro-batch, even for an empty one. So rules share queries
if there are many of them:

    alone      a query under the name of the rule: all rules of a file with up to ALONE_MAX rules, every rule with a
               watermark, one with `otherwise` that is not plain, and a rule that can share with no other
    selected   rules with the same selection: their products are read once
    plain      rules that only pass products on to files and programs: one query for all, whatever they select

A query has one position. A rule that joined a query later would miss what the query has read before. So the record in
the checkpoint (`queries.json`) keeps which rules share a query, and new rules get a new one. A rule may leave a query:
it is disabled, removed, or changed so that it no longer fits. When it comes back, it continues where the query was.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headrace.decoding import Decoder
from headrace.errors import PipelineError
from headrace.files import read_regular
from headrace.log.documents import UNREADABLE, replace_file
from headrace.pipeline.actions.disk import DISK, disk_error
from headrace.pipeline.rules.otherwise import is_exact
from headrace.pipeline.rules.rule import Rule
from headrace.product.feed import ALTERNATIVES_MAX
from headrace.selection import Selection

ALONE_MAX = 16  # rules of a file that each have a query
_FILE = "queries.json"
_NAME = "shared.{}"  # names of rules contain no dot


class Shared(msgspec.Struct):
    """A query that rules share, as the record has it."""

    rules: list[str]
    select: str | None  # of all its rules; None: plain
    start: int | None  # the sequence at which it began; None: where [pipeline] says


class Record(msgspec.Struct):
    """The content of the file."""

    queries: dict[str, Shared] = {}
    left: dict[str, int] = {}  # where rules continue that have left a query
    last: int = 0  # number of the newest query; numbers are not used again


@dataclass(frozen=True, slots=True)
class Query:
    """A Spark query: the rules that it runs, and what it reads."""

    name: str
    rules: tuple[Rule, ...]
    select: Selection
    start: int | None = None
    is_plain: bool = False

    @property
    def is_shared(self) -> bool:
        return self.name != self.rules[0].name


_RECORD: Decoder[Record] = Decoder(Record, encoding="json")


def arranged(
    rules: Sequence[Rule], record: Record, position: Callable[[str], int | None], is_alone: Callable[[str], bool]
) -> list[Query]:
    """The queries of these rules; the record is brought up to date.

    position: where a query is, by its name; None: it has not read anything yet.
    is_alone: whether the rule of this name has a query of its own already.
    """
    waiting = {rule.name: rule for rule in rules}
    found = [query for name in list(record.queries) if (query := _kept(name, record, waiting, position)) is not None]
    new: dict[Any, list[Rule]] = {}
    for rule in waiting.values():
        is_single = len(rules) <= ALONE_MAX or not _may_share(rule) or is_alone(rule.name)
        key = rule.name if is_single else (None if is_plain(rule) else str(rule.select), record.left.get(rule.name))
        new.setdefault(key, []).append(rule)
    for key, members in new.items():
        start = record.left.get(members[0].name)
        if len(members) == 1:
            found.append(Query(members[0].name, (members[0],), members[0].select, start))
        else:
            found.append(_created(key[0], members, start, record))
    order = {rule.name: place for place, rule in enumerate(rules)}
    return sorted(found, key=lambda query: order[query.rules[0].name])


def _kept(
    name: str, record: Record, waiting: dict[str, Rule], position: Callable[[str], int | None]
) -> Query | None:  # fmt: skip
    """A query of the record, with those of its rules that still fit; the others leave it. None: it has none."""
    shared = record.queries[name]
    members = [waiting.pop(each) for each in shared.rules if each in waiting and _fits(waiting[each], shared)]
    stay = {rule.name for rule in members}
    gone = [each for each in shared.rules if each not in stay]
    where = (shared.start if (reached := position(name)) is None else reached) if gone else None
    if where is not None:
        record.left.update(dict.fromkeys(gone, where))
    shared.rules = [rule.name for rule in members]
    if not members:
        del record.queries[name]
        return None
    return _query(name, members, shared)


def _created(select: str | None, members: list[Rule], start: int | None, record: Record) -> Query:
    record.last += 1
    name = _NAME.format(record.last)
    record.queries[name] = Shared([rule.name for rule in members], select, start)
    for rule in members:
        record.left.pop(rule.name, None)
    return _query(name, members, record.queries[name])


def _query(name: str, members: list[Rule], shared: Shared) -> Query:
    select = covering(rule.select for rule in members) if shared.select is None else members[0].select
    return Query(name, tuple(members), select, shared.start, shared.select is None)


def _fits(rule: Rule, shared: Shared) -> bool:
    if shared.select is None:
        return is_plain(rule)
    return str(rule.select) == shared.select and _may_share(rule)


def _may_share(rule: Rule) -> bool:
    return rule.watermark_s is None and (is_plain(rule) or not rule.otherwise)


def is_plain(rule: Rule) -> bool:
    """Whether the rule passes products on as they are, and can be selected by what a row tells exactly."""
    others = (rule.decode, rule.sql, rule.watermark_s)
    is_passing = all(key is None for key in others) and not (rule.table or rule.publish or rule.alert)
    return is_passing and is_exact(rule.select)


def covering(selections: Iterable[Selection]) -> Selection:
    """A selection of feeds that selects at least what each of these does; exactly their feeds unless these are many."""
    patterns = {pattern for select in selections for pattern in (select.feed or "**").split("|")}
    if len(patterns) <= ALTERNATIVES_MAX:
        return Selection("|".join(sorted(patterns)))
    common: list[str] = []
    for levels in zip(*(pattern.split("/") for pattern in patterns), strict=False):
        if len(set(levels)) > 1 or "*" in levels[0]:
            break
        common.append(levels[0])
    return Selection("/".join([*common, "**"]))


# --- the record -------------------------------------------------------------------------------------


def load_record(checkpoint: Path) -> Record:
    """The record of a checkpoint. PipelineError: it is damaged."""
    path = checkpoint / _FILE
    try:
        return _RECORD.decode(read_regular(path))
    except FileNotFoundError:
        return Record()
    except UNREADABLE as error:
        hint = "restore it from a backup, or start with a new checkpoint"
        raise PipelineError(f"{path} is damaged: {error}", hint) from None


def save_record(checkpoint: Path, record: Record) -> None:
    """Replace the record; it survives a power failure. TargetError."""
    path = checkpoint / _FILE
    if record == Record() and not path.exists():
        return
    try:
        replace_file(path, msgspec.json.encode(record), DISK)
    except OSError as error:
        raise disk_error(error, path) from error

"""Translation: from the entries of a pqact.conf to the text of a rule file, and remarks on what differs.

The text has every entry in its order: as one rule named `pqact-LINE`, or as comments with the reason why there is no
rule. Entries of an included file are named after that file.

`^_ELSE_$` is a rule with `otherwise`. An entry that is not translated counts for it, too, if it is known what the entry
selects.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import RuleError
from headrace.pipeline.rules.pqact.action import TRANSLATORS, Made
from headrace.pipeline.rules.pqact.entry import Entry, entries_of
from headrace.pipeline.rules.pqact.ere import parsed
from headrace.pipeline.rules.pqact.ere_re2 import prefers_the_first
from headrace.pipeline.rules.pqact.selection import ELSE, feeds_with, re2_of, types_of
from headrace.pipeline.rules.template_safety import check_result
from headrace.product.ldm_feedtypes import FEEDS, Feeds, pattern_of
from headrace.toml.kinds import toml_lines

_QUEUE_NOTE = (
    "# In LDM, products with equal payloads are one product. A queue with that rule, and LDM's signatures:",
    "#   headrace queue create QUEUE --dedup payload --hash md5",
)


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A remark on one entry."""

    line: int  # of pqact.conf, or of the file that it includes
    source: str = ""  # that file; empty: pqact.conf itself
    text: str  # the entry
    reason: str
    hint: str = ""
    is_translated: bool  # True: there is a rule, and it differs in this

    def __str__(self) -> str:
        return f"{f'{self.source} ' if self.source else ''}line {self.line}: {self.reason}"


class Translation(msgspec.Struct, frozen=True, kw_only=True):
    """A rule file, and remarks on what differs."""

    toml: str
    rules: int  # in the file
    discards: int  # those of them that only keep products from an _ELSE_
    remarks: tuple[Remark, ...]

    @property
    def untranslated(self) -> tuple[Remark, ...]:
        return tuple(remark for remark in self.remarks if not remark.is_translated)


def translate(
    text: str, *, queue: str = "wx.queue", feeds: Mapping[str, str] | None = None, source: str = "pqact.conf",
    path: Path | None = None,
) -> Translation:  # fmt: skip
    """The rules for the entries in `text`. `feeds` maps feed types to feeds, instead of those of the table.

    Bytes of a file that are not UTF-8 must be escaped as surrogates; an entry that has any is not translated.
    path: of the file, for files that it includes.
    """
    for feed in (feeds or {}).values():
        check_result(feed, "feed")
    mapping = feeds_with(feeds or {})
    entries = list(entries_of(text, path))
    last_else = max((place for place, entry in enumerate(entries) if entry.pattern == ELSE), default=-1)
    blocks: list[list[str]] = []
    remarks: list[Remark] = []
    tables: set[str] = set()
    names: set[str] = set()
    count = discards = 0  # rules so far, and those of them that discard
    for place, entry in enumerate(entries):
        made = Made({})
        try:
            if entry.error is not None:
                raise entry.error
            _make_rule(entry, made, mapping, names, count > 0)
            _give_own_table(made, tables)
        except RuleError as error:
            remarks.append(_remark(entry, error.problem, error.hint, False))
            blocks.append(_untranslated(entry, source, error))
            made.action = ""
        else:
            remarks += [_remark(entry, note, "", True) for note in made.notes]
            blocks.append(_block(entry, source, made))
        if not made.action and place < last_else and "select" in made.keys:
            blocks.append(["[[rule]]", *toml_lines({**made.keys, "discard": True}, literal=True)])
            count, discards = count + 1, discards + 1
        count += bool(made.action)
    title = f"# From {source}: run headrace pipeline check to find what is left to do."
    header = [title, *_QUEUE_NOTE, "", "[pipeline]", *toml_lines({"queue": queue})]
    whole = "\n".join(line for block in [header, *blocks] for line in [*block, ""])
    return Translation(toml=whole, rules=count, discards=discards, remarks=tuple(remarks))


def _give_own_table(rule: Made, tables: set[str]) -> None:
    """A table has one writer: a second rule for the same path gets another path."""
    if rule.action == "table":
        if rule.values["path"] in tables:
            rule.values["path"] += f".{rule.keys['name']}"
        tables.add(rule.values["path"])


def _remark(entry: Entry, reason: str, hint: str, is_translated: bool) -> Remark:
    text = entry.text.encode(errors="replace").decode()
    return Remark(
        line=entry.line, source=entry.source, text=text, reason=reason, hint=hint, is_translated=is_translated
    )


# --- entries --------------------------------------------------------------------------------------


def _make_rule(entry: Entry, made: Made, feeds: Feeds, names: set[str], has_above: bool) -> None:
    """Make the rule of one entry; without an action, if it needs none. RuleError: there is none."""
    if any("\ud800" <= sign <= "\udfff" for sign in entry.text):
        raise RuleError("the entry is not UTF-8", "convert the file first: iconv -f latin1 -t utf-8")
    if not entry.action:
        raise RuleError("the entry has fewer than three fields", "separate them by tabs")
    types = types_of(entry.feedtype, feeds)
    if not types:
        raise RuleError(f"the feed type {entry.feedtype} selects nothing", "remove the entry")
    keys = _selecting(entry, has_above)
    made.keys |= {"name": _name(entry, names), "select": pattern_of(types, feeds), **keys}
    translator = TRANSLATORS.get(entry.action.upper())
    if translator is None:
        raise RuleError(f"there is no action {entry.action}", f"use {', '.join(TRANSLATORS)}")
    translator(entry, made)
    if _writes_match(entry) and prefers_the_first(parsed(entry.pattern)):
        made.notes.append("if several alternatives match, POSIX takes the longest and RE2 the first: groups may differ")
    mapped = sorted(name for name in types if feeds[name] != FEEDS.get(name))
    if mapped and made.values.get("metadata", "ldm-spipe") != "ldm-spipe":
        made.notes.append(f"the metadata has the feed type that the table has for its feed, and not {mapped[0]}")


def _selecting(entry: Entry, has_above: bool) -> dict[str, Any]:
    """The keys besides `select` that say which products the entry matches."""
    if entry.pattern == ELSE:  # never an ident that begins with `_`, as in pqact
        return {"not_ident": "^_", **({"otherwise": True} if has_above else {})}
    ident = re2_of(entry.pattern)
    is_needed = ident not in ("", ".*") or _writes_match(entry)
    return {"ident": ident} if is_needed else {}


def _writes_match(entry: Entry) -> bool:
    """Whether the arguments have the match, or a group of it."""
    return re.search(r"&|\\[0-9(]", entry.arguments) is not None


def _name(entry: Entry, names: set[str]) -> str:
    """A name for the rule that no other has: a file may be included twice."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", Path(entry.source).stem).strip("-")[:40] if entry.source else "pqact"
    wanted = f"{stem or 'included'}-{entry.line}"
    ends = ("", *(f"-{number}" for number in range(2, len(names) + 3)))
    name = next(f"{wanted}{end}" for end in ends if f"{wanted}{end}".lower() not in names)
    names.add(name.lower())
    return name


# --- as text --------------------------------------------------------------------------------------


def _block(entry: Entry, source: str, rule: Made) -> list[str]:
    place = f"{_visible(entry.source or source)}:{entry.line}"
    if not rule.action:
        return [f"# {place}: {entry.action.upper()} does nothing"]
    lines = [f"# {place}: {note}" for note in rule.notes]
    return [*lines, "[[rule]]", *toml_lines(rule.keys, literal=True), *_action_lines(rule)]


def _action_lines(rule: Made) -> list[str]:
    if len(rule.values) == 1:
        (value,) = rule.values.values()
        return toml_lines({rule.action: value}, literal=True)
    return [f"[rule.{rule.action}]", *toml_lines(rule.values, literal=True)]


def _untranslated(entry: Entry, source: str, error: RuleError) -> list[str]:
    shown = [f"#   {_visible(line)}" for line in entry.text.split("\n")]
    place = f"{_visible(entry.source or source)}:{entry.line}"
    return [f"# {place}: not translated: {_visible(error.problem)}", *shown]


def _visible(text: str) -> str:
    """The text for a comment: control characters are replaced."""
    return "".join(sign if sign.isprintable() or sign == "\t" else "?" for sign in text)

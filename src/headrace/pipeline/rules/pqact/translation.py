"""Translation: from the entries of a pqact.conf to the text of a rule file, and remarks on what differs.

The text has every entry in its order: as one rule named `pqact-LINE`, or as comments with the reason why there is no
rule.

    FILE, STDIOFILE   [rule.file]    -overwrite: mode; -removewmo, -strip: remove; -metadata: metadata
    DBFILE            [rule.table]   of keys and payloads, instead of a gdbm database
    PIPE              [rule.pipe]    -close: [rule.exec], a program for each product; -nodata: content
    EXEC              [rule.exec]    without the product
    NOOP              no rule

-flush, -close, -log and -transient ask for the default behaviour, or for something that Headrace does not do. They are
left out, with a remark where that makes a difference. As in pqact, the first two letters of an option are enough.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.errors import RuleError
from headrace.pipeline.rules.pqact.entry import Entry, entries_of, words_of
from headrace.pipeline.rules.pqact.selection import ELSE, checked, feeds_with, group_sources, re2_of, types_of
from headrace.pipeline.rules.pqact.substitution import Piece, fixed_folder, pieces_of, sql_of, template_of
from headrace.pipeline.rules.template import template
from headrace.pipeline.rules.template_safety import check_result
from headrace.product.ldm_feedtypes import FEEDS, Feeds, pattern_of
from headrace.toml.kinds import toml_lines

_FILE_OPTIONS = ("-overwrite", "-flush", "-close", "-log", "-strip", "-removewmo", "-metadata", "-edex")
_PIPE_OPTIONS = ("-flush", "-close", "-strip", "-removewmo", "-metadata", "-nodata", "-transient", "-log")
_EXEC_OPTIONS = ("-wait",)
_REMOVED = {"-removewmo": ("wmo",), "-strip": ("controls", "non-ascii")}
_LEFT_OUT = {
    "-edex": "-edex is left out: EDEX is not notified of the file",
    "-log": "-log is left out: pipeline status counts the work of a rule",
    "-transient": "-transient is left out: a program that ends is started again for the next product",
}

_QUEUE_NOTE = (
    "# In LDM, products with equal payloads are one product. A queue with that rule, and LDM's signatures:",
    "#   headrace queue create QUEUE --dedup payload --hash md5",
)


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A remark on one entry."""

    line: int  # of pqact.conf
    text: str  # the entry
    reason: str
    hint: str = ""
    is_translated: bool  # True: there is a rule, and it differs in this

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class Translation(msgspec.Struct, frozen=True, kw_only=True):
    """A rule file, and remarks on what differs."""

    toml: str
    rules: int
    remarks: tuple[Remark, ...]

    @property
    def untranslated(self) -> tuple[Remark, ...]:
        return tuple(remark for remark in self.remarks if not remark.is_translated)


@dataclass(slots=True)
class _Made:
    """The rule of an entry while it is made: its keys, its action, and remarks."""

    keys: dict[str, Any]
    action: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def translate(
    text: str, *, queue: str = "wx.queue", feeds: Mapping[str, str] | None = None, source: str = "pqact.conf"
) -> Translation:
    """The rules for the entries in `text`. `feeds` maps feed types to feeds, instead of those of the table.

    Bytes of a file that are not UTF-8 must be escaped as surrogates; an entry that has any is not translated.
    """
    for feed in (feeds or {}).values():
        check_result(feed, "feed")
    mapping = feeds_with(feeds or {})
    blocks: list[list[str]] = []
    remarks: list[Remark] = []
    earlier: list[tuple[frozenset[str], str]] = []
    tables: set[str] = set()
    pipes: dict[tuple[str, ...], int] = {}  # the first line of each command
    count = 0
    for entry in entries_of(text):
        try:
            made = _rule(entry, mapping, earlier)
            _give_own_table(made, tables)
            _note_shared_program(made, entry, pipes)
        except RuleError as error:
            remarks.append(_remark(entry, error.problem, error.hint, False))
            blocks.append(_untranslated(entry, source, error))
            continue
        remarks += [_remark(entry, note, "", True) for note in made.notes]
        blocks.append(_block(entry, source, made))
        count += bool(made.action)
    title = f"# From {source}: run headrace pipeline check to find what is left to do."
    header = [title, *_QUEUE_NOTE, "", "[pipeline]", *toml_lines({"queue": queue})]
    whole = "\n".join(line for block in [header, *blocks] for line in [*block, ""])
    return Translation(toml=whole, rules=count, remarks=tuple(remarks))


def _give_own_table(rule: _Made, tables: set[str]) -> None:
    """A table has one writer: a second rule for the same path gets another path."""
    if rule.action == "table":
        if rule.values["path"] in tables:
            rule.values["path"] += f".{rule.keys['name']}"
        tables.add(rule.values["path"])


def _note_shared_program(rule: _Made, entry: Entry, pipes: dict[tuple[str, ...], int]) -> None:
    """In pqact, entries with the same command line share one program; here, each rule has its own."""
    if rule.action == "pipe":
        line = pipes.setdefault(tuple(rule.values["command"]), entry.line)
        if line != entry.line:
            rule.notes.append(
                f"line {line} has the same command, and pqact passes both to one program; each rule starts its own: "
                "write one rule with both patterns if they write the same file"
            )


def _remark(entry: Entry, reason: str, hint: str, is_translated: bool) -> Remark:
    text = entry.text.encode(errors="replace").decode()
    return Remark(line=entry.line, text=text, reason=reason, hint=hint, is_translated=is_translated)


# --- entries --------------------------------------------------------------------------------------


def _rule(entry: Entry, feeds: Feeds, earlier: list[tuple[frozenset[str], str]]) -> _Made:
    """The rule of one entry; without an action, if it needs none."""
    if any("\ud800" <= sign <= "\udfff" for sign in entry.text):
        raise RuleError("the entry is not UTF-8", "convert the file first: iconv -f latin1 -t utf-8")
    if not entry.action:
        if entry.feedtype.lower().startswith("include"):
            raise RuleError("the entry includes another file", "import that file separately")
        raise RuleError("the entry has fewer than three fields", "separate them by tabs")
    types = types_of(entry.feedtype, feeds)
    if not types:
        raise RuleError(f"the feed type {entry.feedtype} selects nothing", "remove the entry")
    keys = _ident_keys(entry, types, earlier)
    if ELSE not in entry.pattern:
        earlier.append((types, keys["ident"]))
    translator = _ACTIONS.get(entry.action.upper())
    if translator is None:
        raise _no_action(entry.action)
    made = _Made({"name": f"pqact-{entry.line}", "select": pattern_of(types, feeds)})
    made.keys |= {key: value for key, value in keys.items() if value not in ("", ".*")}
    translator(entry, made)
    mapped = sorted(name for name in types if feeds[name] != FEEDS.get(name))
    if mapped and "metadata" in made.values:
        made.notes.append(f"the metadata has the feed type that the table has for its feed, and not {mapped[0]}")
    return made


def _no_action(action: str) -> RuleError:
    if action.upper() in ("SPIPE", "XPIPE"):
        problem = f"{action} frames products in a format of its own"
        return RuleError(problem, 'use PIPE, or write a rule with pipe and framing = "length"')
    return RuleError(f"there is no action {action}", f"use {', '.join(_ACTIONS)}")


def _ident_keys(entry: Entry, types: frozenset[str], earlier: list[tuple[frozenset[str], str]]) -> dict[str, str]:
    if ELSE not in entry.pattern:
        return {"ident": re2_of(entry.pattern)}
    before = [(held, pattern) for held, pattern in earlier if held & types]
    if any(not types <= held for held, _ in before):
        raise RuleError(
            f"{ELSE} depends on entries above that select only some of these feeds",
            "write not_ident with the patterns of the entries above, for each feed",
        )
    joined = "|".join(["^_", *(f"(?:{pattern})" for _, pattern in before)])
    try:
        return {"not_ident": checked(joined)}
    except RuleError:
        raise RuleError(f"{ELSE} has too many patterns above it", "write not_ident for the idents to exclude") from None


def _options(words: list[str], known: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The options at the beginning, written in full, and the other words."""
    options: list[str] = []
    while words and words[0].startswith("-"):
        meant = [option for option in known if len(words[0]) > 2 and option[:3] == words[0][:3]]
        if not meant:
            hint = f"use {' '.join(known)}" if known else "remove it"
            raise RuleError(f"the option {words[0]} is unknown", hint)
        options += meant
        words = words[1:]
    return options, words


def _pieces(entry: Entry, word: str) -> list[Piece]:
    return pieces_of(word, len(group_sources(entry.pattern)))


def _template(entry: Entry, pieces: list[Piece], is_path: bool) -> str:
    return template_of(pieces, group_sources(entry.pattern), is_path)


# --- actions --------------------------------------------------------------------------------------


def _file(entry: Entry, made: _Made) -> None:
    options, words = _options(words_of(entry.arguments), _FILE_OPTIONS)
    if len(words) != 1:
        raise RuleError(f"{entry.action} has {len(words)} paths", "it needs one")
    pieces = _pieces(entry, words[0])
    if pieces and pieces[0].text.startswith("/"):
        folder, pieces = fixed_folder(pieces)
        made.values["folder"] = folder
    path = _collapsed(_template(entry, pieces, is_path=True))
    template(path, "path", made.keys.get("ident"))
    made.action, made.values = "file", {"path": path, **made.values}
    if "-overwrite" in options:
        made.values["mode"] = "overwrite"
    _take_options(options, made)


def _collapsed(path: str) -> str:
    """Without `./` at the beginning and without double slashes, which have no effect."""
    path = re.sub(r"(?<!:)//+", "/", path)
    return re.sub(r"^(?:\./)+", "", path)


def _take_options(options: list[str], made: _Made) -> None:
    removed = [part for option, parts in _REMOVED.items() if option in options for part in parts]
    if removed:
        made.values["remove"] = removed
    if "-metadata" in options:
        made.values["metadata"] = "ldm"
    made.notes += [_LEFT_OUT[option] for option in options if option in _LEFT_OUT]


def _dbfile(entry: Entry, made: _Made) -> None:
    _, words = _options(words_of(entry.arguments), ())
    if not 1 <= len(words) <= 2:
        raise RuleError(f"DBFILE has {len(words)} arguments", "it needs a path, and may have a key")
    pieces = _pieces(entry, words[0])
    ident = made.keys.get("ident", ".*")
    key = sql_of(_pieces(entry, words[1]), ident) if len(words) == 2 else "ident"
    columns = [f"{key} as key" if key != "ident" else "ident as key", "feed", "created", "payload"]
    path, parts = pieces[0].text if pieces else "", []
    if any(not piece.text for piece in pieces):
        parts = ["file"]
        columns.append(f"{sql_of(pieces, ident)} as file")
        path = path.rpartition("/")[0] or f"dbfile-{entry.line}"
    made.keys["sql"] = f"select {', '.join(columns)} from products"
    made.action, made.values = "table", {"path": os.path.normpath(path)}
    if parts:
        made.values["partition_by"] = parts
    made.notes.append("a table of keys and payloads replaces the database")


def _pipe(entry: Entry, made: _Made) -> None:
    options, words = _options(words_of(entry.arguments), _PIPE_OPTIONS)
    made.values = {"command": _command(entry, words)}
    made.action = "exec" if "-close" in options else "pipe"
    _take_options(options, made)
    if "-nodata" in options:
        if "-metadata" not in options:
            raise RuleError("-nodata without -metadata gives the program nothing", "use EXEC, or add -metadata")
        made.values["content"] = "none"


def _exec(entry: Entry, made: _Made) -> None:
    options, words = _options(words_of(entry.arguments), _EXEC_OPTIONS)
    made.action, made.values = "exec", {"command": _command(entry, words), "content": "none"}
    if "-wait" not in options:
        made.notes.append("the pipeline waits for the program, until its timeout")


def _command(entry: Entry, words: list[str]) -> list[str]:
    if not words:
        raise RuleError(f"{entry.action} has no program", "give a command")
    command = [_template(entry, _pieces(entry, word), is_path=False) for word in words]
    for argument in command:
        template(argument, "argument")
    return command


def _noop(entry: Entry, made: _Made) -> None:
    """No rule."""


_ACTIONS: dict[str, Callable[[Entry, _Made], None]] = {
    "FILE": _file, "STDIOFILE": _file, "DBFILE": _dbfile, "PIPE": _pipe, "EXEC": _exec, "NOOP": _noop,
}  # fmt: skip


# --- as text --------------------------------------------------------------------------------------


def _block(entry: Entry, source: str, rule: _Made) -> list[str]:
    if not rule.action:
        return [f"# {source}:{entry.line}: {entry.action.upper()} does nothing and needs no rule"]
    lines = [f"# {source}:{entry.line}: {note}" for note in rule.notes]
    return [*lines, "[[rule]]", *toml_lines(rule.keys, literal=True), *_action_lines(rule)]


def _action_lines(rule: _Made) -> list[str]:
    if len(rule.values) == 1:
        (value,) = rule.values.values()
        return toml_lines({rule.action: value}, literal=True)
    return [f"[rule.{rule.action}]", *toml_lines(rule.values, literal=True)]


def _untranslated(entry: Entry, source: str, error: RuleError) -> list[str]:
    shown = [f"#   {_visible(line)}" for line in entry.text.split("\n")]
    return [f"# {source}:{entry.line}: not translated: {_visible(error.problem)}", *shown]


def _visible(text: str) -> str:
    """The text for a comment: control characters are replaced."""
    return "".join(sign if sign.isprintable() or sign == "\t" else "?" for sign in text)

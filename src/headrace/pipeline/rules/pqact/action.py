"""Actions of pqact, translated into the action of a rule.

    FILE, STDIOFILE   [rule.file]    -overwrite: mode; -removewmo, -strip: remove; -metadata: metadata
    DBFILE            [rule.table]   of keys and payloads, instead of a gdbm database
    PIPE              [rule.pipe]    -close: [rule.exec], a program for each product; -nodata: content
    SPIPE, XPIPE      [rule.pipe]    as PIPE, in LDM's own framing: metadata
    EXEC              [rule.exec]    without the product
    NOOP              no rule, or a rule with `discard` if there is an _ELSE_ below

-flush, -close, -log and -transient ask for the default behaviour, or for something that Headrace does not do. They are
left out, with a remark where that makes a difference. As in pqact, the first two letters of an option are enough.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import RuleError
from headrace.pipeline.rules.pqact.entry import Entry, words_of
from headrace.pipeline.rules.pqact.ere import parsed
from headrace.pipeline.rules.pqact.ere_re2 import groups_of
from headrace.pipeline.rules.pqact.substitution import Piece, fixed_folder, pieces_of, sql_of, template_of
from headrace.pipeline.rules.template import template

_FILE_OPTIONS = ("-overwrite", "-flush", "-close", "-log", "-strip", "-removewmo", "-metadata", "-edex")
_PIPE_OPTIONS = ("-flush", "-close", "-strip", "-removewmo", "-metadata", "-nodata", "-transient", "-log")
_FRAMED_OPTIONS = ("-flush", "-close", "-transient")  # of SPIPE and XPIPE
_EXEC_OPTIONS = ("-wait",)
_REMOVED = {"-removewmo": ("wmo",), "-strip": ("controls", "non-ascii")}
_LEFT_OUT = {
    "-edex": "-edex is left out: EDEX is not notified of the file",
    "-log": "-log is left out: pipeline status counts the work of a rule",
    "-transient": "-transient is left out: a program that ends is started again for the next product",
}


@dataclass(slots=True)
class Made:
    """The rule of an entry while it is made: its keys, its action, and remarks."""

    keys: dict[str, Any]
    action: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


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
    return pieces_of(word, len(list(groups_of(parsed(entry.pattern)))))


def _template(entry: Entry, pieces: list[Piece], is_path: bool) -> str:
    return template_of(pieces, entry.pattern, is_path)


# --- actions --------------------------------------------------------------------------------------


def _file(entry: Entry, made: Made) -> None:
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


def _take_options(options: list[str], made: Made) -> None:
    removed = [part for option, parts in _REMOVED.items() if option in options for part in parts]
    if removed:
        made.values["remove"] = removed
    if "-metadata" in options:
        made.values["metadata"] = "ldm"
    made.notes += [_LEFT_OUT[option] for option in options if option in _LEFT_OUT]


def _dbfile(entry: Entry, made: Made) -> None:
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


def _pipe(entry: Entry, made: Made) -> None:
    options, words = _options(words_of(entry.arguments), _PIPE_OPTIONS)
    made.values = {"command": _command(entry, words)}
    made.action = "exec" if "-close" in options else "pipe"
    _take_options(options, made)
    if "-nodata" in options:  # the program gets the metadata, whether or not they are asked for
        made.values |= {"metadata": "ldm", "content": "none"}


def _framed_pipe(entry: Entry, made: Made) -> None:
    options, words = _options(words_of(entry.arguments), _FRAMED_OPTIONS)
    made.action = "exec" if "-close" in options else "pipe"
    made.values = {"command": _command(entry, words), "metadata": f"ldm-{entry.action.lower()}"}
    _take_options(options, made)


def _exec(entry: Entry, made: Made) -> None:
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


def _noop(entry: Entry, made: Made) -> None:
    """No action."""


TRANSLATORS: dict[str, Callable[[Entry, Made], None]] = {
    "FILE": _file, "STDIOFILE": _file, "DBFILE": _dbfile, "PIPE": _pipe, "SPIPE": _framed_pipe,
    "XPIPE": _framed_pipe, "EXEC": _exec, "NOOP": _noop,
}  # fmt: skip

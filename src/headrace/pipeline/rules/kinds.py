"""Kinds of values that only rule files have; toml/kinds.py has the common ones.

A kind reads a value from a file, and raises OptionError or RuleError if it is invalid. Templates and SQL are parsed
here; whether the columns that they name exist is checked later (conflicts.py), when the columns are known.
"""

import re
from pathlib import Path
from typing import Any

from headrace.errors import FabricError, InvalidError, OptionError, QueueError
from headrace.link.address import parse_address
from headrace.log.config import read_config
from headrace.pipeline.decoders.ddl import arrow_schema
from headrace.pipeline.rules.sql import parse_condition, parse_query
from headrace.pipeline.rules.template import template
from headrace.pipeline.rules.template_safety import Purpose
from headrace.selection import Selection
from headrace.toml.kinds import Kind, Listed, path_kind, path_of, seconds_of, text_of
from headrace.units import exact_age

NOW = "available-now"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_RESERVED = ("state",)  # folders of the checkpoint that belong to no rule
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_DECODER = re.compile(r"[A-Za-z_][\w.-]*(:[A-Za-z_][\w.]*)?")
_TRIGGER_S_MAX = 86400.0


def _name(value: Any, folder: Path) -> str:
    text = text_of(value, "metar")
    if not _NAME.fullmatch(text):
        raise OptionError(f"{text[:80]!r} is not a name", "use 1 to 63 letters, digits, dashes or underscores")
    if text.lower() in _RESERVED:
        raise OptionError(f"{text!r} is reserved for the checkpoint", "choose another name")
    return text


def _queue(value: Any, folder: Path) -> Path:
    path = path_of(value, folder)
    try:
        read_config(path)
    except QueueError as error:
        raise OptionError(error.problem, error.hint) from None
    except OSError as error:
        raise OptionError(f"{path} is not readable: {error.strerror}", "give the directory of a queue") from None
    return path


def _site(value: Any, folder: Path) -> str:
    text = text_of(value, "tcp/site.example.org:7447")
    try:
        parse_address(text)
    except (InvalidError, FabricError) as error:
        raise OptionError(error.problem.removeprefix("endpoint "), error.hint) from None
    return text


def _trigger(value: Any, folder: Path) -> str | float:
    if value == NOW:
        return NOW
    seconds = seconds_of(value, "500ms")
    if not seconds <= _TRIGGER_S_MAX:
        raise OptionError(
            f"{value!r} is out of range", f'choose at most "1d", or "{NOW}" to process the backlog and stop'
        )
    return seconds


def _trigger_text(trigger: str | float) -> str:
    return trigger if isinstance(trigger, str) else exact_age(trigger)


def _selection(value: Any, folder: Path) -> Selection:
    if isinstance(value, Selection):
        return value
    if not isinstance(value, str):
        raise OptionError(f"{value!r} is not text", 'write a feed pattern, "wx/radar/**", or a selection')
    return Selection.parse(value)


def _decoder(value: Any, folder: Path) -> str:
    text = text_of(value, "metar")
    if not _DECODER.fullmatch(text):
        hint = 'write a name, "metar", or your own function as "module:function"'
        raise OptionError(f"{text[:80]!r} is not a decoder", hint)
    return text


def _column(value: Any, folder: Path) -> str:
    text = text_of(value, "station")
    if not _COLUMN.fullmatch(text):
        raise OptionError(f"{text[:80]!r} is not the name of a column", "use letters, digits and underscores")
    return text


def _sql(value: Any, folder: Path) -> str:
    text = text_of(value, "select station, temperature from decoded")
    parse_query(text)
    return text


def _schema(value: Any, folder: Path) -> str:
    text = text_of(value, "station string, temperature double")
    arrow_schema(text)
    return text


def _condition(value: Any, folder: Path) -> str:
    text = text_of(value, "gust > 25")
    parse_condition(text)
    return text


def _table_path(value: Any, folder: Path) -> str:
    text = text_of(value, "metar")
    if not text.strip() or "\0" in text or ".." in Path(text).parts:
        raise OptionError(f"{text!r} is not the path of a table", 'write a folder such as "metar", without ..')
    return text


def template_kind(purpose: Purpose, example: str) -> Kind:
    """A template for a purpose."""

    def read(value: Any, folder: Path) -> str:
        text = text_of(value, example)
        template(text, purpose)
        return text

    return Kind("template", read)


def _argument(value: Any, folder: Path) -> str:
    text = text_of(value, "{ident}")
    template(text, "argument")
    return text


def _content(value: Any, folder: Path) -> str:
    text = text_of(value, "json")
    if not _COLUMN.fullmatch(text):
        hint = 'write "payload", "json" for the row as JSON, "none", or the name of a column'
        raise OptionError(f"{text[:80]!r} is not a content", hint)
    return text


NAME = Kind("name", _name)
QUEUE = path_kind(_queue)
SITE = Kind("endpoint", _site)
TRIGGER = Kind(f'age or `"{NOW}"`', _trigger, _trigger_text)
SELECTION = Kind("selection", _selection, str)
DECODER = Kind("decoder", _decoder)
COLUMN = Kind("column", _column)
COLUMNS = Listed("list of columns", COLUMN)
SQL = Kind("query", _sql)
SCHEMA = Kind("columns with types", _schema)
CONDITION = Kind("condition", _condition)
TABLE_PATH = Kind("path", _table_path)
CONTENT = Kind('`"payload"`, `"json"`, `"none"` or column', _content)
PATH = template_kind("path", "{feed}/{created:%Y%m%d}.txt")
FEED = template_kind("feed", "wx/derived")
IDENT = template_kind("ident", "{ident}")
TEXT = template_kind("text", "{station}: {gust}")
COMMAND = Listed("list of templates", Kind("template", _argument), is_sequence=True)

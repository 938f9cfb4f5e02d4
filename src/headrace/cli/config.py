"""`headrace config`: check and show the configuration of a site, and print an example to start from."""

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from headrace.cli.failure import notice, show_problems, visible
from headrace.cli.options import json_option
from headrace.cli.output import echo_json
from headrace.site.config import LAYOUT, REPEATED, TABLES
from headrace.site.example import EXAMPLE
from headrace.site.loading import Loaded, check_config, check_warnings, load
from headrace.toml.document import KeyPath
from headrace.toml.kinds import toml_lines
from headrace.toml.layout import keys_of

_COMMENT_COLUMN = 48
_GIVEN, _DEFAULT, _QUEUE = "file", "default", "queue"  # where a value comes from


@click.group(no_args_is_help=False)
def config() -> None:
    """Check and show the configuration of a site, and print an example to start from.

    \b
    Example:
      headrace config example > site.toml
      headrace config check site.toml
    """


@config.command(short_help="List every problem in a configuration.")
@click.argument("path", metavar="FILE")
@json_option
def check(path: str, as_json: bool) -> int:
    """List every problem in FILE, each with its line and its remedy. Exit code 2 if there is any.

    Warnings do not change the exit code: they say what may end badly together with the configurations of other sites.
    The check reads the files and directories that FILE names, and changes nothing.

    \b
    Example:
      headrace config check site.toml && systemctl reload headrace@site
    """
    for warning in check_warnings(path):
        notice(f"warning: {warning}; {warning.hint}", as_json, warning=warning)
    return show_problems(path, check_config(path), as_json)


@config.command(short_help="Show the values of a configuration.")
@click.argument("path", metavar="FILE")
@click.option("--effective", is_flag=True, help="Include the defaults, marked as such.")
@json_option
def show(path: str, effective: bool, as_json: bool) -> None:
    """Show the values in FILE, as valid TOML with absolute paths. Secrets are not shown: they stay in their files.

    \b
    Example:
      headrace config show site.toml --effective
    """
    loaded = load(path)
    values = [value for value in _values(loaded) if effective or value.source == _GIVEN]
    if as_json:
        echo_json({"path": path, "values": values})
        return
    for line in _toml(values, loaded, effective):
        click.echo(visible(line))


@config.command(short_help="Print an example that explains every key.")
@json_option
def example(as_json: bool) -> None:
    """Print a configuration in which every key is explained.

    \b
    Example:
      headrace config example > site.toml
    """
    if as_json:
        echo_json({"toml": EXAMPLE})
    else:
        click.echo(EXAMPLE, nl=False)


# --- values and where they come from --------------------------------------------------------------


class _Value(msgspec.Struct, frozen=True):
    """One key, and where its value comes from."""

    table: str
    place: int | None  # of a repeated table, from 1
    key: str
    value: Any  # as in TOML; None: not set
    source: str


def _values(loaded: Loaded) -> Iterator[_Value]:
    """Every key of every table in the file."""
    for table in TABLES:
        content = getattr(loaded.config, table)
        if table in REPEATED:
            for index, element in enumerate(content):
                yield from _keys(loaded, (table, index), element)
        elif content is not None:
            yield from _keys(loaded, (table,), content)


def _keys(loaded: Loaded, path: KeyPath, struct: msgspec.Struct) -> Iterator[_Value]:
    table, place = str(path[0]), int(path[1]) + 1 if len(path) > 1 else None
    for key in keys_of(type(struct)):
        held = getattr(struct, key.field)
        value = None if held is None else key.kind.write(held)
        yield _Value(table, place, key.name, value, _source(loaded, (*path, key.name)))


def _source(loaded: Loaded, path: KeyPath) -> str:
    if path in loaded.given:
        return _GIVEN
    is_of_queue = path[0] == "queue" or path == ("site", "name")
    return _QUEUE if is_of_queue and loaded.queue_exists else _DEFAULT


# --- as TOML --------------------------------------------------------------------------------------


def _toml(values: list[_Value], loaded: Loaded, effective: bool) -> Iterator[str]:
    yield "# values in effect; marked values are not in the file" if effective else "# values in the file"
    above: tuple[str, int | None] | None = None
    for value in values:
        if (value.table, value.place) != above:
            above = (value.table, value.place)
            yield ""
            yield LAYOUT.bracketed(value.table)
        yield _line(value)
    missing = [LAYOUT.bracketed(table) for table in TABLES if not getattr(loaded.config, table)]
    if effective and missing:
        yield ""
        yield f"# not in the file: {', '.join(missing)}"


def _line(value: _Value) -> str:
    if value.value is None:
        return f"# {value.key} is not set"
    (line,) = toml_lines({value.key: value.value})
    marks = {_DEFAULT: "# default", _QUEUE: "# from the queue"}
    return f"{line:<{_COMMENT_COLUMN}}  {marks[value.source]}" if value.source in marks else line

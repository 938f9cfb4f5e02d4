"""Option types and options that several commands share.

Values are read by the library's own parsers, so that the command line takes exactly what a program may write, and
refuses it in the same words.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.errors import OptionError
from headrace.units import parse_age, parse_size, parse_time

if TYPE_CHECKING:
    from headrace.selection import Selection

Function = TypeVar("Function", bound=Callable[..., Any])


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """A value that a function of the library reads; its errors name the option and say what to write."""

    def __init__(self, name: str, parse: Callable[[str, str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._parse(value, param.opts[0] if param is not None else self.name)


def _age(value: str, what: str) -> float:
    """Seconds; a bare number is seconds."""
    is_bare = isinstance(value, str) and value.replace(".", "", 1).isdecimal()
    return parse_age(f"{value}s" if is_bare else value, what)


def _feed(value: str, what: str) -> str:
    from headrace.product.feed import check_feed

    return check_feed(value)


def _position(value: str, what: str) -> int | str:
    """What `Queue.resolve` takes: a sequence, "oldest", "next", an age or a time."""
    return int(value) if value.isdecimal() else value


def _expiry(value: str, what: str) -> str:
    """An age from now, or a time; checked here, counted when a product is put."""
    if "-" in value:
        parse_time(value, what)
    else:
        parse_age(value, what)
    return value


SIZE = Parsed("size", parse_size)
AGE = Parsed("age", _age)
FEED = Parsed("feed", _feed)
POSITION = Parsed("position", _position)
EXPIRY = Parsed("age|time", _expiry)


def queue_argument(function: Function) -> Function:
    return click.argument("queue_path", metavar="QUEUE")(function)


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")(function)


def selection_options(function: Function) -> Function:
    """--select and --ident; turn them into a selection with `selection_of`."""
    function = click.option("--ident", metavar="REGEX", help="Only products whose ident matches (RE2).")(function)
    return click.option(
        "--select", metavar="SELECTION",
        help="What to take: a feed pattern (* is one level, ** any), then clauses; see headrace select check.",
    )(function)  # fmt: skip


def selection_of(select: str | None, ident: str | None) -> "Selection":
    """The selection that the two options mean; SelectionError says what is wrong with them."""
    from headrace.selection import Selection

    selection = Selection.of(select)
    if ident is None:
        return selection
    if selection.ident is not None:
        raise OptionError("--select and --ident both have an ident pattern", "leave one of them out")
    return selection.replace(ident=ident)

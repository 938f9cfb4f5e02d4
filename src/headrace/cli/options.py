"""Option types and options that several commands share.

Values are read by the library's own parsers, so that the command line takes exactly what a program may write, and
refuses it in the same words.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.units import parse_age, parse_size, parse_time

if TYPE_CHECKING:
    from headrace.selection import Selection

Function = TypeVar("Function", bound=Callable[..., Any])


class Size(click.ParamType):
    """Bytes, such as 2GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return parse_size(value, _name_of(param, self.name))


class Age(click.ParamType):
    """Seconds, such as 90s or 1h; a bare number is seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, str) and value.replace(".", "", 1).isdecimal():
            value += "s"
        return parse_age(value, _name_of(param, self.name))


class Feed(click.ParamType):
    """A feed name."""

    name = "feed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from headrace.product.feed import check_feed

        return check_feed(value)


class Position(click.ParamType):
    """What `Queue.resolve` takes: a sequence, "oldest", "next", an age or a time."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        return int(value) if str(value).isdecimal() else str(value)


class Expiry(click.ParamType):
    """An age from now, or a time; checked here, counted when a product is put."""

    name = "age|time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | datetime:
        if "-" in value:
            parse_time(value, "expiry")
        else:
            parse_age(value, "expiry")
        return str(value)


def _name_of(param: click.Parameter | None, otherwise: str) -> str:
    return param.opts[0] if param is not None else otherwise


def queue_argument(function: Function) -> Function:
    return click.argument("queue_path", metavar="QUEUE")(function)


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")(function)


def selection_options(function: Function) -> Function:
    """--select and --ident; turn them into a selection with `selection_of`."""
    function = click.option("--ident", metavar="REGEX", help="Only products whose ident matches (RE2).")(function)
    return click.option("--select", metavar="PATTERN", help="Only feeds that match: * is one level, ** any.")(function)


def selection_of(select: str | None, ident: str | None) -> "Selection":
    """The selection that the two options mean; SelectionError says what is wrong with them."""
    from headrace.selection import Selection

    return Selection(select, ident)

"""Arguments and options that several commands share, and the queue that an argument names.

The library's own parsers read the values, so the command line accepts what a program may write, and refuses anything
else with the same message.

QUEUE is a directory, a site by its name or its endpoint, or a context (place.py). The credentials for a site come from
its context, or from the environment:

    HEADRACE_USER, HEADRACE_PASSWORD_FILE                          user name, and the file with the password
    HEADRACE_AUTHORITY, HEADRACE_CERTIFICATE, HEADRACE_KEY         for endpoints with tls or quic
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.failure import show_warnings, warn
from headrace.cli.group import QueueArgument
from headrace.errors import NotAQueueError, OptionError, QueueMissingError
from headrace.link.address import SITE
from headrace.units import parse_age, parse_size, parse_time

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from headrace.queue import AnyQueue, Queue
    from headrace.remote.client.silence import OnLoss
    from headrace.selection import Selection

Function = TypeVar("Function", bound=Callable[..., Any])

CONNECT_S_MAX = 10.0  # a person waits
CONNECT_S_MIN = 2.0  # a distant site needs some round trips


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """A value that a function of the library parses; its errors name the option and the remedy."""

    def __init__(self, name: str, parse: Callable[[str, str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._parse(value, param.opts[0] if param is not None else self.name)


def _feed(value: str, what: str) -> str:
    from headrace.product.feed import check_feed

    return check_feed(value)


def _position(value: str, what: str) -> int | str:
    """A position as `Queue.resolve` accepts it: a sequence, "oldest", "next", an age or a time."""
    return int(value) if value.isdecimal() else value


def _expiry(value: str, what: str) -> str:
    """An age or a time. It is checked here; an age is counted from the moment when the product is put."""
    if "-" in value:
        parse_time(value, what)
    else:
        parse_age(value, what)
    return value


SIZE = Parsed("size", parse_size)
AGE = Parsed("age", parse_age)
FEED = Parsed("feed", _feed)
POSITION = Parsed("position", _position)
EXPIRY = Parsed("age|time", _expiry)


def queue_argument(function: Function) -> Function:
    return click.argument("queue_path", cls=QueueArgument, metavar="QUEUE")(function)


def completes(kind: str) -> Callable[[click.Context, click.Parameter, str], "list[CompletionItem[str]]"]:
    """For `shell_complete`: stations, cursors, channels, groups, nodes, feeds or contexts that begin with a text."""

    def find(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem[str]]":
        from click.shell_completion import CompletionItem

        from headrace.cli.completion import words_for

        return [CompletionItem(word) for word in words_for(kind, ctx, incomplete)]

    return find


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")(function)


def selection_options(function: Function) -> Function:
    """--select and --ident; turn them into a selection with `selection_of`."""
    function = click.option("--ident", metavar="REGEX", help="Only products whose ident matches (RE2).")(function)
    return click.option(
        "--select", metavar="SELECTION", shell_complete=completes("feed"),
        help="Which products: a feed pattern (* is one level, ** is any), then clauses; see `headrace select check`.",
    )(function)  # fmt: skip


def selection_of(select: str | None, ident: str | None) -> "Selection":
    """The selection that the two options describe; SelectionError says what is invalid.

    Warns of feed types of LDM, which are valid feeds that nobody has.
    """
    from headrace.product.ldm_feedtypes import ldm_warning
    from headrace.selection import Selection

    selection = Selection.of(select)
    if warning := ldm_warning(selection.feed):
        warn(warning)
    if ident is None:
        return selection
    if selection.ident is not None:
        raise OptionError("--select and --ident both have an ident pattern", "leave one of them out")
    return selection.replace(ident=ident)


# --- the queue ------------------------------------------------------------------------------------


def open_queue(word: str, *, waits: bool = False, within_s: float | None = None) -> "AnyQueue":
    """Open the queue that a word names; SiteUnreachableError if its site does not answer, `within_s` if that is given.

    With `waits`, a command that follows products waits for the return of a site, once it has been there.
    """
    from headrace.cli.place import find_place, has_default
    from headrace.remote.client.connect import REFUSED_S, connect_within

    place = find_place(word)
    show_warnings()
    try:
        on_loss: OnLoss = "wait" if waits else "raise"
        refused_s = None if waits else REFUSED_S
        patience_s = CONNECT_S_MAX if within_s is None else min(CONNECT_S_MAX, max(within_s, CONNECT_S_MIN))
        return connect_within(place.where, patience_s, *place.credentials(), refused_s, on_loss)
    except (NotAQueueError, QueueMissingError) as error:
        if place.where != word or not has_default():
            raise
        raise type(error)(
            error.problem, f"{error.hint}; if you mean the default queue, write @ before {word}"
        ) from None


def open_local_queue(word: str, why: str) -> "Queue":
    """Open the queue in a directory; a site is refused, and `why` is the reason."""
    from headrace.queue import Queue

    path = directory_of(word, why)
    show_warnings()
    return Queue.open(path)


def directory_of(word: str, why: str) -> str:
    """The directory of the queue that a word names; OptionError if it is that of a site, with `why`."""
    from headrace.cli.place import find_place

    place = find_place(word)
    if place.is_remote:
        what = "a site" if place.where.startswith(SITE) else "the endpoint of a site"
        raise OptionError(
            f"{place.where} is {what}, and this command needs the directory of a queue: {why}",
            f"run it on the machine of the queue; if {place.where} is a directory, write ./{place.where}",
        )
    return place.where

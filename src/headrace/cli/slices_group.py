"""Which group and which node a command of `headrace slices` means.

A queue often has one group, and then nobody has to name it. Where there are several, the error lists them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.failure import did_you_mean
from headrace.cli.options import completes
from headrace.errors import OptionError, ShareError, ShareMissingError
from headrace.link.address import is_remote

if TYPE_CHECKING:
    from headrace.queue import AnyQueue
    from headrace.share.interface import AnyShare, NodeState, ShareState

Function = TypeVar("Function", bound=Callable[..., Any])
_SHOWN = 8


def group_options(function: Function) -> Function:
    """--stream and --group, which may be left out if there is no choice; `open_group` opens what they name."""
    function = click.option(
        "--group", metavar="NAME", shell_complete=completes("group"),
        help="The group of nodes. [default: the only one]",
    )(function)  # fmt: skip
    return click.option(
        "--stream", metavar="CHANNEL", shell_complete=completes("channel"),
        help="The channel whose slices they share. [default: the only one with a group]",
    )(function)  # fmt: skip


def open_group(queue: "AnyQueue", stream: str | None, group: str | None) -> "AnyShare":
    """An existing group. ShareMissingError if there is none such; OptionError if there are several."""
    known = [each for each in queue.shares() if stream in (None, each[0]) and group in (None, each[1])]
    if len(known) == 1:
        return queue.share(*known[0], create=False)
    if len(known) > 1:
        names = ", ".join(f"--stream {one} --group {two}" for one, two in known[:_SHOWN])
        more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
        raise OptionError(f"{queue.path} has {len(known)} groups", f"choose one: {names}{more}")
    others = [each for each in queue.shares() if stream in (None, each[0])]
    if group is not None and others:
        of = f"stream {stream!r}" if stream is not None else str(queue.path)
        names = ", ".join(two if stream is not None else f"{two} of {one}" for one, two in others[:_SHOWN])
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        raise ShareMissingError(f"{of} has no group of nodes {group!r}", f"choose one that exists: {names}{more}")
    if stream is not None:
        return queue.share(stream, group or "main", create=False)  # its error names what is missing
    called = f" {group!r}" if group else ""
    hint = "start a node: headrace slices run"
    if is_remote(str(queue.path)):
        hint += "; a site shows the groups of channels that you may receive"
    raise ShareMissingError(f"{queue.path} has no group of nodes{called}", hint)


def find_node(state: "ShareState", name: str) -> "NodeState":
    """The node of that name that is alive; ShareError names the others."""
    alive = {each.name: each for each in state.nodes if each.is_alive}
    if name in alive:
        return alive[name]
    gone = any(each.name == name for each in state.nodes)
    if gone:
        what = "its slices go to others; see: headrace slices status" if alive else "start a node: headrace slices run"
        raise ShareError(f"node {name!r} is dead", what)
    names = ", ".join(sorted(alive)[:_SHOWN]) or "none"
    raise ShareError(
        f"group {state.group!r} of {state.stream!r} has no node {name!r}{did_you_mean(name, alive)}",
        f"its nodes are: {names}",
    )


def name_of(share: "AnyShare") -> str:
    return f"group {share.terms.group!r} of {share.terms.stream!r}"

"""`--in-order` and `--pace`: a release buffer or a pacer in front of a command that follows a stream."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from headrace.cli.options import AGE
from headrace.errors import OptionError

if TYPE_CHECKING:
    from headrace.timing import Pacer, ReleaseBuffer
    from headrace.timing.intake import Source

Function = TypeVar("Function", bound=Callable[..., object])


def ordering_options(function: Function) -> Function:
    """The two options, as parameters `in_order` and `pace`."""
    for option in (
        click.option(
            "--pace", type=AGE, metavar="DELAY",
            help="In the order and with the spacing of their creation, this long behind the fastest, such as 200ms.",
        ),
        click.option(
            "--in-order", type=AGE, metavar="HOLD",
            help="In the order of their creation: hold products for up to this long, such as 200ms.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def ordered(
    source: "Source", in_order: float | None, pace: float | None, timeout_s: float | None = None
) -> "ReleaseBuffer | Pacer | None":
    """What the options ask for; None: the source as it is. `timeout_s` is for consumers."""
    if in_order is not None and pace is not None:
        raise OptionError("--in-order contradicts --pace", "give --pace alone: it orders products, too")
    if in_order is not None:
        from headrace.timing import ReleaseBuffer  # here and below: saves the start of commands that need neither

        return ReleaseBuffer(source, hold=in_order, timeout=timeout_s)
    if pace is not None:
        from headrace.timing import Pacer

        return Pacer(source, delay=pace, timeout=timeout_s)
    return None

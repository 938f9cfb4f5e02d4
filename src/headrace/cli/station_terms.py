"""The terms of a station: as options of the command line, and in words.

Values reach the library as they are written, so that the library checks them and its message names the remedy. Only
numbers become numbers here, and `none` removes a limit. A station of a channel negotiates some terms with its channel,
under the channel's names for them (`for_channel`).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click

from headrace.cli.options import selection_of
from headrace.station import StationTerms
from headrace.units import format_age, format_time

Function = TypeVar("Function", bound=Callable[..., Any])
_NONE = "none"


def _number(text: str) -> Any:
    return None if text == _NONE else int(text) if text.isdecimal() else text


def _text(text: str) -> Any:
    """An age or a time, which the library parses."""
    return None if text == _NONE else text


class _Option(NamedTuple):
    metavar: str
    help: str
    read: Callable[[str], Any] = str


_OPTIONS = {
    "capacity": _Option("COUNT|none", "Products that may wait here; none: as many as the queue holds.", _number),
    "prescale": _Option("N", "Take every Nth selected product.", _number),
    "order": _Option("any|fifo|priority|deadline", "The order in which products are handed out."),
    "discard": _Option("any|fifo|lifo|priority|deadline", "Which product a full station drops; lifo: the new product."),
    "restore": _Option("input|output|start|group", "Where products of dead consumers go."),
    "deliveries_max": _Option("N", "Park a product after N deliveries; 0: never.", _number),
    "hung_after": _Option("AGE", "Treat a consumer without a heartbeat for this long as dead; 0: never.", _text),
    "distribution": _Option("round_robin|least_loaded", "How the stations of a group share products."),
    "timeout": _Option("AGE|none", "Do not hand out products older than this, such as 10s.", _text),
    "start_time": _Option("TIME|none", "Hand out nothing before this time; ISO 8601.", _text),
    "stop_time": _Option("TIME|none", "Deliver nothing from this time on; ISO 8601.", _text),
    "batch_max": _Option("COUNT|none", "Maximum number of products that a consumer gets at once.", _number),
    "pacing": _Option("AGE", "How long a delivery may wait for its batch to fill.", _text),
    "consumers_max": _Option("COUNT|none", "Maximum number of consumers.", _number),
    "max_queue": _Option("COUNT|none", "Reject puts while this many products wait.", _number),
}
_IN_A_CHANNEL = {"capacity": "max_per_consumer", "blocking": "reliability", "durable": "connections"}


def term_options(function: Function) -> Function:
    """An option for each term that can be changed; turn them into terms with `given_terms`."""
    for name, option in reversed(_OPTIONS.items()):
        spelling = f"--{name.replace('_', '-')}"
        function = click.option(spelling, name, metavar=option.metavar, help=option.help)(function)
    for spelling, name, text in (
        ("--transient/--durable", "transient", "Remove the station with its last consumer, or keep it."),
        ("--blocking/--no-blocking", "blocking", "When the station is full, puts wait, or products bypass it."),
    ):
        function = click.option(spelling, name, default=None, help=text)(function)
    return click.option("--select", metavar="TEXT", help="Which products: a feed pattern or any selection.")(function)


def given_terms(
    select: str | None, blocking: bool | None, transient: bool | None, **texts: str | None
) -> dict[str, Any]:
    """The terms on the command line, as `Queue.station` accepts them."""
    given = {name: _OPTIONS[name].read(text) for name, text in texts.items() if text is not None}
    if select is not None:
        selection_of(select, None)  # it may warn
        given["selection"] = select
    if blocking is not None:
        given["blocking"] = blocking
    if transient is not None:
        given["durable"] = not transient
    return given


def for_channel(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same terms as `Channel.station` accepts them."""
    named = {_IN_A_CHANNEL.get(option, option): value for option, value in given.items()}
    for option in ("reliability", "connections"):
        if option in named:
            named[option] = "persistent" if named[option] else "best_effort"
    return named


# --- words ----------------------------------------------------------------------------------------


def terms_in_words(terms: StationTerms) -> dict[str, str]:
    """All terms of a station, for people."""
    t = terms
    return {
        "selection": selection_text(t.selection, t.local),
        "prescale": "takes all" if t.prescale == 1 else f"takes one of {t.prescale:,}",
        "capacity": "as much as the queue holds" if t.capacity is None else f"{t.capacity:,} products",
        "when it is full": _when_full(t),
        "order": t.order,
        "restore": f"to the {t.restore}",
        "deliveries": f"parked after {t.deliveries_max:,}" if t.deliveries_max else "any number",
        "hung after": format_age(t.hung_after_s) if t.hung_after_s else "never",
        "durable": "yes" if t.durable else "no, removed with its last consumer",
        "group": "none" if t.group is None else f"{t.group}, {t.distribution}",
        "channel": t.channel or "none",
        "timeout": "none" if t.timeout_s is None else format_age(t.timeout_s),
        "start, stop": ", ".join("none" if ns is None else format_time(ns) for ns in (t.start_ns, t.stop_ns)),
        "batch": _batch(t),
        "consumers": _limit(t.consumers_max),
        "waiting before puts are rejected": _limit(t.max_queue),
        "paused": "yes" if t.paused else "no",
    }


def selection_text(selection: str, local: bool = False) -> str:
    """A station without a selection takes everything; a Python function has no text."""
    return " and ".join(part for part in (selection, "a Python function" if local else "") if part) or "everything"


def _when_full(terms: StationTerms) -> str:
    if terms.blocking:
        return "puts wait"
    if terms.capacity is None:
        return "the queue evicts its oldest"
    return f"discards {terms.discard}"


def _batch(terms: StationTerms) -> str:
    paced = f", waiting up to {format_age(terms.pacing_s)} for it" if terms.pacing_s else ""
    return "as many as requested" if terms.batch_max is None else f"up to {terms.batch_max:,}{paced}"


def _limit(number: int | None) -> str:
    return "any number" if number is None else f"up to {number:,}"

"""Tightening: what a station may say beside its channel.

A station inherits every option of its channel and may only tighten. What the channel leaves open (`None`, `any`) a
station may say as it likes; what the channel has said, it may say in a narrower sense:

    order, discard                          the same policy
    max_per_consumer, batch_max,            at most the channel's
    consumers_max, timeout, pacing
    start_time                              the channel's or later
    stop_time                               the channel's or earlier
    connections                             persistent where the channel says best_effort, not the other way round
    reliability, max_queue, suppliers_max   the channel's alone

The last three are promises to the suppliers. A station that turned `persistent`, or rejected pushes earlier than its
channel, would hold up suppliers who were told that they would not be: for them that is looser, not tighter.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.channel.qos import FIELDS, POLICIES, Conflict, QoS, option_text, terms_error

CHANNEL_ONLY = ("reliability", "max_queue", "suppliers_max")
_SAME = ("order", "discard")
_AT_MOST = ("max_per_consumer", "timeout", "stop_time", "batch_max", "pacing", "consumers_max")


def tighten(channel: QoS, station: QoS) -> QoS:
    """The QoS of a station that says `station`: that, and the channel's where it leaves an option open.

    TermsError names each option in which it would be looser than the channel.
    """
    conflicts = looser(channel, station)
    if conflicts:
        raise terms_error(conflicts)
    inherited = {
        field: getattr(channel, field) for option, field in FIELDS.items() if is_open(option, getattr(station, field))
    }
    return msgspec.structs.replace(station, **inherited)


def looser(channel: QoS, station: QoS) -> list[Conflict]:
    """Each option in which a station would promise less than its channel does."""
    found: list[Conflict] = []
    for option, field in FIELDS.items():
        theirs, own = getattr(channel, field), getattr(station, field)
        if own != theirs and not is_open(option, own):
            found += _compare(option, theirs, own)
    return found


def is_open(option: str, value: Any) -> bool:
    """Whether this value says nothing."""
    return bool(value == "any") if option in POLICIES else value is None


def _compare(option: str, theirs: Any, own: Any) -> Iterator[Conflict]:
    """Nothing if `own` is tighter than `theirs`."""
    ours, limit = option_text(option, own), option_text(option, theirs)
    if option in CHANNEL_ONLY:
        yield Conflict(
            (option,),
            f"{option} is the channel's alone: it has {limit}, the station asks for {ours}",
            "leave it out, change the channel, or open another channel on the same feeds",
        )
    elif is_open(option, theirs):
        return
    elif option in _SAME:
        yield Conflict(
            (option,),
            f"the channel has {option} {limit}, the station asks for {ours}",
            f"leave it out, or change the channel to {option} any, so that stations may choose",
        )
    elif option == "connections" and own == "best_effort":
        yield Conflict(
            (option,),
            "the channel keeps connections persistent, the station asks for best_effort",
            "leave it out, or change the channel to connections best_effort, which stations may tighten",
        )
    elif option in _AT_MOST and own > theirs:
        remedy = f"choose {limit} or less, or change the channel"
        yield Conflict((option,), f"{option} {ours} exceeds the channel's {limit}", remedy)
    elif option == "start_time" and own < theirs:
        remedy = f"choose {limit} or later, or change the channel"
        yield Conflict((option,), f"start_time {ours} is before the channel's {limit}", remedy)

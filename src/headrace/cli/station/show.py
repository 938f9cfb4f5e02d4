"""`headrace station show`: everything about one station."""

import click

from headrace.cli.opening import open_queue
from headrace.cli.options import json_option, queue_argument
from headrace.cli.output import echo_json, format_short_age, show_table, show_terms
from headrace.cli.station.standing import ahead_of, existing, line_of
from headrace.cli.station.terms import terms_of
from headrace.station import ConsumerStatistics, StationStatistics
from headrace.units import format_age, format_time

_CONSUMERS = ("place", "pid", "attached", "last beat", "leased", "delivered", "acknowledged", "alive")


@click.command()
@queue_argument
@click.argument("name")
@json_option
def show(queue_path: str, name: str, as_json: bool) -> None:
    """Show the terms of the station NAME of QUEUE, its counts, what it dropped and why, and its consumers.

    \b
    Example:
      headrace station show wx.queue decode
      headrace station show wx.queue decode --json | jq .statistics.dropped
    """
    with open_queue(queue_path) as queue:
        station = existing(queue, name)
        terms, consumers, line = station.terms, station.consumers(), line_of(queue, station)
    statistics = next(told for told in line if told.name == name)
    after = ahead_of(statistics, line)
    if as_json:
        echo_json({"name": name, "after": after, "terms": terms, "statistics": statistics, "consumers": consumers})
        return
    show_terms(name, {**terms_of(terms), "stands behind": ", ".join(after) or "none"})
    show_terms("now", _now(statistics))
    show_terms("ever", _ever(statistics))
    show_terms("not delivered, by cause", _causes(statistics))
    if consumers:
        show_table("consumers", _CONSUMERS, [_row(consumer) for consumer in consumers], right=[0, 1, 3, 4, 5, 6])


def _now(told: StationStatistics) -> dict[str, object]:
    return {
        "position": told.position,
        "behind": f"{told.behind:,} not looked at yet",
        "waiting": f"{told.waiting:,}",
        "leased": f"{told.leased:,}",
        "retries": f"{told.retries:,} of these",
        "parked": f"{told.parked:,}",
        "lag": format_age(told.oldest_age_s or 0.0),
    }


def _ever(told: StationStatistics) -> dict[str, object]:
    return {
        "admitted": f"{told.admitted:,}",
        "delivered": f"{told.delivered:,}, {told.redelivered:,} of these again",
        "acknowledged": f"{told.acknowledged:,}",
        "discarded by consumers": f"{told.discarded:,}",
        "taken back from dead consumers": f"{told.restored:,}",
        "parked": f"{told.parked_total:,}",
        "puts rejected": f"{told.rejected:,}",
    }


def _causes(told: StationStatistics) -> dict[str, object]:
    causes = {"expired": told.expired, "evicted": told.evicted, "damaged": told.damaged, **told.dropped}
    return {cause.replace("_", " "): f"{count:,}" for cause, count in causes.items()}


def _row(consumer: ConsumerStatistics) -> tuple[object, ...]:
    counts = (f"{count:,}" for count in (consumer.leased, consumer.delivered, consumer.acknowledged))
    beat = f"{format_short_age(consumer.beat_age_s)} ago"
    attached = format_time(consumer.attached_ns)
    return (consumer.place, consumer.pid, attached, beat, *counts, "yes" if consumer.alive else "no")

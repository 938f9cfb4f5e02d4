"""`headrace sites --follow`: one line for each site, and each program if wanted, that joins, leaves or changes."""

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from headrace.cli.failure import visible
from headrace.cli.output import json_line
from headrace.cli.stream import stop_when_unread
from headrace.units import format_time

if TYPE_CHECKING:
    from headrace.link.session import SessionTerms
    from headrace.queue import MemberEvent
    from headrace.remote.client.queue import RemoteQueue

_PATIENCE_S = 10.0
_LOOK_S = 2.0
_FEEDS_SHOWN = 5


def follow_members(
    terms: "SessionTerms", site: str | None, role: str | None, timeout: float | None, as_json: bool
) -> None:
    """Write events until Ctrl-C, or until none has come for `timeout` seconds; a lost site is waited for."""
    with _connect(terms, site) as queue:
        stream = queue.members(role, timeout=timeout)
        unread = stop_when_unread(stream.stop)
        for event in stream:
            click.echo(json_line(event_values(event)) if as_json else event_text(event))
            sys.stdout.flush()
        if unread.is_set():
            raise BrokenPipeError


def _connect(terms: "SessionTerms", site: str | None) -> "RemoteQueue":
    from headrace.link.credentials import principal_of
    from headrace.link.session import open_session
    from headrace.remote.client.connect import find_site
    from headrace.remote.client.connection import Connection
    from headrace.remote.client.queue import RemoteQueue

    where = terms.connect[0]
    session = open_session(terms)
    try:
        found = find_site(session, where, site, _LOOK_S)
        return RemoteQueue(Connection(session, where, found, principal_of(terms.tls, terms.user), _PATIENCE_S, "wait"))
    except BaseException:
        session.close()  # type: ignore[no-untyped-call]
        raise


def event_values(event: "MemberEvent") -> dict[str, object]:
    """An event for programs."""
    member = msgspec.structs.asdict(event.member)
    return {"time": format_time(event.time_ns), "event": event.kind, "reason": event.reason, **member}


def event_text(event: "MemberEvent") -> str:
    """An event for people: time, what happened, to whom, why, and the feeds."""
    member = event.member
    who = f"{member.role} {member.name or 'without a name'}"
    if member.role != "site":
        by = (
            f" of {member.user}"
            if member.user and member.role != "client"
            else f", process {member.pid}"
            if member.pid
            else ""
        )
        who += f"{by} at {member.site}"
    more = len(member.feeds) - _FEEDS_SHOWN
    feeds = ", ".join(member.feeds[:_FEEDS_SHOWN]) + (f" and {more} more" if more > 0 else "")
    line = f"{format_time(event.time_ns)}  {event.kind:<7}  {visible(who)}  ({event.reason})"
    return f"{line}  {visible(feeds)}" if feeds and event.kind != "left" else line

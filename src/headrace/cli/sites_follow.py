"""`headrace sites --follow`: one line for each site, and each program if wanted, that joins, leaves or changes."""

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from headrace.cli.failure import json_line
from headrace.cli.options import CONNECT_S_MAX
from headrace.cli.stream import stop_when_unread
from headrace.text import visible
from headrace.units import format_time

if TYPE_CHECKING:
    from headrace.queue import MemberEvent
    from headrace.remote.client.find import Found
    from headrace.remote.client.queue import RemoteQueue

_FEEDS_SHOWN = 5


def follow_members(found: "Found", role: str | None, timeout: float | None, as_json: bool) -> None:
    """Write events until Ctrl-C, or until none has come for `timeout` seconds; a lost site is waited for."""
    with _connect(found) as queue:
        stream = queue.members(role, timeout=timeout)
        unread = stop_when_unread(stream.stop)
        for event in stream:
            click.echo(json_line(event_values(event)) if as_json else event_text(event))
            sys.stdout.flush()
        if unread.is_set():
            raise BrokenPipeError


def _connect(found: "Found") -> "RemoteQueue":
    from headrace.remote.client.connection import Connection
    from headrace.remote.client.queue import RemoteQueue

    try:
        return RemoteQueue(
            Connection(found.session, found.endpoint, found.site, found.principal, CONNECT_S_MAX, "wait")
        )
    except BaseException:
        found.session.close()  # type: ignore[no-untyped-call]
        raise


def event_values(event: "MemberEvent") -> dict[str, object]:
    """An event for programs."""
    member = msgspec.structs.asdict(event.member)
    return {"time": format_time(event.time_ns), "event": event.kind, "reason": event.reason, **member}


def event_text(event: "MemberEvent") -> str:
    """An event for people: time, what happened, to whom, why, and the feeds."""
    member = event.member
    who = f"{member.role} {member.name or 'without a name'}"
    if event.reason == "duplicate":
        who += f", session {member.instance}"
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
    line = f"{format_time(event.time_ns)}  {visible(event.kind):<7}  {visible(who)}  ({visible(event.reason)})"
    return f"{line}  {visible(feeds)}" if feeds and event.kind != "left" else line

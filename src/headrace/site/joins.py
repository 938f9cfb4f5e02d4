"""Joins: who links to the session of a site, and whose link ends, as the audit log has it.

The name is that of the certificate, which the link has proved; Zenoh tells no name of a user. The subject is the id of
the other session, and the peer is its address.
"""

from typing import Any

import zenoh
from zenoh.handlers import Callback

from headrace.guard import guarded
from headrace.link.audit import Audit


def note_joins(session: zenoh.Session, audit: Audit) -> Any:
    """Note each link, those that exist included, until the listener that this returns is undeclared."""

    def note(event: zenoh.LinkEvent) -> None:
        """Runs on Zenoh's thread."""
        action = "join" if event.kind == zenoh.SampleKind.PUT else "leave"
        link = event.link
        audit.note(action, str(link.zid), principal=link.auth_identifier, peer=str(link.dst))

    return session.info.declare_link_events_listener(Callback(guarded(note), indirect=False), history=True)

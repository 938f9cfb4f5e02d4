"""Which calls of remote clients the audit log has: those that change what others use, and every one that is refused.

Puts, reads and acknowledgements are not in it: they are the traffic. A call that is refused by rights or by a quota is,
whatever it is, with its reason.
"""

from collections.abc import Callable
from typing import Any

from headrace.errors import AccessDeniedError, QuotaError
from headrace.link.audit import Audit
from headrace.remote.protocol import calls, channel_calls, share_calls
from headrace.remote.server.pending_call import PendingCall

ACTIONS: dict[type, str | Callable[[Any], str]] = {
    calls.AddDictionary: "add dictionary", calls.OpenCursor: "open cursor", calls.RemoveCursor: "remove cursor",
    calls.OpenStation: "open station", calls.ChangeStation: "change station", calls.SeekStation: "move station",
    calls.PauseStation: lambda call: "pause station" if call.paused else "resume station",
    calls.RemoveStation: "remove station", calls.Unpark: "unpark products", calls.Leave: "disconnect",
    channel_calls.OpenChannel: "open channel", channel_calls.ChangeChannel: "change channel",
    channel_calls.RemoveChannel: "remove channel", channel_calls.OpenMember: "open station",
    channel_calls.ChangeMember: "change station", channel_calls.OpenSupplier: "open supplier",
    share_calls.OpenShare: "open group", share_calls.RemoveShare: "remove group",
    share_calls.UnparkProducts: "unpark products", share_calls.DrainSeat: "drain node",
    share_calls.JoinShare: "join group", share_calls.MoveSlices: "move slices", share_calls.SeizeSeat: "end node",
}  # fmt: skip


class AuditedCalls:
    """One for a site; safe in all its threads."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def join(self, client: str, name: str | None) -> None:
        """A client calls for the first time."""
        self._audit.note("connect", client, principal=name)

    def done(self, pending: PendingCall) -> None:
        """A call has been executed."""
        action = ACTIONS.get(type(pending.call))
        if action is not None:
            self._audit.note(
                _named(action, pending.call), _subject(pending.call), principal=pending.client.name or None
            )

    def exceeded(self, name: str | None, error: QuotaError) -> None:
        """A principal was refused, or slowed down, by one of its quotas."""
        self._audit.refuse("quota", principal=name, why=error.problem)

    def failed(self, pending: PendingCall, error: Exception) -> None:
        """A call has failed; noted if it was refused."""
        if isinstance(error, AccessDeniedError):
            call = pending.call
            action = _named(ACTIONS.get(type(call), _kind(call)), call)
            self._audit.refuse(action, _subject(call), principal=pending.client.name or None, why=error.problem)


def _named(action: str | Callable[[Any], str], call: Any) -> str:
    return action if isinstance(action, str) else action(call)


def _kind(call: Any) -> str:
    """PutMany: "put many"."""
    name = type(call).__name__
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _subject(call: Any) -> str:
    """What the call is about: `channel/station`, `stream/group`, a name, a feed or a selection."""
    parts = [getattr(call, field, None) for field in ("channel", "stream", "group", "name", "station")]
    told = "/".join(part for part in parts if isinstance(part, str))
    return told or str(getattr(call, "feed", None) or getattr(call, "selection", None) or "")

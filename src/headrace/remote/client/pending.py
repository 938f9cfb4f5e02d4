"""A call that was sent and has no reply yet, and what arrived for it.

PendingReply    for a thread that takes the reply when it is there
SlowReply       for a caller that may stop waiting and wait again later, or that waits in an event loop
"""

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

import zenoh

from headrace.errors import FabricMessageError
from headrace.guard import guarded
from headrace.link.keys import is_wild
from headrace.payload.compression.link import ENCODING, unfolded
from headrace.relay.messages.page import PAGE_BYTES_MAX
from headrace.remote.protocol.envelope import BUSY

_NONE = zenoh.ConsolidationMode.NONE
_BLOCK = zenoh.CongestionControl.BLOCK

RawReply = tuple[bytes, bytes]  # head and payload


class PendingReply:
    """A call that was sent; its reply is taken once."""

    __slots__ = ("__weakref__", "_replies", "_token", "due_s")

    due_s: float  # when the site should have replied, by the monotonic clock; its sender sets it

    def __init__(
        self, session: zenoh.Session, key: str, head: bytes, payload: Any, timeout_s: float,
        encoding: str | None = None,
    ) -> None:  # fmt: skip
        self._token = zenoh.CancellationToken()
        self._replies = session.get(
            key, zenoh.handlers.FifoChannel(2), payload=payload, attachment=head, timeout=timeout_s, express=True,
            consolidation=_NONE, congestion_control=_BLOCK, cancellation_token=self._token, encoding=encoding,
        )  # fmt: skip

    def take(self) -> RawReply | None:
        """Wait for the reply; None if none arrives, FabricMessageError if the site refused the call."""
        return _raw_reply(next(self._replies, None))

    def cancel(self) -> None:
        """Abandon the call; a thread in `take` continues at once."""
        self._token.cancel()  # type: ignore[no-untyped-call]


class SlowReply(PendingReply):
    """A call whose reply may take longer than a caller waits, who then waits again for the same one."""

    __slots__ = ("ended",)

    def __init__(
        self, session: zenoh.Session, key: str, head: bytes, payload: Any, timeout_s: float,
        encoding: str | None = None,
    ) -> None:  # fmt: skip
        self._token = zenoh.CancellationToken()
        self.ended: Future[zenoh.Reply | None] = Future()  # has the reply, or None if there will be none
        session.get(
            key, zenoh.handlers.Callback(guarded(self._end), guarded(self._end), indirect=False),
            payload=payload, attachment=head, timeout=timeout_s, express=True, consolidation=_NONE,
            congestion_control=_BLOCK, cancellation_token=self._token, encoding=encoding,
        )  # fmt: skip

    def _end(self, reply: zenoh.Reply | None = None) -> None:
        """Runs on a thread of Zenoh's, which must not wait."""
        if not self.ended.done():
            with suppress(InvalidStateError):
                self.ended.set_result(reply)

    def has_ended(self, within_s: float | None) -> bool:
        """Whether there is a reply, or will be none; waits for that, without limit if `within_s` is None."""
        try:
            self.ended.result(within_s)
        except TimeoutError:
            return False
        return True

    def take(self) -> RawReply | None:
        return _raw_reply(self.ended.result())

    def when_ended(self, act: Callable[[], None]) -> None:
        """Call this once there is a reply, or will be none: on a thread of Zenoh's, or here and now."""
        self.ended.add_done_callback(lambda _: act())


def _raw_reply(reply: zenoh.Reply | None) -> RawReply | None:
    if reply is None:
        return None
    if reply.ok is None:
        why = reply.err.payload.to_bytes() if reply.err is not None else BUSY
        if why == BUSY or why == b"Timeout":
            return None
        raise FabricMessageError(f"the site refused the call: {why.decode(errors='replace')}", "nothing was executed")
    if is_wild(reply.ok.key_expr):
        raise FabricMessageError("a reply has a key with wild cards", "it does not come from the site")
    head, payload = reply.ok.attachment, reply.ok.payload.to_bytes()
    if payload and str(reply.ok.encoding) == ENCODING:
        payload = unfolded(payload, PAGE_BYTES_MAX, "a reply")
    return head.to_bytes() if head is not None else b"", payload

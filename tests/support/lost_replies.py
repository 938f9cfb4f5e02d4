"""Replies of a site that are lost on their way, so that the client repeats its call."""

from collections.abc import Callable
from typing import Any

import pytest
import zenoh

from headrace.remote.server import pending_call as pending_calls

PendingCall = pending_calls.PendingCall


def lose_replies(monkeypatch: pytest.MonkeyPatch, is_lost: Callable[[PendingCall], bool]) -> list[str]:
    """Lose the replies that the function chooses; the names of their calls."""
    lost: list[str] = []
    finish, send = PendingCall.finish_with, pending_calls._send
    losing: dict[int, tuple[pending_calls.MakeReply, str]] = {}  # what makes the reply, and the name of its call

    def finish_with(pending: PendingCall, make: pending_calls.MakeReply) -> None:
        if is_lost(pending):
            losing[id(make)] = make, type(pending.call).__name__
        finish(pending, make)

    def send_or_drop(query: zenoh.Query, make: pending_calls.MakeReply, *more: Any) -> None:
        if id(make) in losing:
            lost.append(losing.pop(id(make))[1])
            query.drop()
        else:
            send(query, make, *more)

    monkeypatch.setattr(pending_calls, "_send", send_or_drop)
    monkeypatch.setattr(PendingCall, "finish_with", finish_with)
    return lost

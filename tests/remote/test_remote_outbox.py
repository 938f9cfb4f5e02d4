"""Replies to one client are sent by one thread at a time, and in order."""

import threading

import pytest

from headrace.remote.server import outbox
from headrace.remote.server.outbox import Outbox


def test_a_thread_leaves_its_reply_to_the_one_that_sends() -> None:
    box, sent = Outbox(), list[tuple[int, int]]()
    may_go_on, has_begun = threading.Event(), threading.Event()

    def note(number: int) -> None:
        sent.append((number, threading.get_ident()))

    def block() -> None:
        has_begun.set()
        may_go_on.wait(240)
        note(0)

    slow = threading.Thread(target=box.send, args=(block,))
    slow.start()
    assert has_begun.wait(240)
    for number in (1, 2, 3):
        box.send(lambda number=number: note(number))  # type: ignore[misc]
    assert sent == [], "the caller did not wait"
    may_go_on.set()
    slow.join()
    assert sent == [(number, slow.ident) for number in range(4)]
    box.send(lambda: note(4))
    assert sent[-1] == (4, threading.get_ident()), "nobody sends any more"


def test_a_reply_that_fails_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    box, sent = Outbox(), list[int]()

    def fail() -> None:
        box.send(lambda: sent.append(1))  # it waits: this thread is sending
        raise ValueError("no")

    box.send(fail)
    assert sent == [1]
    assert "a reply could not be sent" in caplog.text


def test_replies_beyond_the_limit_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "OUTBOX_MAX", 2)
    box, sent = Outbox(), list[int]()

    def first() -> None:
        for number in range(5):
            box.send(lambda number=number: sent.append(number))  # type: ignore[misc]

    box.send(first)
    assert sent == [0, 1]
    box.send(lambda: sent.append(9))
    assert sent == [0, 1, 9]

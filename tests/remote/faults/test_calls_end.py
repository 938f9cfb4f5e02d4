"""Calls end: by their timeout, by patience, or, if the caller wants that, when the site returns."""

import asyncio
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import headrace
from headrace.errors import OptionError, SiteUnreachableError
from headrace.remote.client import connection as connections
from headrace.remote.client.connection import Connection, Detached
from headrace.remote.client.puts import Puts
from headrace.remote.client.queue import RemoteQueue
from headrace.remote.client.silence import Silence
from support.serving import Served, Wire, idents, put, when
from support.waiting import until


def took(act: Callable[[], Any]) -> float:
    """Print how long it took, for people; no test passes or fails by the clock."""
    begun_s = time.monotonic()
    try:
        act()
    finally:
        print(f"{time.monotonic() - begun_s:.2f} s")
    return time.monotonic() - begun_s


CALLS: dict[str, Callable[[RemoteQueue], Any]] = {
    "put": lambda queue: queue.put(b"1", feed="wx", timeout=0.5),
    "put_many": lambda queue: queue.put_many([b"1"], feed="wx", timeout=0.5),
    "push": lambda queue: queue.channel("c", "wx").supplier().push(b"1", timeout=0.5),
}


@pytest.mark.parametrize("act", CALLS.values(), ids=CALLS)
def test_a_timeout_ends_a_put_at_a_site_that_is_frozen(
    served: Served, wire: Wire, act: Callable[[RemoteQueue], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patience is an hour here: without the timeout, the call would not end."""
    remote = served.connect(wire.endpoint, patience="1h")
    real = Puts.put_by

    async def frozen(self: Puts, *arguments: Any) -> Any:  # everything before the put itself has its reply
        wire.freeze()
        return await real(self, *arguments)

    monkeypatch.setattr(Puts, "put_by", frozen)
    with pytest.raises(SiteUnreachableError, match="the call may have been executed, or not"):
        took(lambda: act(remote))
    wire.thaw()
    monkeypatch.undo()
    assert remote.wait_alive(240)


@pytest.mark.parametrize("timeout", [None, 0.7])
def test_a_get_that_begins_while_the_site_is_silent_does_not_give_up_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    """A program that calls again after the error would spin otherwise."""
    remote = served.connect(patience=0.5)
    consumer = remote.station("s", "wx").attach()
    served.stop()
    attempts = 0
    real = Connection.pause_by

    async def pause_by(self: Connection, *arguments: Any) -> None:
        nonlocal attempts
        attempts += 1
        await real(self, *arguments)

    with pytest.raises(SiteUnreachableError):
        consumer.get(1)
    monkeypatch.setattr(Connection, "pause_by", pause_by)
    with pytest.raises(SiteUnreachableError):
        consumer.get(1, timeout)
    assert attempts > 1


def test_a_timeout_ends_a_get_and_the_next_one_has_what_the_first_leased(served: Served, wire: Wire) -> None:
    remote = served.connect(wire.endpoint, patience="1h")
    station = remote.station("s", "**")
    with station.attach() as consumer:
        wire.freeze()
        took(lambda: consumer.get(timeout=0.3) is None or None)
        wire.thaw()
        put(served.queue, "1")
        batch = consumer.get()
        assert idents(batch) == ["1"]
        consumer.ack(batch)
    assert station.statistics().redelivered == 0


@pytest.mark.parametrize("timeout", [None, "1h"])
def test_a_get_and_a_follower_end_after_patience_when_the_site_dies(served: Served, timeout: str | None) -> None:
    remote = served.connect(patience=0.5)
    consumer = remote.station("s", "**").attach()
    follower = remote.follow(timeout=timeout)
    when(lambda: served.calls > 3, served.stop)
    with pytest.raises(SiteUnreachableError):
        took(lambda: consumer.get(timeout=timeout))
    with pytest.raises(SiteUnreachableError):
        took(lambda: next(follower))
    with pytest.raises(SiteUnreachableError):
        took(lambda: remote.put(b"1", feed="wx"))
    assert not remote.is_alive


def test_calls_wait_for_the_return_of_the_site_if_they_are_asked_to(served: Served) -> None:
    remote = served.connect(patience=0.1, on_loss="wait")
    consumer = remote.station("s", "**").attach()
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.extend(idents(consumer.get())), daemon=True)
    thread.start()
    until(lambda: served.calls > 2, "the get")
    served.stop()
    putter = threading.Thread(target=lambda: remote.put(b"1", feed="wx", ident="one"), daemon=True)
    putter.start()
    until(lambda: remote._connection.silence.is_silent and not remote.is_alive, "the silence")
    with pytest.raises(SiteUnreachableError):
        remote.put(b"2", feed="wx", timeout=0.2)  # a timeout ends a call in any case
    served.start()
    assert remote.wait_alive(240)
    putter.join(240)
    thread.join(240)
    assert got == ["one"]


def test_a_site_is_alive_or_not(served: Served) -> None:
    remote = served.connect()
    assert remote.is_alive
    assert served.queue.is_alive
    served.stop()
    assert not remote.is_alive
    assert not remote.wait_alive(0.1)
    served.start()
    assert remote.wait_alive()
    remote.close()
    with pytest.raises(headrace.QueueClosedError):
        remote.wait_alive(0)


def test_an_unknown_policy_is_refused(served: Served) -> None:
    with pytest.raises(OptionError, match="on_loss 'retry' is unknown"):
        headrace.connect(served.endpoint, on_loss="retry")  # type: ignore[arg-type]


def test_a_put_of_an_event_loop_waits_for_the_site_as_long_as_any_other(served: Served, wire: Wire) -> None:
    """And not as long as its thread waits for a blocking station at a time."""
    remote = served.connect(wire.endpoint)

    async def run() -> int | headrace.Duplicate:
        wire.cut()
        task = asyncio.create_task(remote.put_async(b"1", feed="wx"))
        await asyncio.sleep(2)
        wire.restore()
        return await task

    assert asyncio.run(run()) == 1


def test_a_timeout_ends_a_follower_at_a_site_that_is_frozen_and_the_next_call_goes_on(
    served: Served, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if nobody notices that the link is broken."""
    remote = served.connect(wire.endpoint, patience="1h")
    follower = remote.follow(timeout=0.3)
    monkeypatch.setattr(remote._connection, "_see", lambda event: None)
    monkeypatch.setattr(remote._connection, "_abandon", lambda: None)
    put(served.queue, "1")
    assert idents(next(follower)) == ["1"]
    wire.freeze()
    with pytest.raises(SiteUnreachableError):
        took(lambda: next(follower))
    put(served.queue, "2")
    wire.thaw()
    assert idents(next(follower)) == ["2"]


FOLLOWS: dict[str, Callable[[RemoteQueue], Any]] = {
    "oldest": lambda queue: queue.follow("oldest", timeout=0.3),
    "sequence": lambda queue: queue.follow(1, timeout=0.3),
}


@pytest.mark.parametrize("act", FOLLOWS.values(), ids=FOLLOWS)
def test_calls_that_begin_a_follower_count_towards_its_timeout(
    served: Served, wire: Wire, act: Callable[[RemoteQueue], Any]
) -> None:
    """Without the timeout, these calls would wait for the site without limit."""
    remote = served.connect(wire.endpoint, on_loss="wait")
    wire.freeze()
    with pytest.raises(SiteUnreachableError):
        took(lambda: list(act(remote)))


def test_calls_that_begin_a_follower_of_a_cursor_count_towards_its_timeout(served: Served, wire: Wire) -> None:
    cursor = served.connect(wire.endpoint, on_loss="wait").cursor("c")
    wire.freeze()
    with pytest.raises(SiteUnreachableError):
        took(lambda: list(cursor.follow(timeout=0.3)))


def test_the_first_batch_of_a_follower_has_the_time_that_its_beginning_left(served: Served) -> None:
    remote = served.connect()
    follower = remote.follow(timeout="1h")
    assert 0 < follower._spent_s < 3600
    follower._spent_s = 3600.0
    assert list(follower) == []


def test_a_get_that_has_to_attach_again_gives_that_the_time_which_it_has_left(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a limit, the call would end when the link is given up, or after a minute."""
    remote = served.connect(on_loss="wait")
    consumer = remote.station("s", "**").attach()
    limits: list[float | None] = []

    async def silent(*arguments: Any, limit_s: float | None = None, **options: Any) -> None:
        limits.append(limit_s)

    consumer._attachment = 0
    with monkeypatch.context() as patch:
        patch.setattr(remote._connection, "attempt_by", silent)
        assert len(consumer.get(timeout=0.3)) == 0
    assert limits
    assert all(limit_s is not None and limit_s <= 0.3 + connections.GRACE_S for limit_s in limits)


def test_a_get_whose_products_expired_on_the_way_ends_by_its_timeout_and_they_go_back(
    served: Served, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link freezes when the products have come, and before they are given back."""
    remote = served.connect(wire.endpoint, on_loss="wait")
    consumer = remote.station("s", "**").attach()
    real = consumer._without_expired

    async def frozen(wait: Any, batch: Any, reply: Any, *rest: Any) -> Any:
        if not len(batch):
            return batch
        wire.freeze()
        return await real(wait, batch, reply, *rest)

    monkeypatch.setattr(consumer, "_without_expired", frozen)
    monkeypatch.setattr("headrace.remote.client.consumer.expired_in", lambda batch, *_: np.ones(len(batch), bool))
    put(served.queue, "1")
    took(lambda: consumer.get(timeout=0.3))
    wire.thaw()
    until(lambda: served.queue.station("s").statistics().leased == 0, "the product that goes back")


def test_a_push_that_has_to_take_its_slot_again_ends_by_its_timeout_and_may_be_repeated(
    served: Served, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = served.connect(wire.endpoint, on_loss="wait")
    supplier = remote.channel("c", "wx").supplier()

    async def frozen(self: Puts, *arguments: Any) -> Any:
        wire.freeze()
        raise Detached

    with monkeypatch.context() as patch:
        patch.setattr(Puts, "put_by", frozen)
        with pytest.raises(SiteUnreachableError) as raised:
            took(lambda: supplier.push(b"1", timeout=0.5))
    wire.thaw()
    assert remote.wait_alive(240)
    assert raised.value.retry is not None
    assert raised.value.retry() == 1


def test_a_call_without_a_reply_says_for_how_long_the_site_was_not_heard(served: Served, wire: Wire) -> None:
    remote = served.connect(wire.endpoint, on_loss="wait")
    follower = remote.follow(timeout=0.5)
    wire.freeze()
    for act in (lambda: remote.wait_for("site:denver", 0.5), lambda: next(follower)):
        with pytest.raises(SiteUnreachableError, match="has not replied for") as raised:
            act()
        assert float(raised.value.problem.split()[-2]) >= 0.5


def test_silence_counts_from_the_moment_at_which_a_reply_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not from the moment at which the link is given up."""
    now = 1000.0
    moments = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("headrace.remote.client.silence.time", moments)
    for due_s, heard_at, since in (
        (now - 3, now - 9, now - 3),  # a link that froze
        (now - 3, now - 1, now - 1),  # something else was heard since
        (now + 3, now - 9, now),  # the site had time left: the link was cut
        (now - 60, now - 90, now - 5),  # a large reply was on its way until the link broke
    ):
        silence = Silence("denver", "tcp/127.0.0.1:1", 10, "raise")
        moments.monotonic = lambda heard_at=heard_at: heard_at
        silence.note_reply()
        moments.monotonic = lambda: now
        silence.note_missing(due_s)
        assert silence.since == since

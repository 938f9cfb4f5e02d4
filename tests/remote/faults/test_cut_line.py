"""The connection breaks while a client reads, puts and consumes."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import zenoh

import headrace
from headrace.errors import LeaseLostError, SiteUnreachableError
from headrace.remote.client import connection as connections
from headrace.remote.protocol.calls import GetBounds
from headrace.remote.protocol.replies import Bounds
from support.serving import Served, Wire, idents, put, when
from support.waiting import until


def test_a_follower_goes_on_after_the_line_was_cut(served: Served, wire: Wire) -> None:
    remote = served.connect(wire.endpoint)
    follower = remote.follow("oldest", limit=3)
    put(served.queue, *"12345")
    found: list[str] = []
    while len(found) < 5:
        found += idents(next(follower))
    wire.cut()
    put(served.queue, *"678")
    when(lambda: remote._connection.silence.is_silent, wire.restore)
    while len(found) < 8:
        found += idents(next(follower))
    assert found == list("12345678")


@pytest.mark.parametrize(("brief_s", "told"), [(240, []), (0, ["does not reply; retrying", "replies again"])])
def test_a_brief_cut_is_not_logged(
    served: Served, wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    brief_s: float, told: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("headrace.remote.client.silence._BRIEF_S", brief_s)
    remote = served.connect(wire.endpoint)
    wire.cut()
    silence = remote._connection.silence
    note, failures = silence.note_missing, []
    monkeypatch.setattr(silence, "note_missing", lambda due_s: failures.append(note(due_s)))
    when(lambda: len(failures) > 1, wire.restore)
    put(remote, "1")
    lines = [line for line in caplog.messages if "repl" in line]
    assert len(lines) == len(told)
    assert all(part in line for part, line in zip(told, lines, strict=True))


def test_a_call_that_is_made_while_the_line_breaks_is_abandoned(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the break is noticed after the call was sent, and before the connection has noted it."""
    connection = served.connect()._connection

    class Unanswered:
        def __init__(self, *about: Any) -> None:
            self._given_up = threading.Event()
            connection._see(SimpleNamespace(kind=zenoh.SampleKind.DELETE))  # type: ignore[arg-type]
            until(lambda: "headrace-broken" not in {thread.name for thread in threading.enumerate()}, "it is seen")

        def take(self) -> None:
            assert self._given_up.wait(240)

        def cancel(self) -> None:
            self._given_up.set()

    monkeypatch.setattr(connections, "PendingReply", Unanswered)
    assert connection.attempt(GetBounds(), Bounds) is None
    monkeypatch.undo()


def test_a_put_waits_for_the_line(served: Served, wire: Wire) -> None:
    remote = served.connect(wire.endpoint)
    wire.cut()
    when(lambda: remote._connection.silence.is_silent, wire.restore)
    assert remote.put(b"x", feed="a") == 1


def test_leases_are_kept_while_the_line_is_cut(served: Served, wire: Wire) -> None:
    put(served.queue, *"123")
    station = served.connect(wire.endpoint).station("s", "**", start="oldest")
    consumer = station.attach(keep="30s")
    batch = consumer.get(2)
    wire.cut()
    until(lambda: served.misses_a_client, "the site notices")
    wire.restore()
    consumer.ack(batch)
    assert idents(consumer.get(2)) == ["3"]
    told = station.statistics()
    assert (told.acknowledged, told.redelivered, told.restored) == (2, 0, 0)


def test_a_get_that_waits_survives_a_cut(served: Served, wire: Wire) -> None:
    remote = served.connect(wire.endpoint)
    consumer = remote.station("s", "**").attach(keep="1h")
    before = served.calls
    when(lambda: served.calls > before, wire.cut)
    when(lambda: remote._connection.silence.is_silent, lambda: put(served.queue, "1"), wire.restore)
    batch = consumer.get(5)
    assert (idents(batch), batch.deliveries.tolist()) == (["1"], [1])
    consumer.ack(batch)


def test_leases_are_lost_when_the_line_is_cut_for_longer_than_keep(served: Served, wire: Wire) -> None:
    put(served.queue, *"12")
    station = served.connect(wire.endpoint).station("s", "**", start="oldest")
    consumer = station.attach(keep=0.1)
    batch = consumer.get(1)
    wire.cut()
    until(lambda: served.queue.station("s").statistics().restored == 1, "the site takes it back")
    wire.restore()
    with pytest.raises(LeaseLostError, match="has released the leases of this consumer of 's'"):
        consumer.ack(batch)
    with pytest.raises(LeaseLostError):
        consumer.ack(batch[0])
    again = consumer.get(2)
    assert (idents(again), again.deliveries.tolist()) == (["1", "2"], [2, 1])
    consumer.ack(again)


def test_a_loop_goes_on_when_its_leases_were_lost(served: Served, wire: Wire) -> None:
    put(served.queue, *"123")
    station = served.connect(wire.endpoint).station("s", "**", start="oldest")
    seen = []
    with station.attach(keep=0.1) as consumer:
        for product in consumer:
            seen.append(product.ident)
            if seen == ["1", "2"]:
                wire.cut()
                until(lambda: served.queue.station("s").statistics().restored == 1, "the site takes it back")
                wire.restore()
            if product.ident == "3":
                break
        assert seen == ["1", "2", "2", "3"]
    assert station.statistics().acknowledged == 2


def test_a_site_that_does_not_reply_is_unreachable(served: Served, wire: Wire) -> None:
    remote = served.connect(wire.endpoint, patience=0.3)
    consumer = remote.station("s", "**").attach()
    follower = remote.follow(timeout=0.1)
    wire.cut()
    assert len(consumer.get(timeout=0)) == 0  # the silence has only begun
    with pytest.raises(SiteUnreachableError, match=rf"{served.name} at {wire.endpoint}.* has not replied for"):
        remote.put(b"x", feed="a")
    with pytest.raises(SiteUnreachableError):
        consumer.get(timeout=0)
    with pytest.raises(SiteUnreachableError):
        next(follower)
    consumer.detach()
    remote.close()


def test_calls_that_wait_survive_a_renewal_of_the_declarations_of_the_site(served: Served) -> None:
    remote = served.connect()
    consumer, follower = remote.station("s", "**").attach(keep=0.1), remote.follow()
    assert served.site is not None
    before, renew = served.calls, served.site._declarations.renew
    renewed = threading.Event()
    when(lambda: served.calls > before, renew, renewed.set)
    when(lambda: renewed.is_set() and not served.misses_a_client, lambda: put(served.queue, "1"))
    batch = consumer.get(1)
    assert (idents(batch), batch.deliveries.tolist(), idents(next(follower))) == (["1"], [1], ["1"])
    consumer.ack(batch)


def test_a_follower_keeps_its_queue(served: Served) -> None:
    put(served.queue, "1")
    follower = headrace.connect(served.endpoint).follow("oldest")
    assert idents(next(follower)) == ["1"]

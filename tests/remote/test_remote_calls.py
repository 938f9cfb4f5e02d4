"""Calls as bytes: invalid calls are refused and counted, and everything has a limit."""

import os
import random
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.link.fair import Busy
from headrace.product.put import Put
from headrace.remote.protocol import calls, replies
from headrace.remote.protocol.envelope import Envelope, encode
from headrace.remote.protocol.hello import OLDEST_VERSION, VERSION, spoken
from headrace.remote.protocol.member_calls import WatchMembers
from headrace.remote.protocol.replies import error_of
from headrace.remote.server import pending_call as pending_calls
from headrace.remote.server import puts
from headrace.remote.server.access import ClientAccess
from headrace.remote.server.clients import Client, Clients
from headrace.remote.server.reads import ClientRead, RecentReads
from headrace.station import Consumer
from support.serving import Served, Stranger
from support.waiting import until

SEED = int(os.environ.get("HEADRACE_SEED", "20261115"))


SEND = pending_calls._send


def test_an_invalid_call_is_refused_and_counted(served: Served, stranger: Stranger) -> None:
    chance = random.Random(SEED)
    good = encode(Envelope(VERSION, bytes(16), None, 0, 0, calls.PutOne("a", "ident")))
    bad: list[bytes | None] = [None, b"", b"\xc1", good[:-1], good + b"x", chance.randbytes(50)]
    calls_as_lists: list[tuple[bytes, int, dict[str, object]]] = [
        (bytes(15), 0, {"type": "ends"}), (bytes(16), -1, {"type": "ends"}), (bytes(16), 0, {"type": "explode"}),
        (bytes(16), 0, {"type": "ends", "more": 1}), (bytes(16), 0, {"type": "put", "feed": "a", "priority": 8}),
        (bytes(16), 0, {"type": "get", "attachment": 1, "n": 1, "wait_s": 1e9}),
    ]  # fmt: skip
    bad += [encode([VERSION, client, None, number, 0, call]) for client, number, call in calls_as_lists]
    for head in bad:
        told = stranger.send(head)
        assert isinstance(told, str), (head, told)
        assert "the call is invalid" in told or "number" in told
    assert served.site is not None
    assert served.site.statistics().remote.refused == len(bad)
    assert served.queue.next == 1


@pytest.mark.parametrize(
    "call",
    [{"type": "who"}, {"type": "put", "feed": "a", "priority": 7}, {"type": "settle", "attachment": 1, "got": 1, "count": 1, "how": "done"}],
)  # fmt: skip
def test_a_call_of_another_version_is_refused_by_its_version(
    served: Served, stranger: Stranger, call: dict[str, object]
) -> None:
    """Even if it has members that this version does not know."""
    for version in (OLDEST_VERSION - 1, VERSION + 1):
        told = str(stranger.send(encode([version, bytes(16), None, 0, 0, call])))
        assert f"the call has version {version} of the protocol; the site speaks {spoken()}" in told
        assert "update the older of the two" in told
    assert served.queue.next == 1


def test_altered_calls_do_no_harm(served: Served, stranger: Stranger) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    samples = [
        calls.PutOne("a", "i", Put(properties=b"\1\1\x08\0n" + bytes(8))), calls.PutMany(b"\1\0\0\0", encode(calls.Columns("a"))),
        calls.ReadProducts("**", 1, 10, 10), calls.OpenStation("s", "next", {"selection": "a", "capacity": 5}), calls.Attach("s", 1.0),
        calls.Get(1, 1, 0.0), calls.Settle(1, 1, 1, "ack"), calls.SaveCursor("c", 5), calls.Unpark("s", [1], True),
    ]  # fmt: skip
    for turn in range(1, 301):
        call = chance.choice(samples)
        number = turn if isinstance(call, calls.Numbered) else 0
        head = bytearray(encode(Envelope(VERSION, stranger.client, None, number, turn, call)))
        for _ in range(chance.randrange(1, 4)):
            head[chance.randrange(len(head))] = chance.randrange(256)
        assert stranger.send(bytes(head), chance.randbytes(chance.randrange(4))) != "silence"
    assert isinstance(stranger.call(calls.GetBounds()), replies.Bounds)


@pytest.mark.parametrize(
    ("call", "payload"),
    [(calls.PutMany(b"\1\0\0", encode(calls.Columns("a"))), b"x"),
     (calls.PutMany(b"\2\0\0\0", encode(calls.Columns("a"))), b"x"),
     (calls.PutMany(b"\1\0\0\0", b"\xc1"), b"x"),
     (calls.PutMany(b"\1\0\0\0", encode(calls.Columns(["a", "b"]))), b"x"),
     (calls.PutMany(b"\1\0\0\0", encode(calls.Columns("a", facts={"priority": b"\x09"}))), b"x"),
     (calls.PutMany(b"\1\0\0\0", encode(calls.Columns("a", facts={"created": b"123"}))), b"x"),
     (calls.PutOne("a", facts=Put(properties=b"nonsense")), b"x"),
     (calls.PutOne("a b"), b"x"),
     (calls.PutBatch(), b"no records"),
     (calls.PutBatch(keep=b"\1"), b""),
     (calls.ReadProducts("where (", 1, 1, 1), b""),
     (calls.ReadProducts("**", -5, 1, 1), b""),
     (calls.OpenStation("s", "next", {"nonsense": 1}), b""),
     (calls.OpenStation("s", "next", {"channel": 5}), b""),
     (calls.OpenStation("s", "next", {"group": 5}), b"")],
)  # fmt: skip
def test_a_call_with_invalid_arguments_raises_an_error_and_changes_nothing(
    served: Served, stranger: Stranger, call: calls.Call, payload: bytes
) -> None:
    told = stranger.call(call, payload)
    assert isinstance(told, replies.Failure), told
    assert issubclass(type(error_of(told)), HeadraceError)
    assert (served.queue.next, served.queue.stations()) == (1, [])


def test_a_client_cannot_use_the_consumers_of_another(served: Served, stranger: Stranger) -> None:
    served.queue.put(b"1", feed="a")
    with served.connect().station("s", "**", start="oldest").attach() as consumer:
        batch = consumer.get(1)
        number = consumer._attachment  # type: ignore[attr-defined]
        for call in (
            calls.Get(number, 1, 0.0),
            calls.Settle(number, batch.got, 1, "ack"),
            calls.DescribeConsumer(number),
        ):  # type: ignore[attr-defined]
            assert isinstance(stranger.call(call), replies.NotAttached)
        stranger.call(calls.Detach(number))
        stranger.call(calls.Leave())
        consumer.ack(batch)


def test_places_and_payloads_that_do_not_match_are_refused(served: Served, stranger: Stranger) -> None:
    served.queue.put(b"1", feed="a")
    served.queue.station("s", "**", start="oldest")
    attached = stranger.call(calls.Attach("s", 10.0), number=1, oldest=1)
    assert isinstance(attached, replies.Attached)
    number = attached.attachment
    assert isinstance(stranger.call(calls.Get(number, 1, 0.0), number=2), replies.Products)
    far = (7).to_bytes(4, "little")
    for call in (
        calls.Settle(number, 2, 1, "ack", far), calls.Settle(number, 3, 1, "ack"), calls.Settle(number, 2, 1, "ack", b"xyz"),
        calls.Revise(number, 2, far, bytes(8)), calls.Revise(number, 2, bytes(4), bytes(7)),
        calls.Revise(number, 2, bytes(4), (9).to_bytes(8, "little")),
    ):  # fmt: skip
        payload = b"x" if isinstance(call, calls.Revise) else b""
        assert isinstance(stranger.call(call, payload), replies.Failure), call
    assert isinstance(stranger.call(calls.Settle(number, 2, 1, "ack")), replies.Done)


@pytest.mark.parametrize("call", [calls.PutOne("a"), calls.Attach("s", 1.0), calls.Get(1, 1, 0.0)])
def test_a_call_that_must_not_be_executed_twice_needs_a_number(
    served: Served, stranger: Stranger, call: calls.Call
) -> None:
    assert "needs a number" in str(stranger.call(call, number=0))
    assert served.queue.next == 1


def test_an_idempotent_call_has_no_number(stranger: Stranger) -> None:
    """Or replies with products would be kept for a client that never repeats the call."""
    assert "must not have a number" in str(stranger.call(calls.ReadProducts("**", 1, 10, 10), number=1, oldest=1))


def test_a_payload_is_refused_where_none_belongs(stranger: Stranger) -> None:
    assert "must not have a payload" in str(stranger.call(calls.GetBounds(), b"x"))


def test_a_get_that_is_not_repeated_keeps_no_other_replies(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.server.clients.CALLS_MAX", 3)
    remote = served.connect(patience=0.5)
    consumer = remote.station("s", "**").attach()
    monkeypatch.setattr(pending_calls, "_send", lambda query, *more: query.drop())
    assert len(consumer.get(1, timeout=0)) == 0
    monkeypatch.setattr(pending_calls, "_send", SEND)
    assert [remote.put(b"%d" % n, feed="a") for n in range(5)] == [1, 2, 3, 4, 5]
    assert consumer.get(9).sequences.tolist() == [1, 2, 3, 4, 5]


def test_a_get_that_has_ended_is_not_executed_again(served: Served, stranger: Stranger) -> None:
    served.queue.station("s", "**")
    attached = stranger.call(calls.Attach("s", 10.0))
    assert isinstance(attached, replies.Attached)
    get = calls.Get(attached.attachment, 1, 0.0)
    assert isinstance(stranger.call(get, number=5), replies.Products)
    assert isinstance(stranger.call(get, number=5), replies.Products)
    assert "was repeated" in str(stranger.call(get, number=4))


def test_a_reply_that_cannot_be_encoded_ends_no_thread(
    served: Served, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.queue.put(b"1", feed="a")
    monkeypatch.setattr(
        "headrace.remote.server.queue_handlers.replies.Bounds", lambda *ends: replies.NameList(["\ud800"])
    )
    for _ in range(9):
        assert isinstance(stranger.call(calls.GetBounds()), replies.Failure)
    assert isinstance(stranger.call(calls.GetStatistics()), replies.Details)


def test_replies_are_remembered_until_the_client_confirms_them(served: Served, stranger: Stranger) -> None:
    put = calls.PutOne("a")
    assert stranger.call(put, b"1", number=1, oldest=1) == replies.Number(1)
    assert stranger.call(put, b"1", number=1, oldest=1) == replies.Number(1)
    assert stranger.call(put, b"2", number=2, oldest=2) == replies.Number(2)
    assert "was repeated" in str(stranger.call(put, b"1", number=1, oldest=1))
    assert served.queue.next == 3


def test_a_client_that_confirms_no_reply_is_refused_as_busy(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.remote.server.clients.CALLS_MAX", 3)
    told = [stranger.call(calls.PutOne("a"), b"%d" % n, number=n, oldest=1) for n in range(1, 6)]
    assert told == [replies.Number(1), replies.Number(2), replies.Number(3), "busy", "busy"]


def test_calls_that_are_not_executed_yet_count_even_if_they_are_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a client could fill the memory of a site while one of its consumers waits for products."""
    monkeypatch.setattr("headrace.remote.server.clients.CALLS_MAX", 3)
    client = Client(ClientAccess((), None), None)
    settles: list[Any] = [
        SimpleNamespace(number=n, call=calls.Settle(1, 1, 1, "ack"), is_finished=False) for n in range(1, 6)
    ]
    for settle in settles[:3]:
        assert client.accept(settle, settle.number) is None
    with pytest.raises(Busy):
        client.accept(settles[3], 4)
    settles[0].is_finished = True
    assert client.accept(settles[3], 4) is None
    with pytest.raises(Busy):
        client.accept(settles[4], 5)


def test_clients_consumers_and_waiting_reads_have_limits(
    served: Served, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.queue.station("s", "**")
    place = "headrace.remote.server.clients"
    monkeypatch.setattr(f"{place}.CONSUMERS_MAX", 1)
    assert isinstance(stranger.call(calls.Attach("s", 10.0)), replies.Attached)
    told = stranger.call(calls.Attach("s", 10.0))
    assert isinstance(told, replies.Failure)
    assert "remote consumers already" in told.problem
    monkeypatch.setattr("headrace.remote.server.reads.WAITING_MAX", 0)
    told = stranger.call(calls.ReadProducts("**", "next", 1, 1, 5.0))
    assert isinstance(told, replies.Failure)
    assert "too many calls wait" in told.problem
    monkeypatch.setattr("headrace.remote.server.membership.WATCHING_OF_ONE_MAX", 0)
    told = stranger.call(WatchMembers())
    assert isinstance(told, replies.Failure)
    assert "waits for members at site" in told.problem
    assert "the limit for one client" in told.problem
    monkeypatch.setattr(f"{place}.CLIENTS_MAX", 1)
    stranger.client = os.urandom(16)
    assert stranger.call(calls.GetBounds()) == "busy"


def test_a_client_without_a_token_is_forgotten_after_a_while(
    served: Served, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a token, no event shows that it has ended."""
    served.queue.put(b"1", feed="a")
    served.queue.station("s", "**", start="oldest")
    attached = stranger.call(calls.Attach("s", 0.1))
    assert isinstance(attached, replies.Attached)
    stranger.call(calls.Get(attached.attachment, 1, 0.0), number=1)
    until(lambda: served.queue.station("s").statistics().restored == 1, "its lease is restored")
    monkeypatch.setattr("headrace.remote.server.clients._FORGET_S", 0.0)
    assert served.site is not None
    until(lambda: served.site.statistics().remote.clients == 0, "it is forgotten")  # type: ignore[union-attr]


def test_a_client_that_is_forgotten_while_it_attaches_leaves_no_consumer(
    served: Served, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.queue.station("s", "**")
    check_room = Clients.check_room

    def forget_all(clients: Clients, client: Client) -> None:
        """As a new client does that finds no room, at this moment."""
        check_room(clients, client)
        with clients._lock:
            clients._forget(0.0)

    monkeypatch.setattr(Clients, "check_room", forget_all)
    told = stranger.call(calls.Attach("s", 10.0))
    assert isinstance(told, replies.Failure)
    assert "has forgotten this client" in told.problem
    assert served.queue.station("s").consumers() == []


def test_a_put_that_finds_no_thread_to_wait_in_keeps_no_room(
    served: Served, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.queue.station("s", "**", blocking=True, capacity=1)
    served.queue.put(b"1", feed="a")
    with monkeypatch.context() as patch:
        patch.setattr(puts, "OnceThread", _NoThread)
        for _ in range(puts.BLOCKED_MAX + 1):
            assert isinstance(stranger.call(calls.PutOne("a", timeout_s=60.0), b"2"), replies.StillBlocked)
    told = stranger.call(calls.PutOne("a", timeout_s=0.1), b"2")
    assert isinstance(told, replies.Failure)  # it waited until its timeout
    assert told.error == "BlockedError"


class _NoThread:
    def __init__(self, *about: object, **more: object) -> None: ...

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_calls_that_wait_are_answered_if_a_consumer_cannot_detach(
    served: Served, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.queue.station("s", "**")
    attached = stranger.call(calls.Attach("s", 10.0))
    assert isinstance(attached, replies.Attached)
    detach, entered, may_go_on = Consumer.detach, threading.Event(), threading.Event()

    def fail(consumer: Consumer, *, failed: bool) -> None:
        entered.set()
        may_go_on.wait(240)
        detach(consumer)
        raise MemoryError

    monkeypatch.setattr(Consumer, "detach", fail)
    assert served.site is not None
    (client,) = served.site._remote._clients._clients.values()
    (consumer,) = client.consumers.values()
    ending = threading.Thread(target=consumer.end)
    ending.start()
    assert entered.wait(240)
    consumer._calls.append(waiting := _Waiting())  # type: ignore[arg-type]
    may_go_on.set()
    ending.join()
    assert isinstance(waiting.reply, replies.NotAttached)


class _Waiting:
    """A call that was submitted just before the consumer ended."""

    reply: replies.Reply | None = None

    def finish(self, reply: replies.Reply) -> None:
        self.reply = reply


def test_slow_reads_delay_no_other_call(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    read, may_go_on = ClientRead.read, threading.Event()
    monkeypatch.setattr(ClientRead, "read", lambda *about: (may_go_on.wait(240), read(*about))[1])
    readers = [threading.Thread(target=served.connect().read_batch) for _ in range(8)]
    for reader in readers:
        reader.start()
    assert served.site is not None
    until(lambda: served.site.statistics().remote.taken >= 16, "all have asked")  # type: ignore[union-attr]
    assert served.connect().put(b"1", feed="a") == 1
    assert all(reader.is_alive() for reader in readers)
    may_go_on.set()
    for reader in readers:
        reader.join()


def test_nodes_that_change_their_slices_read_one_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.server.reads.SELECTIONS_MAX", 3)
    readers = RecentReads()
    for number in range(10):
        readers.note(f"wx/radar/** slice {number}-{number + 4},99")
    readers.note("wx/** slice 7 where ident = 'x'")
    assert len(readers) == 2
    assert readers.patterns() == {"wx/radar/**", "wx/**"}


def test_recent_reads_are_noted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.server.reads.SELECTIONS_MAX", 3)
    readers = RecentReads()
    for number in range(3):
        readers.note(f"a/{number}")
    assert readers.patterns() == {"a/0", "a/1", "a/2"}
    for number in range(100):
        readers.note(f"b/{number}")
    assert readers.patterns() == {"**"}
    assert len(readers) == 4

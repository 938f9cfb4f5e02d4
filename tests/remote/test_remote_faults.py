"""Remote use when things break: the line, the site, the client, and answers that get lost."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zenoh

import headrace
from headrace import Batch, Queue
from headrace.errors import FabricError, LeaseLostError, QueueError, SiteUnreachableError
from headrace.remote.client import connection as connections
from headrace.remote.protocol.calls import GetBounds
from headrace.remote.protocol.replies import Bounds
from headrace.remote.server import pending_call as pending_calls
from support.fleet import Fabric, free_port, open_plain, until
from support.serving import Served, Wire


@pytest.fixture
def make_served(shared_memory: Path) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def make(**terms: Any) -> Served:
        made.append(Served(shared_memory, **terms))
        return made[-1]

    yield make
    for served in made:
        served.close()


@pytest.fixture
def served(make_served: Callable[..., Served]) -> Served:
    return make_served()


@pytest.fixture
def wire(served: Served) -> Iterator[Wire]:
    made = Wire(served.endpoint)
    yield made
    served.close_users()
    made.close()


def put(queue: Queue, *idents: str) -> None:
    for ident in idents:
        queue.put(ident.encode(), feed="a", ident=ident)


def idents(batch: Batch) -> list[str]:
    return [product.ident for product in batch]


# --- answers that get lost --------------------------------------------------------------------------


@pytest.fixture
def lose_first_answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first answer to every call with a number does not arrive; the names of those calls."""
    lost: list[str] = []
    finish, send = pending_calls.PendingCall.finish_with, pending_calls._send

    def finish_in_silence(pending: pending_calls.PendingCall, say: pending_calls.MakeReply) -> None:
        def drop(query: zenoh.Query, say: pending_calls.MakeReply) -> None:
            lost.append(type(pending.call).__name__)
            query.drop()

        monkeypatch.setattr(pending_calls, "_send", drop if pending.number else send)
        finish(pending, say)
        monkeypatch.setattr(pending_calls, "_send", send)

    monkeypatch.setattr(pending_calls.PendingCall, "finish_with", finish_in_silence)
    return lost


def test_what_is_asked_again_is_not_done_again(
    make_served: Callable[..., Served], lose_first_answers: list[str]
) -> None:
    served = make_served(dedup="none")
    remote = served.connect()
    assert [remote.put(b"x", feed="a") for _ in range(3)] == [1, 2, 3]
    assert remote.put_many([b"x", b"y"], feed="a").first == 4
    assert remote.put_batch(served.queue.read(1, limit=1)).first == 6
    station = remote.station("s", "**", start="oldest")
    consumer = station.attach()
    assert station.statistics().consumers == 1
    batch = consumer.get(4)
    assert batch.sequences.tolist() == [1, 2, 3, 4]
    consumer.ack(batch)
    for other in consumer.batches(1, timeout=0.1):
        assert other.deliveries.tolist() == [1]
    told = station.statistics()
    assert (told.acknowledged, told.delivered, told.redelivered, told.leased) == (6, 6, 0, 0)
    assert station.seek("oldest") == 1
    station.remove()
    cursor = remote.cursor("c")
    cursor.remove()
    assert {"PutOne", "PutMany", "PutBatch", "OpenStation", "Attach", "Get", "Settle", "SeekStation"} <= set(
        lose_first_answers
    )
    assert served.site is not None
    assert served.site.statistics().attendant.repeated >= len(lose_first_answers) - 1  # the last get was in vain


def test_a_get_that_was_given_up_is_taken_up_by_the_next(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its products are ours, though we have not heard of it."""
    remote = served.connect()
    put(served.queue, *"1234")
    consumer = remote.station("s", "**", start="oldest").attach()
    monkeypatch.setattr(pending_calls, "_send", lambda query, say: query.drop())
    assert len(consumer.get(3, timeout=0.1)) == 0
    monkeypatch.undo()
    until(lambda: remote.station("s").statistics().leased == 3, "three are leased")
    batch = consumer.get(3)
    assert (idents(batch), batch.deliveries.tolist()) == (["1", "2", "3"], [1, 1, 1])
    consumer.ack(batch)
    assert idents(consumer.get(3)) == ["4"]


def test_a_get_for_fewer_than_were_leased_gives_them_back(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = served.connect()
    put(served.queue, *"1234")
    consumer = remote.station("s", "**", start="oldest").attach()
    monkeypatch.setattr(pending_calls, "_send", lambda query, say: query.drop())
    assert len(consumer.get(3, timeout=0.1)) == 0
    monkeypatch.undo()
    assert idents(consumer.get(1, timeout=5)) == ["1"]
    assert remote.station("s").statistics().leased == 1


# --- the line is cut --------------------------------------------------------------------------------


def test_a_follower_goes_on_after_the_line_was_cut(served: Served, wire: Wire) -> None:
    remote = served.connect(wire.endpoint)
    follower = remote.follow("oldest", limit=3)
    put(served.queue, *"12345")
    found: list[str] = []
    while len(found) < 5:
        found += idents(next(follower))
    wire.cut()
    put(served.queue, *"678")
    threading.Timer(0.3, wire.mend).start()
    while len(found) < 8:
        found += idents(next(follower))
    assert found == list("12345678")


def test_a_call_that_is_made_while_the_line_breaks_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the break is noticed after it was sent, and before anybody knows that it is under way."""
    connection = served.connect()._connection

    class Unanswered:
        def __init__(self, *about: Any) -> None:
            self._given_up = threading.Event()
            connection._see(SimpleNamespace(kind=zenoh.SampleKind.DELETE))  # type: ignore[arg-type]
            until(lambda: "headrace-broken" not in {thread.name for thread in threading.enumerate()}, "it is seen")

        def take(self) -> None:
            assert self._given_up.wait(5)

        def cancel(self) -> None:
            self._given_up.set()

    monkeypatch.setattr(connections, "PendingReply", Unanswered)
    assert connection.attempt(GetBounds(), Bounds) is None
    monkeypatch.undo()


def test_a_put_waits_for_the_line(served: Served, wire: Wire) -> None:
    remote = served.connect(wire.endpoint)
    wire.cut()
    threading.Timer(0.3, wire.mend).start()
    assert remote.put(b"x", feed="a") == 1


def test_leases_are_kept_while_the_line_is_cut(served: Served, wire: Wire) -> None:
    put(served.queue, *"123")
    station = served.connect(wire.endpoint).station("s", "**", start="oldest")
    consumer = station.attach(keep="30s")
    batch = consumer.get(2)
    wire.cut()
    time.sleep(0.5)
    wire.mend()
    consumer.ack(batch)
    assert idents(consumer.get(2)) == ["3"]
    told = station.statistics()
    assert (told.acknowledged, told.redelivered, told.restored) == (2, 0, 0)


def test_a_get_that_waits_outlasts_a_cut(served: Served, wire: Wire) -> None:
    consumer = served.connect(wire.endpoint).station("s", "**").attach()
    for pause_s, act in ((0.2, wire.cut), (0.4, lambda: put(served.queue, "1")), (0.6, wire.mend)):
        threading.Timer(pause_s, act).start()
    batch = consumer.get(5)
    assert (idents(batch), batch.deliveries.tolist()) == (["1"], [1])
    consumer.ack(batch)


def test_leases_are_lost_when_the_line_is_cut_for_longer_than_agreed(served: Served, wire: Wire) -> None:
    put(served.queue, *"12")
    station = served.connect(wire.endpoint).station("s", "**", start="oldest")
    consumer = station.attach(keep=0.1)
    batch = consumer.get(1)
    wire.cut()
    until(lambda: served.queue.station("s").statistics().restored == 1, "the site takes it back")
    wire.mend()
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
                wire.mend()
            if product.ident == "3":
                break
        assert seen == ["1", "2", "2", "3"]
    assert station.statistics().acknowledged == 2


def test_a_site_that_does_not_answer_is_told(served: Served, wire: Wire) -> None:
    remote = served.connect(wire.endpoint, patience=0.3)
    consumer = remote.station("s", "**").attach()
    follower = remote.follow(timeout=0.1)
    wire.cut()
    assert len(consumer.get(timeout=0)) == 0  # it has only just begun
    with pytest.raises(SiteUnreachableError, match=rf"{served.name} at {wire.endpoint}.* has not replied for"):
        remote.put(b"x", feed="a")
    with pytest.raises(SiteUnreachableError):
        consumer.get(timeout=0)
    with pytest.raises(SiteUnreachableError):
        next(follower)
    begun = time.monotonic()
    consumer.detach()
    remote.close()
    assert time.monotonic() - begun < 3


def test_calls_that_wait_outlast_a_renewal_of_what_the_site_has_declared(served: Served) -> None:
    remote = served.connect()
    consumer, follower = remote.station("s", "**").attach(keep=0.1), remote.follow()
    assert served.site is not None
    for pause_s, act in ((0.2, served.site._declarations.renew), (0.7, lambda: put(served.queue, "1"))):
        threading.Timer(pause_s, act).start()
    begun = time.monotonic()
    batch = consumer.get(1)
    assert (idents(batch), batch.deliveries.tolist(), idents(next(follower))) == (["1"], [1], ["1"])
    consumer.ack(batch)
    assert time.monotonic() - begun < 4


def test_a_follower_keeps_its_queue(served: Served) -> None:
    put(served.queue, "1")
    follower = headrace.connect(served.endpoint).follow("oldest")
    assert idents(next(follower)) == ["1"]


# --- the site ends ----------------------------------------------------------------------------------


def test_a_follower_goes_on_after_the_site_was_restarted(served: Served) -> None:
    remote = served.connect()
    sent, stopped = 0, threading.Event()

    def produce() -> None:
        nonlocal sent
        while not stopped.is_set():
            sent = served.queue.put(b"%d" % sent, feed=f"f/{sent % 5}")  # type: ignore[assignment]
            time.sleep(0.002)

    producer = threading.Thread(target=produce)
    producer.start()
    follower, found = remote.follow("oldest", limit=7), []
    for turn in range(2):
        while len(found) < 60 * (turn + 1):
            found += next(follower).sequences.tolist()
        served.stop()
        threading.Timer(0.2, served.start).start()
    while len(found) < 200:
        found += next(follower).sequences.tolist()
    stopped.set()
    producer.join()
    assert found == list(range(1, len(found) + 1))


def test_a_consumer_goes_on_after_the_site_was_restarted(served: Served) -> None:
    put(served.queue, *"12345")
    station = served.connect().station("s", "**", start="oldest")
    seen = []
    with station.attach() as consumer:
        for product in consumer:
            seen.append(product.ident)
            if len(seen) == 3:
                served.stop()
                served.start()
            if product.ident == "5":
                break
    assert seen == ["1", "2", "3", "3", "4", "5"]
    assert station.statistics().acknowledged == 4


def test_two_consumers_of_one_connection_are_not_mixed_up_after_a_restart(served: Served) -> None:
    remote = served.connect()
    a, b = (remote.station(name, name, start="oldest").attach() for name in "ab")
    served.stop()
    served.start()
    served.queue.put(b"1", feed="a")
    served.queue.put(b"2", feed="b")
    assert b.get(1)[0].feed == "b"
    assert a.get(1)[0].feed == "a"


def test_another_queue_under_the_same_name_is_not_taken_for_the_first(shared_memory: Path, served: Served) -> None:
    remote = served.connect()
    served.stop()
    before, served.queue = served.queue, Queue.create(shared_memory / "other", size="1MiB", origin=served.name)
    before.close()
    served.start()
    with pytest.raises(QueueError, match="has another queue than before"):
        until(lambda: remote.put(b"x", feed="a") == 0, "never")


# --- the client ends --------------------------------------------------------------------------------

CLIENT = """
import sys, time, headrace
queue = headrace.connect(sys.argv[1])
consumer = queue.station("s").attach(keep=sys.argv[2])
print(len(consumer.get(2)), flush=True)
time.sleep(60)
"""


def test_what_a_killed_client_held_comes_back(served: Served) -> None:
    station = served.queue.station("s", "**", start="oldest")
    put(served.queue, *"123")
    client = subprocess.Popen([sys.executable, "-c", CLIENT, served.endpoint, "0.5s"], stdout=subprocess.PIPE)
    assert client.stdout is not None
    try:
        assert client.stdout.readline() == b"2\n"
        assert station.statistics().leased == 2
    finally:
        client.kill()
        client.communicate()
    killed = time.monotonic()
    until(lambda: station.statistics().restored == 2, "its leases are restored")
    assert time.monotonic() - killed >= 0.3  # not at once: it might have come back
    with station.attach() as consumer:
        batch = consumer.get(3)
        assert (sorted(idents(batch)), sorted(batch.deliveries.tolist())) == (["1", "2", "3"], [1, 2, 2])


def test_who_closes_gives_back_at_once(served: Served) -> None:
    put(served.queue, *"12")
    remote = served.connect()
    consumer = remote.station("s", "**", start="oldest").attach(keep="1h")
    consumer.get(2)
    remote.close()
    told = served.queue.station("s").statistics()
    assert (told.leased, told.restored, told.consumers) == (0, 0, 0)
    del consumer


def test_a_consumer_that_is_forgotten_is_taken_for_dead(served: Served) -> None:
    put(served.queue, *"12")
    remote = served.connect()
    consumer = remote.station("s", "**", start="oldest").attach()
    consumer.get(2)
    del consumer
    until(lambda: served.queue.station("s").statistics().restored == 2, "its leases are restored")


# --- who is reached ---------------------------------------------------------------------------------


def test_nobody_there_is_told_with_the_endpoint() -> None:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    begun = time.monotonic()
    with pytest.raises(FabricError, match=endpoint):
        headrace.connect(endpoint, patience=1)
    assert time.monotonic() - begun < 5


def test_a_router_without_a_site_is_told() -> None:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    session = open_plain([endpoint], [])
    try:
        with pytest.raises(FabricError, match="is not a site, and no site is reachable"):
            headrace.connect(endpoint, patience=1)
    finally:
        session.close()


def test_a_site_is_reached_through_another(fabric: Fabric) -> None:
    fabric.add("a")
    fabric.add("b", near=("a",))
    door = fabric._endpoints["a"]
    with headrace.connect(door) as a:
        assert (a.put(b"1", feed="x"), fabric.queues["a"].next) == (1, 2)
    with headrace.connect(f"{door}?site=b") as b:
        assert (b.put(b"1", feed="x"), fabric.queues["b"].next) == (1, 2)
    with pytest.raises(FabricError, match=r"no site 'c' behind .*; reachable sites: a, b"):
        headrace.connect(f"{door}?site=c", patience=1)

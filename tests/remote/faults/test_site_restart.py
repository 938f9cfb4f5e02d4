"""The site is restarted while clients use it."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import Duplicate, Queue
from headrace.errors import QueueError
from headrace.remote.server import pending_call
from support.serving import Served, put, when
from support.waiting import until


def test_a_follower_goes_on_after_the_site_was_restarted(served: Served) -> None:
    remote = served.connect()
    sent, stopped = 0, threading.Event()

    def produce() -> None:
        nonlocal sent
        while not stopped.is_set():
            sent = served.queue.put(b"%d" % sent, feed=f"f/{sent % 5}")  # type: ignore[assignment]
            stopped.wait(0.002)

    producer = threading.Thread(target=produce)
    producer.start()
    follower, found = remote.follow("oldest", limit=7), []
    for turn in range(2):
        while len(found) < 60 * (turn + 1):
            found += next(follower).sequences.tolist()
        served.stop()
        when(lambda: remote._connection.silence.is_silent, served.start)
    while len(found) < 200:
        found += next(follower).sequences.tolist()
    stopped.set()
    producer.join()
    assert found == list(range(1, len(found) + 1))


@pytest.mark.parametrize("dedup", ["identity", "payload"])
@pytest.mark.parametrize("many", [False, True])
def test_a_put_is_stored_once_though_the_site_died_before_its_reply(
    make_served: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, dedup: str, many: bool
) -> None:
    """The restarted site knows nothing of the call; the queue knows the product, though it has no ident."""
    served = make_served(dedup=dedup)
    remote = served.connect()
    monkeypatch.setattr(pending_call, "_send", lambda query, *more: query.drop())

    def restart() -> None:
        served.stop()
        monkeypatch.undo()
        served.start()

    when(lambda: served.queue.next > 1, restart)
    if many:
        receipt = remote.put_many([b"21.5", b"21.6"], feed="room/a")
        assert (receipt.sequences.tolist(), receipt.stored) == ([1, 2], 0 if dedup == "payload" else 2)
    else:
        assert remote.put(b"21.5", feed="room/a") == (Duplicate(of=1) if dedup == "payload" else 1)
    assert served.queue.next == (3 if many else 2)
    other = remote.put(b"21.5", feed="room/a")
    assert other == (Duplicate(of=1) if dedup == "payload" else served.queue.next - 1)


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


@pytest.mark.parametrize("times", [1, 2])
def test_products_that_a_client_held_when_the_site_was_stopped_count_as_delivered(served: Served, times: int) -> None:
    """The client may be at work: what it gets again may be done already."""
    put(served.queue, "1")
    station = served.connect().station("s", "**", start="oldest")
    consumer = station.attach()
    assert consumer.get().deliveries.tolist() == [1]
    for number in range(times):
        served.stop()
        served.start()
        batch = consumer.get()
        assert batch.deliveries.tolist() == [number + 2]
    consumer.ack(batch)
    assert station.statistics().acknowledged == 1

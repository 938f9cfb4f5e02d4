"""What differs on a remote queue: limits of a message, operations that need files, closing, and threads."""

import threading
from collections.abc import Callable

import pytest
import zenoh

from headrace import HeadraceError, Selection
from headrace.errors import (
    BatchTooLargeError,
    BlockedError,
    QueueClosedError,
    QueueError,
    SelectionError,
)
from headrace.remote.client import follower as following
from support.serving import Served, idents, put, when, work
from support.waiting import until


def test_a_selection_error_has_its_column(served: Served) -> None:
    with pytest.raises(HeadraceError) as caught:
        served.connect().station("s", "a where (")
    assert getattr(caught.value, "column", None)


def test_a_selection_that_is_too_long_for_the_network_is_refused(served: Served) -> None:
    long = Selection(origin=[f"a-site-with-a-long-name-{number}" for number in range(4000)])
    assert len(served.queue.read_batch(selection=long)) == 0
    with pytest.raises(SelectionError, match="too long for a queue on another machine"):
        served.connect().read_batch(selection=long)


def test_a_batch_that_is_too_large_for_the_network_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.client.arguments.CALL_BYTES_MAX", 1000)
    with pytest.raises(BatchTooLargeError, match="that one message can carry"):
        served.connect().put_many([bytes(600), bytes(601)], feed="a")


def test_a_read_may_take_several_replies(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    put(served.queue, *map(str, range(95)))
    monkeypatch.setattr(following, "PAGE_PRODUCTS_MAX", 10)
    remote = served.connect()
    batch = remote.read_batch(limit=73)
    assert (idents(batch), batch.next, batch.scanned) == ([str(n) for n in range(73)], 74, 73)
    assert len(remote.read_batch(limit=1000)) == 95
    assert len(remote.read_batch(bytes_limit=100)) == len(served.queue.read_batch(bytes_limit=100))


def test_payloads_stay_valid_after_close(served: Served) -> None:
    remote = served.connect()
    remote.put(b"payload", feed="a")
    payload = remote.read_batch()[0].payload
    remote.close()
    assert bytes(payload) == b"payload"


def test_a_connection_whose_token_cannot_be_undeclared_still_closes_its_session(served: Served) -> None:
    remote = served.connect()
    connection = remote._connection  # type: ignore[attr-defined]
    links, connection._links = connection._links, _Refusing()
    remote.close()
    assert connection._session.is_closed()
    del links


class _Refusing:
    def undeclare(self) -> None:
        raise zenoh.ZError("no")


def test_a_closed_queue_raises_an_error(served: Served) -> None:
    with served.connect() as remote:
        follower = remote.follow("oldest")
    assert "closed" in repr(remote)
    for use in (lambda: remote.put(b"x", feed="a"), remote.read, lambda: next(follower), lambda: remote.next):
        with pytest.raises(QueueClosedError, match="open it again"):
            use()
    remote.close()


@pytest.mark.parametrize("name", ["delete", "resize", "check"])
def test_operations_that_need_the_files_are_refused(served: Served, name: str) -> None:
    with pytest.raises(QueueError, match="needs the files of the queue"):
        getattr(served.connect(), name)("x")


def test_several_threads_may_use_one_connection(served: Served) -> None:
    remote = served.connect()
    done: list[int] = []

    def produce(name: str) -> None:
        for number in range(30):
            remote.put(b"%s %d" % (name.encode(), number), feed=name)
            done.append(remote.next)

    threads = [threading.Thread(target=produce, args=(f"t{n}",)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(done), served.queue.next) == (150, 151)


def test_a_put_that_waits_long_is_repeated_until_it_is_stored(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.server.puts._WAIT_S", 0.1)
    remote = served.connect()
    station = remote.station("s", "**", blocking=True, capacity=1)
    put(remote, "1")
    before = served.calls
    when(lambda: served.calls >= before + 3, lambda: work(station))
    put(remote, "2")
    with pytest.raises(BlockedError):
        put(remote, "3", timeout=0.5)
    assert served.queue.next == 3


def test_many_blocked_puts_delay_no_other_put(
    make_served: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.remote.server.puts.BLOCKED_MAX", 2)
    served = make_served()
    remote = served.connect()
    station = remote.station("s", "a", blocking=True, capacity=1)
    put(remote, "1")
    before = served.calls
    threads = [threading.Thread(target=put, args=(remote, f"more {n}")) for n in range(12)]
    for thread in threads:
        thread.start()
    until(lambda: served.calls >= before + 12, "all puts have reached the site")
    put(remote, "else", feed="b")
    assert all(thread.is_alive() for thread in threads)
    station.remove()
    for thread in threads:
        thread.join()
    assert served.queue.next == 15


def test_a_get_returns_no_more_than_fits_into_a_reply(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.remote.server.consumer.PAGE_BYTES_MAX", 1000)
    remote = served.connect()
    station = remote.station("s", "**")
    for number in range(6):
        remote.put(bytes([number]) * 400, feed="a")
    with station.attach() as consumer:
        batch = consumer.get(6)
        assert batch.sequences.tolist() == [1, 2, 3]
        consumer.ack(batch)
        assert consumer.get(6).sequences.tolist() == [4, 5, 6]
    assert station.statistics().redelivered == 0


@pytest.mark.parametrize("act", ["ack", "leave it to the loop"])
def test_several_remote_consumers_share_many_products_exactly_once(served: Served, act: str) -> None:
    count, seen, lock = 3000, [], threading.Lock()
    station = served.connect().station("s", "**")
    served.queue.put_many([b"%d" % n for n in range(count)], feed="a")

    def consume() -> None:
        with served.connect().station("s").attach() as consumer:
            for batch in consumer.batches(70, timeout=0.3):
                if act == "ack":
                    consumer.ack(batch)
                with lock:
                    seen.extend(batch.sequences.tolist())

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, count + 1))
    assert station.statistics().acknowledged == count

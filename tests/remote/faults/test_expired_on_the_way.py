"""Products that expire on a slow link are not handed out, and are counted where they were lost."""

import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from headrace.errors import LeaseLostError
from headrace.remote.client import consumer as client_consumer
from headrace.remote.protocol.products import arrive_in_time
from headrace.remote.protocol.replies import Products
from headrace.testing import MockClock
from support.serving import Served, idents, put
from support.waiting import until


class SlowLink:
    """Replies arrive, and the time that they took is added to the clock by which the client judges."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.took_ns = 0
        real = client_consumer.expired_in

        def expired_in(batch: object, reply: Products, now_ns: int) -> object:
            return real(batch, reply, now_ns + self.took_ns)  # type: ignore[arg-type]

        monkeypatch.setattr(client_consumer, "expired_in", expired_in)


def test_what_expired_on_the_way_is_given_back_and_counted(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    link, queue = SlowLink(monkeypatch), served.connect()
    station = queue.station("s", "**")
    queue.put(b"1", feed="a", ident="short", expiry="2s")
    queue.put(b"2", feed="a", ident="long", expiry="1h")
    queue.put(b"3", feed="a", ident="for ever")
    link.took_ns = 60 * 10**9
    with station.attach() as consumer:
        batch = consumer.get(3)
        assert idents(batch) == ["long", "for ever"]
        consumer.ack(batch[1])
        consumer.ack(batch[0])
        with pytest.raises(LeaseLostError, match=r"not leased|does not hold|no lease"):
            consumer.ack(batch)
        until(lambda: not len(consumer.get_nowait()) and station.statistics().expired == 1, "its expiry at the site")
    told = station.statistics()
    assert (told.acknowledged, told.waiting, told.leased, told.expired) == (2, 0, 0, 1)


def test_the_timeout_of_a_station_counts_on_the_way(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    link, queue = SlowLink(monkeypatch), served.connect()
    station = queue.station("s", "**", timeout=timedelta(seconds=2))
    queue.put(b"1", feed="a")
    link.took_ns = 60 * 10**9
    with station.attach() as consumer:
        assert len(consumer.get(timeout=0.2)) == 0
        until(lambda: not len(consumer.get_nowait()) and station.statistics().expired == 1, "its expiry at the site")


def test_a_clock_that_is_wrong_here_changes_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = served.connect()
    station = queue.station("s", "**")
    queue.put(b"1", feed="a", ident="one", expiry="30s")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    with station.attach() as consumer:
        assert idents(consumer.get()) == ["one"]


def test_a_batch_is_not_larger_than_what_arrives_in_time(served: Served) -> None:
    put(served.queue, *"12345")
    batch = served.queue.read_batch()
    now_ns = int(batch.columns["inserted_ns"][0])
    assert [arrive_in_time(batch, now_ns, 10 * 10**9, each_s * 10**9) for each_s in (1, 3, 60)] == [5, 3, 1]


def test_products_of_a_slow_link_come_a_few_at_a_time(served: Served) -> None:
    """So that a reply holds up a thread of the site for seconds only."""
    queue = served.connect()
    station = queue.station("s", "**")
    put(queue, *"12345")
    with station.attach() as consumer:
        consumer._each_s = 0.5  # as if each of the last products had taken so long
        batch = consumer.get(5)
        assert idents(batch) == ["1", "2"]
        assert station.statistics().waiting == 3
        consumer.ack(batch)
        consumer._each_s = 0.0
        assert idents(consumer.get(5)) == ["3", "4", "5"]


@pytest.mark.parametrize(("each_s", "sent"), [(0.0, ["old", "new"]), (1000.0, ["new"]), (1e6, ["new"])])
def test_products_that_would_expire_on_the_way_are_not_sent(
    make_served: Callable[..., Served], each_s: float, sent: list[str]
) -> None:
    """Those with more than half of their time left are sent in any case: the estimate may be wrong."""
    clock = MockClock(1_800_000_000 * 10**9)
    served = make_served(clock=clock)
    queue = served.connect()
    station = queue.station("s", "**", timeout="1h")
    put(queue, "old")
    clock.advance(3000)
    put(queue, "new")
    with station.attach() as consumer:
        consumer._each_s = each_s
        assert idents(consumer.get(5)) == sent
    assert station.statistics().expired == 2 - len(sent)

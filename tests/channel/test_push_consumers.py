"""Push consumers: a function is called with the products of a station."""

import threading
from typing import Any

import pytest

from headrace import Batch, Product, Queue
from headrace.channel.channel import Channel
from headrace.errors import LeaseLostError, StationMissingError
from headrace.station import Consumer, Station

SOON_S = 60.0  # the limit of every wait: a safety net


@pytest.fixture
def channel(queue: Queue) -> Channel:
    channel = queue.channel("radar", "wx/radar")
    channel.station("decoder", batch_max=10, deliveries_max=3)
    return channel


class Callback:
    """Records its calls, and fails for chosen products; `enough` is set after so many calls."""

    def __init__(self, calls: int, fails: Any = lambda what, times: False) -> None:
        self._calls, self._fails = calls, fails
        self.times: dict[str, int] = {}
        self.batches: list[int] = []
        self.enough = threading.Event()

    def __call__(self, what: Product | Batch) -> None:
        products = [what] if isinstance(what, Product) else list(what)
        for product in products:
            self.times[product.ident] = self.times.get(product.ident, 0) + 1
        self.batches.append(len(products))
        if len(self.batches) >= self._calls:
            self.enough.set()
        if any(self._fails(product.ident, self.times[product.ident]) for product in products):
            raise ValueError("cannot decode")


def put(queue: Queue, *idents: str) -> None:
    queue.put_many([ident.encode() for ident in idents], feed="wx/radar/KFTG", ident=list(idents))


def test_the_callback_gets_each_product_once(queue: Queue, channel: Channel) -> None:
    callback = Callback(3)
    with channel.consumer("decoder", callback) as consumer:
        put(queue, "a", "b", "c")
        assert callback.enough.wait(SOON_S)
    assert callback.times == {"a": 1, "b": 1, "c": 1}
    told = consumer.statistics()
    assert (told.delivered, told.acknowledged, told.failures, told.running) == (3, 3, 0, False)
    assert channel.station("decoder").statistics().acknowledged == 3


def test_the_callback_gets_batches_of_batch_max(queue: Queue, channel: Channel) -> None:
    put(queue, *(str(n) for n in range(25)))
    callback = Callback(3)
    with channel.consumer(channel.station("decoder"), callback, batches=True):
        assert callback.enough.wait(SOON_S)
    assert callback.batches == [10, 10, 5]


def test_a_failed_product_is_delivered_again(queue: Queue, channel: Channel) -> None:
    callback = Callback(4, lambda ident, times: ident == "b" and times == 1)
    with channel.consumer("decoder", callback) as consumer:
        put(queue, "a", "b", "c")
        assert callback.enough.wait(SOON_S)
    assert callback.times == {"a": 1, "b": 2, "c": 1}
    assert (consumer.statistics().failures, consumer.statistics().acknowledged) == (1, 3)
    assert consumer.statistics().latest_failure == "ValueError: cannot decode"


def test_a_product_that_always_fails_is_parked(queue: Queue, channel: Channel) -> None:
    callback = Callback(5, lambda ident, times: ident == "bad")
    with channel.consumer("decoder", callback):
        put(queue, "a", "bad", "c")
        assert callback.enough.wait(SOON_S)
        callback.enough.clear()
        put(queue, "d")
        assert callback.enough.wait(SOON_S)
    assert callback.times == {"a": 1, "bad": 3, "c": 1, "d": 1}
    assert [parked.ident for parked in channel.station("decoder").parked()] == ["bad"]


def test_a_failed_batch_is_delivered_again_as_a_whole(queue: Queue, channel: Channel) -> None:
    put(queue, "a", "b")
    callback = Callback(2, lambda ident, times: ident == "b" and times == 1)
    with channel.consumer("decoder", callback, batches=True):
        assert callback.enough.wait(SOON_S)
    assert callback.times == {"a": 2, "b": 2}


def test_stop_finishes_the_batch_in_hand(queue: Queue, channel: Channel) -> None:
    put(queue, *(str(n) for n in range(10)))
    begun, go = threading.Event(), threading.Event()

    def callback(product: Product) -> None:
        begun.set()
        go.wait(SOON_S)

    consumer = channel.consumer("decoder", callback)
    assert begun.wait(SOON_S)
    assert not consumer.stop(0)
    go.set()
    assert consumer.stop(SOON_S)
    assert consumer.statistics().acknowledged == 10
    assert channel.station("decoder").statistics().consumers == 0


def test_stop_does_not_wait_for_a_product(channel: Channel) -> None:
    consumer = channel.consumer("decoder", lambda product: None)
    assert consumer.stop(SOON_S)


def test_stop_does_not_wait_for_a_product_while_it_attaches_again(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = channel.consumer("decoder", lambda product: None)
    attach, attaching, go = Station.attach, threading.Event(), threading.Event()

    def attach_slowly(station: Station) -> Consumer:
        attaching.set()
        go.wait(SOON_S)
        return attach(station)

    def lose(consumer: Consumer, n: int) -> Batch:
        raise LeaseLostError("lost", "attach again")

    monkeypatch.setattr(Station, "attach", attach_slowly)
    with monkeypatch.context() as patch:
        patch.setattr(Consumer, "get", lose)
        consumer._consumer.interrupt()
        assert attaching.wait(SOON_S)
    assert not consumer.stop(0)  # the old consumer is interrupted, not the one that attaches now
    go.set()
    assert consumer.stop(SOON_S)


def test_several_push_consumers_share_the_work(queue: Queue, channel: Channel) -> None:
    callback = Callback(200)
    with channel.consumer("decoder", callback), channel.consumer("decoder", callback):
        put(queue, *(str(n) for n in range(200)))
        assert callback.enough.wait(SOON_S)
    assert callback.times == {str(n): 1 for n in range(200)}


def test_a_push_consumer_ends_when_its_station_is_removed(queue: Queue, channel: Channel) -> None:
    consumer = channel.consumer("decoder", lambda product: None)
    queue.station("decoder").remove()
    consumer._worker.thread.join(SOON_S)
    assert not consumer.statistics().running


def test_a_push_consumer_requires_a_station_of_its_channel(queue: Queue, channel: Channel) -> None:
    queue.station("plain", "wx/**")
    with pytest.raises(StationMissingError):
        channel.consumer("plain", print)

"""Selections with functions at remote queues: refused if they would have to be sent, called at the site if named."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headrace import Product, Queue
from headrace.errors import SelectionError
from headrace.link.rights import Rule
from headrace.remote.client.queue import RemoteQueue
from support.serving import Served, idents, put


def even(product: Product) -> bool:
    return int(product.ident) % 2 == 0


SENT: dict[str, Callable[[RemoteQueue], Any]] = {
    "read": lambda queue: queue.read(1, even),
    "read_batch": lambda queue: queue.read_batch(1, even),
    "follow": lambda queue: queue.follow(1, even),
    "weigh": lambda queue: queue.weigh(1, 9, even),
    "station": lambda queue: queue.station("s", even),
}


@pytest.mark.parametrize("use", SENT.values(), ids=SENT)
def test_a_python_function_is_refused_before_any_call(served: Served, use: Callable[[RemoteQueue], Any]) -> None:
    remote = served.connect()
    before = served.calls
    with pytest.raises(SelectionError, match=r"cannot be sent to a site; select by tags, .* in \[functions\] of its"):
        use(remote)
    assert served.calls == before


def test_a_python_function_is_refused_by_everything_that_was_opened(served: Served) -> None:
    remote = served.connect()
    cursor, station, channel = remote.cursor("c"), remote.station("s"), remote.channel("wx", "wx")
    channel.station("of")
    before = served.calls
    for use in (
        cursor.read, cursor.read_batch, cursor.follow, lambda chosen: station.change(selection=chosen),
        lambda chosen: channel.station("t", chosen), lambda chosen: channel.change_station("of", chosen),
    ):  # fmt: skip
        with pytest.raises(SelectionError, match="cannot be sent to a site"):
            use(even)  # type: ignore[operator]
    assert served.calls == before


def test_a_function_of_the_site_is_used_by_its_name(make_served: Callable[..., Served]) -> None:
    served = make_served(functions={"even": even})
    remote = served.connect()
    put(served.queue, *"012345")
    assert [product.ident for product in remote.read("oldest", "a function even")] == ["0", "2", "4"]
    assert idents(next(remote.follow("oldest", "function even"))) == ["0", "2", "4"]
    assert idents(remote.cursor("c").read_batch("function even", limit=2)) == ["0", "2"]
    station = remote.station("s", "function even", start="oldest")
    with station.attach() as consumer:
        batch = consumer.get(10)
        assert idents(batch) == ["0", "2", "4"]
        consumer.ack(batch)
    assert station.terms.selection == "function even"
    other = remote.channel("all", "**").station("t", "a function even", start="oldest")
    with other.attach() as consumer:
        assert idents(consumer.get(10)) == ["0", "2", "4"]
    station.change(selection="a")
    put(served.queue, *"67")
    with station.attach() as consumer:
        assert idents(consumer.get(10)) == ["6", "7"]


def test_a_name_that_the_site_does_not_know_is_refused_by_the_site(make_served: Callable[..., Served]) -> None:
    remote = make_served(functions={"even": even}).connect()
    for use in (
        lambda: remote.read_batch(1, "function odd"), lambda: remote.station("s", "function odd"),
        lambda: remote.channel("c", "wx").station("s", "function odd"),
    ):  # fmt: skip
        with pytest.raises(SelectionError, match="no function 'odd' here; there is even"):
            use()
    assert remote.stations() == []


def test_a_restarted_site_without_the_function_says_so_and_loses_nothing(make_served: Callable[..., Served]) -> None:
    served = make_served(functions={"even": even})
    remote = served.connect(patience=60)
    put(served.queue, *"01")
    consumer = remote.station("s", "function even", start="oldest").attach()
    consumer.ack(consumer.get(10))
    reopen(served, {})
    with pytest.raises(SelectionError, match="station 's' selects by function 'even'"):
        consumer.get(10)
    put(served.queue, *"234")
    assert served.site is not None
    (problem,) = served.site.problems()
    assert (problem.kind, problem.subject) == ("function", "s")
    reopen(served, {"even": even})
    assert idents(consumer.get(10)) == ["2", "4"]
    assert served.site.problems() == ()


def reopen(served: Served, functions: dict[str, Any]) -> None:
    """Restart the site with other functions."""
    served.stop()
    path = served.queue.path
    served.queue.close()
    served.queue = Queue.open(path, functions=functions)
    served.start()


def test_a_slow_function_delays_nobody_else(make_served: Callable[..., Served]) -> None:
    """Neither other reads, consumers and puts, nor the statistics of its own station."""
    go, entered = threading.Event(), threading.Semaphore(0)

    def slow(product: Product) -> bool:
        entered.release()
        return go.wait(240)

    served = make_served(functions={"slow": slow})
    remote = served.connect(patience=200)
    put(served.queue, *"123")
    stations = [remote.station(f"s{number}", "function slow", start="oldest") for number in range(6)]
    uses: list[Callable[[], Any]] = [lambda: remote.read_batch(1, "function slow", stop=4)] * 5
    uses += [partial(station.attach().get, 3) for station in stations]
    results: list[int] = []
    threads = [threading.Thread(target=lambda use=use: results.append(len(use())), daemon=True) for use in uses]
    try:
        for thread in threads:
            thread.start()
        for _ in range(7):  # a read, and a scan for each station
            assert entered.acquire(timeout=240)
        assert idents(remote.read_batch(1)) == ["1", "2", "3"]
        with remote.station("plain", start="oldest").attach() as consumer:
            assert idents(consumer.get(3)) == ["1", "2", "3"]
        assert remote.put(b"4", feed="a", ident="4") == 4
        assert [station.statistics().acknowledged for station in stations] == [0] * 6
        assert results == []
    finally:
        go.set()
    for thread in threads:
        thread.join(240)
    assert [count for count in results if count > 0] == results
    assert len(results) == 11


def test_a_function_sees_only_what_its_client_may_receive(make_served: Callable[..., Served]) -> None:
    seen: list[str] = []

    def spy(product: Product) -> bool:
        seen.append(product.feed)
        return True

    served = make_served(functions={"spy": spy}, rules=(Rule(("*",), ("open/**",)),))
    served.queue.put(b"", feed="open/a")
    served.queue.put(b"", feed="secret/a")
    assert len(served.connect().read_batch(1, "function spy")) == 1
    assert seen == ["open/a"]


def test_a_function_that_fails_is_a_problem_of_the_site(make_served: Callable[..., Served]) -> None:
    served = make_served(functions={"even": even})
    put(served.queue, *"0x2")
    assert idents(served.connect().read_batch(1, "function even")) == ["0", "2"]
    assert served.site is not None
    (problem,) = served.site.problems()
    assert (problem.kind, problem.subject) == ("function", "even")
    assert "failed for 1 product" in problem.text

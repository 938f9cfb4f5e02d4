"""What completion shows of an open queue and its parts, wherever its files are."""

from typing import Any

from headrace.queue import AnyConsumer, AnyQueue, AnyStation
from support.serving import Served


def attributes(thing: Any) -> list[str]:
    """Public attributes of an instance that its class does not show."""
    return [name for name in dir(thing) if not name.startswith("_") and name not in dir(type(thing))]


def test_instances_show_a_name_and_nothing_of_what_they_hold(
    queue: AnyQueue, station: AnyStation, consumer: AnyConsumer
) -> None:
    assert attributes(queue) == ["path"]
    assert attributes(station) == attributes(queue.cursor("c")) == ["name"]
    assert attributes(consumer) == ["station_name"]
    assert attributes(queue.follow()) == ["position"]


def test_a_notebook_shows_a_queue_and_its_stations_also_when_they_are_closed(
    queue: AnyQueue, station: AnyStation, served: Served
) -> None:
    things: list[Any] = [queue, station]
    assert all(thing._repr_html_().startswith("<table>") for thing in things)
    assert "Station s" in things[1]._repr_html_()
    if queue is served.queue:  # the site still needs it; tests/test_notebook.py closes one
        return
    queue.close()
    assert all(thing._repr_html_().startswith("<table>") for thing in things)
    assert "closed" in things[0]._repr_html_()


def test_channels_and_suppliers_show_a_name_too(queue: AnyQueue) -> None:
    channel = queue.channel("radar", "wx/radar")
    assert attributes(channel) == ["name"]
    with channel.supplier() as supplier:
        assert set(attributes(supplier)) <= {"channel", "channel_name"}

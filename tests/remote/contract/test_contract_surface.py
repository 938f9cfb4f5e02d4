"""What completion shows of an open queue and its parts, wherever its files are."""

from typing import Any

from headrace.queue import AnyConsumer, AnyQueue, AnyStation


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

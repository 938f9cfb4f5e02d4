"""Stations of a queue that is moved, deleted or replaced: nothing is skipped, and nobody waits forever."""

import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace import Batch, Queue
from headrace.errors import LeaseLostError, QueueDamagedError, QueueMovedError
from headrace.station import Consumer
from station.handling import put, work
from support.waiting import until

TERMS: list[dict[str, Any]] = [{}, {"blocking": True, "capacity": 100}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Queue.create(tmp_path / "q", size="2MiB", origin="here").close()
    return tmp_path / "q"


def refused(act: Callable[[], Any]) -> None:
    """Act until it is refused, which may take 10 ms. A queue of which some files are deleted already is damaged."""

    def is_refused() -> bool:
        try:
            act()
        except (QueueMovedError, QueueDamagedError):
            return True
        return False

    until(is_refused, "the refusal")


@pytest.mark.parametrize("terms", TERMS)
def test_a_station_gets_everything_that_was_put_around_a_move(path: Path, terms: dict[str, Any]) -> None:
    with Queue.open(path) as queue, Queue.open(path) as other:
        queue.station("s", "**", **terms)
        put(queue, "1")
        elsewhere = path.rename(path.with_name("elsewhere"))
        stored = [1]

        def put_more() -> None:
            put(queue, str(len(stored) + 1))
            stored.append(len(stored) + 1)

        refused(put_more)
        refused(lambda: put(other, "by a process that has not put before"))
        refused(lambda: queue.station("s"))
    with Queue.open(elsewhere) as again, again.station("s").attach() as consumer:
        assert work(consumer) == [str(number) for number in stored]
        assert again.check() == []


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("act", ["get", "ack", "attach", "statistics", "change", "parked"])
def test_no_operation_of_a_station_works_elsewhere(path: Path, terms: dict[str, Any], act: str) -> None:
    with Queue.open(path) as queue:
        station = queue.station("s", "**", **terms)
        put(queue, *"123")
        with station.attach() as consumer:
            batch = consumer.get(1)
            path.rename(path.with_name("elsewhere"))
            acts: dict[str, Callable[[], Any]] = {
                "get": lambda: consumer.get(1, timeout=1),
                "ack": lambda: acknowledge(consumer, batch),
                "attach": lambda: station.attach().detach(),
                "statistics": station.statistics,
                "change": station.pause,
                "parked": station.parked,
            }
            refused(acts[act])


def acknowledge(consumer: Consumer, batch: Batch) -> None:
    """Products that were acknowledged within the first 10 ms are no longer leased."""
    with suppress(LeaseLostError):
        consumer.ack(batch)


@pytest.mark.parametrize("terms", [{}, {"pacing": "1s", "batch_max": 100}])
@pytest.mark.parametrize("n", [1, 100])
@pytest.mark.parametrize("happen", [lambda path: path.rename(path.with_name("elsewhere")), shutil.rmtree])
def test_a_consumer_that_sleeps_notices(
    path: Path, n: int, happen: Callable[[Path], Any], terms: dict[str, Any]
) -> None:
    noticed = threading.Event()

    def consume() -> None:
        refused(lambda: consumer.get(n))
        noticed.set()

    with Queue.open(path) as queue, queue.station("s", "**", **terms).attach() as consumer:
        threading.Thread(target=consume, daemon=True).start()
        happen(path)
        assert noticed.wait(240)


def test_a_put_that_waits_for_a_full_station_notices(path: Path) -> None:
    noticed = threading.Event()

    def produce() -> None:
        refused(lambda: put(queue, "2"))
        noticed.set()

    with Queue.open(path) as queue:
        queue.station("s", "**", blocking=True, capacity=1)
        put(queue, "1")
        threading.Thread(target=produce, daemon=True).start()
        path.rename(path.with_name("elsewhere"))
        assert noticed.wait(240)


def test_a_consumer_does_not_get_the_products_of_the_queue_that_took_the_place(path: Path) -> None:
    with Queue.open(path) as queue, queue.station("s", "**").attach() as consumer:
        path.rename(path.with_name("elsewhere"))
        with Queue.create(path, size="2MiB", origin="other") as other:
            other.station("s", "**")
            put(other, "theirs")
            refused(lambda: consumer.get(1, timeout=1))
            assert other.station("s").statistics().behind + other.station("s").statistics().waiting == 1


# --- a document that is missing ---------------------------------------------------------------------


def test_missing_stations_are_not_taken_for_no_stations(path: Path) -> None:
    with Queue.open(path) as queue:
        queue.station("s", "**", blocking=True, capacity=1)
        put(queue, "1")
        with Queue.open(path) as other:
            (path / "stations.json").rename(path / "aside")
            for act in (lambda: put(other, "2"), lambda: other.stations(), lambda: other.station("s")):
                with pytest.raises(QueueDamagedError, match=r"stations\.json is missing"):
                    act()
            (path / "aside").rename(path / "stations.json")
        with queue.station("s").attach() as consumer:
            assert work(consumer) == ["1"]


def test_a_queue_that_had_stations_does_not_open_without_them(path: Path) -> None:
    with Queue.open(path) as queue:
        queue.station("s", "**")
    (path / "stations.json").unlink()
    with pytest.raises(QueueDamagedError, match=r"stations\.json is missing.*queue repair"):
        Queue.open(path)
    assert any("stations.json" in done for done in Queue.repair(path))
    with Queue.open(path) as queue:
        assert queue.stations() == []
        queue.station("s", "**")
        put(queue, "1")
        assert queue.check() == []


def test_a_queue_that_had_channels_does_not_open_without_them(path: Path) -> None:
    with Queue.open(path) as queue:
        queue.channel("radar", "wx/radar")
    (path / "channels.json").unlink()
    with pytest.raises(QueueDamagedError, match=r"channels\.json.*missing.*queue repair"):
        Queue.open(path)
    assert any("channels.json" in done for done in Queue.repair(path))
    with Queue.open(path) as queue:
        assert queue.channels() == []
        queue.channel("radar", "wx/radar")

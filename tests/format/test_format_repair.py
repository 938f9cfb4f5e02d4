"""What recovery and repair restore, and what they never delete: chains, stations, revisions."""

import contextlib
import os
import shutil
import signal
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import reader
import station_reader
from dying import at_work, end
from spoiler import Spoiler, write_word
from station_reader import chain_path, read_chain

from headrace import Queue
from headrace.errors import HeadraceError, QueueVersionError
from headrace.testing import MockClock
from support.waiting import until

MakeQueue = Callable[..., Queue]


def test_a_repair_leaves_revisions_hidden(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    queue.station("a", "wx/**")
    queue.station("b", "wx/**", after="a")
    queue.put(b"original", feed="wx/a")
    queue.put(b"other one", feed="wx/a")
    with queue.station("a").attach() as consumer:
        consumer.ack(consumer.get(1, 1), payloads=[b"revised"])
    queue.put(b"last", feed="wx/a")
    queue.close()
    file = reader.segment_path(queue.path, 1)
    file.write_bytes(file.read_bytes().replace(b"other one", b"OTHER one"))
    Queue.repair(queue.path)
    with Queue.open(queue.path) as again:
        assert [bytes(p.payload) for p in again.read_batch("oldest")] == [b"original", b"last"]


def test_a_rebuilt_row_of_a_revision_keeps_its_record(make_queue: MakeQueue) -> None:
    """Its record has the origin sequence of its product, which differs from its own sequence."""
    queue = make_queue(dedup="none")
    queue.station("a", "wx/**")
    queue.station("b", "wx/**", after="a")
    queue.put(b"original", feed="wx/a")
    with queue.station("a").attach() as consumer:
        consumer.ack(consumer.get(1, 1), payloads=[b"revised"])
    queue.put(b"last", feed="wx/a")
    queue.close()
    file = reader.segment_path(queue.path, 1)
    with Spoiler(file) as spoiler:
        spoiler.write(file.stat().st_size - 2 * reader.ROW_BYTES, bytes(reader.ROW_BYTES))
    write_word(queue.path, "boot", bytes(16))
    write_word(queue.path, "synced", 1)
    with Queue.open(queue.path):
        assert [p["damaged"] for p in reader.read_queue(queue.path)] == [False, False, False]


def test_after_a_seek_backwards_nothing_is_skipped_when_the_lists_are_rebuilt(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**")
    queue.put_many([b"x"] * 10, feed="wx/a")

    def work() -> object:
        consumer = station.attach()
        batch = consumer.get(10, 5)
        consumer.ack([batch[i] for i in range(9)])
        station.seek(3)
        return consumer, batch

    with at_work(work) as child:
        end(child)
    queue.close()
    with Queue.open(queue.path) as again, again.station("a").attach() as consumer:
        assert sorted(set(consumer.get(20, 1).sequences.tolist())) == list(range(3, 11))


def test_a_consumer_of_a_removed_station_receives_nothing_of_its_successor(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**")
    queue.station("b", "wx/**", after="a")
    consumer = station.attach()
    station.remove()
    queue.station("c", "de/**", after="b")
    queue.put(b"x", feed="de/a")
    queue.station("c").statistics()
    assert queue.station("c").consumers() == []
    with pytest.raises(HeadraceError):
        consumer.get_nowait(1)


def test_a_new_chain_starts_at_its_position_even_after_a_power_failure(make_queue: MakeQueue, tmp_path: Path) -> None:
    queue = make_queue()
    queue.put(b"before", feed="wx/a")
    queue.station("a", "wx/**")
    shutil.copytree(queue.path, tmp_path / "copy")
    write_word(tmp_path / "copy", "boot", bytes(16))
    with Queue.open(tmp_path / "copy"):
        assert read_chain(tmp_path / "copy", 1)["position"] == 2


def test_a_station_gets_no_products_of_a_swapped_chain_file(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.station("a", "wx/**")
    queue.station("b", "de/**")
    queue.put(b"x", feed="de/a")
    queue.station("b").statistics()
    queue.close()
    one, two = (chain_path(queue.path, n) for n in (1, 2))
    one.rename(queue.path / "x")
    two.rename(one)
    (queue.path / "x").rename(two)
    with Queue.open(queue.path) as again, again.station("a").attach() as consumer:
        assert [p.feed for p in consumer.get_nowait(1)] == []


def test_the_timeout_of_a_station_does_not_apply_to_the_stations_after_it(make_queue: MakeQueue) -> None:
    clock = MockClock(10**18)
    queue = make_queue(clock=clock)
    queue.station("a", "wx/**", timeout="1h")
    queue.station("b", "wx/**", after="a")
    queue.put(b"x", feed="wx/a")
    with queue.station("a").attach() as consumer:
        consumer.ack(consumer.get(1, 1))
    clock.advance(3601)
    with queue.station("b").attach() as consumer:
        assert len(consumer.get_nowait(1)) == 1


def test_the_next_holder_of_the_lock_finishes_a_change_whose_process_died(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue()
    queue.put(b"x", feed="wx/a")
    child = os.fork()
    if child == 0:
        import headrace.station.stations as stations

        stations._update_members = lambda *a: os.kill(os.getpid(), signal.SIGKILL)
        queue.station("new", "wx/**", start="oldest")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with Queue.open(queue.path) as again, again.station("new").attach() as consumer:
        assert len(consumer.get_nowait(1)) == 1


def test_an_unreadable_stations_json_does_not_leave_a_queue_half_recovered(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue()
    queue.station("a", "wx/**")
    queue.close()
    file = queue.path / "stations.json"
    text = file.read_text()
    file.write_text(text.replace('"format":2', '"format":3'))
    with pytest.raises(QueueVersionError):
        Queue.open(queue.path)
    file.write_text(text)
    assert reader.read_control(queue.path)["state"] == 1


def test_close_detaches_even_if_stations_json_is_invalid(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.station("a", "wx/**")
    queue.put(b"x", feed="wx/a")
    file = queue.path / "stations.json"
    text = file.read_text()
    again = Queue.open(queue.path)
    again.put(b"y", feed="wx/a")
    queue.station("a").pause()
    file.write_text("{}")
    with contextlib.suppress(HeadraceError):
        again.close()
    file.write_text(text)
    queue.close()
    Queue.remove(queue.path)  # refused if `again` still holds its lock


def test_deleting_a_product_deletes_its_revision(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.station("a", "wx/**")
    queue.station("b", "wx/**", after="a")
    queue.put(b"x", feed="wx/a")
    with queue.station("a").attach() as consumer:
        consumer.ack(consumer.get(1, 1), payloads=[b"revised"])
    queue.delete("wx/**")
    with queue.station("b").attach() as consumer:
        assert len(consumer.get_nowait(1)) == 0


def test_durability_disk_saves_positions_while_the_queue_is_open(make_queue: MakeQueue) -> None:
    queue = make_queue(durability="disk")
    station = queue.station("a", "wx/**")
    with station.attach() as consumer:
        queue.put_many([b"%d" % n for n in range(5)], feed="wx/a")
        consumer.ack(consumer.get(5, 1))
    queue.flush()
    until(lambda: station_reader.begin_again(queue.path, 1) == 6, "the position is saved")


def test_an_invalid_value_in_stations_json_is_reported_as_damage(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.station("a", "wx/**")
    queue.close()
    file = queue.path / "stations.json"
    text = file.read_text()
    for bad in (text.replace('"order":"priority"', '"order":"banana"'), text.replace('"member":0', '"member":64')):
        assert bad != text
        file.write_text(bad)
        try:
            with pytest.raises(HeadraceError):
                Queue.open(queue.path).close()
        finally:
            file.write_text(text)


def test_a_chain_of_a_newer_version_is_not_replaced(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.station("a", "wx/**")
    queue.close()
    with Spoiler(chain_path(queue.path, 1)) as spoiler:
        spoiler.write(8, struct.pack("<I", 3))
    (queue.path / "spoilt").touch()
    with pytest.raises(QueueVersionError):
        Queue.open(queue.path).close()

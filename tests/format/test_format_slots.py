"""A chain file: every word of a slot and of a consumer is where the page says, and its lists are in order."""

import mmap
import os
import struct
import time
from collections.abc import Callable

import pytest
import reader
import station_reader
from chains import NOW_NS, kernel_of, put, sequences_in, slots_in
from dying import at_work, die_holding_a_chain, end
from station_reader import STATES, chain_path, is_locked, read_chain, waiting_list

from headrace import Queue
from headrace.errors import LeaseLostError
from headrace.testing import MockClock
from support.waiting import until

MakeQueue = Callable[..., Queue]


# --- slots and lists ------------------------------------------------------------------------------


def test_the_mark_of_a_slot_shows_where_its_product_is(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    first = queue.station("a", "wx/**", deliveries_max=1)
    second = queue.station("b", "wx/**", after="a")
    put(queue, 6)
    with first.attach() as one, first.attach() as another, second.attach() as behind:
        assert len(one.get(1, 1)) == 1
        one.nack(one.get(1, 1), failed=True)
        assert len(another.get(1, 1)) == 1
        another.ack(another.get(2, 1))
        assert len(behind.get(1, 1)) == 1
        chain = read_chain(queue.path, 1)
        marks = {
            slot["sequence"]: (slot["state"], slot["member"], slot["consumer"], slot["ticket"])
            for slot in chain["slots"]
            if slot["state"] != "free"
        }
        assert marks == {
            1: ("leased", 0, 0, 1), 2: ("parked", 0, 0, 0), 3: ("leased", 0, 1, 3), 4: ("leased", 1, 2, 5),
            5: ("waiting", 1, 0, 0), 6: ("waiting", 0, 0, 0),
        }  # fmt: skip
        assert {slot["mark"] for slot in chain["slots"] if slot["state"] == "free"} == {0}
        assert [slot["deliveries"] for slot in sorted(chain["slots"], key=lambda s: s["sequence"])[-6:]] == [
            1, 1, 1, 1, 0, 0,
        ]  # fmt: skip
        assert {slot["wanted"] for slot in chain["slots"] if slot["state"] != "free"} == {0b11}
        assert (chain["in_hand"], chain["low"], chain["position"]) == (5, 1, 7)
        for number, state in STATES.items():
            if state != "free":
                told = kernel_of(queue).slots(0, number) + kernel_of(queue).slots(1, number)
                assert sorted(slot[1] for slot in told) == sequences_in(chain, state)


def test_an_acknowledgement_with_an_older_ticket_is_refused(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**")
    put(queue, 1)
    with station.attach() as consumer:
        early = consumer.get(1, 1)
        consumer.nack(early)
        late = consumer.get(1, 1)
        assert slots_in(read_chain(queue.path, 1), "leased")[0]["ticket"] == 2
        with pytest.raises(LeaseLostError):
            consumer.ack(early)
        consumer.ack(late)
        assert read_chain(queue.path, 1)["in_hand"] == 0


def test_parked_products_do_not_hold_back_the_position(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**", deliveries_max=1)
    put(queue, 2)
    with station.attach() as consumer:
        consumer.nack(consumer.get(2, 1), failed=True)
        assert len(consumer.get_nowait(2)) == 0
    chain = read_chain(queue.path, 1)
    assert (sequences_in(chain, "parked"), chain["in_hand"], chain["low"]) == ([1, 2], 0, 3)
    assert station.retry([1]) == 1
    chain = read_chain(queue.path, 1)
    assert (sequences_in(chain, "parked"), sequences_in(chain, "waiting"), chain["low"]) == ([2], [1], 1)
    assert station.forget() == 1


def test_products_wait_in_a_list_for_each_priority(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**")
    put(queue, 12, priority=[1, 7, 1, 0] * 3)
    with station.attach() as consumer:
        held = consumer.get(5, 1)
        consumer.nack([held[1], held[4], held[3]])
        chain = read_chain(queue.path, 1)
        by_priority = {
            priority: [chain["slots"][place]["sequence"] for place in waiting_list(chain, 0, priority)]
            for priority in range(8)
        }
        assert {priority: found for priority, found in by_priority.items() if found} == {
            0: [4, 8, 12], 1: [1, 3, 5, 7, 9, 11], 7: [6],
        }  # fmt: skip
        assert chain["members"][0]["present"] == 0b10000011
        assert all(slot["priority"] == [0, 1, 7, 1][slot["sequence"] % 4] for slot in slots_in(chain, "waiting"))


def test_products_wait_by_deadline_if_the_order_is_deadline(make_queue: MakeQueue) -> None:
    clock = MockClock(NOW_NS)
    queue = make_queue(dedup="none", clock=clock)
    station = queue.station("a", "wx/**", order="deadline", capacity=10)
    for seconds in (5, 0, 3, 9, 0):
        queue.put(b"x", feed="wx/a", expiry=NOW_NS + seconds * 10**9 if seconds else None)
    station.statistics()
    chain = read_chain(queue.path, 1)
    waiting = [chain["slots"][place] for place in waiting_list(chain, 0, 4)]
    assert [slot["sequence"] for slot in waiting] == [3, 1, 4, 2, 5]
    assert [slot["expires_ns"] for slot in waiting] == [NOW_NS + s * 10**9 for s in (3, 5, 9)] + [0, 0]


def test_a_station_without_a_capacity_admits_no_more_than_its_window(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**")
    put(queue, 5000)
    assert station.statistics().waiting == 4096
    chain = read_chain(queue.path, 1)
    assert (chain["position"], chain["in_hand"], chain["slots_ready"]) == (4097, 4096, 4096)
    assert chain_path(queue.path, 1).stat().st_size == station_reader.SLOTS_AT + 4096 * station_reader.SLOT_BYTES


def test_lists_are_rebuilt_from_the_marks_after_the_holder_of_the_lock_died(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**", deliveries_max=1)
    put(queue, 20, priority=[number % 8 for number in range(20)])
    with station.attach() as consumer:
        consumer.nack(consumer.get(3, 1), failed=True)
        held = consumer.get(5, 1)
        before = read_chain(queue.path, 1)

        def spoil(mapped: mmap.mmap) -> None:
            for word in ("free", "oldest", "newest", "in_hand"):
                struct.pack_into("<I", mapped, station_reader.CHAIN_HEADER[word][0], 77)
            for word in ("present", "waiting", "leased", "parked"):
                struct.pack_into("<I", mapped, station_reader.MEMBERS_AT + station_reader.MEMBER[word][0], 77)
            for place in range(station_reader.SLOTS_STEP):
                at = station_reader.SLOTS_AT + place * station_reader.SLOT_BYTES + station_reader.SLOT["next"][0]
                struct.pack_into("<III", mapped, at, place, place, place)

        die_holding_a_chain(queue.path, 1, spoil)
        with pytest.raises(reader.Damaged):
            read_chain(queue.path, 1)
        assert queue.check() == []  # takes the lock
        after = read_chain(queue.path, 1)
        assert (before["recoveries"], after["recoveries"]) == (0, 1)
        for state in ("waiting", "leased", "parked"):
            assert sequences_in(after, state) == sequences_in(before, state) != []
        assert [len(waiting_list(after, 0, p)) for p in range(8)] == [len(waiting_list(before, 0, p)) for p in range(8)]
        consumer.ack(held)


def test_an_invalid_mark_makes_a_slot_free(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    queue.station("a", "wx/**").statistics()
    put(queue, 5)
    queue.station("a").statistics()
    marks = {1: 1 | 3 << 8, 2: 2 | 3000 << 16, 3: 9, 4: 1}  # no such member, no such consumer, no such state, sound

    def spoil(mapped: mmap.mmap) -> None:
        for place, mark in marks.items():
            at = station_reader.SLOTS_AT + place * station_reader.SLOT_BYTES + station_reader.SLOT["mark"][0]
            struct.pack_into("<Q", mapped, at, mark)

    die_holding_a_chain(queue.path, 1, spoil)
    assert queue.check() == []
    assert sequences_in(read_chain(queue.path, 1), "waiting") == [1, 5]


# --- consumers ------------------------------------------------------------------------------------


def test_a_consumer_is_where_the_page_says(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**")
    queue.station("b", "wx/**", after="a")
    put(queue, 9)
    before_ns, begun_ns = time.time_ns(), time.monotonic_ns()
    with station.attach() as consumer, queue.station("b").attach():
        consumer.ack(consumer.get(4, 1))
        held = consumer.get(3, 1)
        consumers = read_chain(queue.path, 1)["consumers"]
        told = [
            (place, *(one[word] for word in ("member", "epoch", "pid", "attached_ns")))
            for place, one in consumers.items()
        ]
        assert told == [each[:5] for each in kernel_of(queue).consumers()]
        assert [(one["leased"], one["delivered"], one["acknowledged"]) for one in consumers.values()] == [
            (3, 7, 4),
            (0, 0, 0),
        ]
        assert [(one["pid"], one["member"]) for one in consumers.values()] == [(os.getpid(), 0), (os.getpid(), 1)]
        for one in consumers.values():
            assert before_ns <= one["attached_ns"] <= time.time_ns()
            assert begun_ns <= one["heartbeat_ns"] <= time.monotonic_ns()
        assert len(held) == 3
    chain = read_chain(queue.path, 1)
    assert (chain["consumers"], sequences_in(chain, "leased")) == ({}, [])


def test_a_consumer_holds_the_lock_of_its_place(make_queue: MakeQueue) -> None:
    queue = make_queue()
    station = queue.station("a", "wx/**")
    file = chain_path(queue.path, 1)

    def locked() -> list[int]:
        return [
            place
            for place in range(station_reader.CONSUMERS)
            if is_locked(file, station_reader.CONSUMER_LOCKS_AT + place)
        ]

    one, another = station.attach(), station.attach()
    assert locked() == [0, 1]
    one.detach()
    assert locked() == [1]
    assert not is_locked(file, 0)
    another.detach()
    assert locked() == []


def test_a_dead_consumer_loses_its_lock_and_its_products_are_redelivered(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**")
    put(queue, 4)
    lock = station_reader.CONSUMER_LOCKS_AT

    def work() -> object:
        consumer = station.attach()
        return consumer, consumer.get(3, 10)

    with at_work(work) as child:
        before = read_chain(queue.path, 1)
        assert (before["consumers"][0]["pid"], sequences_in(before, "leased")) == (child, [1, 2, 3])
        assert is_locked(chain_path(queue.path, 1), lock)
        end(child)
        assert not is_locked(chain_path(queue.path, 1), lock)
        assert read_chain(queue.path, 1)["consumers"] == before["consumers"]  # until a process looks
        station.statistics()
        after = read_chain(queue.path, 1)
        assert (after["consumers"], sequences_in(after, "waiting")) == ({}, [1, 2, 3, 4])
        assert after["members"][0]["restored"] == 3
    with station.attach() as consumer:
        assert read_chain(queue.path, 1)["consumers"][0]["epoch"] == before["consumers"][0]["epoch"] + 2
        assert consumer.get(4, 1).deliveries.tolist() == [2, 2, 2, 1]


def test_a_hung_consumer_loses_its_products_but_not_the_lock_of_its_place(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**", hung_after=0)
    put(queue, 1)
    file = chain_path(queue.path, 1)

    def work() -> object:
        from headrace.station.heartbeat import heartbeat

        consumer = station.attach()
        heartbeat.remove(consumer)
        return consumer, consumer.get(1, 10)

    with at_work(work):
        station.change(hung_after="1ms")
        heartbeat_ns = read_chain(queue.path, 1)["consumers"][0]["heartbeat_ns"]
        until(lambda: time.monotonic_ns() > heartbeat_ns + 2_000_000, "the heartbeat is too old")
        station.statistics()
        chain = read_chain(queue.path, 1)
        assert (chain["consumers"], sequences_in(chain, "waiting")) == ({}, [1])
        assert is_locked(file, station_reader.CONSUMER_LOCKS_AT)
        station.change(hung_after=0)
        with station.attach():
            assert set(read_chain(queue.path, 1)["consumers"]) == {1}

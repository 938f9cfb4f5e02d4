"""A chain file: every word of a header, a member, a consumer and a slot is where the page says."""

import mmap
import os
import struct
import time
from collections.abc import Callable

import pytest
import reader
import station_reader
from dying import at_work, die_holding_a_chain, end
from spoiler import Spoiler
from station_reader import STATES, chain_path, is_locked, read_chain, waiting_list

from headrace import Queue
from headrace.errors import BlockedError, LeaseLostError, RejectedError
from headrace.kernel import _kernel as kernel
from headrace.testing import MockClock

MakeQueue = Callable[..., Queue]
NOW_NS = 1_800_000_000_000_000_000


def kernel_of(queue: Queue, number: int = 1) -> kernel.Chain:
    return queue._stations.chain(number).kernel


def put(queue: Queue, count: int, **terms: object) -> None:
    queue.put_many([b"%d" % number for number in range(count)], feed="wx/a", **terms)


def slots_in(chain: reader.Fields, state: str) -> list[reader.Fields]:
    """The slots in one state, by sequence."""
    return sorted((slot for slot in chain["slots"] if slot["state"] == state), key=lambda slot: slot["sequence"])


def sequences_in(chain: reader.Fields, state: str) -> list[int]:
    return [slot["sequence"] for slot in slots_in(chain, state)]


# --- the header -----------------------------------------------------------------------------------


def test_a_new_chain_is_empty(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    put(queue, 3)
    queue.station("a", "wx/**")
    chain = read_chain(queue.path, 1)
    assert (chain["position"], chain["low"], chain["in_hand"], chain["slots_ready"]) == (4, 4, 0, 0)
    assert [chain[word] for word in ("free", "oldest", "newest")] == [station_reader.NOWHERE] * 3
    assert chain_path(queue.path, 1).stat().st_size == station_reader.SLOTS_AT
    assert (set(chain["members"]), chain["consumers"], chain["slots"]) == ({0}, {}, [])
    queue.station("b", "wx/**")
    assert read_chain(queue.path, 2)["number"] == 2


def test_every_word_of_a_chain_header_is_where_the_page_says(make_queue: MakeQueue) -> None:
    queue = make_queue(size="1MiB", dedup="none")
    station = queue.station("a", "wx/**")
    for _ in range(30):
        queue.put(b"x" * 60_000, feed="wx/a")  # more than the queue holds
    with Spoiler(reader.segment_path(queue.path, newest_file(queue))) as spoiler:
        at = reader.read_control(queue.path)["segment_bytes"] - reader.ROW_BYTES
        spoiler.flip(at, 1)
        with station.attach() as consumer:
            consumer.ack(consumer.get(4, 1))
            held = consumer.get(5, 1)
            die_holding_a_chain(queue.path, 1, lambda mapped: None)
            station.statistics()
            chain, state = read_chain(queue.path, 1), kernel_of(queue).state
            assert len(held) == 5
            assert chain["slots_ready"] == state.pop("slots") == station_reader.SLOTS_STEP
            assert state == {word: chain[word] for word in state}
            assert min(state.values()) > 0
            assert (chain["damaged_rows"], chain["recoveries"], chain["ticket"]) == (1, 1, 2)
            assert chain["lost_last"] + 1 == queue.oldest == chain["lost_first"] + chain["lost_products"]
            assert chain["terms"] == kernel_of(queue).terms_number > 1
            assert chain["magic"] == b"HRCHAIN\0"
        spoiler.flip(at, 1)


def newest_file(queue: Queue) -> int:
    control = reader.read_control(queue.path)
    return int(reader.entry_of(control, control["segment_newest"])["file"])


def test_the_terms_of_a_chain_change_with_those_of_any_member(make_queue: MakeQueue) -> None:
    queue = make_queue()
    station = queue.station("a", "wx/**")
    queue.station("b", "wx/**", after="a")
    before = read_chain(queue.path, 1)["terms"]
    station.change(capacity=7)
    assert read_chain(queue.path, 1)["terms"] > before


def test_waiting_writers_are_recorded_and_woken(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**", blocking=True, capacity=2)
    put(queue, 2)
    before = read_chain(queue.path, 1)
    with pytest.raises(BlockedError):
        queue.put(b"x", feed="wx/a", timeout=0)
    refused = read_chain(queue.path, 1)
    with station.attach() as consumer:
        consumer.ack(consumer.get(2, 1))
        after = read_chain(queue.path, 1)
    assert [chain["waiters"] for chain in (before, refused, after)] == [0, 1, 0]
    assert [chain["room"] - before["room"] for chain in (before, refused)] == [0, 0]
    assert after["room"] > before["room"]


# --- members --------------------------------------------------------------------------------------


def test_the_terms_of_a_station_are_where_the_page_says(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.station(
        "a", "wx/**", blocking=True, capacity=111, order="fifo", deliveries_max=7, hung_after="11s", max_queue=50
    )
    queue.station(
        "b", "wx/**", after="a", capacity=222, order="deadline", discard="deadline", restore="output", prescale=3,
        timeout="1h", start_time=NOW_NS, stop_time=NOW_NS + 1,
    )  # fmt: skip
    queue.station("c", "wx/**", group="g", after="b", discard="any", distribution="least_loaded", restore="group")
    queue.station("d", "wx/**", group="g", order="any", distribution="least_loaded", restore="start").pause()
    members = read_chain(queue.path, 1)["members"]
    terms = station_reader.read_stations(queue.path)["stations"]
    assert sorted(terms[name]["member"] for name in terms) == sorted(members)
    for station in terms.values():
        assert terms_of(members[station["member"]]) == expected(station, list(terms.values()))
    assert [members[terms[name]["member"]]["later"].bit_count() for name in "abcd"] == [3, 2, 0, 0]


def terms_of(member: reader.Fields) -> reader.Fields:
    return {word: member[word] for word in list(station_reader.MEMBER)[1:19] if word != "prescale_count"}


def expected(terms: reader.Fields, chain: list[reader.Fields]) -> reader.Fields:
    """What a member says of a station with these terms, in a chain with those."""
    stages = [(other["stage"], other["member"]) for other in chain]
    return {
        "stage": terms["stage"],
        "grouped": sum(stage == terms["stage"] for stage, _ in stages) > 1,
        "distribution": station_reader.DISTRIBUTIONS[terms["distribution"]],
        "blocking": terms["blocking"],
        "paused": terms["paused"],
        "order": station_reader.ORDERS[terms["order"]],
        "discard": station_reader.DISCARDS[terms["discard"]],
        "restore": station_reader.RESTORES[terms["restore"]],
        "deliveries_max": terms["deliveries_max"],
        "capacity": terms["capacity"] or 0,
        "prescale": terms["prescale"],
        "hung_after_ns": round(terms["hung_after_s"] * 10**9),
        "timeout_ns": round((terms["timeout_s"] or 0) * 10**9),
        "start_ns": terms["start_ns"] or 0,
        "stop_ns": terms["stop_ns"] or 0,
        "max_queue": terms["max_queue"] or 0,
        "later": sum(1 << member for stage, member in stages if stage > terms["stage"]),
    }


def test_the_counters_of_a_station_are_where_the_page_says(make_queue: MakeQueue) -> None:
    clock = MockClock(NOW_NS)
    queue = make_queue(dedup="none", clock=clock)
    station = queue.station("a", "wx/**", capacity=10, deliveries_max=2, prescale=2)
    put(queue, 40)
    with station.attach() as consumer:
        first = consumer.get(10, 1)
        consumer.ack([first[place] for place in range(3)])
        consumer.discard(first[3])
        consumer.nack([first[4], first[5]], failed=True)
        consumer.nack(consumer.get(2, 1), failed=True)
        queue.put_many([b"x", b"y"], feed="wx/a", expiry=NOW_NS + 1)
        station.statistics()
        clock.advance(1)
        assert len(consumer.get_nowait(20)) == 0
        told, member = kernel_of(queue).member(0), read_chain(queue.path, 1)["members"][0]
        assert told == {word: member[word] for word in told or {}}
        assert (member["delivered"], member["leased"]) == (12, 4)
        assert (member["acknowledged"], member["discarded"], member["parked"], member["parked_total"]) == (3, 1, 2, 2)
        assert (member["redelivered"], member["expired"], member["prescale_count"]) == (2, 1, 42)
        assert (member["flowed_around"], member["admitted"]) == (10, 11)
    member = read_chain(queue.path, 1)["members"][0]
    assert (member["leased"], member["restored"]) == (0, 0)  # a consumer that detaches is not restored


@pytest.mark.parametrize("discard", ["fifo", "lifo", "priority", "deadline"])
def test_products_dropped_by_a_full_station_are_counted_by_cause(make_queue: MakeQueue, discard: str) -> None:
    queue = make_queue(dedup="none")
    station = queue.station("a", "wx/**", capacity=4, discard=discard)
    put(queue, 10, priority=[number % 8 for number in range(10)])
    assert station.statistics().waiting == 4
    member = read_chain(queue.path, 1)["members"][0]
    word = "flowed_around" if discard == "lifo" else f"dropped_{discard}"
    words = ("flowed_around", "dropped_fifo", "dropped_priority", "dropped_deadline", "dropped_parking")
    assert {each: member[each] for each in words} == dict.fromkeys(words, 0) | {word: 6}


def test_a_put_that_was_refused_is_counted_where_the_page_says(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    queue.station("a", "wx/**", max_queue=2)
    put(queue, 2)
    with pytest.raises(RejectedError):
        queue.put(b"x", feed="wx/a")
    assert read_chain(queue.path, 1)["members"][0]["rejected"] == 1


def test_the_place_of_a_station_that_was_removed_is_all_zeros(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    queue.station("a", "wx/**")
    queue.station("b", "wx/**", after="a")
    put(queue, 3)
    queue.station("a").statistics()
    queue.station("a").remove()
    data, chain = chain_path(queue.path, 1).read_bytes(), read_chain(queue.path, 1)
    assert data[station_reader.MEMBERS_AT :][: station_reader.MEMBER_BYTES] == bytes(station_reader.MEMBER_BYTES)
    assert (set(chain["members"]), chain["members"][1]["waiting"]) == ({1}, 3)
    assert {slot["wanted"] for slot in slots_in(chain, "waiting")} == {0b10}
    queue.station("b").remove()
    assert not chain_path(queue.path, 1).exists()


def test_a_group_records_which_of_its_stations_got_the_latest_product(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    for name in "abc":
        queue.station(name, "wx/**", group="g")
    for count in range(1, 7):
        put(queue, 1)
        queue.station("a").statistics()
        chain = read_chain(queue.path, 1)
        waiting = slots_in(chain, "waiting")
        assert chain["members"][0]["turn"] == waiting[-1]["member"]
        assert sum(member["waiting"] for member in chain["members"].values()) == count
    assert {slot["wanted"] for slot in waiting} == {0b111}
    assert {slot["member"] for slot in waiting} == {0, 1, 2}


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
    marks = {1: 1 | 3 << 8, 2: 2 | 300 << 16, 3: 9, 4: 1}  # no such member, no such consumer, no such state, sound

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
    with station.attach() as consumer, queue.station("b").attach():
        consumer.ack(consumer.get(4, 1))
        held = consumer.get(3, 1)
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
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
        assert all(abs(time.time_ns() - one["attached_ns"]) < 60 * 10**9 for one in consumers.values())
        assert all(0 <= now_ns - one["heartbeat_ns"] < 60 * 10**9 for one in consumers.values())
        assert len(held) == 3
    chain = read_chain(queue.path, 1)
    assert (chain["consumers"], sequences_in(chain, "leased")) == ({}, [])


def test_a_consumer_holds_the_lock_of_its_place(make_queue: MakeQueue) -> None:
    queue = make_queue()
    station = queue.station("a", "wx/**")
    file = chain_path(queue.path, 1)

    def locked() -> list[int]:
        return [place for place in range(256) if is_locked(file, station_reader.CONSUMER_LOCKS_AT + place)]

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
    station = queue.station("a", "wx/**", hung_after="1ms")
    put(queue, 1)
    file = chain_path(queue.path, 1)

    def work() -> object:
        from headrace.station.heartbeat import heartbeat

        consumer = station.attach()
        heartbeat.remove(consumer)
        return consumer, consumer.get(1, 10)

    with at_work(work):
        heartbeat_ns = read_chain(queue.path, 1)["consumers"][0]["heartbeat_ns"]
        while time.clock_gettime_ns(time.CLOCK_MONOTONIC) < heartbeat_ns + 2_000_000:
            pass
        station.statistics()
        chain = read_chain(queue.path, 1)
        assert (chain["consumers"], sequences_in(chain, "waiting")) == ({}, [1])
        assert is_locked(file, station_reader.CONSUMER_LOCKS_AT)
        station.change(hung_after=0)
        with station.attach():
            assert set(read_chain(queue.path, 1)["consumers"]) == {1}

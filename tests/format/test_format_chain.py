"""A chain file: every word of its header and of a member is where the page says."""

from collections.abc import Callable

import pytest
import reader
import station_reader
from chains import NOW_NS, kernel_of, put, slots_in
from dying import die_holding_a_chain
from spoiler import Spoiler
from station_reader import chain_path, read_chain

from headrace import Queue
from headrace.errors import BlockedError, RejectedError
from headrace.testing import MockClock

MakeQueue = Callable[..., Queue]


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
    """The words of the member for a station with these terms, in a chain of such stations."""
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


def test_a_group_of_two_shares_its_products(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    for name in "ab":
        queue.station(name, "wx/**", group="g")
    queue.put_many([b"x"] * 12, feed="wx/a")
    assert [queue.station(name).statistics().waiting for name in "ab"] == [6, 6]


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

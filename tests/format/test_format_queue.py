"""Whole queues: the slow reader finds in the files what Headrace delivers."""

import random
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import reader
from side_by_side import assert_same

from headrace import Queue
from headrace.testing import MockClock

MakeQueue = Callable[..., Queue]
NOW_NS = 1_800_000_000_000_000_000


def test_both_readers_agree_on_every_kind_of_product(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put(b"", feed="wx")
    queue.put(b"METAR KDEN", feed="wx/text/metar", ident="SAUS70 KWBC 060000 /pMETAR")
    queue.put(bytearray(b"\x00\xff" * 500), feed="météo/sol", ident="température à 2 m — 気温 🌡")
    queue.put(b"urgent", feed="wx/a", priority=7, created=datetime(2026, 11, 15, tzinfo=UTC), slice=0)
    queue.put(b"later", feed="wx/a", priority=0, expiry="1h", slice=65534)
    queue.put(b"described", feed="wx/a", properties={"z": -(1 << 63), "a": 2.5, "é": "text", "yes": True, "no": False})
    queue.put(b"described with nothing", feed="wx/a", properties={"empty": "", "nan": float("nan"), "zero": -0.0})
    queue.put(b"signed", feed="wx/a", signature=bytes(range(16)))
    queue.put(b"foreign", feed="wx/a", origin="there", origin_sequence=1 << 40, previous=(1 << 40) - 9)
    queue.put(b"far from the one before", feed="wx/a", origin="there", origin_sequence=1 << 60, previous=1)
    products = assert_same(queue)
    assert [p["sequence"] for p in products] == list(range(1, 11))
    assert products[-2]["previous"] == (1 << 40) - 9
    assert products[-1]["previous"] is None


def test_both_readers_agree_on_a_batch_with_columns(make_queue: MakeQueue) -> None:
    queue = make_queue(hash="xxh3")
    count = 500
    receipt = queue.put_many(
        [b"%d" % n * (n % 50) for n in range(count)],
        feed=[f"wx/{n % 7}" for n in range(count)],
        ident=[f"i{n}" * (n % 3) for n in range(count)],
        created=[NOW_NS + n for n in range(count)],
        priority=[n % 8 for n in range(count)],
        properties=[{"n": n} if n % 2 else {} for n in range(count)],
        slice=[n % 16 for n in range(count)],
        origin=[f"site{n % 3}" for n in range(count)],
        origin_sequence=[n // 3 + 1 for n in range(count)],
        previous=[n // 3 for n in range(count)],
    )
    products = assert_same(queue)
    assert len(products) == receipt.stored == count
    assert {p["origin"] for p in products} == {"site0", "site1", "site2"}


def test_the_previous_product_has_the_same_origin_and_feed(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put(b"1", feed="wx/a")
    queue.put(b"2", feed="wx/b")
    queue.put(b"3", feed="wx/a", origin="there", origin_sequence=77)
    queue.put(b"4", feed="wx/a")
    queue.put(b"5", feed="wx/b")
    assert [(p["origin"], p["previous"]) for p in assert_same(queue)] == [
        ("here", None), ("here", None), ("there", None), ("here", 1), ("here", 2),
    ]  # fmt: skip


def test_expired_products_are_stored_but_not_delivered(make_queue: MakeQueue) -> None:
    clock = MockClock(NOW_NS)
    queue = make_queue(clock=clock)
    queue.put(b"short", feed="wx/a", expiry=NOW_NS + 1_000_000_000)
    queue.put(b"long", feed="wx/a", expiry=NOW_NS + 5_000_000_000)
    queue.put(b"for ever", feed="wx/a")
    assert len(assert_same(queue, clock.now_ns())) == 3
    clock.advance(1)
    assert len(assert_same(queue, clock.now_ns())) == 3
    assert [bytes(p.payload) for p in queue.read_batch("oldest")] == [b"long", b"for ever"]


def test_deleted_products_are_marked_in_their_rows(make_queue: MakeQueue) -> None:
    queue = make_queue()
    for number in range(20):
        queue.put(b"%d" % number, feed=f"wx/{number % 2}")
    assert queue.delete("wx/1") == 10
    products = assert_same(queue)
    assert [p["sequence"] for p in products if p["deleted"]] == list(range(2, 21, 2))


def test_damaged_products_are_marked_by_a_repair(make_queue: MakeQueue) -> None:
    queue = make_queue()
    for number in range(1, 6):
        queue.put(b"payload %d" % number, feed="wx/a")
    queue.close()
    file = reader.segment_path(queue.path, 1)
    file.write_bytes(file.read_bytes().replace(b"payload 3", b"PAYLOAD 3"))
    with pytest.raises(reader.Damaged):
        reader.read_queue(queue.path)
    assert Queue.repair(queue.path) != []
    products = reader.read_queue(queue.path)
    assert [(p["sequence"], p["damaged"]) for p in products] == [(n, n == 3) for n in range(1, 6)]
    with Queue.open(queue.path) as again:
        assert [p.sequence for p in again.read_batch("oldest")] == [1, 2, 4, 5]
        assert again.check() == []


def test_every_row_of_a_batch_except_the_last_has_the_continues_flag(make_queue: MakeQueue) -> None:
    queue = make_queue(size="1MiB")
    queue.put(b"alone", feed="wx/a", ident="i")
    queue.put_many([b"one", b"two", b"three"], feed="wx/a", ident="i")
    queue.put_many([b"four", b"alone", b"five", b"one", b"alone"], feed="wx/a", ident="i")  # ends with duplicates
    queue.put_many([b"one", b"two"], feed="wx/a", ident="i")  # nothing but duplicates
    queue.put_many([b"six"], feed="wx/a")
    queue.put_many([bytes([n]) * 40_000 for n in range(3)], feed="wx/a")  # a segment each
    assert reader.read_control(queue.path)["segment_newest"] == 3
    assert [p["continues"] for p in assert_same(queue)] == [
        False, True, True, False, True, False, False, True, True, False,
    ]  # fmt: skip


def test_a_mark_leaves_the_rest_of_a_row_as_it_is(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put_many([b"one", b"two"], feed=["wx/a", "wx/b"], slice=[7, 8], signature=[b"s" * 16, None], priority=3)
    control = reader.read_control(queue.path)
    before = reader.read_row(reader.read_segment(queue.path, reader.entry_of(control, 1), control["uuid"]), 0)
    queue.delete("wx/a")
    control = reader.read_control(queue.path)
    after = reader.read_row(reader.read_segment(queue.path, reader.entry_of(control, 1), control["uuid"]), 0)
    assert (before["whole"], after["whole"]) == (True, True)
    assert before["check"] != after["check"]
    assert after == before | {"flags": before["flags"] | reader.ROW_DELETED, "check": after["check"]}
    assert before["flags"] == reader.ROW_SIGNED | reader.ROW_CONTINUES
    assert_same(queue)


def test_a_new_queue_starts_at_sequence_one_with_its_own_origin(make_queue: MakeQueue) -> None:
    queue = make_queue(age=timedelta(hours=1))
    control = reader.read_control(queue.path)
    assert (control["oldest"], control["head"], control["tail"], control["synced"]) == (1, 1, 1, 1)
    assert (control["segment_oldest"], control["segment_newest"]) == (1, 0)
    assert control["age_ns"] == 3_600_000_000_000
    assert reader.read_names(queue.path)[control["origin"]]["text"] == "here"
    assert reader.read_queue(queue.path) == []
    assert struct.unpack("<QQ", control["secret"]) != (0, 0)
    assert queue.check() == []


# --- segments -------------------------------------------------------------------------------------


def test_a_payload_larger_than_a_segment_gets_a_segment_of_its_own(make_queue: MakeQueue) -> None:
    queue = make_queue(size="2MiB")
    queue.put(b"before", feed="wx/a")
    queue.put(b"j" * 300_000, feed="wx/a", ident="jumbo")
    queue.put(b"after", feed="wx/a")
    products = assert_same(queue)
    control = reader.read_control(queue.path)
    jumbo = reader.entry_of(control, 2)
    needed = reader.SEGMENT_HEADER_BYTES + reader.round8(len(products[1]["record"])) + reader.ROW_BYTES
    assert jumbo["size"] == (needed + 4095) // 4096 * 4096 > control["segment_bytes"]
    assert (jumbo["first"], control["bytes_total"]) == (2, jumbo["size"] + control["segment_bytes"])


def test_a_plain_segment_has_a_64th_of_the_size_within_bounds(make_queue: MakeQueue) -> None:
    sizes = {"1MiB": 1 << 16, "4MiB": 1 << 16, "10MB": 152 * 1024, "64MiB": 1 << 20, "1TiB": 1 << 30}
    for size, expected in sizes.items():
        queue = make_queue(f"q{size}", size=size)
        assert reader.read_control(queue.path)["segment_bytes"] == expected


def test_segment_files_are_reused_after_the_queue_has_wrapped_around(make_queue: MakeQueue) -> None:
    seed = 20261115
    print(f"seed {seed}")
    chance = random.Random(seed)
    queue = make_queue(size="1MiB")
    for _ in range(40):
        sizes = [chance.choice([0, 10, 100, 1000, 5000]) for _ in range(100)]
        queue.put_many([chance.randbytes(size) for size in sizes], feed="wx/a", ident="x" * chance.randrange(50))
    products = assert_same(queue)
    control = reader.read_control(queue.path)
    newest = reader.entry_of(control, control["segment_newest"])
    assert products[0]["sequence"] == control["oldest"] > 1
    assert newest["file"] < newest["number"], "no file was reused"
    segment = reader.read_segment(queue.path, newest, control["uuid"])
    behind = reader.read_row(segment, control["tail"] - newest["first"])
    assert behind["sequence"] not in (0, reader.low32(control["tail"])), "a row of an earlier life does not fit"


def test_the_directory_of_segments_is_a_ring(make_queue: MakeQueue) -> None:
    queue = make_queue(size="1MiB", dedup="none")
    for _ in range(300):
        queue.put_many([b"\x01" * 60_000] * 7, feed="wx/a")
    products = assert_same(queue)
    control = reader.read_control(queue.path)
    assert control["segment_newest"] == 2100 > reader.ENTRIES
    assert products[-1]["sequence"] == 2100


def test_the_file_of_an_evicted_jumbo_segment_is_removed(make_queue: MakeQueue) -> None:
    queue = make_queue(size="1MiB")
    for number in range(12):
        queue.put(bytes([number]) * 200_000, feed="wx/a")
        queue.put(bytes([number]) * 20_000, feed="wx/a")
    assert_same(queue)
    control = reader.read_control(queue.path)
    live = range(control["segment_oldest"], control["segment_newest"] + 1)
    files = {reader.segment_path(queue.path, reader.entry_of(control, number)["file"]) for number in live}
    if control["spare_file"]:
        files.add(reader.segment_path(queue.path, control["spare_file"]))
    assert set((queue.path / "segments").iterdir()) == files
    assert sum(file.stat().st_size for file in files) == control["bytes_total"] <= control["size_bytes"]


def test_a_closed_queue_reads_as_it_did_while_it_was_open(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put_many([b"%d" % n for n in range(100)], feed="wx/a")
    before = assert_same(queue)
    queue.close()
    assert reader.read_queue(queue.path) == before
    assert reader.read_control(queue.path)["clean"] == 1
    with Queue.open(queue.path) as again:
        assert assert_same(again) == before


@pytest.mark.parametrize("durability", ["process", "disk"])
def test_each_durability_leaves_the_same_files(make_queue: MakeQueue, durability: str) -> None:
    queue = make_queue(durability=durability)
    queue.put(b"one", feed="wx/a")
    queue.put_many([b"two", b"three"], feed="wx/b")
    assert len(assert_same(queue)) == 3
    control = reader.read_control(queue.path)
    assert ["memory", "process", "disk"][control["durability"]] == durability
    assert control["head"] == control["tail"] == 4


def test_both_readers_agree_on_a_queue_in_memory(shared_memory: Path) -> None:
    with Queue.create(shared_memory / "q", size="1MiB", durability="memory", dedup="none") as queue:
        queue.put(b"same", feed="wx/a")
        queue.put(b"same", feed="wx/a")
        assert [p["signature_kind"] for p in assert_same(queue)] == [0, 0]

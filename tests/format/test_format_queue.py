"""Whole queues: the slow reader finds in the files what Headrace delivers."""

import json
import random
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import reader
from side_by_side import assert_same
from spoiler import Spoiler, write_word

from headrace import Queue
from headrace.errors import QueueDamagedError, QueueVersionError
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
    queue = make_queue(dedup="xxh3")
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
    assert len(products) == receipt.stored == count - 9  # ten empty payloads, of which nine are duplicates
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
    assert [bytes(p.payload) for p in queue.read("oldest")] == [b"long", b"for ever"]


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
        assert [p.sequence for p in again.read("oldest")] == [1, 2, 4, 5]
        assert again.check() == []


def test_every_row_of_a_batch_except_the_last_has_the_continues_flag(make_queue: MakeQueue) -> None:
    queue = make_queue(size="1MiB")
    queue.put(b"alone", feed="wx/a")
    queue.put_many([b"one", b"two", b"three"], feed="wx/a")
    queue.put_many([b"four", b"alone", b"five", b"one", b"alone"], feed="wx/a")  # ends with duplicates
    queue.put_many([b"one", b"two"], feed="wx/a")  # nothing but duplicates
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


# --- names ----------------------------------------------------------------------------------------


def test_names_and_their_totals_are_in_the_names_file(make_queue: MakeQueue) -> None:
    queue = make_queue()
    for number in range(1100):  # more than one step of the file
        queue.put(b"%d" % number, feed=f"wx/{number}")
    queue.put(b"again", feed="wx/0")
    queue.put(b"foreign", feed="wx/0", origin="there", origin_sequence=5)
    names = reader.read_names(queue.path)
    feeds = {n["text"]: (n["last"], n["products"], n["payload_bytes"]) for n in names.values() if n["kind"] == 1}
    assert feeds == {f.feed: (f.last, f.products, f.bytes) for f in queue.statistics().feeds}
    assert feeds["wx/0"] == (1101, 3, 1 + 5 + 7)
    assert [names[place]["text"] for place in (0, 1)] == ["here", "there"]
    assert names[reader.FEEDS_BEGIN + 1099]["text"] == "wx/1099"
    assert_same(queue)


# --- duplicates -----------------------------------------------------------------------------------


def test_the_duplicate_table_leads_to_every_product_that_is_held(make_queue: MakeQueue) -> None:
    queue = make_queue(size="4MiB", dedup="md5")
    queue.put_many([b"%d" % n for n in range(60)], feed="wx/a")
    queue.put(b"given", feed="wx/a", signature=b"sixteen bytes ok")
    for product in assert_same(queue):
        assert reader.find_signature(queue.path, product["signature"]) == product["sequence"]
    assert reader.find_signature(queue.path, b"never was there!") is None


def test_the_duplicate_table_drops_a_deleted_product_and_finds_its_copy(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put(b"content", feed="wx/a")
    (product,) = assert_same(queue)
    queue.delete("wx/a")
    assert reader.find_signature(queue.path, product["signature"]) is None
    assert queue.put(b"content", feed="wx/a") == 2
    assert reader.find_signature(queue.path, product["signature"]) == 2
    assert_same(queue)


def test_without_dedup_a_given_signature_is_kept_and_finds_no_duplicates(make_queue: MakeQueue) -> None:
    given = b"sixteen bytes ok"
    queue = make_queue(dedup="none")
    assert queue.put(b"one", feed="wx/a", signature=given) == 1
    assert queue.put(b"one", feed="wx/a", signature=given) == 2
    receipt = queue.put_many([b"two", b"three", b"four"], feed="wx/a", signature=[given, given, None])
    assert (receipt.stored, receipt.first) == (3, 3)
    products = assert_same(queue)
    assert [p["signature_kind"] for p in products] == [4, 4, 4, 4, 0]
    assert [p["signature"] for p in products] == [given] * 4 + [bytes(16)]
    assert [p.signature for p in queue.read("oldest")] == [given] * 4 + [b""]
    control = reader.read_control(queue.path)
    table = reader.table_path(queue.path, control["dedup_table"])
    assert table.read_bytes() == bytes(512 * reader.BUCKET_BYTES)
    assert (control["signature_kind"], control["duplicates"], control["held_products"]) == (0, 0, 5)
    assert reader.find_signature(queue.path, given) is None
    queue.close()
    table.unlink()  # so that it is rebuilt
    with Queue.open(queue.path) as again:
        assert again.put(b"one", feed="wx/a", signature=given) == 6
        assert reader.find_signature(queue.path, given) is None
        assert len(assert_same(again)) == 6


def test_the_duplicate_table_does_not_find_an_evicted_product(make_queue: MakeQueue) -> None:
    queue = make_queue(size="1MiB")
    queue.put(b"first", feed="wx/a")
    (product,) = assert_same(queue)
    for number in range(40):
        queue.put(bytes([number]) * 60_000, feed="wx/a")
    assert queue.oldest > 1
    assert reader.find_signature(queue.path, product["signature"]) is None
    assert_same(queue)


def test_the_duplicate_table_grows_into_a_new_file(make_queue: MakeQueue) -> None:
    seed = 7
    print(f"seed {seed}")
    chance = random.Random(seed)
    queue = make_queue(size="8MiB", dedup="xxh3")
    before = reader.read_control(queue.path)["dedup_table"]
    for _ in range(8):
        queue.put_many([chance.randbytes(20) for _ in range(1000)], feed="wx/a")
    after = reader.read_control(queue.path)["dedup_table"]
    assert (before & 0xFFFFFFFF, after & 0xFFFFFFFF > 512) == (512, True)
    assert after >> 40 > before >> 40
    assert not reader.table_path(queue.path, before).exists()
    products = assert_same(queue)
    for product in chance.sample(products, 20):
        assert reader.find_signature(queue.path, product["signature"]) == product["sequence"]


def test_the_two_buckets_of_signatures_are_spread_over_the_whole_table() -> None:
    seed = 3
    print(f"seed {seed}")
    chance = random.Random(seed)
    secret = chance.randbytes(16)
    places = [reader.buckets_of(chance.randbytes(16), secret, 512)[:2] for _ in range(4000)]
    for side in (0, 1):
        counts = [[place[side] for place in places].count(bucket) for bucket in range(512)]
        assert max(counts) < 30
        assert counts.count(0) < 10


# --- cursors --------------------------------------------------------------------------------------


def test_both_readers_agree_on_cursors(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put_many([b"%d" % n for n in range(50)], feed="wx/a")
    queue.cursor("at the start")
    queue.cursor("é" * 60, "next")
    queue.cursor("gone").remove()
    moving = queue.cursor("moving")
    for position in range(2, 9):
        moving.save(position)
    cursors = reader.read_cursors(queue.path)
    assert sorted(cursors) == queue.cursors() == sorted(["at the start", "é" * 60, "moving"])
    for name, cell in cursors.items():
        state = queue.cursor(name).state
        assert (cell["position"], cell["saved_ns"], cell["lost_products"], cell["generation"]) == (
            state.position, state.saved_ns, state.lost_products, state.generation,
        )  # fmt: skip
    assert (cursors["moving"]["position"], cursors["moving"]["generation"]) == (8, 8)
    assert queue.check() == []


def test_a_cursor_records_its_lost_range(make_queue: MakeQueue) -> None:
    queue = make_queue(size="1MiB")
    cursor = queue.cursor("slow")
    for number in range(40):
        queue.put(bytes([number]) * 60_000, feed="wx/a")
    batch = cursor.read()
    cursor.commit(batch)
    cell = reader.read_cursors(queue.path)["slow"]
    assert batch.lost is not None
    assert (cell["lost_first"], cell["lost_last"], cell["lost_products"]) == (1, queue.oldest - 1, batch.lost.products)
    assert cell["position"] == batch.next
    assert queue.check() == []


def test_a_cursor_with_a_damaged_cell_uses_the_other_one(make_queue: MakeQueue) -> None:
    queue = make_queue()
    cursor = queue.cursor("c")
    for position in (5, 6):
        cursor.save(position)
    newest, older = reader.CURSOR_SLOT["cell_b"][0], reader.CURSOR_SLOT["cell_a"][0]  # generations 3 and 2
    with Spoiler(queue.path / "cursors") as spoiler:
        for at in range(newest, newest + 56):
            spoiler.flip(at, 0x10)
            assert reader.read_cursors(queue.path)["c"]["position"] == cursor.position == 5
            spoiler.flip(at, 0x10)
        spoiler.flip(newest + 63, 1)
        spoiler.flip(older + 63, 1)
        with pytest.raises(reader.Damaged):
            reader.read_cursors(queue.path)
        with pytest.raises(QueueDamagedError):
            cursor.position
        assert len(queue.check()) == 1
        spoiler.flip(newest + 63, 1)
        spoiler.flip(older + 63, 1)
    assert reader.read_cursors(queue.path)["c"]["position"] == cursor.position == 6
    assert queue.check() == []


# --- versions -------------------------------------------------------------------------------------


@pytest.fixture
def closed(make_queue: MakeQueue) -> Path:
    queue = make_queue()
    queue.put(b"x", feed="wx/a")
    queue.close()
    return queue.path


def test_a_control_file_of_a_newer_version_is_refused(closed: Path) -> None:
    file = closed / "control"
    write_word(closed, "version", 2)
    before = file.read_bytes()
    with pytest.raises(QueueVersionError, match=r"control has format 2.*up to 1.*upgrade"):
        Queue.open(closed)
    with pytest.raises(reader.OtherVersion):
        reader.read_queue(closed)
    assert file.read_bytes() == before
    write_word(closed, "version", 1)


def test_a_control_file_of_version_0_is_damaged(closed: Path) -> None:
    write_word(closed, "version", 0)
    with pytest.raises(QueueDamagedError, match="control has no format"):
        Queue.open(closed)
    with pytest.raises(reader.Damaged, match="version 0"):
        reader.read_queue(closed)
    write_word(closed, "version", 1)


def test_a_queue_json_of_a_newer_version_is_refused(closed: Path) -> None:
    file = closed / "queue.json"
    terms = file.read_text()
    file.write_text(json.dumps(json.loads(terms) | {"format": 2, "something": "new"}))
    with pytest.raises(QueueVersionError, match=r"queue.json has format 2.*up to 1.*upgrade"):
        Queue.open(closed)
    with pytest.raises(reader.OtherVersion):
        reader.read_queue(closed)
    file.write_text(terms)


def test_files_of_another_queue_are_refused(make_queue: MakeQueue, closed: Path) -> None:
    other = make_queue("other")
    other.put(b"x", feed="wx/a")
    other.close()
    mine = (closed / "control").read_bytes()
    (closed / "control").write_bytes((other.path / "control").read_bytes())
    with pytest.raises(QueueDamagedError, match="another queue"):
        Queue.open(closed)
    with pytest.raises(reader.Damaged, match="another queue"):
        reader.read_queue(closed)
    (closed / "control").write_bytes(mine)
    segment = reader.segment_path(closed, 1)
    own = segment.read_bytes()
    segment.write_bytes(reader.segment_path(other.path, 1).read_bytes())
    with pytest.raises(reader.Damaged, match="another queue"):
        reader.read_queue(closed)
    segment.write_bytes(own)


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

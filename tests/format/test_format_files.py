"""The files beside the segments: names, the duplicate table, cursors; and files of other versions and queues."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import reader
from side_by_side import assert_same
from spoiler import Spoiler, write_word

from headrace import Queue
from headrace.errors import QueueDamagedError, QueueVersionError

MakeQueue = Callable[..., Queue]


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
    queue = make_queue(size="4MiB", dedup="payload", hash="md5")
    queue.put_many([b"%d" % n for n in range(60)], feed="wx/a")
    queue.put(b"given", feed="wx/a", signature=b"sixteen bytes ok")
    for product in assert_same(queue):
        assert reader.find_signature(queue.path, product) == product["sequence"]
    assert reader.find_signature(queue.path, product | {"signature": b"never was there!"}) is None


def test_the_duplicate_table_drops_a_deleted_product_and_finds_its_copy(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put(b"content", feed="wx/a", ident="i")
    (product,) = assert_same(queue)
    queue.delete("wx/a")
    assert reader.find_signature(queue.path, product) is None
    assert queue.put(b"content", feed="wx/a", ident="i") == 2
    assert reader.find_signature(queue.path, product) == 2
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
    assert [p.signature for p in queue.read_batch("oldest")] == [given] * 4 + [b""]
    control = reader.read_control(queue.path)
    table = reader.table_path(queue.path, control["dedup_table"])
    assert table.read_bytes() == bytes(512 * reader.BUCKET_BYTES)
    assert (control["signature_kind"], control["duplicates"], control["held_products"]) == (0, 0, 5)
    assert reader.find_signature(queue.path, products[0]) is None
    queue.close()
    table.unlink()  # so that it is rebuilt
    with Queue.open(queue.path) as again:
        assert again.put(b"one", feed="wx/a", signature=given) == 6
        assert reader.find_signature(queue.path, products[0]) is None
        assert len(assert_same(again)) == 6


def test_the_duplicate_table_does_not_find_an_evicted_product(make_queue: MakeQueue) -> None:
    queue = make_queue(size="1MiB")
    queue.put(b"first", feed="wx/a")
    (product,) = assert_same(queue)
    for number in range(40):
        queue.put(bytes([number]) * 60_000, feed="wx/a")
    assert queue.oldest > 1
    assert reader.find_signature(queue.path, product) is None
    assert_same(queue)


def test_the_duplicate_table_grows_into_a_new_file(make_queue: MakeQueue) -> None:
    seed = 7
    print(f"seed {seed}")
    chance = random.Random(seed)
    queue = make_queue(size="8MiB", hash="xxh3")
    before = reader.read_control(queue.path)["dedup_table"]
    for _ in range(8):
        queue.put_many([chance.randbytes(20) for _ in range(1000)], feed="wx/a")
    after = reader.read_control(queue.path)["dedup_table"]
    assert (before & 0xFFFFFFFF, after & 0xFFFFFFFF > 512) == (512, True)
    assert after >> 40 > before >> 40
    assert not reader.table_path(queue.path, before).exists()
    products = assert_same(queue)
    for product in chance.sample(products, 20):
        assert reader.find_signature(queue.path, product) == product["sequence"]


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
    batch = cursor.read_batch()
    cursor.commit(batch)
    cell = reader.read_cursors(queue.path)["slow"]
    assert batch.lost is not None
    assert (cell["lost_first"], cell["lost_last"], cell["lost_products"]) == (1, queue.oldest - 1, batch.lost.products)
    assert cell["position"] == batch.next
    assert queue.check() == []


def test_a_cursor_with_a_damaged_cell_uses_the_other_one(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put_many([b""] * 6, feed="a")
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
    write_word(closed, "version", 4)
    before = file.read_bytes()
    with pytest.raises(QueueVersionError, match=r"control has format 4.*up to 3.*upgrade"):
        Queue.open(closed)
    with pytest.raises(reader.OtherVersion):
        reader.read_queue(closed)
    assert file.read_bytes() == before
    write_word(closed, "version", reader.CONTROL_VERSION)


def test_a_control_file_of_version_0_is_damaged(closed: Path) -> None:
    write_word(closed, "version", 0)
    with pytest.raises(QueueDamagedError, match="control has no format"):
        Queue.open(closed)
    with pytest.raises(reader.Damaged, match="version 0"):
        reader.read_queue(closed)
    write_word(closed, "version", reader.CONTROL_VERSION)


def test_a_queue_json_of_a_newer_version_is_refused(closed: Path) -> None:
    file = closed / "queue.json"
    terms = file.read_text()
    file.write_text(json.dumps(json.loads(terms) | {"format": 3, "something": "new"}))
    with pytest.raises(QueueVersionError, match=r"queue.json has format 3.*up to 2.*upgrade"):
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

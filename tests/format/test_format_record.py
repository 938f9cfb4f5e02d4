"""One record: the slow reader reads every record that Headrace writes, and both detect every flipped bit."""

import hashlib
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import reader
import xxhash
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from side_by_side import assert_same, fast, slow
from spoiler import Spoiler

from headrace import Duplicate, Queue
from headrace.errors import ProductDamagedError, QueueDamagedError
from headrace.testing import MockClock
from support.strategies import FAR, feeds, foreign, puts, texts

NOW_NS = 1_800_000_000_000_000_000


@pytest.fixture(scope="module")
def filling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """A queue for all examples of a property; in the end both readers agree on the whole of it."""
    with Queue.create(tmp_path_factory.mktemp("format") / "q", size="64MiB", origin="here") as queue:
        yield queue
        assert_same(queue)


@settings(deadline=None, max_examples=300, print_blob=True)
@given(puts(st.binary(max_size=100)), st.none() | foreign)
def test_a_record_holds_what_was_put(filling: Queue, put: dict[str, Any], stranger: dict[str, Any] | None) -> None:
    sequence = filling.put(**put, **(stranger or {}))
    if isinstance(sequence, Duplicate):
        return
    batch = filling.read_batch(sequence, limit=1)
    record = batch.record(0)
    said = reader.read_record(record)
    assert said["record"] == record
    assert slow(said | {"sequence": sequence, "inserted_ns": batch[0].inserted_ns}) == fast(batch[0])
    assert (said["payload"], said["feed"], said["ident"]) == (put["payload"], put["feed"], put["ident"])
    for word, field in (("created", "created_ns"), ("expiry", "expiry_ns"), ("slice", "slice")):
        assert put.get(word) is None or said[field] == put[word]
    computed = "signature" not in put and (put["ident"] or stranger)
    assert said["signature_kind"] == (5 if computed else 4)
    if computed:
        identity = said if "created" in put else said | {"created_ns": 0}  # 0: the producer did not say
        assert said["signature"] == blake3(reader.identity_of(identity)).digest()[:16]
    else:
        assert said["signature"] == put.get("signature", said["signature"])
    assert said["origin"] == (stranger["origin"] if stranger else "here")
    assert said["origin_sequence"] == (stranger["origin_sequence"] if stranger else sequence)
    if stranger:
        delta = stranger["origin_sequence"] - stranger.get("previous", stranger["origin_sequence"])
        assert said["previous"] == (stranger["previous"] if 0 < delta < (1 << 32) - 1 else None)


@settings(deadline=None, max_examples=200, print_blob=True)
@given(st.binary(max_size=200))
def test_bytes_that_are_not_a_record_are_refused(data: bytes) -> None:
    with pytest.raises((reader.Damaged, reader.OtherVersion)):
        reader.read_record(data)


SIGNERS: dict[str, Callable[[bytes], bytes]] = {
    "blake3": lambda data: blake3(data).digest()[:16],
    "xxh3": lambda data: xxhash.xxh3_128_intdigest(data).to_bytes(16, "big"),
    "md5": lambda data: hashlib.md5(data, usedforsecurity=False).digest(),
}
PAYLOADS = (b"", b"a", b"b" * 1000, b"c" * 16_000, b"d" * 16_384, b"e" * 200_000)


@pytest.mark.parametrize("hash", SIGNERS)
@pytest.mark.parametrize("dedup", ["identity", "payload"])
def test_a_signature_is_computed_as_the_page_says(make_queue: Callable[..., Queue], dedup: str, hash: str) -> None:
    queue = make_queue(dedup=dedup, hash=hash, size="4MiB")
    for number, payload in enumerate(PAYLOADS):
        queue.put(payload, feed="wx/a", ident="i" * 1024)
        queue.put(payload + b"1", feed="f" * 255, origin="o" * 63, origin_sequence=1 + number, created=7)
    queue.put_many([payload + b"2" for payload in PAYLOADS], feed="wx/b", ident=[f"é{size}" for size in range(6)])
    for product in assert_same(queue):
        assert reader.SIGNATURE_KINDS[product["signature_kind"]] == f"{dedup} {hash}"
        hashed = reader.identity_of(product) if dedup == "identity" else product["payload"]
        assert product["signature"] == SIGNERS[hash](hashed)


def test_a_queue_that_looks_for_no_duplicates_makes_no_signatures(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue(dedup="none")
    queue.put_many([b"x", b"x"], feed="wx/a", ident=["", "i"])
    assert [(p["signature_kind"], p["signature"]) for p in assert_same(queue)] == [(0, bytes(16))] * 2


@settings(deadline=None, max_examples=500, print_blob=True)
@given(feeds, texts, st.binary(max_size=40), foreign, st.integers(0, 1 << 63))
def test_an_identity_says_what_it_was_made_of(
    feed: str, ident: str, payload: bytes, stranger: dict[str, Any], created_ns: int
) -> None:
    """It can be read back, so two products have one identity only if they are equal."""
    product = {"feed": feed, "ident": ident, "payload": payload, "created_ns": created_ns, **stranger}
    identity = reader.identity_of(product)
    feed_bytes, ident_bytes, origin_bytes, zero = struct.unpack_from("<4H", identity)
    at = 8 if ident_bytes else 24
    assert (ident_bytes == 0) == (origin_bytes > 0)
    assert zero == 0
    if not ident_bytes:
        assert struct.unpack_from("<2Q", identity, 8) == (product["origin_sequence"], created_ns)
        assert identity[at + feed_bytes : at + feed_bytes + origin_bytes].decode() == product["origin"]
    assert identity[at : at + feed_bytes].decode() == feed
    assert identity[at + feed_bytes :][:ident_bytes].decode() == ident
    assert identity[at + feed_bytes + ident_bytes + origin_bytes :] == payload


def test_the_longest_texts_and_blocks_fit(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    properties = {"n" * 255: "v" * (65535 - 4 - 255)}
    queue.put(b"", feed="f" * 255, ident="é" * 512, origin="o" * 63, origin_sequence=1, properties=properties)
    (product,) = assert_same(queue)
    assert [len(product[part].encode()) for part in ("feed", "ident", "origin")] == [255, 1024, 63]
    assert product["properties"] == properties


def test_the_payload_is_aligned_for_every_length_of_the_ident(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    for size in range(32):
        queue.put(bytes([size]), feed="wx/a", ident="i" * size, expiry=FAR if size % 2 else None)
    control = reader.read_control(queue.path)
    segment = reader.read_segment(queue.path, reader.entry_of(control, 1), control["uuid"])
    at = reader.SEGMENT_HEADER_BYTES
    for place, product in enumerate(assert_same(queue)):
        assert reader.read_row(segment, place)["offset"] * 8 == at
        assert (len(product["record"]) - len(product["payload"])) % 8 == 0
        at += reader.round8(len(product["record"]))
    assert at == control["data_end"]


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture
def small(make_queue: Callable[..., Queue]) -> Queue:
    """Three products that use all fields; the tests damage the second. Every run writes the same bytes."""
    queue = make_queue(clock=MockClock(NOW_NS))
    for number in range(1, 4):
        queue.put(
            b"payload %d" % number, feed="wx/é", ident="SAUS70", expiry=FAR, priority=5, slice=3,
            properties={"a": 1, "b": True}, origin="there", origin_sequence=number * 10, previous=number,
        )  # fmt: skip
    return queue


def test_every_flipped_bit_of_a_record_is_detected_by_both_readers(small: Queue) -> None:
    product = assert_same(small)[1]
    segment = reader.segment_path(small.path, 1)
    start = segment.read_bytes().index(product["record"])
    with Spoiler(segment) as spoiler:
        for at in range(len(product["record"])):
            for bit in range(8):
                print(f"byte {at}, bit {bit}")  # shown if it goes undetected
                spoiler.flip(start + at, 1 << bit)
                broken = bytearray(product["record"])
                broken[at] ^= 1 << bit
                with pytest.raises((reader.Damaged, reader.OtherVersion)):
                    reader.read_record(bytes(broken))
                with pytest.raises(ProductDamagedError, match="product 2 ") as error:
                    small.read_batch(2)
                assert (error.value.sequence, error.value.next) == (2, 3)
                spoiler.flip(start + at, 1 << bit)
    assert_same(small)


def test_the_neighbours_of_a_damaged_record_can_be_read(small: Queue) -> None:
    product = assert_same(small)[1]
    segment = reader.segment_path(small.path, 1)
    at = segment.read_bytes().index(product["record"]) + len(product["record"]) - 1
    with Spoiler(segment) as spoiler:
        spoiler.flip(at, 1)
        assert [p.sequence for p in small.read_batch("oldest")] == [1]
        assert [p.sequence for p in small.read_batch(3)] == [3]
        with pytest.raises(reader.Damaged):
            reader.read_queue(small.path)
        assert [finding.sequence for finding in small.check()] == [2]
        spoiler.flip(at, 1)
    assert_same(small)


def test_every_flipped_bit_of_a_segment_header_is_detected(small: Queue) -> None:
    checked_end = reader.SEGMENT_HEADER["gap"][0]
    with Spoiler(reader.segment_path(small.path, 1)) as spoiler:
        for at in range(checked_end):
            bit = at % 8
            spoiler.flip(at, 1 << bit)
            with pytest.raises((reader.Damaged, reader.OtherVersion)):
                reader.read_queue(small.path)
            assert small.check() != [], f"byte {at}, bit {bit}"
            spoiler.flip(at, 1 << bit)
    assert_same(small)


def bits_of_a_row(queue: Queue, sequence: int) -> Iterator[tuple[Spoiler, int, int]]:
    """A spoiler of the first segment, and byte and mask of every bit in the row of `sequence`, one after the other."""
    file = reader.segment_path(queue.path, 1)
    start = file.stat().st_size - sequence * reader.ROW_BYTES
    with Spoiler(file) as spoiler:
        for at in range(reader.ROW_BYTES):
            for bit in range(8):
                print(f"byte {at}, bit {bit}")  # shown if it goes undetected
                yield spoiler, start + at, 1 << bit


def test_every_flipped_bit_of_a_row_is_detected_by_both_readers(small: Queue) -> None:
    assert_same(small)
    first, _, third = (fast(product) for product in small.read_batch("oldest"))
    bits = 0
    for spoiler, at, mask in bits_of_a_row(small, 2):
        spoiler.flip(at, mask)
        with pytest.raises(reader.Damaged, match="the row of 2"):
            reader.read_queue(small.path)
        for selection in (None, "wx/*", "other/**"):
            with pytest.raises(ProductDamagedError, match="product 2 ") as error:
                small.read_batch(2, selection)
            assert error.value.sequence == 2
        assert [fast(product) for product in small.read_batch("oldest")] == [first]
        assert [fast(product) for product in small.read_batch(3)] == [third]
        assert [finding.sequence for finding in small.check()] == [2]
        spoiler.flip(at, mask)
        bits += 1
    assert bits == 256
    assert_same(small)


def test_every_flipped_bit_of_the_last_row_is_detected_when_the_queue_is_opened_alone(small: Queue) -> None:
    assert_same(small)
    before = [fast(product) for product in small.read_batch("oldest")]
    small.close()
    for spoiler, at, mask in bits_of_a_row(small, 3):
        spoiler.flip(at, mask)
        with Queue.open(small.path) as again:
            assert [fast(product) for product in again.read_batch("oldest")] == before[:2]
            with pytest.raises(ProductDamagedError, match="product 3 "):
                again.read_batch(3)
        spoiler.flip(at, mask)
    with Queue.open(small.path) as again:
        assert [fast(product) for product in again.read_batch("oldest")] == before
        assert_same(again)


def test_nothing_is_a_duplicate_of_a_product_with_a_damaged_row(small: Queue) -> None:
    product = assert_same(small)[1]
    file = reader.segment_path(small.path, 1)
    at = file.stat().st_size - 2 * reader.ROW_BYTES
    with Spoiler(file) as spoiler:
        spoiler.flip(at, 1)
        assert reader.find_signature(small.path, product) is None
        assert small.put(product["payload"], feed=product["feed"], ident=product["ident"]) == 4
        assert reader.find_signature(small.path, product) == 4
        spoiler.flip(at, 1)
    small.delete("wx/again")
    assert reader.find_signature(small.path, product) == 2
    assert_same(small)


def test_a_row_that_differs_from_its_record_is_detected(small: Queue) -> None:
    file = reader.segment_path(small.path, 1)
    start = file.stat().st_size - 2 * reader.ROW_BYTES
    with Spoiler(file) as spoiler:
        for field in ("offset", "payload_bytes", "feed", "sequence", "origin", "slice", "priority"):
            print(field)
            spoiler.forge_row(start, field, 1)
            with pytest.raises(reader.Damaged):
                reader.read_queue(small.path)
            assert 2 in [finding.sequence for finding in small.check()]
            spoiler.forge_row(start, field, 1)
        for flag in (reader.ROW_EXPIRES, reader.ROW_SIGNED):
            spoiler.forge_row(start, "flags", flag)
            with pytest.raises(reader.Damaged, match="row and record of 2 differ"):
                reader.read_queue(small.path)
            spoiler.forge_row(start, "flags", flag)
    assert_same(small)


def test_every_flipped_bit_of_a_name_is_detected(small: Queue) -> None:
    assert_same(small)
    start = reader.FEEDS_BEGIN * reader.NAME_BYTES
    text_at = reader.NAME["text"][0]
    with Spoiler(small.path / "names") as spoiler:
        for at in [0, 1, 4, 5, 6, 7, *range(text_at, text_at + len("wx/é".encode()))]:
            spoiler.flip(start + at, 1 << at % 8)
            with pytest.raises(reader.Damaged):
                reader.read_names(small.path)
            with pytest.raises(QueueDamagedError):
                Queue.open(small.path)
            spoiler.flip(start + at, 1 << at % 8)
    assert_same(small)

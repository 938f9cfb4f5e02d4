"""Products of a channel with `compress` are stored smaller, and read as they were put: docs/compression.md."""

import itertools
import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xxhash

import headrace
from headrace import Duplicate, Queue
from headrace.errors import (
    ChannelExistsError,
    PayloadTooLargeError,
    ProductDamagedError,
    RecordsDamagedError,
    TermsError,
)
from headrace.log.records import Names, read_batch, rows_of
from headrace.product.batch import Batch
from headrace.product.options import Compression, Options, Replay, encode_options
from headrace.selection import Selection

TEXT = b"SAUS70 KWBC 060000\r\r\nMETAR KDEN 060053Z 10010KT 10SM FEW120 SCT220 12/M04 A3012=\r\r\n" * 12
NOISE = bytes(np.random.default_rng(7).integers(0, 256, 900, np.uint8))


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    queue = make_quick(size="16MiB")
    queue.channel("text", "wx/text/**", compress="zstd")
    return queue


def stored_bytes(batch: Batch) -> list[int]:
    """Bytes of the payloads as they lie in the log."""
    columns = batch.columns
    sizes = np.frombuffer(rows_of(batch).record_sizes(), np.uint64) - (columns["payload"] - columns["record"])
    return [int(size) for size in sizes]


def test_a_product_of_the_channel_takes_less_room_and_reads_as_it_was_put(queue: Queue) -> None:
    queue.put(TEXT, feed="wx/text/a", ident="1")
    batch = queue.read_batch()
    (product,) = batch
    assert bytes(product.payload) == bytes(product.payload) == TEXT
    assert (product.size, batch.payload_bytes, list(batch.sizes)) == (len(TEXT), len(TEXT), [len(TEXT)])
    assert stored_bytes(batch)[0] < len(TEXT) / 5
    assert queue.statistics().held_bytes == stored_bytes(batch)[0]
    assert product.copy() == product == pickle.loads(pickle.dumps(product))
    assert bytes(product.copy().payload) == TEXT


def test_what_does_not_shrink_is_stored_as_it_is(queue: Queue) -> None:
    for payload in (NOISE, b"", b"short, short, short", os.urandom(70_000), NOISE * 1 + bytes(20)):
        queue.put(payload, feed="wx/text/a")
    batch = queue.read_batch()
    assert not batch.columns["form"].any()
    assert stored_bytes(batch) == [product.size for product in batch]


def test_other_feeds_are_stored_as_they_are(queue: Queue) -> None:
    queue.put(TEXT, feed="wx/texts")
    queue.put_many([TEXT, TEXT], feed=["wx/other", "wx/text/b"])
    assert list(queue.read_batch().columns["form"]) == [0, 0, 1]


def test_identity_is_that_of_the_payload_however_it_is_stored(make_quick: Callable[..., Queue], queue: Queue) -> None:
    plain = make_quick("plain", origin="plain")
    for each in (queue, plain):
        each.put(TEXT, feed="wx/text/a", ident="1")
    (one,), (other,) = queue.read_batch(), plain.read_batch()
    assert one.signature == other.signature
    assert queue.put(TEXT, feed="wx/text/a", ident="1") == Duplicate(1)
    assert queue.put_many([TEXT], feed="wx/text/a", ident="1").stored == 0
    assert queue.put_batch(plain.read_batch()).stored == 0
    assert plain.put_batch(queue.read_batch()).stored == 0


def test_payloads_of_any_kind_are_compressed(queue: Queue) -> None:
    numbers = np.zeros(1000, np.float64)
    for payload in (bytearray(TEXT), memoryview(TEXT), numbers):
        queue.put(payload, feed="wx/text/a")
    queue.put_many([bytearray(TEXT), memoryview(TEXT), numbers], feed="wx/text/a")
    batch = queue.read_batch()
    assert batch.columns["form"].all()
    assert [bytes(product.payload) for product in batch] == 2 * [TEXT, TEXT, numbers.tobytes()]


def test_products_keep_their_facts(queue: Queue) -> None:
    facts: dict[str, Any] = {"priority": 6, "properties": {"station": "KDEN"}, "slice": 7, "expiry": "1h"}
    options = Options(replay=Replay(5, 6), hops=3)
    queue.put(TEXT, feed="wx/text/a", ident="x", options=options, **facts)
    queue.put_many([TEXT], feed="wx/text/a", ident="y", options=[options], **facts)
    for product in queue.read_batch():
        assert (product.priority, dict(product.properties), product.slice) == (6, {"station": "KDEN"}, 7)
        assert (product.options.replay, product.options.hops) == (options.replay, 3)
        assert product.options.compression == Compression(1, 0, len(TEXT))
        assert product.expiry is not None


def test_columns_have_the_payloads_as_they_were_put(queue: Queue) -> None:
    payloads = [TEXT, NOISE, TEXT[:500], b"", TEXT * 3]
    queue.put_many(payloads, feed="wx/text/a")
    batch = queue.read_batch()
    assert batch.to_arrow().column("payload").to_pylist() == payloads
    offsets, data = rows_of(batch).gather_payloads(True)
    places = np.frombuffer(offsets, np.uint64)
    assert [data[a:b] for a, b in itertools.pairwise(places)] == payloads
    _, _, _, texts = rows_of(batch).gather_texts(b"\0\0\0\1")
    assert texts is not None
    assert texts[1] == b"".join(payloads)
    chosen = batch.take([4, 0])
    assert [bytes(product.payload) for product in chosen] == [TEXT * 3, TEXT]


def test_selections_and_stations_see_the_payload(queue: Queue) -> None:
    station = queue.station("s", "wx/text/** where size > 930", start="oldest")
    by_xpath = Selection(feed="wx/text/**", xpath="/report[@type='METAR']")
    xml = b"<report type='METAR'>" + b"<group>10010KT</group>" * 40 + b"</report>"
    queue.put(xml, feed="wx/text/a", ident="xml")
    queue.put(TEXT, feed="wx/text/a", ident="text")
    assert queue.read_batch().columns["form"].all()
    assert [product.ident for product in queue.read(selection=by_xpath)] == ["xml"]
    with station.attach() as consumer:
        batch = consumer.get(1, timeout=20)
        assert [product.ident for product in batch] == ["text"]
        consumer.ack(batch)


def test_a_station_may_revise_a_compressed_product(queue: Queue) -> None:
    first = queue.station("first", "wx/text/**")
    second = queue.station("second", "wx/text/**", after="first")
    queue.put(TEXT, feed="wx/text/a", ident="1")
    with first.attach() as consumer, second.attach() as next_one:
        batch = consumer.get(1, timeout=20)
        assert bytes(batch[0].payload) == TEXT
        consumer.ack(batch, [b"revised"])
        (product,) = next_one.get(1, timeout=20)
        assert (bytes(product.payload), product.size) == (b"revised", 7)
        assert product.options.compression is None


def test_a_batch_ends_where_its_payloads_exceed_the_limit(queue: Queue) -> None:
    """Otherwise the columns of a well compressed batch would take a multiple of the memory that was asked for."""
    queue.put_many([bytes(100_000)] * 50, feed="wx/text/a")
    batch = queue.read_batch(bytes_limit=300_000)
    assert (len(batch), batch.next) == (3, 4)
    rest = list(queue.read(batch.next))
    assert [product.sequence for product in rest] == list(range(4, 51))
    whole = queue.read_batch(bytes_limit="1GiB")
    assert (len(whole), whole.payload_bytes) == (50, 5_000_000)


def test_terms_change_at_any_time_for_every_process_that_has_the_queue_open(queue: Queue) -> None:
    channel = queue.channel("text")
    with Queue.open(queue.path) as other:
        forms = []
        for compress in ("zstd:9", None, "zstd", None):
            channel.change(compress=compress)
            other.put(TEXT, feed="wx/text/a")
            other.put_many([TEXT], feed="wx/text/a")
            forms += [int(product_form) for product_form in queue.read_batch(queue.next - 2).columns["form"]]
        assert forms == [1, 1, 0, 0, 1, 1, 0, 0]
        channel.remove()
        other.put(TEXT, feed="wx/text/a")
    assert not queue.read_batch(queue.next - 1).columns["form"].any()


def test_terms_that_contradict_each_other_are_refused(queue: Queue) -> None:
    with pytest.raises(TermsError, match="channel 'text' compresses wx/text"):
        queue.channel("wide", "wx/**", compress="zstd")
    with pytest.raises(TermsError, match="compress 'gzip' is unknown"):
        queue.channel("gzip", "gz/**", compress="gzip")
    with pytest.raises(TermsError, match="compress 'zstd:20' is unknown"):
        queue.channel("text").change(compress="zstd:20")
    with pytest.raises(TermsError, match="no effect without compress"):
        queue.channel("alone", "al/**", dictionary="0000ffff")
    with pytest.raises(TermsError, match="'none' is not a dictionary"):
        queue.channel("text").change(dictionary="none")
    with pytest.raises(ChannelExistsError, match="compress zstd:3, not zstd:9"):
        queue.channel("text", "wx/text/**", compress="zstd:9")
    with pytest.raises(TermsError, match="set it for the channel"):
        queue.channel("text").station("s", compress="zstd")  # type: ignore[call-arg]
    queue.channel("text", "wx/text/**", compress="zstd:3")
    queue.channel("text").change(timeout="10s")
    assert queue.channel("text").definition.compression is not None


# --- what other sites may send ----------------------------------------------------------------------


def record_end(record: bytes) -> int:
    """Where the only record in these bytes ends, without its padding."""
    return int(np.frombuffer(rows_of(read_batch(record, Names())).record_sizes(), np.uint64)[0])


def altered(record: bytes, old: bytes, new: bytes) -> bytes:
    """The record with some bytes replaced, and its checksum right again."""
    assert record.count(old) == 1
    changed, end = bytearray(record.replace(old, new)), record_end(record)
    first = int.from_bytes(changed[:4], "little")
    changed[4:8] = ((xxhash.xxh3_64_intdigest(bytes(changed[8:end])) & 0xFFFFFFFF) ^ first).to_bytes(4, "little")
    return bytes(changed)


def test_a_record_that_would_expand_to_another_size_is_refused_before_it_is_used(queue: Queue) -> None:
    queue.put(TEXT, feed="wx/text/a", ident="1")
    record = rows_of(queue.read_batch()).gather_records()
    said = encode_options(Options(compression=Compression(1, 0, len(TEXT))))
    for size in (len(TEXT) - 1, len(TEXT) + 1, 0, (1 << 32) - 1):
        lie = encode_options(Options(compression=Compression(1, 0, size)))
        with pytest.raises(RecordsDamagedError, match="does not expand to the size that it says"):
            read_batch(altered(record, said, lie), Names())


def test_a_payload_in_an_unknown_form_is_carried_along_and_not_used(
    make_quick: Callable[..., Queue], queue: Queue
) -> None:
    queue.put(TEXT, feed="wx/text/a", ident="1")
    record = rows_of(queue.read_batch()).gather_records()
    said = encode_options(Options(compression=Compression(1, 0, len(TEXT))))
    other = encode_options(Options(compression=Compression(9, 0, len(TEXT))))
    batch = read_batch(altered(record, said, other), Names())
    target = make_quick("target", origin="target")
    assert target.put_batch(batch).stored == 1
    (product,) = target.read_batch()
    assert product.ident == "1"
    with pytest.raises(ProductDamagedError, match="a form that this Headrace does not know"):
        product.payload
    assert rows_of(target.read_batch()).gather_records()[56:] == bytes(altered(record, said, other))[56:]


def test_a_payload_that_expands_beyond_a_quarter_of_the_queue_is_refused(
    make_quick: Callable[..., Queue], queue: Queue
) -> None:
    queue.put(bytes(3_000_000), feed="wx/text/a")
    small = make_quick("small", size="8MiB", origin="small")
    with pytest.raises(Exception, match=r"a payload of 3000000 bytes exceeds the 2\.0 MiB"):
        small.put_batch(queue.read_batch())
    small.channel("all", "**", compress="zstd")
    with pytest.raises(PayloadTooLargeError, match="5000000 bytes"):
        small.put(bytes(5_000_000), feed="a")
    with pytest.raises(PayloadTooLargeError, match="3000000 bytes"):
        small.put_many([bytes(3_000_000)], feed="a")
    small.put(bytes(3_000_000), feed="a", ident="large")  # in fragments, and these are compressed
    assert small.statistics().held_bytes < 100_000
    assert [bytes(product.payload) for product in headrace.joined(small.read().batches())] == [bytes(3_000_000)]


def test_a_damaged_frame_is_an_error_for_that_product_alone(make_quick: Callable[..., Queue], queue: Queue) -> None:
    queue.put_many([TEXT, TEXT + b"2", TEXT + b"3"], feed="wx/text/a", ident=["1", "2", "3"])
    data = rows_of(queue.read_batch()).gather_records(np.array([1], np.uint32))
    frame_end = data.rstrip(b"\0")[-20:]
    bad = read_batch(altered(data, frame_end, bytes(20)), Names())
    target = make_quick("target", origin="target")
    target.put_batch(queue.read_batch().take([0]))
    target.put_batch(bad)
    target.put_batch(queue.read_batch().take([2]))
    batch = target.read_batch()
    assert [bytes(batch[0].payload), bytes(batch[2].payload)] == [TEXT, TEXT + b"3"]
    with pytest.raises(ProductDamagedError) as caught:
        batch[1].payload
    assert caught.value.sequence == 2

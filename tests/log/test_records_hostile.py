"""Records from a hostile peer: either an error with its offset, or valid products."""

import itertools
import random
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from travelling import facts, forged, page, put_some, sealed

from headrace import Batch, Queue
from headrace.errors import InvalidError, RecordsDamagedError
from headrace.kernel import _kernel as kernel
from headrace.log.records import Names, read_batch, wrong_signatures
from headrace.product.feed import check_feed

MakeQueue = Callable[..., Queue]
PAGE = forged(ident=b"before") + forged()  # valid records; the tests append an invalid one


def entry(kind: int, name: bytes, value: bytes, more: int = 0) -> bytes:
    """An entry of a property block; with `more` it declares its value longer than it is."""
    return struct.pack("<BBH", kind, len(name), len(value) + more) + name + value


def use_in_full(batch: Batch) -> None:
    """Use a batch in every way that Headrace does."""
    assert all(check_feed(product.feed) for product in batch)
    batch.to_arrow().validate(full=True)
    assert len(batch.idents) == len(batch.feeds) == len(batch)
    assert read_batch(page(batch), Names()).columns.tobytes()


@pytest.fixture
def sent(make_queue: MakeQueue) -> Batch:
    return put_some(make_queue())


def read_or_nothing(data: bytes, names: Names) -> Batch | None:
    try:
        return read_batch(data, names)
    except RecordsDamagedError as error:
        assert 0 <= error.offset <= len(data)
        assert error.offset % 8 == 0
        return None


def test_a_forged_record_without_a_fault_is_valid() -> None:
    property_block = entry(1, b"a", bytes(8)) + entry(2, b"ab", bytes(8)) + entry(3, b"b", b"") + entry(4, b"c", b"x")
    data = PAGE + forged(
        feed="ü/b".encode(), ident="\U0010ffff".encode(), properties=property_block, expiry=struct.pack("<Q", 9),
        origin_sequence=50, previous_delta=49, flags=7 | 4 << 3 | 64, signature=b"s" * 16,
    )  # fmt: skip
    product = read_batch(data, Names())[2]
    assert (product.feed, product.ident, product.previous) == ("ü/b", "\U0010ffff", 1)
    assert (product.priority, product.expiry_ns, product.signature) == (7, 9, b"s" * 16)
    assert dict(product.properties) == {"a": 0, "ab": 0.0, "b": "", "c": True}


@pytest.mark.parametrize(
    ("spoilt", "problem"),
    [
        ({"magic": b"HS"}, "not a record"),
        ({"version": 3}, "version is unknown"),
        ({"version": 0}, "version is unknown"),
        ({"flags": 4 | 128}, "flags"),
        ({"signature": bytes(15) + b"s"}, "no kind of signature"),
        ({"feed": b""}, "length"),
        ({"origin": b""}, "length"),
        ({"origin": b"o" * 64}, "length"),
        ({"ident": b"i" * 1025}, "length"),
        ({"origin_sequence": 0}, "sequence"),
        ({"origin_sequence": 1 << 63}, "sequence"),
        ({"origin_sequence": 5, "previous_delta": 5}, "sequence"),
        ({"origin_sequence": 5, "previous_delta": 6}, "sequence"),
        ({"created_ns": 1 << 63}, "time"),
        ({"expiry": bytes(8)}, "time"),
        ({"expiry": b"\xff" * 8}, "time"),
        ({"feed": b"wx", "pad": b"\x01"}, "padding is not zero"),
        ({"behind": b"\x01"}, "padding is not zero"),
        ({"payload_bytes": 16}, "cut short"),
        ({"payload_bytes": (1 << 32) - 1}, "cut short"),
        ({"payload_bytes": 3}, "checksum"),
        ({"properties_bytes": 65535}, "cut short"),
        *(({"feed": feed}, "valid name") for feed in (b"a//b", b"/", b"a b", b"a\0", b"*", b"\xff", b"\xc3", b"a\x7f")),
        *(({"origin": origin}, "valid name") for origin in (b"-a", b"a/b", b"\xc3\xbc", b"a b", b"a\0")),
        *(
            ({"ident": ident}, "UTF-8")
            for ident in (b"\xff", b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf",
                          b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"sixteen letters \xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x98")
        ),
        *(
            ({"properties": block}, "properties")
            for block in (
                b"\x01", entry(1, b"", bytes(8)), entry(1, b"a", bytes(7)), entry(2, b"a", bytes(9)), entry(4, b"a", b"  "),
                entry(0, b"a", bytes(8)), entry(5, b"a", b""), entry(3, b"a", b"\xff"), entry(3, b"\xff", b""),
                entry(3, b"a", b"text", 1), entry(1, b"a", b"four", 4), entry(3, b"b", b"") + entry(3, b"a", b""),
                entry(3, b"a", b"") * 2, entry(3, b"ab", b"") + entry(3, b"a", b""), entry(3, b"a", b"") + b"abc",
            )
        ),
    ],
)  # fmt: skip
def test_an_invalid_record_is_refused_with_its_offset(spoilt: dict[str, Any], problem: str) -> None:
    names = Names()
    with pytest.raises(RecordsDamagedError, match=problem) as error:
        read_batch(PAGE + forged(**spoilt), names)
    assert error.value.offset == len(PAGE)
    assert str(len(PAGE)) in error.value.problem
    assert (list(names.feeds), list(names.origins)) == (["wx"], ["there"])


def test_a_page_truncated_inside_a_record_is_refused(sent: Batch) -> None:
    data, whole, names = page(sent), [facts(product) for product in sent], Names()
    ends = [0, *itertools.accumulate(-(-len(sent.record(place)) // 8) * 8 for place in range(len(sent)))]
    for end in range(len(data)):
        batch = read_or_nothing(data[:end], names)
        assert (batch is not None) == (end in ends)
        if batch is not None:
            assert [facts(product) for product in batch] == whole[: len(batch)]


def cancels(data: bytes, spoilt: bytes, sent: Batch) -> bool:
    """Whether the same bits of a record's first word and of its checksum are flipped: the checksum is the hash XOR that
    word, so it does not show them."""
    starts = itertools.accumulate((-(-len(sent.record(place)) // 8) * 8 for place in range(len(sent) - 1)), initial=0)
    flipped = [
        struct.unpack("<II", bytes(a ^ b for a, b in zip(data[at : at + 8], spoilt[at : at + 8], strict=True)))
        for at in starts
    ]
    return any(first == checksum != 0 for first, checksum in flipped)


def test_flipped_bits_are_detected(sent: Batch) -> None:
    data, names = page(sent), Names()
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(60_000):
        spoilt = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 9))):
            spoilt[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if not cancels(data, spoilt, sent):
            assert spoilt == data or read_or_nothing(bytes(spoilt), names) is None
        assert read_or_nothing(chance.randbytes(chance.randrange(1, 200)), names) is None


def test_a_forged_record_with_a_valid_checksum_is_usable_or_refused(sent: Batch, make_queue: MakeQueue) -> None:
    """Parts of valid records are altered, moved and repeated, and get a new checksum."""
    records = [sent.record(place) for place in range(len(sent))]
    here, names = make_queue("here", origin="other"), Names()
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    used = 0
    for _ in range(6000):
        record = bytearray(chance.choice(records))
        for _ in range(chance.choice((1, 1, 2, 5))):
            place = chance.choice((chance.randrange(2, 56), chance.randrange(len(record))))
            record[place] = chance.choice(
                (0, 1, 255, record[place] ^ (1 << chance.randrange(8)), chance.randrange(256))
            )
        if chance.random() < 0.2:
            record += record[chance.randrange(len(record)) :]
        batch = read_or_nothing(sealed(record) + bytes(-len(record) % 8), names)
        if batch is not None:
            used += 1
            use_in_full(batch)
            forged = wrong_signatures(batch)
            if forged is not None:
                with pytest.raises(InvalidError, match="not that of its content"):
                    here.put_batch(batch, timeout=0)
            here.put_batch(batch, None if forged is None else ~forged, timeout=0)
    assert used > 50
    use_in_full(here.read_batch())


def test_names_over_the_limit_are_refused() -> None:
    names = Names()
    assert len(read_batch(b"".join(forged(origin=b"o%d" % n) for n in range(4096)), names)) == 4096
    with pytest.raises(RecordsDamagedError, match="too many feeds or origins"):
        read_batch(PAGE, names)
    assert read_batch(forged(feed=b"another", origin=b"o17"), names)[0].origin == "o17"
    assert (len(names.origins), len(names.feeds)) == (4096, 2)


def test_many_names_in_one_page_keep_their_numbers(make_queue: MakeQueue) -> None:
    names = Names()
    feeds = [f"feed/{n % 6000}" for n in range(12_000)]
    data = b"".join(forged(feed=feed.encode(), origin=b"feed%d" % (n % 50)) for n, feed in enumerate(feeds))
    first, second = read_batch(data, names), read_batch(data, names)
    assert first.feeds == second.feeds == feeds
    assert len(names.feeds) == 6000
    here = make_queue("here", dedup="none", size="16MiB")
    here.put_batch(first)
    assert here.read_batch(limit=20_000).feeds == feeds


def test_threads_share_one_table_of_names() -> None:
    names = Names()
    pages = [b"".join(forged(feed=b"f/%d" % ((n * k) % 500)) for n in range(500)) for k in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda data: read_batch(data, names), pages))
    for k, batch in enumerate(batches, 1):
        assert batch.feeds == [f"f/{(n * k) % 500}" for n in range(500)]
    assert sorted(names.feeds.values()) == list(range(4096, 4596))


def test_an_unexpected_error_of_a_name_check_is_passed_on() -> None:
    def check(name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kernel.read_records(PAGE, {}, {}, [], check, check)
    for nonsense in (None, "text", 5, memoryview(PAGE)[::2]):
        with pytest.raises((TypeError, BufferError)):
            read_batch(nonsense, Names())  # type: ignore[arg-type]

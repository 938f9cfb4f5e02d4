"""Options of a record: both readers agree, malformed ones are refused, unknown ones are kept; so is the clock's page."""

import dataclasses
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import reader
from hypothesis import given, settings
from hypothesis import strategies as st
from side_by_side import assert_same
from spoiler import write_word

from headrace import Duplicate, Queue
from headrace.errors import OptionError, ProductDamagedError, QueueVersionError, RecordsDamagedError
from headrace.kernel import _kernel as kernel
from headrace.log import records
from headrace.product.options import (
    Compression,
    Fragment,
    Options,
    OriginSignature,
    Replay,
    check_options,
    decode_options,
    encode_options,
)
from support.strategies import options as any_options

MakeQueue = Callable[..., Queue]
FULL = Options(
    bound_us=7, replay=Replay(1, 2), hops=3, signed=OriginSignature(9, bytes(64)), compression=Compression(1, 0, 10),
    fragment=Fragment(b"t" * 16, 4, 5), unknown=((77, b"later"), (200, b"")),
)  # fmt: skip


def test_a_product_without_options_has_the_bytes_it_always_had(make_queue: MakeQueue) -> None:
    queue = make_queue(origin="here")
    queue.put(b"x", feed="wx", ident="a")
    record = queue.read_batch().record(0)
    assert (record[2], len(record)) == (1, 56 + len("wx" + "here" + "a") + 1 + 1)
    queue.put(b"x", feed="wx", ident="b", options=Options(hops=1))
    assert queue.read_batch(2).record(0)[2] == 2


@settings(deadline=None, max_examples=200)
@given(any_options)
def test_options_come_back_as_they_were(given_options: Options) -> None:
    assert decode_options(encode_options(given_options)) == given_options


@settings(deadline=None, max_examples=400)
@given(st.binary(max_size=60) | st.integers(0, 1 << 32).map(lambda seed: spoiled(encode_options(FULL), seed)))
def test_all_three_agree_on_what_a_block_of_options_is(block: bytes) -> None:
    """The kernel, the module and the page."""
    verdicts = []
    for check, wrong in (
        (check_options, OptionError), (kernel.check_options, ValueError),
        (lambda data: reader.read_options(data, 2 if data else 1), reader.Damaged),
    ):  # fmt: skip
        try:
            check(block)
            verdicts.append(True)
        except wrong:
            verdicts.append(False)
    assert len(set(verdicts)) == 1, (verdicts, block)


def spoiled(block: bytes, seed: int) -> bytes:
    """The block with one byte changed, inserted or removed."""
    draw = random.Random(seed)
    data, place = bytearray(block), draw.randrange(len(block))
    match draw.randrange(3):
        case 0:
            data[place] = draw.randrange(256)
        case 1:
            data.insert(place, draw.randrange(256))
        case _:
            del data[place]
    return bytes(data)


def test_unknown_options_pass_through_a_queue_untouched(make_queue: MakeQueue, tmp_path: Path) -> None:
    first = make_queue(origin="here")
    first.put(b"x", feed="wx", ident="a", created=5, expiry="1h", properties={"a": 1}, options=FULL)
    with Queue.create(tmp_path / "second", size="1MiB") as second:
        second.put_batch(first.read_batch())
        (product,) = second.read_batch()
        assert product.options == dataclasses.replace(FULL, compression=None)  # a caller's payload is as it is
        assert not product.options.is_readable
        assert second.read_batch().record(0) == first.read_batch().record(0)
        with pytest.raises(ProductDamagedError, match="a form that this Headrace does not know"):
            product.payload
        assert repr(product) == "<Product 1 wx 'a' 1 bytes that cannot be read>"
        assert "a form that this Headrace does not know" in product._repr_html_()


def test_a_bound_needs_the_time_that_it_belongs_to(make_queue: MakeQueue) -> None:
    queue = make_queue()
    with pytest.raises(OptionError, match="bound came without the time"):
        queue.put(b"x", feed="wx", options=Options(bound_us=5))
    with pytest.raises(OptionError, match="bound came without the time"):
        queue.put_many([b"x"], feed="wx", options=[Options(bound_us=5)])
    queue.put(b"x", feed="wx", created=1, options=Options(bound_us=5))
    assert queue.read_batch()[0].bound_ns == 5000


@pytest.mark.parametrize(
    "bad",
    [
        Options(hops=256), Options(bound_us=1 << 32), Options(fragment=Fragment(b"short", 0, 1)), Options(replay=Replay(-1, 0)),
        Options(fragment=Fragment(b"t" * 16, 1, 1)), Options(signed=OriginSignature(0, b"")), Options(unknown=((3, b"x"),)),
        Options(unknown=((0, b""),)), Options(unknown=tuple((kind, bytes(255)) for kind in range(20, 60))),
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(make_queue: MakeQueue, bad: Options) -> None:
    with pytest.raises(OptionError):
        make_queue().put(b"x", feed="wx", created=1, options=bad)


def test_every_flipped_bit_of_a_record_with_options_is_noticed(make_queue: MakeQueue) -> None:
    queue = make_queue(origin="here")
    queue.put(b"payload", feed="wx", ident="a", options=Options(replay=Replay(1, 2), hops=3))
    data = queue.read_batch()._rows.gather_records()
    assert len(records.read_batch(data, records.Names())) == 1
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RecordsDamagedError):
            records.read_batch(bytes(flipped), records.Names())


@settings(deadline=None, max_examples=300)
@given(st.binary(min_size=2, max_size=40))
def test_a_record_with_a_right_checksum_and_hostile_options_is_refused(tail: bytes) -> None:
    """Whatever its length claims, nothing is read from beyond the record."""
    header = bytearray(56)
    struct.pack_into("<2sBBIIHBB16sQQIHH", header, 0, b"HR", 2, 4, 0, 0, 0, 2, 1, bytes(16), 1, 1, 0, 0, 65535)
    data = bytes(header) + b"wxh" + tail
    body = 56 + 3 + 2 + struct.unpack_from("<H", data, 59)[0]
    data = data[: reader.round8(body)].ljust(min(reader.round8(body), 120), b"\0")
    checksum = reader.low32(reader.xxh3(data[8:])) ^ struct.unpack_from("<I", data)[0]
    data = data[:4] + struct.pack("<I", checksum) + data[8:]
    try:
        reader.read_record(data)
        block, padding = data[61:body], data[body:]
        well_formed = bool(block) and not any(padding)
    except reader.Damaged:
        well_formed = False
    try:
        assert len(records.read_batch(data, records.Names())) == 1
        assert well_formed
    except RecordsDamagedError:
        assert not well_formed


# --- the clock --------------------------------------------------------------------------------------


def boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def test_the_clock_is_where_the_page_says_and_stamps_products(make_queue: MakeQueue) -> None:
    queue = make_queue()
    log = queue._log.kernel
    assert (log.clock(), log.now_and_bound()[1], reader.read_control(queue.path)["clock_turn"]) == (None, 0, 0)
    for turn, ahead_ns in ((2, 3_600_000_000_000), (3, 3_700_000_000_000), (4, 3_800_000_000_000)):
        now = boot_ns()
        log.set_clock(now, time.time_ns() + ahead_ns, -1000, 2000, now + 1_000_000, 5_000_000, 15_000, 2, ahead_ns)
        control = reader.read_control(queue.path)
        assert control["clock_turn"] == turn
        clock = reader.items_of(control["clocks"], reader.CLOCK, reader.CLOCK_BYTES)[turn & 1]
        assert log.clock() == {field: value for field, value in clock.items() if field != "reserved"}
        before = reader.time_of(clock, boot_ns())
        queue.put(b"x", feed="wx")
        after = reader.time_of(clock, boot_ns())
        product = queue.read_batch(queue.next - 1)[0]
        assert before - 2 <= product.created_ns == product.inserted_ns <= after + 2
        assert product.bound_ns is not None
        assert 5_000_000 <= product.bound_ns <= 6_000_000


def test_no_words_set_the_clock_back(make_queue: MakeQueue) -> None:
    log = make_queue()._log.kernel
    with pytest.raises(ValueError, match="back"):
        log.set_clock(boot_ns(), time.time_ns() - 10**9, 0, 0, 0, 1, 0, 1, 0)
    with pytest.raises(ValueError, match="clock"):
        log.set_clock(boot_ns(), time.time_ns() + 10**9, -(10**9), 0, 0, 1, 0, 1, 0)
    log.set_clock(boot_ns(), time.time_ns() + 10**9, -999_999_999, 0, boot_ns() + 10**12, 1, 0, 1, 0)
    stamps = [log.now_ns() for _ in range(10_000)]
    assert stamps == sorted(stamps)


def test_a_clock_does_not_survive_a_restart_of_the_machine(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue._log.kernel.set_clock(boot_ns(), time.time_ns() + 10**12, 0, 0, 0, 1, 0, 1, 0)
    queue.close()
    offset, _ = reader.CONTROL["boot"]
    with open(queue.path / "control", "r+b") as file:
        file.seek(offset)
        file.write(bytes(16))
    with Queue.open(queue.path) as again:
        assert again._log.kernel.clock() is None


def to_version_1(path: Path) -> None:
    """Make the control file what it was before there was a clock."""
    with open(path / "control", "r+b") as file:
        file.truncate(330_368)
        file.seek(8)
        file.write(struct.pack("<I", 1))


def test_a_queue_of_version_1_is_upgraded_as_it_is_opened(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put(b"kept", feed="wx")
    queue.close()
    to_version_1(queue.path)
    with Queue.open(queue.path) as again:
        assert [bytes(product.payload) for product in again.read()] == [b"kept"]
        again.put(b"new", feed="wx", options=Options(hops=1))
        assert_same(again)
    assert reader.read_control(queue.path)["version"] == 3


def test_a_queue_of_version_2_recognises_its_products_as_it_is_opened(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put(b"known by its content", feed="wx", ident="i")
    queue.put(b"known by its name", feed="wx", signature=b"sixteen bytes ok")
    queue.close()
    write_word(queue.path, "version", 2)
    with Queue.open(queue.path) as again:
        assert queue.path.joinpath("control").read_bytes()[8] == 3
        assert again.put(b"known by its content", feed="wx", ident="i") == Duplicate(1)
        assert again.put(b"another", feed="wx", signature=b"sixteen bytes ok") == Duplicate(2)
        assert_same(again)


def test_a_queue_that_an_older_program_uses_is_refused_with_the_way_out(make_queue: MakeQueue) -> None:
    queue = make_queue()
    with open(queue.path / "control", "r+b") as file:
        file.seek(8)
        file.write(struct.pack("<I", 1))
    with pytest.raises(QueueVersionError, match=r"older Headrace.*end them"):
        Queue.open(queue.path)

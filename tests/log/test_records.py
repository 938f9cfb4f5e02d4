"""Products between queues: every field of a record arrives, and invalid records are refused."""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from travelling import FAR, facts, page, put_some

from headrace import Queue
from headrace.errors import (
    BatchTooLargeError,
    BlockedError,
    InvalidError,
    OptionError,
    PayloadTooLargeError,
    QueueClosedError,
    QueueError,
    RecordsDamagedError,
)
from headrace.kernel import _kernel as kernel
from headrace.log.records import Names, read_batch
from headrace.product.batch import rows_behind
from headrace.station.gates import StationGates
from headrace.testing import MockClock
from support.strategies import foreign
from support.strategies import puts as products

MakeQueue = Callable[..., Queue]
KINDS = ("none", *(f"{dedup} {by}" for dedup in ("identity", "payload") for by in ("blake3", "xxh3", "md5")))
puts = products(
    st.binary(max_size=100) | st.binary(min_size=1, max_size=4).map(lambda some: some * 60_000), allow_nan=False
)


def terms_of(kind: str) -> dict[str, str]:
    """The terms of a queue that makes signatures of this kind."""
    dedup, _, by = kind.partition(" ")
    return {"dedup": dedup, "hash": by or "blake3"}


# --- there and back -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Queue, Queue]]]:
    """For each kind of signature a queue there and one here, for all examples of a property."""
    folder = tmp_path_factory.mktemp("records")

    def make(name: str, kind: str) -> Queue:
        return Queue.create(folder / f"{name}-{kind}", size="64MiB", origin=name, **terms_of(kind))

    made = {kind: (make("there", kind), make("here", kind)) for kind in KINDS}
    yield made
    for queue in (queue for pair in made.values() for queue in pair):
        assert queue.check() == []
        queue.close()


@settings(deadline=None, max_examples=150, print_blob=True)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    st.lists(st.tuples(puts, st.none() | foreign), min_size=1, max_size=4),
)
def test_every_field_of_a_product_arrives_unchanged(
    pairs: dict[str, tuple[Queue, Queue]], kind: str, kind_here: str, given_puts: list[tuple[dict[str, Any], Any]]
) -> None:
    there, here = pairs[kind][0], pairs[kind_here][1]
    begin = there.next
    for put, stranger in given_puts:
        there.put(**put, **(stranger or {}))
    sent = there.read_batch(begin)
    came = read_batch(page(sent), Names())
    assert [facts(product) for product in came] == [facts(product) for product in sent]
    assert came.sequences.tolist() == [product.origin_sequence for product in sent]
    for batch in (came, sent):  # from the wire, and from one queue into another
        receipt = here.put_batch(batch)
        for place, sequence in enumerate(receipt.sequences.tolist()):
            stored = here.read_batch(sequence, limit=1)
            if kind_here == "none" or (sent[place].signature and not receipt.duplicates[place]):
                assert stored.record(0) == sent.record(place)
            elif not receipt.duplicates[place]:
                assert facts(stored[0], "signature") == facts(sent[place], "signature")


def test_a_batch_from_the_wire_behaves_like_any_other_batch(make_queue: MakeQueue) -> None:
    sent = put_some(make_queue(), 12)
    came = read_batch(page(sent), Names())
    assert (len(came), came.idents, came.feeds) == (len(sent), sent.idents, sent.feeds)
    assert [came.record(place) for place in range(12)] == [sent.record(place) for place in range(12)]
    assert [came.property_block(place) for place in range(12)] == [sent.property_block(place) for place in range(12)]
    assert (came.payload_bytes, came.next, came.scanned, came.expired) == (sent.payload_bytes, 0, 0, 0)
    assert (bytes(came.payload(5)), facts(came[-1])) == (bytes(sent.payload(5)), facts(sent[-1]))
    for name, column in zip(came.to_arrow().schema.names, came.to_arrow().columns, strict=True):
        as_sent = sent.to_arrow()[name]
        same = column.to_pylist() == as_sent.to_pylist() if name in ("feed", "origin") else column.equals(as_sent)
        assert same or name in ("sequence", "inserted"), name
    assert came.columns["inserted_ns"].tolist() == [0] * 12
    assert page(came) == page(sent)


def test_records_in_a_page_are_padded_with_zeros(make_queue: MakeQueue) -> None:
    queue = make_queue(size="1MiB")
    for n in range(3000):  # files are reused, so that the bytes between records are not zero by chance
        queue.put(n.to_bytes(4, "big") * (n % 90 + 1), feed="a")
    batch = queue.read_batch()
    parts = [batch.record(place) for place in range(len(batch))]
    padded = [part + bytes(-len(part) % 8) for part in parts]
    assert page(batch) == b"".join(padded)
    assert page(batch, [7, 3, 3]) == padded[7] + padded[3] + padded[3]
    assert page(batch, []) == b""
    assert len(read_batch(b"", Names())) == 0
    with pytest.raises(IndexError):
        page(batch, [0, len(batch)])


def test_views_outlive_the_batch_and_the_names(make_queue: MakeQueue) -> None:
    views = [product.payload for product in read_batch(bytes(bytearray(page(put_some(make_queue())))), Names())]
    gc.collect()
    junk = [os.urandom(600) for _ in range(2000)]
    assert [bytes(view) for view in views] == [b"payload %d" % n * n for n in range(6)]
    assert all(view.readonly for view in views)
    assert len(junk) == 2000


def test_mutable_and_unaligned_bytes_are_copied(make_queue: MakeQueue) -> None:
    sent = put_some(make_queue())
    data = bytearray(page(sent))
    unaligned = memoryview(b"???" + data)[3:]
    batches = [read_batch(data, Names()), read_batch(unaligned, Names())]
    data[:] = bytes(len(data))
    data.clear()
    for batch in batches:
        assert [facts(product) for product in batch] == [facts(product) for product in sent]


def test_rows_without_a_log_support_filtering_but_not_picking(make_queue: MakeQueue) -> None:
    rows = rows_behind(read_batch(page(put_some(make_queue())), Names()))
    assert isinstance(rows, kernel.Rows)
    with pytest.raises(ValueError, match="without a log"):
        rows.pick(1, 1, 1, 1, None)
    rows.verify(0, FAR)  # two of them expire
    assert len(rows) == 4
    rows.keep(np.array([0, 1, 1], np.uint8), 1)
    rows.cut(2)
    assert [rows.ident(place)[:7] for place in range(len(rows))] == ["ident 1", "ident 4"]


# --- into a queue ---------------------------------------------------------------------------------


def test_a_receipt_covers_only_the_kept_products_in_their_order(make_queue: MakeQueue) -> None:
    there, here = make_queue("there", origin="there", dedup="none"), make_queue("here")
    payloads = [b"0", b"1", b"2", b"1", b"held", b"5"]
    there.put_many(payloads, feed="a", signature=[blake3(b"!" + payload).digest()[:16] for payload in payloads])
    given = blake3(b"!held").digest()[:16]
    here.put(b"held", feed="b", signature=given, origin="there", origin_sequence=99)
    came = read_batch(page(there.read_batch()), Names())
    receipt = here.put_batch(came, keep=[True, True, False, True, True, True])
    assert (receipt.products, receipt.stored, receipt.first) == (5, 3, 2)
    assert receipt.sequences.tolist() == [2, 3, 3, 1, 4]
    assert receipt.duplicates.tolist() == [False, False, True, True, False]
    assert [bytes(product.payload) for product in here.read_batch()] == [b"held", b"0", b"1", b"5"]
    assert here.put_batch(came, keep=np.zeros(6, np.uint8)).products == 0
    assert here.put_batch(came).stored == 1
    assert here.statistics().duplicates == 7


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_queue_signs_products_that_arrive_without_a_signature(make_queue: MakeQueue, kind: str) -> None:
    there, here = make_queue("there", origin="there", dedup="none"), make_queue("here", **terms_of(kind))
    own = make_queue("own", **terms_of(kind))
    there.put_many([b"same", b"other", b"same"], feed="a", ident="one", created=[1, 2, 3])
    own.put_many([b"same", b"other"], feed="a", ident="one")
    assert here.put_batch(read_batch(page(there.read_batch()), Names()), keep=[0, 1, 1]).stored == 2
    receipt = here.put_batch(there.read_batch())
    assert (receipt.stored, receipt.sequences.tolist()) == (0, [2, 1, 2])
    assert [p.signature for p in here.read_batch()] == [p.signature for p in own.read_batch()][::-1]
    assert [(p.origin, p.origin_sequence, p.created_ns, p.previous) for p in here.read_batch()] == [
        ("there", 2, 2, 1),
        ("there", 3, 3, 2),
    ]


def test_a_queue_without_dedup_keeps_signatures(make_queue: MakeQueue) -> None:
    there, here = make_queue("there", origin="there"), make_queue("here", dedup="none")
    came = read_batch(page(put_some(there)), Names())
    assert (here.put_batch(came).stored, here.put_batch(came).first) == (6, 7)
    assert [product.signature for product in here.read_batch()] == [
        product.signature for product in there.read_batch()
    ] * 2


def test_relayed_products_do_not_change_the_previous_sequence_of_a_feed(make_queue: MakeQueue) -> None:
    there, here = make_queue("there", origin="there"), make_queue("here")
    here.put(b"first", feed="a")
    there.put(b"passed on", feed="a")
    here.put_batch(there.read_batch())
    here.put(b"second", feed="a")
    assert [(p.origin, p.origin_sequence, p.previous) for p in here.read_batch()] == [
        ("here", 1, None),
        ("there", 1, None),
        ("here", 3, 1),
    ]


def test_a_batch_is_stored_as_a_whole_or_not_at_all(make_queue: MakeQueue) -> None:
    there, here = make_queue("there", origin="there", size="8MiB"), make_queue("here", size="1MiB")
    there.put_many([b"small", bytes(300_000)], feed="a")
    with pytest.raises(PayloadTooLargeError, match="product 1 of the batch: a payload of 300000 bytes"):
        here.put_batch(there.read_batch())
    there.put_many([os.urandom(100_000) for _ in range(20)], feed="a")
    with pytest.raises(BatchTooLargeError, match="20 products"):
        here.put_batch(there.read_batch(3))
    assert (here.next, len(here.read_batch())) == (1, 0)
    assert here.put_batch(there.read_batch(), keep=[place in (0, 5) for place in range(22)]).stored == 2


def test_put_batch_waits_for_a_blocking_station(make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, wait = threading.Event(), StationGates._wait_at

    def announce(*given: Any) -> None:
        waits.set()
        wait(*given)

    there, here = make_queue("there", origin="there"), make_queue("here")
    consumer = here.station("s", "**", blocking=True, capacity=2).attach()
    batch = put_some(there, 2)
    assert here.put_batch(batch, timeout=0).stored == 2
    with pytest.raises(BlockedError):
        here.put_batch(put_some(there, 3), timeout=0)
    assert here.next == 3
    monkeypatch.setattr(StationGates, "_wait_at", announce)
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(here.put_batch, there.read_batch())
        assert waits.wait(240)
        assert not putting.done()
        consumer.ack(consumer.get_nowait(2))
        assert putting.result(240).stored == 1


def test_put_batch_returns_after_the_flush_under_durability_disk(make_queue: MakeQueue) -> None:
    there, here = make_queue("there", origin="there"), make_queue("here", durability="disk")
    batch = put_some(there)
    assert here.put_batch(batch).stored == 6
    assert (here.next, here.statistics().undurable) == (7, 0)
    assert here.put_batch(batch).stored == here.put_batch(batch, keep=[False] * 6).products == 0
    assert [facts(product) for product in here.read_batch()] == [facts(product) for product in batch]


def test_times_come_from_the_queues_clock(make_queue: MakeQueue) -> None:
    clock = MockClock(10**18)
    here = make_queue("here", clock=clock)
    here.put_batch(put_some(make_queue("there", origin="there")))
    assert set(here.read_batch().columns["inserted_ns"].tolist()) == {10**18}


def test_put_batch_refuses_other_objects_and_a_mask_of_another_shape(make_queue: MakeQueue) -> None:
    here, batch = make_queue("here"), put_some(make_queue("there", origin="there"))
    for nonsense in ([b"bytes"], None, b"bytes"):
        with pytest.raises(InvalidError, match="not a batch"):
            here.put_batch(nonsense)  # type: ignore[arg-type]
    for keep in ([True], np.ones((6, 1)), np.ones(7, np.bool_)):
        with pytest.raises(OptionError, match="for 6 products"):
            here.put_batch(batch, keep)
    here.close()
    with pytest.raises(QueueClosedError):
        here.put_batch(batch)


def test_a_revision_is_not_copied_to_another_queue(make_queue: MakeQueue) -> None:
    queue, here = make_queue(), make_queue("here", origin="other")
    first, second = queue.station("first", "**"), queue.station("second", "**", after="first")
    put_some(queue, 1)
    consumer, behind = first.attach(), second.attach()
    with pytest.raises(QueueError):
        consumer.ack(read_batch(page(queue.read_batch()), Names()), payloads=[b"not got here"])
    consumer.ack(consumer.get_nowait(1), payloads=[b"another"])
    revised = behind.get_nowait(1)
    assert bytes(revised[0].payload) == b"another"
    with pytest.raises(InvalidError, match="another payload than at its origin"):
        here.put_batch(revised)
    with pytest.raises(kernel.KernelError):
        page(revised)
    assert here.next == 1


def test_a_record_altered_after_the_read_is_not_stored(make_queue: MakeQueue) -> None:
    there, here = make_queue("there", origin="there"), make_queue("here")
    there.put_many([b"first", b"a payload to be spoilt"], feed="a")
    batch = there.read_batch()
    (segment,) = (there.path / "segments").iterdir()
    with segment.open("r+b") as file:
        file.seek(segment.read_bytes().index(b"to be spoilt"))
        file.write(b"T")
    (there.path / "spoilt").touch()
    with pytest.raises(RecordsDamagedError, match="altered"):
        here.put_batch(batch)
    assert here.next == 1
    assert here.put_batch(batch, keep=[True, False]).stored == 1

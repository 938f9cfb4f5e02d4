"""Which products are one: feed, ident and payload; the rules of a queue, and what travels between queues."""

import hashlib
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Duplicate, Queue
from headrace.errors import OptionError
from support.strategies import feeds, texts

MakeQueue = Callable[..., Queue]
HASHES = ["blake3", "xxh3", "md5"]


# --- feed, ident and payload ----------------------------------------------------------------------


def test_two_sensors_may_read_the_same(queue: Queue) -> None:
    assert [queue.put(b"21.5", feed=f"room/{room}") for room in "abab"] == [1, 2, 3, 4]
    assert [queue.put(b"21.5", feed=f"room/{room}", ident="temperature") for room in "ab"] == [5, 6]
    assert queue.statistics().duplicates == 0


@pytest.mark.parametrize("hash", HASHES)
def test_the_same_payload_with_another_ident_or_feed_is_another_product(make_queue: MakeQueue, hash: str) -> None:
    queue = make_queue(hash=hash)
    for payload in (b"", b"x", b"y" * 1000, b"z" * 200_000):
        first = queue.put(payload, feed="a", ident="one")
        assert isinstance(first, int)
        assert queue.put(payload, feed="a", ident="two") == first + 1
        assert queue.put(payload, feed="b", ident="one") == first + 2
        assert queue.put(bytearray(payload), feed="a", ident="one") == Duplicate(of=first)


def test_a_column_of_feeds_and_idents_tells_products_apart(queue: Queue) -> None:
    receipt = queue.put_many([b"21.5"] * 4, feed=["room/a", "room/b", "room/a", "room/b"], ident="t")
    assert receipt.duplicates.tolist() == [False, False, True, True]
    receipt = queue.put_many([b"21.5"] * 4, feed="room/a", ident=["t", "u", "v", "u"])
    assert receipt.sequences.tolist() == [1, 3, 4, 3]
    column = pa.array([b"21.5"] * 3, pa.binary())
    receipt = queue.put_many(column, feed=pa.array(["room/a", "room/b", "room/c"]), ident=pa.array(["t", "", ""]))
    assert receipt.duplicates.tolist() == [True, False, False]


@pytest.mark.parametrize("many", [False, True])
def test_a_product_without_an_ident_is_never_a_duplicate(queue: Queue, many: bool) -> None:
    if many:
        assert queue.put_many([b"tick"] * 300, feed="a").stored == 300
        assert queue.put_many([b"tick"] * 300, feed=["a", "b", "c"] * 100, ident=[""] * 300).stored == 300
    else:
        assert [queue.put(b"tick", feed="a") for _ in range(300)] == list(range(1, 301))
        assert [queue.put(b"tick", feed="a", priority=p, properties={"n": 1}) for p in (2, 2)] == [301, 302]
    assert len({product.signature for product in queue.read_batch()}) == queue.next - 1


@settings(deadline=None, max_examples=200, print_blob=True)
@given(st.data())
def test_a_boundary_that_moves_makes_another_product(filled: Queue, data: st.DataObject) -> None:
    """The same bytes, divided otherwise between feed, ident and payload."""
    feed, ident = data.draw(feeds.filter(lambda feed: len(feed.encode()) < 250)), data.draw(texts.filter(bool))
    text = ident.encode()
    payload = data.draw(st.binary(max_size=20))
    first = filled.put(payload, feed=feed, ident=ident)
    sequence = first.of if isinstance(first, Duplicate) else first
    again = filled.put(payload, feed=feed, ident=ident)
    assert again == Duplicate(of=sequence)
    for other_feed, other_ident, other in (
        (feed, ident + "x", payload),
        (feed, "x" + ident, payload),
        (feed + "x", ident, payload),
        (feed, ident, b"x" + payload),
        (feed, ident, text + payload),
        (feed, feed, text + payload),
    ):
        outcome = filled.put(other, feed=other_feed, ident=other_ident)
        assert (outcome.of if isinstance(outcome, Duplicate) else outcome) != sequence


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Queue.create(tmp_path_factory.mktemp("identity") / "q", size="64MiB", origin="here") as queue:
        yield queue
        assert queue.check() == []


# --- payloads of any type -------------------------------------------------------------------------


@pytest.mark.parametrize("hash", HASHES)
@pytest.mark.parametrize("dedup", ["identity", "payload"])
@pytest.mark.parametrize("count", [3, 20_000])
def test_an_array_is_a_payload_under_every_hash(make_queue: MakeQueue, dedup: str, hash: str, count: int) -> None:
    queue = make_queue(dedup=dedup, hash=hash)
    for kind in (np.uint8, np.int16, np.float64, np.complex128, "datetime64[s]", np.bool_):
        array = np.arange(count).astype(kind)
        sequence = queue.put(array, feed="a", ident=str(kind))
        assert isinstance(sequence, int)
        assert queue.put(array.tobytes(), feed="a", ident=str(kind)) == Duplicate(of=sequence)
        assert queue.put_many([array, array.tobytes()], feed="a", ident=str(kind)).stored == 0
        assert queue.read_batch(sequence, limit=1)[0].payload == array.tobytes()
        assert queue.put(array.reshape(1, -1), feed="a", ident=str(kind)) == Duplicate(of=sequence)


# --- signatures that no other product has ---------------------------------------------------------


def put_some(path: str) -> list[bytes]:
    """Signatures of products without idents, put by another process."""
    with Queue.open(path) as queue:
        begin = queue.put_many([b"x"] * 100, feed="a").first
        return [product.signature for product in queue.read_batch(begin, limit=100)]


def signatures(queue: Queue) -> list[bytes]:
    return [product.signature for product in queue.read_batch()]


def test_processes_and_openings_never_give_one_signature_twice(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue("other")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(put_some, [str(queue.path)] * 4))
    queue.put(b"x", feed="a")
    other.put_many([b"x"] * 100, feed="a")
    with Queue.open(queue.path) as again:
        again.put(b"x", feed="a")
    found = signatures(queue) + signatures(other)
    assert len(set(found)) == len(found) == 502


def test_a_child_does_not_repeat_the_signatures_of_its_parent(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put(b"before", feed="a")
    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            try:
                queue.put_many([b"x"] * 100, feed="a")
            finally:
                os._exit(0)
        children.append(child)
        queue.put_many([b"x"] * 100, feed="a")
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert len(set(signatures(queue))) == queue.next - 1 == 601


def test_threads_never_give_one_signature_twice(make_queue: MakeQueue) -> None:
    queue = make_queue()
    threads = [threading.Thread(target=lambda: [queue.put(b"x", feed="a") for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(signatures(queue))) == queue.next - 1 == 2000


def test_a_queue_full_of_unique_signatures_finds_each_of_them(make_queue: MakeQueue) -> None:
    """They spread over the duplicate table: it stays as small as with others."""
    unique, hashed = make_queue("unique", size="32MiB"), make_queue("hashed", size="32MiB")
    unique.put_many([b""] * 50_000, feed="a")
    hashed.put_many([b""] * 50_000, feed="a", ident=[str(number) for number in range(50_000)])
    assert [queue.put_batch(queue.read_batch(limit=50_000)).stored for queue in (unique, hashed)] == [0, 0]
    assert table_bytes(unique) <= table_bytes(hashed)


def table_bytes(queue: Queue) -> int:
    return sum(file.stat().st_size for file in queue.path.glob("signatures-*"))


# --- between queues -------------------------------------------------------------------------------


def test_relays_keep_the_signature_so_that_redundant_ways_meet(make_queue: MakeQueue) -> None:
    origin, end = make_queue("origin", origin="o"), make_queue("end", origin="e")
    ways = [make_queue(name, origin=name, dedup=dedup) for name, dedup in
            [("one", "identity"), ("two", "payload"), ("three", "none")]]  # fmt: skip
    origin.put_many([b"21.5"] * 3, feed=["room/a", "room/b", "room/b"])
    origin.put_many([b"21.5"] * 2, feed="room/a", ident=["t", "u"])
    for way in ways:
        assert way.put_batch(origin.read_batch()).stored == 5
        end.put_batch(way.read_batch())
    assert signatures(end) == signatures(origin)
    assert origin.put_batch(end.read_batch()).stored == 0


@pytest.mark.parametrize("hash", HASHES)
def test_products_of_an_origin_without_signatures_meet_too(make_queue: MakeQueue, hash: str) -> None:
    origin = make_queue("origin", origin="o", dedup="none")
    origin.put_many([b"tick"] * 3, feed="a")
    origin.put_many([b"tick"] * 2, feed="a", ident=["one", "two"])
    one, two = (make_queue(name, origin=name, hash=hash) for name in ("one", "two"))
    for way in (one, two):
        assert way.put_batch(origin.read_batch()).stored == 5
        assert way.put_batch(origin.read_batch()).stored == 0
    assert signatures(one) == signatures(two)
    end = make_queue("end", origin="e", hash=hash)
    assert [end.put_batch(way.read_batch()).stored for way in (one, two, origin)] == [5, 0, 0]


def test_a_product_of_another_origin_that_is_put_again_is_a_duplicate(queue: Queue) -> None:
    for sequence in (7, 8):
        assert isinstance(queue.put(b"x", feed="a", origin="o", origin_sequence=sequence), int)
        assert queue.put(b"x", feed="a", origin="o", origin_sequence=sequence) == Duplicate(of=sequence - 6)
    sequences, times = np.array([7, 9], np.uint64), [5, 5]
    assert queue.put_many([b"x"] * 2, feed="a", origin="o", origin_sequence=sequences, created=times).stored == 2
    assert queue.put(b"x", feed="a", origin="o", origin_sequence=9, created=5) == Duplicate(of=4)


# --- the rules ------------------------------------------------------------------------------------


def test_the_rule_of_ldm_compares_payloads_alone(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="payload", hash="md5")
    assert queue.put(b"x", feed="a", ident="one") == 1
    assert queue.put(b"x", feed="b", ident="two") == Duplicate(of=1)
    assert queue.put(b"x", feed="b") == Duplicate(of=1)
    assert queue.put_many([b"x", b"y"], feed=["c", "d"]).duplicates.tolist() == [True, False]
    assert signatures(queue) == [hashlib.md5(payload).digest() for payload in (b"x", b"y")]


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"dedup": "xxh3"}, r'dedup="identity" and hash="xxh3"'),
        ({"dedup": "off"}, "identity, payload, none"),
        ({"hash": "crc"}, "blake3, xxh3, md5"),
    ],
)
def test_an_unknown_rule_or_hash_is_refused(tmp_path: Path, terms: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Queue.create(tmp_path / "q", **terms)  # type: ignore[arg-type]


def change_config(path: Path, *removed: str, **members: Any) -> None:
    file = path / "queue.json"
    said = {**json.loads(file.read_text()), **members}
    file.write_text(json.dumps({name: value for name, value in said.items() if name not in removed}))


@pytest.mark.parametrize("hash", HASHES)
def test_a_queue_of_the_first_format_keeps_its_rule_and_says_so(make_queue: MakeQueue, hash: str) -> None:
    queue = make_queue(dedup="payload", hash=hash)
    queue.put(b"x", feed="a", ident="one")
    queue.close()
    change_config(queue.path, "hash", format=1, dedup=hash)
    with Queue.open(queue.path) as again:
        assert (again.config.dedup, again.config.hash) == ("payload", hash)
        assert again.put(b"x", feed="b", ident="two") == Duplicate(of=1)
    said = json.loads((queue.path / "queue.json").read_text())
    assert (said["format"], said["dedup"], said["hash"]) == (2, "payload", hash)


def test_a_queue_of_the_first_format_without_duplicate_check_stays_without(make_queue: MakeQueue) -> None:
    queue = make_queue(dedup="none")
    queue.close()
    change_config(queue.path, "hash", format=1)
    with Queue.open(queue.path) as again:
        assert again.config.dedup == "none"
        assert [again.put(b"x", feed="a", ident="one") for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("before", ["payload", "none"])
def test_a_rule_that_was_changed_in_the_file_holds_from_the_next_opening(make_queue: MakeQueue, before: str) -> None:
    queue = make_queue(dedup=before)
    queue.put(b"x", feed="a", ident="one", signature=b"s" * 16)
    queue.close()
    change_config(queue.path, dedup="identity")
    with Queue.open(queue.path) as again:
        assert again.put(b"other", feed="a", ident="one", signature=b"s" * 16) == Duplicate(of=1)
        assert [again.put(b"x", feed=feed, ident="one") for feed in "abb"] == [2, 3, Duplicate(of=3)]

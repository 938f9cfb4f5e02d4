"""Products of a replay in a queue: marked, not taken for duplicates, stored once in each run."""

import contextlib
import math
import time
from collections.abc import Callable

import numpy as np
import pytest

from headrace import Queue
from headrace.errors import BlockedError, OptionError
from headrace.product.options import Fragment, Options, OriginSignature, Replay
from headrace.testing import MockClock
from headrace.timing.replay.marks import MarkedBatch, Marks, Stored, signatures

S = 1_000_000_000
START = time.time_ns() // S * S
RUN = 0x1234_5678_9ABC_DEF0
Made = Callable[..., Queue]


@pytest.fixture
def source(make_queue: Made) -> Queue:
    clock = MockClock(START)
    queue = make_queue("source", clock=clock, origin="source")
    for number in range(6):
        queue.put(
            b"payload %d" % number, feed=f"wx/{'odd' if number % 2 else 'even'}", ident=f"i{number}", priority=number,
            properties={"level": number, "site": "KFTG"}, created=START - number * S,
            expiry=None if number % 2 else "10min",
        )  # fmt: skip
        clock.advance(1)
    return queue


def replayed(source: Queue, target: Queue, onto: str = "replay/**", run: int = RUN, relay: bool = False) -> Stored:
    parts = source.replay(speed="max").put_into(target, onto, run=run, relay=relay)
    return sum(parts, Stored())


def test_a_replayed_product_says_that_it_is_one_and_keeps_everything_else(source: Queue, make_queue: Made) -> None:
    target = make_queue("target", origin="target")
    assert replayed(source, target) == Stored(6, 6)
    log = source.replay(speed="max")
    originals = [product for batch in log for product in batch]
    for copy, original in zip(target.read(), originals, strict=True):
        assert copy.is_replay
        assert not original.is_replay
        assert copy.options == Options(replay=Replay(RUN, original.sequence), hops=0)
        assert copy.feed == f"replay/{original.feed}"
        assert (copy.origin, copy.origin_sequence) == ("target", copy.sequence)
        for name in ("ident", "created_ns", "priority", "properties", "payload"):
            assert getattr(copy, name) == getattr(original, name)
        assert copy.signature != original.signature


def test_a_run_that_is_repeated_stores_nothing_twice_and_another_run_is_new(source: Queue, make_queue: Made) -> None:
    for dedup in ("identity", "payload"):
        target = make_queue(f"target-{dedup}", dedup=dedup)
        assert [replayed(source, target, run=run) for run in (RUN, RUN, RUN + 1)] == [
            Stored(6, 6), Stored(6, 0, duplicates=6), Stored(6, 6),
        ]  # fmt: skip


def test_a_replay_into_the_own_queue_is_not_swallowed_and_not_replayed_again(source: Queue) -> None:
    assert replayed(source, source, "**") == Stored(6, 6)
    assert replayed(source, source, "**", run=2) == Stored(6, 6)
    assert [product.feed for product in source.read(7, limit=2)] == ["wx/even", "wx/odd"]
    again = source.replay("oldest", "next", "** replay true", speed="max")
    assert sum(len(batch) for batch in again) == 12


def test_selections_include_or_exclude_replays(source: Queue) -> None:
    replayed(source, source, "**", run=1)
    replayed(source, source, "wx/again", run=2)
    source.put(b"bounded", feed="wx/odd", created=START, options=Options(bound_us=5))

    def count(selection: str) -> int:
        by_batch = len(source.read_batch("oldest", selection))
        one_by_one = [product for product in source.read() if source_wants(selection, product)]
        assert by_batch == len(one_by_one)
        return by_batch

    def source_wants(selection: str, product: object) -> bool:
        from headrace import Selection

        return Selection.parse(selection).wants(product)  # type: ignore[arg-type]

    held = len(source.read_batch("oldest"))
    assert count("replay true") == 12
    assert count("replay = false") == held - 12
    assert count("wx/again replay true") == 6
    assert count("replay 0000000000000001") == 6
    assert count("replay 00000000000000ff") == 0


def test_a_station_for_live_products_leaves_out_replays(source: Queue) -> None:
    with source.station("live", "wx/** replay false").attach() as consumer:
        replayed(source, source, "**")
        source.put(b"live", feed="wx/odd")
        assert [bytes(product.payload) for product in consumer.get(100, timeout=10)] == [b"live"]


@pytest.mark.parametrize(
    ("onto", "feed"), [("replay/**", "replay/wx/odd"), ("**", "wx/odd"), ("test", "test"), ("lab/a/**", "lab/a/wx/odd")]
)
def test_onto_names_one_feed_or_the_place_of_the_original(onto: str, feed: str) -> None:
    assert Marks(1, onto).feed("wx/odd") == feed


@pytest.mark.parametrize("onto", ["", "/", "a/*/**", "a b", "**/a", "a/**/**"])
def test_an_invalid_feed_is_refused(onto: str) -> None:
    with pytest.raises(OptionError, match="onto"):
        Marks(1, onto)


def test_expiry_is_shifted_by_the_age_of_the_product(source: Queue, make_queue: Made) -> None:
    target = make_queue("target")
    before = time.time_ns()
    replayed(source, target)
    after = time.time_ns()
    for product in target.read():
        if product.ident in ("i0", "i2", "i4"):
            assert product.expiry_ns is not None
            assert before + 600 * S <= product.expiry_ns <= after + 600 * S
        else:
            assert product.expiry_ns is None


def test_what_had_expired_when_it_came_is_left_out_and_counted(make_queue: Made) -> None:
    queue = make_queue("source", clock=MockClock(START))
    queue.put(b"late", feed="a", expiry=START - 1)
    queue.put(b"fine", feed="a", expiry=START + 1)
    assert replayed(queue, make_queue("target")) == Stored(2, 1, expired=1)


def test_only_a_replay_that_may_be_relayed_leaves_the_site(source: Queue, make_queue: Made) -> None:
    target = make_queue("target")
    source.put(b"limited", feed="a", options=Options(hops=3))
    replayed(source, target)
    assert {product.options.hops for product in target.read()} == {0}
    replayed(source, target, run=2, relay=True)
    assert {product.options.hops for product in target.read("oldest", "replay 0000000000000002")} == {None, 3}


def test_other_options_travel_but_not_the_signature_of_the_original(make_queue: Made) -> None:
    queue, target = make_queue("source"), make_queue("target")
    fragment = Fragment(b"t" * 16, 1, 3)
    given = Options(7, signed=OriginSignature(5, b"s" * 64), fragment=fragment, unknown=((99, b"?"),))
    queue.put(b"x", feed="a", created=START, options=given)
    replayed(queue, target)
    assert [product.options for product in target.read()] == [
        Options(7, Replay(RUN, 1), 0, fragment=fragment, unknown=((99, b"?"),))
    ]


def test_slices_stay_unless_a_channel_of_the_target_gives_its_own(make_queue: Made) -> None:
    queue, plain, sliced = make_queue("source"), make_queue("plain"), make_queue("sliced")
    queue.put_many([b"a", b"b"], feed="wx", ident=["1", "2"], slice=[3, None])
    sliced.channel("own", "replay/**", slices=4)
    assert replayed(queue, plain) == replayed(queue, sliced) == Stored(2, 2)
    assert [product.slice for product in plain.read()] == [3, None]
    assert all(product.slice is not None and product.slice < 4 for product in sliced.read())


def test_a_product_that_the_target_can_never_take_is_refused_and_the_rest_goes_on(make_queue: Made) -> None:
    queue, target = make_queue("source", size="8MiB"), make_queue("target", size="1MiB")
    queue.put_many([b"a", bytes(1 << 20), b"b"], feed="wx")
    refused: list[str] = []
    batch = next(queue.replay(speed="max"))
    assert MarkedBatch(batch, Marks(1), refused.append).put(target) == Stored(3, 2, refused=1)
    assert [bytes(product.payload) for product in target.read()] == [b"a", b"b"]
    assert "product 2 is not replayed" in refused[0]


def test_a_batch_larger_than_the_target_is_put_in_pieces(make_queue: Made) -> None:
    queue, target = make_queue("source", size="8MiB"), make_queue("target", size="1MiB")
    queue.put_many([bytes([number]) * 50_000 for number in range(60)], feed="wx")
    assert replayed(queue, target) == Stored(60, 60)
    assert target.next == 61


def test_signatures_of_one_run_never_collide(make_queue: Made) -> None:
    queue = make_queue("many", size="16MiB")
    queue.put_many([b""] * 50_000, feed=["a", "b"] * 25_000, created=[START] * 50_000)
    batch = queue.read_batch(limit=50_000)
    made = {run: signatures(batch, run) for run in (1, 2, (1 << 64) - 1)} | {0: signatures(batch, 1, lap=1)}
    assert len({signature for each in made.values() for signature in each}) == 200_000
    assert made[1] == signatures(queue.read_batch(limit=50_000), 1)
    first_bytes = np.array([signature[0] for signature in made[1]])
    assert len(set(first_bytes.tolist())) == 256  # they spread over a hash table
    assert not math.isnan(first_bytes.mean())


def test_a_put_that_had_to_wait_goes_on_behind_what_was_stored(make_queue: Made) -> None:
    """The first half passes, then a blocking station is full. Without duplicate check, so that nothing hides."""
    queue, target = make_queue("source", size="8MiB"), make_queue("target", size="1MiB", dedup="none")
    queue.put_many([bytes([number]) * 100_000 for number in range(16)], feed="wx")
    station = target.station("full", "**", blocking=True, capacity=1)
    marked = MarkedBatch(next(queue.replay(speed="max")), Marks(1))
    with pytest.raises(BlockedError):
        marked.put(target, 0)
    assert 0 < marked.counts.stored < 16
    with station.attach() as consumer:
        while target.next < 17:
            if (batch := consumer.get_nowait(100)) is not None:
                consumer.ack(batch)
            with contextlib.suppress(BlockedError):
                marked.put(target, 0)
    assert marked.counts == Stored(16, 16)
    assert target.next == 17

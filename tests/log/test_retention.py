"""What a queue keeps and for how long, also when the clock jumps."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import Queue, Selection
from headrace.errors import OptionError
from headrace.testing import MockClock


def put(queue: Queue, number: int, size: int = 1000) -> None:
    assert isinstance(queue.put(number.to_bytes(8, "big") * (size // 8), feed="a", ident=str(number)), int)


def test_the_oldest_products_are_evicted_at_the_size_limit(queue: Queue) -> None:
    for number in range(1, 5001):
        put(queue, number)
    statistics = queue.statistics()
    assert queue.read_batch(limit=10**6).sequences.tolist() == list(range(queue.oldest, 5001))
    assert statistics.evicted_products == queue.oldest - 1
    assert statistics.held_products == 5001 - queue.oldest
    segments = sum(file.stat().st_size for file in (queue.path / "segments").iterdir())
    assert segments <= queue.config.size
    assert statistics.held_bytes > 0.75 * queue.config.size


def test_products_over_the_age_limit_are_evicted(make_queue: Callable[..., Queue]) -> None:
    clock = MockClock(10**18)
    queue = make_queue(age="1h", clock=clock)
    for number in range(240):
        put(queue, number, size=64)
        clock.advance(60)
    oldest = queue.read_batch(limit=1)[0]
    age_s = (clock.now_ns() - oldest.inserted_ns) / 1e9
    assert 3600 <= age_s <= 3600 * 1.3


def test_the_first_put_after_a_long_pause_evicts_products_over_the_age_limit(make_queue: Callable[..., Queue]) -> None:
    clock = MockClock(10**18)
    queue = make_queue(age="1h", clock=clock)
    for number in range(10):
        put(queue, number)
    clock.advance(7200)
    put(queue, 99)
    assert queue.read_batch().idents == ["99"]


@pytest.mark.parametrize("jump_s", [-3600, 86400])
def test_a_jump_of_the_clock_skips_no_product_and_keeps_the_order(
    make_queue: Callable[..., Queue], jump_s: int
) -> None:
    clock = MockClock(10**18)
    queue = make_queue(age="1h", clock=clock)
    cursor = queue.cursor("reader")
    for number in range(1, 21):
        put(queue, number)
        clock.advance(1)
        if number == 10:
            clock.set(clock.now_ns() + jump_s * 10**9)
    batch = cursor.read_batch()
    assert (batch.sequences.tolist(), batch.lost) == (list(range(1, 21)), None)
    assert batch.idents == [str(number) for number in range(1, 21)]


def test_a_start_by_time_misses_nothing_after_the_clock_was_set_back(make_queue: Callable[..., Queue]) -> None:
    clock = MockClock(10**18)
    queue = make_queue(clock=clock)
    put(queue, 1)
    clock.advance(3600)
    put(queue, 2)
    clock.set(10**18 + 1)
    put(queue, 3)
    assert queue.read_batch("1h").sequences.tolist() == [1, 2, 3]
    clock.advance(1)
    assert queue.read_batch("2001-09-09T01:46:40.5Z").sequences.tolist() == [2, 3]


def test_deleted_products_are_not_read_and_may_be_put_again(queue: Queue) -> None:
    for number in range(1, 11):
        put(queue, number)
    assert queue.delete(Selection(ident="[35]")) == 2
    assert queue.delete(Selection(ident="[35]")) == 0
    batch = queue.read_batch()
    assert (batch.idents, batch.deleted) == (["1", "2", "4", "6", "7", "8", "9", "10"], 2)
    statistics = queue.statistics()
    assert (statistics.held_products, statistics.deleted_products, statistics.held_bytes) == (8, 2, 8000)
    put(queue, 3)
    assert queue.read_batch().idents[-1] == "3"
    with pytest.raises(OptionError, match="everything"):
        queue.delete(None)  # type: ignore[arg-type]
    assert queue.delete("**") == 9
    assert len(queue.read_batch()) == 0


def test_resizing_down_evicts_at_once_and_up_makes_room(queue: Queue) -> None:
    for number in range(1, 2001):
        put(queue, number)
    queue.resize(size="1MiB")
    held = queue.statistics()
    assert held.file_bytes < 1.2 * 2**20
    assert queue.read_batch(limit=10**6).idents[-1] == "2000"
    other = Queue.open(queue.path)
    assert other.config.size == 2**20
    queue.resize(size="8MiB", age="2h")
    for number in range(2001, 9001):
        put(other, number)
    assert queue.statistics().held_products > 3 * held.held_products
    assert other.check() == []
    other.close()
    with Queue.open(queue.path) as again:
        assert (again.config.size, again.config.age_s) == (8 * 2**20, 7200)


@pytest.mark.parametrize(
    ("terms", "words"),
    [({"size": "1kB"}, "out of range"), ({"size": -5}, "-5"), ({"size": "big"}, "big"), ({"size": 2**50}, "out of range"),
     ({"age": "-1h"}, "-1h"), ({"age": 0}, "out of range"), ({"durability": "eternal"}, "memory, process, disk"),
     ({"dedup": "crc"}, "identity"), ({"hash": "crc"}, "blake3"), ({"origin": "a b"}, "site id"), ({"size": None}, "size"), ({"size": "2 apples"}, "apples")],
)  # fmt: skip
def test_invalid_terms_are_refused(tmp_path: Path, terms: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Queue.create(tmp_path / "q", **terms)  # type: ignore[arg-type]
    assert not (tmp_path / "q").exists()

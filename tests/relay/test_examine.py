"""Examiner: a range of the log has its products, and counts of what is left out, exact for that range."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import Queue, Selection
from headrace.link.rights import Feeds
from headrace.relay.examine import Examined, Examiner
from headrace.testing.clock import MockClock

NOW_NS = 1_700_000_000 * 10**9
LIMITS = [1, 2, 7, 1000]


@pytest.fixture
def clock() -> MockClock:
    return MockClock(NOW_NS)


@pytest.fixture
def queue(make_queue: Callable[..., Queue], clock: MockClock) -> Queue:
    return make_queue(origin="a", clock=clock)


def fill(queue: Queue, clock: MockClock) -> None:
    """Of 60 products: those divisible by 3 expire, those divisible by 5 are deleted."""
    for number in range(1, 61):
        queue.put(
            b"%d" % number, feed="x" if number % 2 else "y", ident=f"n{number}", properties={"n": number},
            expiry="1min" if number % 3 == 0 else None,
        )  # fmt: skip
        clock.advance(0.001)
    for number in range(5, 61, 5):
        queue.delete(f'** ident ~ "^n{number}$"')
    clock.advance(100)


def examine(queue: Queue, text: str, limit: int, **more: object) -> tuple[list[int], dict[str, int], list[Examined]]:
    """The products, the sums of the counts, and the ranges."""
    examiner = Examiner(
        queue, Selection.parse(text), 1, products=limit, payload_bytes=1 << 20, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    ranges, came, counts = list[Examined](), list[int](), Counter[str]()
    while examiner.position < queue.next:
        ranges.append(examiner.next())
        if ranges[-1].batch is not None:
            rows = range(len(ranges[-1].batch)) if ranges[-1].rows is None else ranges[-1].rows.tolist()
            came += [int(ranges[-1].batch.sequences[row]) for row in rows]
        counts.update(ranges[-1].left_out)
    assert [each.after for each in ranges] == [0, *(each.upto for each in ranges[:-1])]
    return came, dict(counts), ranges


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(("text", "wants"), [
    ("**", lambda n: True),
    ("x", lambda n: n % 2 == 1),
    ("** where n > 20 and n <= 40", lambda n: 20 < n <= 40),
])  # fmt: skip
def test_what_is_left_out_is_counted_once_whatever_the_limits(
    queue: Queue, clock: MockClock, text: str, wants: Callable[[int], bool], limit: int
) -> None:
    fill(queue, clock)
    came, counts, _ = examine(queue, text, limit)
    selected = [n for n in range(1, 61) if wants(n)]
    assert came == [n for n in selected if n % 3 and n % 5]
    assert counts["expired"] == sum(n % 3 == 0 and n % 5 != 0 for n in selected)
    decided_by_rows = range(1, 61) if "where" in text else selected
    assert counts["deleted"] == sum(n % 5 == 0 for n in decided_by_rows)


@pytest.mark.parametrize("limit", LIMITS)
def test_an_ident_that_is_not_wanted_is_not_counted_as_expired(queue: Queue, clock: MockClock, limit: int) -> None:
    fill(queue, clock)
    came, counts, _ = examine(queue, '** ident ~ "^n[12]$|^n3.$"', limit)
    assert came == [1, 2, 31, 32, 34, 37, 38]
    assert counts == {"expired": 3, "deleted": 12}  # 33, 36, 39; 30 was deleted, like all that index rows select


@pytest.mark.parametrize("limit", LIMITS)
def test_products_that_are_too_old_are_counted(queue: Queue, clock: MockClock, limit: int) -> None:
    for number in range(20):
        queue.put(b"%d" % number, feed="x", ident=f"n{number}")
        clock.advance(1)
    came, counts, _ = examine(queue, "x age < 5s", limit)
    assert (came, counts) == ([17, 18, 19, 20], {"too old": 16})
    assert examine(queue, 'x ident ~ "0$" age < 5s', limit)[:2] == ([], {"too old": 2})


@pytest.mark.parametrize("limit", LIMITS)
def test_nothing_is_told_of_products_that_are_not_permitted(queue: Queue, clock: MockClock, limit: int) -> None:
    for number in range(20):
        expiry = "1min" if number > 15 else None
        feed = "secret/a" if number % 3 else "open"
        queue.put(b"%d" % number, feed=feed, ident=f"n{number}", expiry=None if feed == "open" else expiry)
    queue.delete('secret/a ident ~ "^n1$"')
    clock.advance(100)
    allowed = Feeds(["open"]).test
    assert examine(queue, "**", limit, allowed=allowed)[:2] == ([1, 4, 7, 10, 13, 16, 19], {})
    for asked in ("secret/a", "secret/**", '** ident ~ "^n1$"', "** where ident = 'n2'", "absent", "absent/**"):
        came, counts, ranges = examine(queue, asked, limit, allowed=allowed)
        assert (came, counts) == ([], {}), asked
        assert all(each.is_complete for each in ranges)


def test_products_that_a_repair_has_marked_as_damaged_are_counted(tmp_path: Path) -> None:
    with Queue.create(tmp_path / "q", size="2MiB", origin="a") as queue:
        for number in range(10):
            queue.put(b"payload %d" % number, feed="x", ident=f"n{number}")
    segment = next((tmp_path / "q" / "segments").iterdir())
    segment.write_bytes(segment.read_bytes().replace(b"payload 4", b"payload!4").replace(b"payload 5", b"payload!5"))
    with Queue.open(tmp_path / "q") as queue:
        came, counts, ranges = examine(queue, "x", 100)
        assert (came, counts) == ([1, 2, 3, 4, 7, 8, 9, 10], {})
        assert [(each.lost.first, each.lost.last, each.lost_by) for each in ranges if each.lost] == [
            (5, 5, "damaged"), (6, 6, "damaged"),
        ]  # fmt: skip
    Queue.repair(tmp_path / "q")
    with Queue.open(tmp_path / "q") as queue:
        came, counts, _ = examine(queue, "x", 3)
        assert (came, counts) == ([1, 2, 3, 4, 7, 8, 9, 10], {"damaged": 2})


def test_what_expired_before_a_damaged_product_is_counted_too(tmp_path: Path, clock: MockClock) -> None:
    with Queue.create(tmp_path / "q", size="2MiB", origin="a", clock=clock) as queue:
        for number in range(6):
            queue.put(b"payload %d" % number, feed="x", ident=f"n{number}", expiry="1s" if number < 3 else None)
    segment = next((tmp_path / "q" / "segments").iterdir())
    segment.write_bytes(segment.read_bytes().replace(b"payload 3", b"payload!3"))
    clock.advance(10)
    with Queue.open(tmp_path / "q", clock=clock) as queue:
        came, counts, ranges = examine(queue, "x", 100)
        assert (came, counts) == ([5, 6], {"expired": 3})
        assert [(each.after, each.upto, each.lost_by) for each in ranges] == [
            (0, 3, "evicted"), (3, 4, "damaged"), (4, 6, "evicted"),
        ]  # fmt: skip

"""Reading: starts, limits, selections, columns, views."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from filling import fill

from headrace import Lost, Queue, Selection
from headrace.errors import OptionError, SelectionError, StartAheadError
from headrace.log.follow import Follower
from headrace.queue.queue import log_of
from headrace.testing import MockClock


def test_an_empty_queue_gives_an_empty_batch(queue: Queue) -> None:
    batch = queue.read_batch()
    assert (len(batch), batch.next, batch.lost, list(batch)) == (0, 1, None, [])
    assert batch.to_arrow().num_rows == 0


def test_start_may_be_a_sequence_oldest_or_next(queue: Queue) -> None:
    fill(queue, 10)
    assert queue.read_batch(4).sequences.tolist() == [4, 5, 6, 7, 8, 9, 10]
    assert len(queue.read_batch("oldest")) == 10
    assert len(queue.read_batch("next")) == 0
    assert (len(queue.read_batch(11)), queue.read_batch(11).next) == (0, 11)


def test_start_may_be_a_time_or_an_age(make_queue: Callable[..., Queue]) -> None:
    clock = MockClock(1_800_000_000 * 10**9)
    queue = make_queue(clock=clock)
    for _ in range(10):
        fill(queue, 1)
        clock.advance(60)
    noon = datetime.fromtimestamp(1_800_000_000, UTC)
    assert queue.read_batch(noon + timedelta(seconds=180)).sequences[0] == 4
    assert queue.read_batch((noon + timedelta(seconds=181)).isoformat()).sequences[0] == 5
    assert queue.read_batch("5min").sequences.tolist() == [6, 7, 8, 9, 10]
    assert queue.read_batch(timedelta(minutes=2)).sequences.tolist() == [9, 10]
    assert len(queue.read_batch("1970-01-01")) == 10
    with pytest.raises(StartAheadError, match="is in the future"):
        queue.read_batch("2100-01-01")


@pytest.mark.parametrize("start", ["newest", "", "3 parsecs", -1, 1 << 63, 1.5, None, True, datetime(2026, 1, 1)])
def test_an_invalid_start_is_refused(queue: Queue, start: object) -> None:
    with pytest.raises(OptionError):
        queue.read_batch(start)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -1, 1.5, "many", None])
def test_a_limit_must_be_a_positive_number(queue: Queue, limit: object) -> None:
    with pytest.raises(OptionError, match="limit"):
        queue.read_batch(limit=limit)  # type: ignore[arg-type]


def test_limits_bound_a_batch_and_next_continues_it(queue: Queue) -> None:
    fill(queue, 100, size=1000)
    position, seen = queue.oldest, []
    while position < queue.next:
        batch = queue.read_batch(position, limit=7)
        assert len(batch) <= 7
        seen += batch.sequences.tolist()
        position = batch.next
    assert seen == list(range(1, 101))
    assert len(queue.read_batch(bytes_limit=3500)) == 4
    assert len(queue.read_batch(bytes_limit=1)) == 1


def test_feed_patterns_select(queue: Queue) -> None:
    for feed in ("wx/radar/KFTG", "wx/radar/KDEN", "wx/text", "daq"):
        fill(queue, 2, feed)
    assert queue.read_batch("oldest", "wx/radar/*").sequences.tolist() == [1, 2, 3, 4]
    assert queue.read_batch("oldest", "wx/**").sequences.tolist() == [1, 2, 3, 4, 5, 6]
    assert queue.read_batch("oldest", "**/KDEN").sequences.tolist() == [3, 4]
    batch = queue.read_batch("oldest", "nothing/**")
    assert (len(batch), batch.next, batch.scanned, batch.filtered) == (0, 9, 8, 8)


def test_a_feed_that_appears_later_is_selected_too(queue: Queue) -> None:
    follower = queue.follow("oldest", "wx/*", timeout=0)
    fill(queue, 1, "wx/a")
    assert len(next(follower)) == 1
    other = Queue.open(queue.path)
    fill(other, 1, "wx/b")
    assert next(follower).feeds == ["wx/b"]
    other.close()


def test_ident_patterns_select_and_respect_the_limit(queue: Queue) -> None:
    fill(queue, 5000)
    wanted = Selection(ident=r"^p\d*7$")
    batch = queue.read_batch("oldest", wanted, limit=10)
    assert batch.idents == [f"p{i}7" if i else "p7" for i in range(10)]
    rest = queue.read_batch(batch.next, wanted)
    assert rest.sequences[0] == 107
    assert len(batch) + len(rest) == 500
    assert batch.next == 107


def test_a_selection_requires_both_feed_and_ident_to_match(queue: Queue) -> None:
    fill(queue, 10, "a")
    fill(queue, 10, "b")
    batch = queue.read_batch("oldest", Selection("b", ident="1$"))
    assert (batch.idents, batch.scanned, batch.filtered) == (["p11"], 20, 19)


@pytest.mark.parametrize(
    ("bad", "words"),
    [({"ident": "a("}, "missing"), ({"ident": "(?=x)"}, "look-around"), ({"feed": "a/b*"}, "level"), ({"feed": ""}, "text"),
     ({"ident": 5}, "not text")],
)  # fmt: skip
def test_an_invalid_selection_is_refused_at_construction(bad: dict[str, object], words: str) -> None:
    with pytest.raises(SelectionError, match=words):
        Selection(**bad)  # type: ignore[arg-type]


def test_a_reader_that_fell_behind_receives_the_lost_range(queue: Queue) -> None:
    fill(queue, 30_000)
    assert queue.oldest > 1
    batch = queue.read_batch(1, limit=5)
    assert batch.lost == Lost(1, queue.oldest - 1)
    assert batch.sequences.tolist() == list(range(queue.oldest, queue.oldest + 5))
    assert queue.read_batch("oldest").lost is None


def test_a_batch_converts_to_arrow(queue: Queue) -> None:
    queue.put(
        b"one", feed="a", ident="x", properties={"i": -5, "f": 0.1, "s": "text", "b": False}, slice=3, expiry=2**62
    )
    queue.put(b"", feed="b", ident="ÿ")
    table = queue.read_batch().to_arrow()
    assert table.column("sequence").to_pylist() == [1, 2]
    assert table.column("feed").to_pylist() == ["a", "b"]
    assert table.column("ident").to_pylist() == ["x", "ÿ"]
    assert table.column("payload").to_pylist() == [b"one", b""]
    assert table.column("payload").type == pa.binary()
    assert table.column("signature").to_pylist() == [product.signature for product in queue.read_batch()]
    assert table.column("slice").to_pylist() == [3, None]
    assert table.column("expiry").cast(pa.int64()).to_pylist() == [2**62, None]
    assert table.column("created").cast(pa.int64()).to_pylist() == [p.created_ns for p in queue.read_batch()]
    assert table.column("properties").to_pylist() == [[("b", "false"), ("f", "0.1"), ("i", "-5"), ("s", "text")], []]
    table.validate(full=True)


def test_arrow_has_null_signatures_without_dedup(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue(dedup="none")
    fill(queue, 20)
    assert queue.read_batch().to_arrow().column("signature").null_count == 20


def test_a_batch_gives_columns_products_and_payloads_by_place(queue: Queue) -> None:
    fill(queue, 3)
    batch = queue.read_batch()
    assert batch.sizes.tolist() == [100, 100, 100]
    assert batch.payload_bytes == 300
    assert batch[-1].sequence == 3
    assert batch.payload(0).readonly
    with pytest.raises(IndexError, match="no place 3"):
        batch[3]
    with pytest.raises(IndexError):
        batch.payload(-1)


def test_a_view_stays_valid_after_its_segment_is_evicted_and_the_queue_is_closed(queue: Queue) -> None:
    fill(queue, 50, size=500)
    batch = queue.read_batch()
    views = [product.payload for product in batch]
    copies = [bytes(view) for view in views]
    table = np.frombuffer(views[7], np.uint8)
    del batch
    gc.collect()
    for _ in range(8):
        fill(queue, 5000, size=500)  # several times around the queue
    assert queue.oldest > 50
    assert [bytes(view) for view in views] == copies
    queue.close()
    assert [bytes(view) for view in views] == copies
    assert bytes(table) == copies[7]


def test_pinned_segments_are_replaced_and_others_reused(queue: Queue) -> None:
    fill(queue, 20_000)
    files = {file.name for file in (queue.path / "segments").iterdir()}
    fill(queue, 20_000)
    assert {file.name for file in (queue.path / "segments").iterdir()} == files
    held = queue.read_batch(limit=1)
    fill(queue, 20_000)
    assert queue.statistics().pinned_evictions == 1
    assert len({file.name for file in (queue.path / "segments").iterdir()} - files) == 1
    assert held[0].ident


def test_released_views_leave_no_mapped_segments(queue: Queue) -> None:
    for _ in range(200):
        queue.read_batch(limit=1)
        fill(queue, 3000)
    live = len(list((queue.path / "segments").iterdir()))
    with open("/proc/self/maps") as maps:
        mapped = sum(str(queue.path) in line and ".segment" in line for line in maps)
    assert mapped <= 2 * live + 40


class CountedWaits:
    """The log of a follower; it counts waits and announces the first one."""

    def __init__(self, follower: Follower) -> None:
        self._log, self.waits, self.began = follower._log, 0, threading.Event()
        follower._log = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def wait_once(self, sequence: int, timeout_s: float) -> None:
        self.waits += 1
        self.began.set()
        self._log.wait_once(sequence, timeout_s)


def test_a_follower_ends_at_its_timeout(queue: Queue) -> None:
    begun = time.monotonic()
    assert list(queue.follow("next", timeout=0.2)) == []
    assert time.monotonic() - begun >= 0.2


def test_a_follower_does_not_poll_while_it_waits(queue: Queue) -> None:
    follower = queue.follow("next", timeout=0.5)
    counted = CountedWaits(follower)
    assert list(follower) == []
    assert 1 <= counted.waits < 5  # a sleep may end a moment before its time


def test_a_follower_can_be_stopped_from_another_thread(queue: Queue) -> None:
    follower = queue.follow("next")
    counted = CountedWaits(follower)
    stopper = threading.Thread(target=lambda: counted.began.wait() and follower.stop())
    stopper.start()
    assert list(follower) == []
    stopper.join()


def test_an_async_follower_receives_products_put_meanwhile(queue: Queue) -> None:
    async def consume(arrived: asyncio.Queue[list[int]]) -> None:
        async for batch in queue.follow("oldest"):
            await arrived.put(batch.sequences.tolist())

    async def produce() -> list[int]:
        arrived: asyncio.Queue[list[int]] = asyncio.Queue()
        consumer = asyncio.create_task(consume(arrived))
        seen: list[int] = []
        for count in (10, 20, 30):
            fill(queue, 10)
            while len(seen) < count:
                seen += await arrived.get()
        consumer.cancel()
        await asyncio.wait([consumer])
        return seen

    assert asyncio.run(produce()) == list(range(1, 31))


def test_an_async_follower_can_be_cancelled(queue: Queue) -> None:
    follower = queue.follow("next")
    counted = CountedWaits(follower)

    async def forever() -> None:
        async for _ in follower:
            pass

    async def main() -> None:
        task = asyncio.create_task(forever())
        await asyncio.to_thread(counted.began.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())  # does not return if the sleeping thread continues


# --- what a reader may see ----------------------------------------------------------------------------


@pytest.fixture
def mixed(queue: Queue) -> Queue:
    for n in range(6):
        queue.put(b"%d" % n, feed="open/a" if n % 2 else "secret/a", ident=f"i{n}")
    return queue


@pytest.mark.parametrize("selection", [
    None, "**", "secret/**", Selection(ident="i"), Selection(every=2), Selection(where="size = 1"),
    Selection("open/**").replace(feed=None), Selection("open/**").replace(feed="**"), Selection().replace(ident="i"),
])  # fmt: skip
def test_a_selection_never_widens_the_rights_of_a_reader(mixed: Queue, selection: Selection | str | None) -> None:
    log = log_of(mixed)
    wanted = [feed for feed in mixed.read_batch("oldest", selection).feeds if feed.startswith("open/")]
    read = log.reader(selection, 100, "1MiB", lambda feed: feed.startswith("open/"))
    seen = read(1).feeds
    assert set(seen) <= {"open/a"}
    if not (isinstance(selection, Selection) and selection.every > 1):  # `every` counts what the reader may see
        assert seen == wanted


def test_the_right_to_a_new_feed_is_checked_once(mixed: Queue) -> None:
    asked: list[str] = []

    def allowed(feed: str) -> bool:
        asked.append(feed)
        return feed.startswith("open/")

    read = log_of(mixed).reader(None, 100, "1MiB", allowed)
    read(1)
    mixed.put(b"x", feed="secret/b")
    mixed.put(b"y", feed="open/b")
    assert read(7).feeds == ["open/b"]
    read(1)
    feeds = [name for name in asked if "/" in name]  # origins share the numbers of names
    assert sorted(feeds) == ["open/a", "open/b", "secret/a", "secret/b"], "each feed is decided once"


def test_followers_and_weights_see_only_allowed_feeds(mixed: Queue) -> None:
    log = log_of(mixed)
    batch = log.follow("oldest", allowed=lambda feed: feed == "open/a").next_nowait()
    assert batch is not None
    assert batch.idents == ["i1", "i3", "i5"]
    everything, part = log.weigh(1, 7), log.weigh(1, 7, allowed=lambda feed: feed == "open/a")
    assert part.total == everything.total / 2
    assert log.weigh(1, 7, allowed=lambda feed: False).total == 0


def test_some_products_of_a_batch_are_a_batch_with_every_column(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    queue.put_many([b"a", b"b", b"c"], feed="f", ident=["i", "j", "k"], properties=[{"n": n} for n in range(3)])
    some = queue.read_batch().take([2, 0])
    assert some.idents == ["k", "i"]
    assert some.to_arrow().column("payload").to_pylist() == [b"c", b"a"]
    assert [product.ident for product in some] == ["k", "i"]

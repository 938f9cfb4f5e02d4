"""The queue against a simple model of it, driven by hypothesis."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from headrace import Batch, Duplicate, Queue, Selection
from headrace.testing import MockClock

FEEDS = ["a", "a/b", "a/b/c", "x/b"]
numbers = st.integers(0, 60)
sizes = st.sampled_from([0, 1, 9, 300, 5000, 30_000, 150_000])


def content(number: int, size: int) -> bytes:
    return (number.to_bytes(2, "big") + b"#" * size)[: max(size, 2)] if size else b""


class QueueModel(RuleBasedStateMachine):
    """One queue, opened twice, and a dictionary of the products that it must hold."""

    batches = Bundle("batches")

    @initialize(
        dedup=st.sampled_from(["identity", "payload", "none"]), hash=st.sampled_from(["blake3", "xxh3"]),
        age=st.sampled_from([None, "1h"]),
    )  # fmt: skip
    def create(self, dedup: str, hash: str, age: str | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-model-", dir="/dev/shm"))
        self.clock = MockClock(10**18)
        self.dedup = dedup
        self.path = self.folder / "q"
        first = Queue.create(
            self.path, size="1MiB", age=age, durability="memory", dedup=dedup, hash=hash, clock=self.clock, origin="o"
        )
        self.queues = [first, Queue.open(self.path, clock=self.clock)]
        self.held: dict[int, tuple[str, str, bytes, int]] = {}  # sequence -> feed, ident, payload, priority
        self.deleted: set[int] = set()
        self.next = 1
        self.cursor = first.cursor("c").position

    def queue(self, which: int) -> Queue:
        return self.queues[which]

    def forget_evicted(self) -> None:
        """Forget what the queue has evicted; `same` checks that it evicts the oldest products and no others."""
        oldest = self.queues[0].oldest
        assert oldest <= self.next
        for sequence in [s for s in self.held if s < oldest]:
            del self.held[sequence]

    def is_copy(self, feed: str, ident: str, payload: bytes, sequence: int) -> bool:
        """Whether such a product is a duplicate of the one at `sequence`."""
        held_feed, held_ident, held, _ = self.held[sequence]
        if self.dedup == "identity" and (not ident or (held_feed, held_ident) != (feed, ident)):
            return False
        return self.dedup != "none" and held == payload and sequence not in self.deleted

    def expect(self, feed: str, ident: str, payload: bytes) -> int | None:
        """The sequence of the copy that the queue must know."""
        return min((s for s in self.held if self.is_copy(feed, ident, payload, s)), default=None)

    @rule(
        which=st.integers(0, 1), number=numbers, size=sizes, feed=st.sampled_from(FEEDS), priority=st.integers(0, 7),
        named=st.booleans(),
    )  # fmt: skip
    def put(self, which: int, number: int, size: int, feed: str, priority: int, named: bool) -> None:
        payload, ident = content(number, size), f"{number}-{size}" if named else ""
        twin = self.expect(feed, ident, payload)
        outcome = self.queue(which).put(payload, feed=feed, ident=ident, priority=priority)
        if isinstance(outcome, Duplicate):
            assert twin == outcome.of
            return
        self.forget_evicted()
        assert outcome == self.next
        assert twin is None or twin not in self.held
        self.held[outcome] = (feed, ident, payload, priority)
        self.next += 1

    @rule(
        which=st.integers(0, 1),
        items=st.lists(st.tuples(numbers, sizes, st.sampled_from(FEEDS), st.booleans()), max_size=5),
    )
    def put_many(self, which: int, items: list[tuple[int, int, str, bool]]) -> None:
        if sum(size for _, size, *_ in items) > 300_000:
            items = items[:1]
        payloads = [content(number, size) for number, size, *_ in items]
        feeds, idents = [feed for _, _, feed, _ in items], [f"{n}-{s}" if named else "" for n, s, _, named in items]
        receipt = self.queue(which).put_many(payloads, feed=feeds, ident=idents)
        for feed, ident, payload, sequence, duplicate in zip(
            feeds, idents, payloads, receipt.sequences.tolist(), receipt.duplicates.tolist(), strict=True
        ):
            if duplicate:
                assert self.is_copy(feed, ident, payload, sequence)
            else:
                assert sequence == self.next
                self.held[sequence] = (feed, ident, payload, 4)
                self.next += 1
        self.forget_evicted()

    @rule(which=st.integers(0, 1), feed=st.sampled_from(["a/**", "*", "x/b", "**/c"]))
    def delete(self, which: int, feed: str) -> None:
        wanted = Selection(feed)
        gone = {s for s, (f, _, _, _) in self.held.items() if s not in self.deleted and wanted.wants_feed(f)}
        assert self.queue(which).delete(feed) == len(gone)
        self.deleted |= gone

    @rule(
        which=st.integers(0, 1), start=st.integers(1, 200), limit=st.integers(1, 20),
        feed=st.sampled_from([None, "a/**", "a/*", "**/b", "none"]), ident=st.sampled_from([None, "^1", "-0$", "9"]),
    )  # fmt: skip
    def read(self, which: int, start: int, limit: int, feed: str | None, ident: str | None) -> None:
        wanted, start = Selection(feed, ident=ident), min(start, self.queue(which).next)
        batch = self.queue(which).read_batch(start, wanted, limit=limit)
        expected = [
            s
            for s, (f, i, _, _) in sorted(self.held.items())
            if s >= start and s not in self.deleted and wanted.wants_names(f, i)
        ]
        assert batch.sequences.tolist() == expected[:limit]
        oldest = self.queue(which).oldest
        assert (batch.lost.first, batch.lost.last) == (start, oldest - 1) if start < oldest else batch.lost is None
        for product in batch:
            assert (product.feed, product.ident, bytes(product.payload), product.priority) == self.held[
                product.sequence
            ]

    @rule(target=batches, which=st.integers(0, 1))
    def hold(self, which: int) -> Any:
        """Hold on to views, to look at them much later."""
        batch = self.queue(which).read_batch(limit=3)
        if not len(batch):
            return multiple()
        return batch, [bytes(product.payload) for product in batch]

    @rule(kept=batches)
    def look_again(self, kept: tuple[Batch, list[bytes]]) -> None:
        batch, copies = kept
        assert [bytes(product.payload) for product in batch] == copies

    @rule(which=st.integers(0, 1))
    def advance_cursor(self, which: int) -> None:
        cursor = self.queue(which).cursor("c")
        assert cursor.position == self.cursor
        batch = cursor.read_batch(limit=5)
        cursor.commit(batch)
        self.cursor = batch.next

    @rule(seconds=st.sampled_from([1, 600, 4000]))
    def let_time_pass(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-3600, 86400]))
    def set_the_clock(self, seconds: int) -> None:
        self.clock.set(self.clock.now_ns() + seconds * 10**9)

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.queues[which].close()
        self.queues[which] = Queue.open(self.path, clock=self.clock)

    @rule()
    def reopen_both(self) -> None:
        for queue in self.queues:
            queue.close()
        self.queues = [Queue.open(self.path, clock=self.clock) for _ in range(2)]
        self.forget_evicted()

    @rule(size=st.sampled_from(["1MiB", "2MiB", "1536KiB"]))
    def resize(self, size: str) -> None:
        self.queues[0].resize(size=size)
        self.forget_evicted()

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "queues"):
            return
        for queue in self.queues:
            assert queue.next == self.next
            assert sorted(self.held) == list(range(queue.oldest, queue.next))
        statistics = self.queues[0].statistics()
        alive = [s for s in self.held if s not in self.deleted]
        assert statistics.held_products == len(alive)
        assert statistics.held_bytes == sum(len(self.held[s][2]) for s in alive)

    def teardown(self) -> None:
        if hasattr(self, "queues"):
            assert self.queues[0].check() == []
            for queue in self.queues:
                queue.close()
            shutil.rmtree(self.folder)


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

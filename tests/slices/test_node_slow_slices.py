"""A slice that does not go on does not hold up the others, however much of it waits."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headrace import Queue
from headrace.product.batch import Batch
from headrace.product.product import Product
from headrace.slices import ProcessingNode
from headrace.slices.backlog import FOREVER, Backlog, Portion
from headrace.slices.conductor import Conductor
from headrace.slices.process_worker import ProcessWorker
from headrace.slices.tasks import Outcome, Pulse, Task, work_on_batches, work_through
from headrace.slices.workers import work_stepwise
from support.waiting import until

LIMIT_S = 240.0  # a safety net, not a promise
SLOW, FAST = 900, 300


def put(queue: Queue, number: int, count: int) -> None:
    for begin in range(0, count, 50):
        queue.put_many([b"x"] * min(50, count - begin), feed="wx/a", slice=[number] * min(50, count - begin))


@pytest.mark.parametrize("fails", [False, True], ids=["hangs", "fails"])
def test_a_slice_that_waits_is_set_aside_and_read_again(
    make_quick: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr("headrace.slices.crew.BACKLOG_PRODUCTS", 100)
    monkeypatch.setattr("headrace.slices.intake.ROWS", 40)
    queue = make_quick()
    queue.channel("radar", "wx/**", slices=3, assign="given")
    put(queue, 0, SLOW)
    put(queue, 1, FAST)
    worked: dict[int, list[int]] = {0: [], 1: [], 2: []}
    may_go_on = threading.Event()

    def work(product: Product) -> None:
        assert product.slice is not None
        if product.slice == 0 and not may_go_on.is_set():
            if fails:
                raise RuntimeError("not yet")
            may_go_on.wait(LIMIT_S)
        worked[product.slice].append(product.sequence)

    with ProcessingNode(queue, "radar", work, workers=2, retry="100ms", tries_max=255) as node:
        until(lambda: len(worked[1]) == FAST)
        put(queue, 2, FAST)
        put(queue, 0, SLOW)
        until(lambda: len(worked[2]) == FAST)
        assert not worked[0]
        may_go_on.set()
        until(lambda: node.statistics().products == 2 * (SLOW + FAST))
    assert {number: len(each) for number, each in worked.items()} == {0: 2 * SLOW, 1: FAST, 2: FAST}
    assert all(each == sorted(set(each)) for each in worked.values())
    state = queue.share("radar").state()
    assert state.positions.tolist() == [queue.next] * 3
    queue.check()


def test_a_backlog_is_cut_to_the_first_products_of_each_slice(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    queue.put_many([b"xy"] * 60, feed="wx/a")
    batch = queue.read_batch(queue.oldest, limit=60)
    chance = np.random.default_rng(5)
    slices, backlog = chance.integers(0, 7, 60).astype(np.uint32), Backlog()
    for begin in range(0, 60, 20):
        places = np.arange(begin, begin + 20, dtype=np.uint32)
        backlog.add(Portion(batch, places, slices[places], batch.sequences[places].astype(np.uint64)))
    expected = [batch.sequences[slices == number] for number in range(8)]
    first = backlog.cut(3, 8)
    assert [int(each) for each in first] == [int(each[3]) if len(each) > 3 else int(FOREVER) for each in expected]
    left = backlog.take(100, np.zeros(8, np.bool_))
    kept = np.concatenate([each.sequences for each in left])
    assert sorted(kept) == sorted(np.concatenate([each[:3] for each in expected]))
    assert (backlog.products, backlog.bytes) == (0, 0)


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_products_that_were_to_follow_a_slow_one_are_taken_back(make_quick: Callable[..., Queue], kind: str) -> None:
    queue = make_quick()
    queue.channel("radar", "wx/**", slices=8, assign="given")
    for _ in range(20):
        queue.put_many([b"x"] * 8, feed="wx/a", slice=list(range(8)))
    worked: list[list[int]] = [[] for _ in range(8)]
    may_go_on = threading.Event()

    def work(product: Product) -> None:
        assert product.slice is not None
        if product.slice == 3 and len(worked[3]) == 5:
            may_go_on.wait(LIMIT_S)
        worked[product.slice].append(product.sequence)

    async def work_async(product: Product) -> None:
        assert product.slice is not None
        while product.slice == 3 and len(worked[3]) == 5 and not may_go_on.is_set():
            await asyncio.sleep(0.01)
        worked[product.slice].append(product.sequence)

    chosen = work if kind == "thread" else work_async
    with ProcessingNode(queue, "radar", chosen, workers=2) as node:
        until(lambda: all(len(each) == 20 for number, each in enumerate(worked) if number != 3))
        assert len(worked[3]) == 5
        may_go_on.set()
        until(lambda: node.statistics().products == 160)
    assert all(each == sorted(set(each)) and len(each) == 20 for each in worked)
    queue.check()


def test_a_product_is_either_its_workers_or_the_nodes() -> None:
    for _ in range(300):
        pulse, begun = Pulse(), list[int]()
        pulse.outcome = Outcome(np.zeros(0, np.bool_), np.zeros(0, np.uint64), [], [])

        def walk(pulse: Pulse = pulse, begun: list[int] = begun) -> None:
            for place in range(2000):
                pulse.place = place
                if place >= pulse.stop:
                    break
                begun.append(place)
            pulse.place = -1

        thread = threading.Thread(target=walk)
        thread.start()
        kept = pulse.keep_rest()
        thread.join()
        assert kept is None or len(begun) <= kept[0] + 1


def tick(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    """Each look at the clock of tasks comes so much later than the one before."""
    times = itertools.count(0, int(step_s * 1e9))
    monkeypatch.setattr("headrace.slices.tasks.time.perf_counter_ns", lambda: next(times))


def read(make_quick: Callable[..., Queue]) -> Batch:
    queue = make_quick()
    queue.put_many([b"x"] * 8, feed="wx/a")
    return queue.read_batch(queue.oldest, limit=8)


def test_a_worker_returns_the_rest_of_a_task_that_takes_longer_than_expected(
    make_quick: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, begun = read(make_quick), list[int]()
    tick(monkeypatch, 0.06)
    outcome = work_through(batch, [0] * 8, lambda product: begun.append(product.sequence), Pulse())
    assert begun == [1, 2]
    assert outcome.done.tolist() == [True, True] + [False] * 6
    assert outcome.failures == []


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_worker_returns_the_batches_that_it_has_not_begun_in_time(
    make_quick: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    batch, begun = read(make_quick), list[int]()
    places = [np.arange(first, first + 2, dtype=np.uint32) for first in range(0, 8, 2)]

    async def work(some: Batch) -> None:
        begun.append(len(some))

    tick(monkeypatch, 0.06)
    if kind == "function":
        outcome = work_on_batches([batch.take(each) for each in places], lambda some: begun.append(len(some)), Pulse())
    else:
        portions = [Portion(batch, each, each, batch.sequences[each].astype(np.uint64)) for each in places]
        outcome = asyncio.run(work_stepwise(Task(portions, np.ones(8, np.uint32)), work, True, Pulse()))
    assert begun == [2]
    assert outcome.done.tolist() == [True, True] + [False] * 6
    assert outcome.failures == []


def test_a_new_node_begins_with_one_product_for_each_worker(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    queue.channel("radar", "wx/**", slices=8, assign="round_robin")
    queue.put_many([b"x"] * 8, feed="wx/a")
    all_began = threading.Barrier(9)

    def work(_: Product) -> None:
        all_began.wait(LIMIT_S)

    with ProcessingNode(queue, "radar", work, workers=8) as node:
        all_began.wait(LIMIT_S)  # nobody has two of them
        until(lambda: node.statistics().products == 8)


def wait_for_file(product: Product) -> None:
    """For a worker process: what the payload says."""
    path = bytes(product.payload).decode()
    while path != "x" and not Path(path).exists():
        time.sleep(0.01)


def test_products_that_follow_a_slow_one_in_a_worker_process_are_taken_back(
    make_quick: Callable[..., Queue], tmp_path: Path
) -> None:
    queue = make_quick()
    slow = tmp_path / "go on"
    queue.put_many([b"x", b"x", str(slow).encode(), b"x", b"x"], feed="wx/a")
    batch, places = queue.read_batch(queue.oldest, limit=5), np.arange(5, dtype=np.uint32)
    task = Task([Portion(batch, places, places, batch.sequences.astype(np.uint64))], np.ones(5, np.uint32))
    outcomes: list[Outcome] = []
    worker = ProcessWorker(wait_for_file, False, lambda _, __, outcome: outcomes.append(outcome))
    try:
        worker.begin(task)
        until(lambda: worker.place == 2)
        until(lambda: worker.keep_rest() == (2, None))
        slow.touch()
        until(lambda: bool(outcomes))
    finally:
        worker.stop()
    assert outcomes[0].done.tolist() == [True, True, True, False, False]
    assert outcomes[0].failures == []


def test_a_product_in_work_is_reported_as_busy(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    queue.channel("radar", "wx/**", slices=2, assign="given")
    put(queue, 1, 1)
    may_go_on, took_s = threading.Event(), list[float]()

    def work(_: Product) -> None:
        before_s = time.perf_counter()
        may_go_on.wait(LIMIT_S)
        took_s.append(time.perf_counter() - before_s)

    share = queue.share("radar")
    with ProcessingNode(queue, "radar", work) as node:
        until(lambda: bool(share.state().busy_ns[1]))  # before it has ended
        assert share.state().nodes[0].busy_s > 0
        may_go_on.set()
        until(lambda: node.statistics().products == 1)
    assert share.state().busy_ns[1] >= took_s[0] * 1e9


@pytest.mark.parametrize("batches", [False, True])
def test_time_that_was_reported_before_the_end_of_a_product_is_subtracted_at_its_end(
    make_quick: Callable[..., Queue], batches: bool
) -> None:
    batch = read(make_quick)
    conductor = Conductor(8, 3, lambda *_: 0, batches=batches)
    places = [np.arange(first, first + 4, dtype=np.uint32) for first in (0, 4)]
    task = Task([Portion(batch, each, each, batch.sequences[each].astype(np.uint64)) for each in places],
                np.zeros(8, np.uint32))  # fmt: skip
    conductor.note_in_work(task, 4, 800)
    conductor.note_in_work(task, 4, 2000)
    first = conductor.report()
    assert first is not None
    expected = [500] * 4 if batches else [2000]
    assert (first.slices.tolist(), first.busy_ns.tolist()) == ([4, 5, 6, 7][: len(expected)], expected)
    spent = np.array([0] * 4 + ([600] * 4 if batches else [2400, 0, 0, 0]), np.uint64)
    conductor.finish(task, Outcome(np.ones(8, np.bool_), spent, [], []), 0.0, 0.0)
    second = conductor.report()
    assert second is not None
    assert int(second.busy_ns.sum()) == 400

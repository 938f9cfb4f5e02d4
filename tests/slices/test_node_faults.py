"""Work that raises, hangs, ends its process, or returns what cannot be stored: a slice goes on, and nothing else suffers.

Each test puts products with payloads `0`, `1`, …, and knows by their sequences which were worked on.
"""

import asyncio
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import Product, Queue
from headrace.errors import (
    ChannelMissingError,
    OptionError,
    ShareError,
    ShareExistsError,
    ShareMissingError,
    SinkFencedError,
    SinkRefusedError,
    SinkUnavailableError,
)
from headrace.share.interface import NOBODY, Marks, Positions
from headrace.slices import ProcessingNode, QueueSink
from headrace.slices.sinks.interface import Result, SinkStatistics
from support.waiting import until

SLICES = 8
BAD = "13"
Make = Callable[..., ProcessingNode]


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    made = make_quick(size="16MiB")
    made.channel("radar", "wx/**", slices=SLICES, assign="round_robin")
    return made


@pytest.fixture
def run(queue: Queue) -> Iterator[Make]:
    """Start nodes; they end with the test."""
    made: list[ProcessingNode] = []

    def start(work: Callable[..., Any], **options: Any) -> ProcessingNode:
        options = {"retry": "10ms", "confirm": "10ms", "dead_after": "1h", **options}  # however slow the machine is
        made.append(ProcessingNode(queue, "radar", work, **options).start())
        return made[-1]

    yield start
    for node in made:
        node.stop()


def fill(queue: Queue, count: int = 40) -> None:
    queue.put_many([str(number).encode() for number in range(count)], feed="wx/a")


def is_drained(queue: Queue, group: str = "main") -> bool:
    """Whether everything is confirmed."""
    return bool((queue.share("radar", group).state().positions >= queue.next).all())


def parked(queue: Queue) -> list[tuple[int, int, str]]:
    return [(each.sequence, each.tries, each.error) for each in queue.share("radar").parked()]


class Log:
    """What was worked on, in order."""

    def __init__(self) -> None:
        self.payloads: list[str] = []
        self.by_slice: dict[int, list[int]] = defaultdict(list)

    def note(self, product: Product) -> str:
        text = bytes(product.payload).decode()
        self.payloads.append(text)
        self.by_slice[product.slice].append(product.sequence)
        return text

    def check(self, count: int = 40, repeated: frozenset[str] = frozenset()) -> None:
        assert set(self.payloads) == {str(number) for number in range(count)}
        assert {text for text, times in Counter(self.payloads).items() if times > 1} <= repeated
        assert all(sequences == sorted(sequences) for sequences in self.by_slice.values())


# --- raises -----------------------------------------------------------------------------------------


class Abort(BaseException):
    """As some libraries have it, so that nobody catches it by accident."""


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), Abort("no")])
def test_work_that_raises_is_tried_again_and_parked_and_its_slice_goes_on(queue: Queue, run: Make, error: Any) -> None:
    fill(queue)
    log = Log()

    def work(product: Product) -> None:
        if log.note(product) == BAD:
            raise error

    node = run(work, tries_max=3)
    until(lambda: is_drained(queue))
    log.check(repeated=frozenset([BAD]))
    assert log.payloads.count(BAD) == 3
    ((sequence, tries, why),) = parked(queue)
    assert (sequence, tries) == (14, 3)
    assert why.startswith(type(error).__name__)
    assert (node.statistics().parked, node.statistics().failed) == (1, 3)
    assert queue.share("radar").state().counters["failed"] == 3


def test_work_that_succeeds_at_its_last_try_is_not_parked(queue: Queue, run: Make) -> None:
    fill(queue)
    log = Log()

    def work(product: Product) -> None:
        if log.note(product) == BAD and log.payloads.count(BAD) < 3:
            raise ValueError

    run(work, tries_max=3)
    until(lambda: is_drained(queue))
    log.check(repeated=frozenset([BAD]))
    assert parked(queue) == []


def test_one_product_of_a_batch_fails_and_only_that_one_is_parked(queue: Queue, run: Make) -> None:
    fill(queue)
    done: set[str] = set()
    sizes: list[int] = []

    def work(batch: Any) -> None:
        texts = [bytes(product.payload).decode() for product in batch]
        sizes.append(len(texts))
        if BAD in texts:
            raise ValueError("no")
        done.update(texts)

    run(work, batches=True, tries_max=2)
    until(lambda: is_drained(queue))
    assert done == {str(number) for number in range(40)} - {BAD}
    assert [each[0] for each in parked(queue)] == [14]
    assert max(sizes) > 1


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, SystemExit, KeyboardInterrupt, Abort])
def test_a_coroutine_that_raises_is_parked_and_the_loop_goes_on(queue: Queue, run: Make, error: Any) -> None:
    fill(queue)
    log = Log()

    async def work(product: Product) -> None:
        await asyncio.sleep(0)
        if log.note(product) == BAD:
            raise error

    run(work, workers=4, tries_max=2)
    until(lambda: is_drained(queue))
    log.check(repeated=frozenset([BAD]))
    assert [each[0] for each in parked(queue)] == [14]


# --- hangs ------------------------------------------------------------------------------------------


def test_work_that_hangs_in_a_thread_is_left_behind_and_parked(queue: Queue, run: Make) -> None:
    fill(queue)
    log, may_end = Log(), threading.Event()

    def work(product: Product) -> None:
        if log.note(product) == BAD:
            may_end.wait(300)

    run(work, hung_after="200ms", tries_max=2)
    until(lambda: is_drained(queue))
    may_end.set()
    assert set(log.payloads) == {str(number) for number in range(40)}
    ((sequence, tries, why),) = parked(queue)
    assert (sequence, tries) == (14, 2)
    assert "did not end within 0.2 s" in why


def test_a_coroutine_that_hangs_is_cancelled_and_parked(queue: Queue, run: Make) -> None:
    fill(queue)
    log = Log()

    async def work(product: Product) -> None:
        if log.note(product) == BAD:
            await asyncio.sleep(300)

    run(work, hung_after="200ms", tries_max=2, workers=2)
    until(lambda: is_drained(queue))
    assert [each[:2] for each in parked(queue)] == [(14, 2)]


def test_a_coroutine_that_blocks_the_event_loop_is_left_behind_with_it(queue: Queue, run: Make) -> None:
    fill(queue)
    log, may_end = Log(), threading.Event()

    async def work(product: Product) -> None:
        await asyncio.sleep(0.001)
        if log.note(product) == BAD:
            may_end.wait(300)  # as a call of a library that knows nothing of event loops

    run(work, hung_after="200ms", tries_max=1, workers=3)
    until(lambda: is_drained(queue))
    may_end.set()
    assert set(log.payloads) == {str(number) for number in range(40)}
    assert [each[:2] for each in parked(queue)] == [(14, 1)]


# --- ends its process -------------------------------------------------------------------------------


class Unsendable:
    def __reduce__(self) -> Any:
        raise TypeError("not me")


class Unreadable:
    def __reduce__(self) -> Any:
        return os.listdir, ("/nowhere",)


def deadly(product: Product) -> Any:
    """For worker processes: what the payload says."""
    text = bytes(product.payload).decode()
    if text == "exit":
        os._exit(7)
    if text == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "hang":
        time.sleep(300)
    if text == "raise":
        raise ValueError("no")
    return {"unsendable": Unsendable(), "unreadable": Unreadable()}.get(text, text.encode())


def test_worker_processes_that_end_hang_or_return_nonsense_cost_only_the_product_at_fault(
    queue: Queue, run: Make
) -> None:
    faults = ["exit", "kill", "hang", "raise", "unsendable", "unreadable"]
    texts = [str(number) for number in range(30)]
    for place, fault in enumerate(faults):
        texts.insert(4 + 4 * place, fault)
    queue.put_many([text.encode() for text in texts], feed="wx/a")
    until_s = queue.next
    run(deadly, use="processes", workers=2, publish="out", hung_after="1s", tries_max=2)
    until(lambda: bool((queue.share("radar").state().positions >= until_s).all()))
    assert sorted(int(product.payload) for product in queue.read("oldest", "out")) == list(range(30))
    why = {texts[each.sequence - 1]: each.error for each in queue.share("radar").parked()}
    assert set(why) == set(faults)
    expected = {
        "exit": "status 7", "kill": "SIGKILL", "hang": "did not end within 1 s", "raise": "ValueError: no",
        "unsendable": "cannot be sent to the node: TypeError: not me", "unreadable": "cannot be read by the node",
    }  # fmt: skip
    assert all(expected[fault] in text for fault, text in why.items()), why


def test_an_idle_worker_process_that_is_killed_is_replaced(queue: Queue, run: Make) -> None:
    node = run(deadly, use="processes", publish="out")
    os.kill(node._crew.workers[0]._process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    fill(queue)
    until(lambda: is_drained(queue))
    assert sorted(int(product.payload) for product in queue.read("oldest", "out")) == list(range(40))
    assert parked(queue) == []


class Unstartable:
    """A function that no other process can import."""

    def __call__(self, product: Product) -> None: ...

    def __reduce__(self) -> Any:
        return os.listdir, ("/nowhere",)


def test_a_node_whose_worker_processes_cannot_start_ends_and_leaves_its_slices_to_others(
    queue: Queue, run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.slices.crew.STARTS_MAX", 2)
    fill(queue)
    node = run(Unstartable(), use="processes")
    with pytest.raises(OptionError, match=r"ended before they were ready: the process ended with status 1.*__main__"):
        node.wait(60)
    state = queue.share("radar").state()
    assert state.nodes == []
    assert set(state.owners.tolist()) == {NOBODY}
    assert parked(queue) == []


# --- sinks ------------------------------------------------------------------------------------------


class FaultySink:
    """Keeps results in memory; refuses, is away and is fenced on demand."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.sequences: dict[int, list[int]] = defaultdict(list)
        self.positions: dict[int, int] = {}
        self.refuses: str | None = None
        self.is_away = False
        self.fenced: tuple[int, ...] = ()
        self.attempts = 0

    def claim(self, group: str, marks: Marks) -> Positions:
        if self.is_away:
            raise SinkUnavailableError("away", "wait")
        for number, position in zip(marks.slices.tolist(), marks.positions.tolist(), strict=True):
            self.positions.setdefault(number, position)
        return positions_of(marks, self.positions)

    def store(self, group: str, results: list[Result], marks: Marks) -> None:
        self.attempts += 1
        if self.is_away:
            raise SinkUnavailableError("away", "wait")
        if set(self.fenced) & set(marks.slices.tolist()):
            raise SinkFencedError("later", "leave them", self.fenced)
        for each in results:
            if each.value == self.refuses:
                raise SinkRefusedError("not this one", "change it", each.slice, each.sequence)
        for each in results:
            assert each.sequence >= self.positions[each.slice], "stored twice"
            self.values.append(each.value)
            self.sequences[each.slice].append(each.sequence)
        for number, position in zip(marks.slices.tolist(), marks.positions.tolist(), strict=True):
            self.positions[number] = max(position, self.positions[number])

    def statistics(self) -> SinkStatistics:
        return SinkStatistics()

    def close(self) -> None:
        pass


def positions_of(marks: Marks, positions: dict[int, int]) -> Positions:
    found = marks.positions.copy()
    found[:] = [positions[number] for number in marks.slices.tolist()]
    return found


def text_of(product: Product) -> str:
    return bytes(product.payload).decode()


def test_a_result_that_the_sink_refuses_is_parked_after_all_before_it_is_stored(queue: Queue, run: Make) -> None:
    fill(queue)
    sink = FaultySink()
    sink.refuses = BAD
    run(text_of, sink=sink, tries_max=3)
    until(lambda: is_drained(queue))
    assert sorted(sink.values, key=int) == [str(number) for number in range(40) if str(number) != BAD]
    assert [each[:2] for each in parked(queue)] == [(14, 3)]
    assert all(sequences == sorted(sequences) for sequences in sink.sequences.values())


def test_nothing_is_parked_before_the_results_that_stand_before_it_are_stored(queue: Queue, run: Make) -> None:
    """A group whose node dies now must find the others of the slice unconfirmed."""
    fill(queue)
    sink = FaultySink()

    def work(product: Product) -> str:
        if text_of(product) == BAD:
            sink.is_away = True
            raise ValueError("no")
        return text_of(product)

    node = run(work, sink=sink, tries_max=1, confirm="200ms")
    until(lambda: node.statistics().failed == 1 and sink.attempts > 2)
    assert sink.values == []
    assert int(queue.share("radar").state().positions.max()) <= SLICES  # the first product of each slice
    assert parked(queue) == []
    sink.is_away = False
    until(lambda: is_drained(queue))
    assert len(sink.values) == 39
    assert [each[0] for each in parked(queue)] == [14]


def test_a_sink_that_is_away_for_a_while_costs_nothing_and_holds_no_more_than_its_limit(
    queue: Queue, run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.slices.confirming.RESULTS_MAX", 10)
    monkeypatch.setattr("headrace.slices.confirming.RETRY_S", 0.02)
    monkeypatch.setattr("headrace.slices.pace.PRODUCTS_MAX", 4)
    sink = FaultySink()
    node = run(text_of, sink=sink)
    until(lambda: node.statistics().slices == SLICES)
    sink.is_away = True
    fill(queue)
    attempts = sink.attempts
    until(lambda: sink.attempts > attempts + 5)
    assert 0 < node.statistics().products <= 14
    sink.is_away = False
    until(lambda: is_drained(queue))
    assert sorted(sink.values, key=int) == [str(number) for number in range(40)]
    assert node.statistics().rejoined == 0


def test_a_node_that_stops_while_its_sink_is_away_ends(
    queue: Queue, run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.slices.node._LEAVE_S", 0.1)
    sink = FaultySink()
    node = run(text_of, sink=sink)
    until(lambda: node.statistics().slices == SLICES)
    sink.is_away = True
    fill(queue)
    until(lambda: node.statistics().products == 40)
    node.stop()
    sink.is_away = False
    run(text_of, sink=sink)
    until(lambda: is_drained(queue))
    assert sorted(sink.values, key=int) == [str(number) for number in range(40)]


def test_slices_that_a_later_owner_has_claimed_are_left_to_it_and_the_others_go_on(queue: Queue, run: Make) -> None:
    sink = FaultySink()
    node = run(text_of, sink=sink)
    until(lambda: node.statistics().slices == SLICES)
    sink.fenced = (3,)
    fill(queue)
    until(lambda: len(sink.values) == 35)
    assert sink.sequences[3] == []
    positions = queue.share("radar").state().positions
    assert int(positions[3]) == 1
    assert node.statistics().slices == SLICES - 1


def test_a_sink_that_is_ahead_of_the_group_is_believed_and_its_position_is_confirmed(queue: Queue, run: Make) -> None:
    fill(queue)
    sink = FaultySink()
    sink.positions = dict.fromkeys(range(SLICES), queue.next)
    log = Log()
    run(log.note, sink=sink)
    until(lambda: is_drained(queue))
    assert log.payloads == []


def test_a_node_that_waits_long_for_its_sink_keeps_its_seat(queue: Queue, run: Make) -> None:
    sink, may_go, waits = FaultySink(), threading.Event(), threading.Event()
    store = sink.store

    def slow(*given: Any) -> None:
        waits.set()
        may_go.wait(60)
        store(*given)

    sink.store = slow  # type: ignore[method-assign]
    node, other = run(text_of, sink=sink), run(text_of, sink=sink)
    fill(queue)
    assert waits.wait(60)
    heartbeats = queue.share("radar").table.seats["heartbeat"]  # type: ignore[attr-defined]
    for _ in range(3):
        before = heartbeats[:2].copy()
        until(lambda before=before: (heartbeats[:2] > before).all())  # type: ignore[misc]
    may_go.set()
    until(lambda: is_drained(queue))
    assert len(sink.values) == 40
    assert (node.statistics().rejoined, other.statistics().rejoined) == (0, 0)
    assert queue.share("radar").state().counters["deaths"] == 0


# --- the group --------------------------------------------------------------------------------------


def test_a_node_that_lost_its_seat_joins_again_and_goes_on(queue: Queue, run: Make) -> None:
    sink = QueueSink(queue, "out")
    node = run(lambda product: bytes(product.payload), sink=sink, dead_after="1h", confirm="1h")
    share = queue.share("radar")
    until(lambda: node.statistics().slices == SLICES)
    fill(queue)
    until(lambda: node.statistics().products == 40)
    share.change(
        lambda own, now: own._vacate(node._confirming.seat.number, 3, now)
    )  # as `seize` does, without the wait
    until(lambda: node.statistics().rejoined == 1 and node.statistics().slices == SLICES)
    until(lambda: node.statistics().products == 80)
    node.stop()
    assert is_drained(queue) or int(share.state().positions.min()) >= 41
    assert sorted(int(product.payload) for product in queue.read("oldest", "out")) == list(range(40))


def test_an_unstarted_node_can_be_stopped(queue: Queue) -> None:
    node = ProcessingNode(queue, "radar", print)
    node.stop()


def test_two_groups_work_on_one_stream_independently(queue: Queue, run: Make) -> None:
    fill(queue)
    one, two = Log(), Log()
    run(one.note)
    run(two.note, group="other")
    until(lambda: is_drained(queue) and is_drained(queue, "other"))
    one.check()
    two.check()


def test_a_node_that_expects_another_number_of_slices_is_refused(queue: Queue) -> None:
    with pytest.raises(ShareExistsError, match="has 8 slices, not 16"):
        ProcessingNode(queue, "radar", print, slices=16)


def test_products_that_are_evicted_before_the_node_reads_them_are_counted(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick("small", size="1MiB")
    queue.channel("radar", "wx/**", slices=SLICES)
    share = queue.share("radar")
    for number in range(40):
        queue.put(bytes(100_000), feed="wx/a", ident=str(number))
    log = Log()
    with ProcessingNode(queue, "radar", lambda product: log.payloads.append(product.ident)) as node:
        until(lambda: is_drained(queue))
        lost = 40 - len(log.payloads)
        assert lost > 0
        until(lambda: share.state().counters["lost"] == lost)
        assert node.statistics().lost == lost


def test_a_node_whose_channel_is_removed_ends_with_an_error(
    queue: Queue, run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = run(print)
    until(lambda: node.statistics().slices == SLICES)

    def exchange(*_: Any) -> None:  # as a site replies
        raise ChannelMissingError("there is no channel 'radar'")

    monkeypatch.setattr("headrace.share.share.Seat.exchange", exchange)
    with pytest.raises(ChannelMissingError, match="radar"):
        node.wait(60)


def test_a_node_that_was_killed_and_starts_again_gets_its_name_back(queue: Queue, run: Make) -> None:
    queue.share("radar", dead_after="500ms").join("one")  # and is never heard of again
    node = run(print, name="one", dead_after=None)
    until(lambda: node.statistics().slices == SLICES)
    assert node.name == "one"


def test_a_name_that_a_living_node_has_is_refused(queue: Queue, run: Make) -> None:
    node = run(print, name="one", dead_after="1h")
    until(lambda: node.statistics().slices == SLICES)
    with pytest.raises(
        ShareError, match=r"has a node 'one', heard of \d+\.\d s ago; stop that node, or choose another name"
    ):
        run(print, name="one", dead_after=None).wait(60)
    assert node.statistics().slices == SLICES


def test_a_node_whose_group_is_removed_ends_with_an_error(queue: Queue) -> None:
    node = ProcessingNode(queue, "radar", print).start()
    until(lambda: node.statistics().slices == SLICES)
    share = queue.share("radar")
    magic = share.table.header["magic"].copy()
    share.table.header["magic"] = b""  # as `remove` does, which wants the nodes to be stopped first
    with pytest.raises(ShareMissingError, match="the group was removed"):
        node.wait(60)
    share.table.header["magic"] = magic


def test_a_node_with_long_work_sleeps_meanwhile(queue: Queue, run: Make) -> None:
    may_end, begun = threading.Event(), threading.Event()

    def work(product: Product) -> None:
        begun.set()
        may_end.wait(60)

    node, turns = run(work), list[int]()
    dispatch = node._crew.dispatch
    fill(queue, 2)
    assert begun.wait(60)
    node._crew.dispatch = lambda nudge: (turns.append(1), dispatch(nudge))  # type: ignore[method-assign,assignment]
    begun_s = time.monotonic()
    time.sleep(1)
    may_end.set()
    assert len(turns) < 200 * (time.monotonic() - begun_s)  # of a loop that would turn a hundred thousand times


def test_metrics_that_fail_or_are_too_long_harm_nothing(queue: Queue, run: Make) -> None:
    fill(queue)
    told: list[Any] = [
        ZeroDivisionError(),
        {"a": "b"},
        {"ü" * 99 + str(n): 1e301 if n == 3 else 1.5 for n in range(99)},
    ]

    def metrics() -> Any:
        value = told.pop(0) if len(told) > 1 else {**told[0], "temperature": 21.5}
        if isinstance(value, Exception):
            raise value
        return dict(reversed(value.items()))

    run(lambda product: None, metrics=metrics)
    share = queue.share("radar")
    until(lambda: is_drained(queue) and share.state().nodes[0].load.metrics.get("temperature") == 21.5)


def test_a_node_whose_queue_is_moved_away_and_back_goes_on(queue: Queue, run: Make) -> None:
    log = Log()
    node = run(log.note, dead_after="1h")
    until(lambda: node.statistics().slices == SLICES)
    away = queue.path.with_name("away")
    queue.path.rename(away)
    time.sleep(0.7)  # it notices, and tries again
    away.rename(queue.path)
    fill(queue)
    until(lambda: is_drained(queue))
    log.check()


def test_a_node_that_is_drained_ends_by_itself_and_the_other_goes_on(queue: Queue, run: Make) -> None:
    one, two = Log(), Log()
    first, second = run(one.note, name="first"), run(two.note, name="second")
    until(lambda: first.statistics().slices and second.statistics().slices)
    fill(queue)
    queue.share("radar").drain(next(node.seat for node in queue.share("radar").state().nodes if node.name == "first"))
    assert first.wait(60)
    until(lambda: is_drained(queue))
    assert sorted(one.payloads + two.payloads, key=int) == [str(number) for number in range(40)]

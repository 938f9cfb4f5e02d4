"""QueueSink: results as products, here and at another site; what the window of duplicates means."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sink_bench import marks

from headrace import Queue
from headrace.errors import FeedError, OptionError, SinkRefusedError, SinkUnavailableError
from headrace.slices.sinks import QueueSink, Result
from support.fleet import Fabric

Make = Callable[..., Queue]


def test_a_result_is_a_payload_or_a_mapping_of_facts(make_quick: Make) -> None:
    queue = make_quick()
    sink = QueueSink(queue, "out")
    facts = {"payload": "b", "feed": "out/b", "ident": "two", "priority": 6, "properties": {"level": 7}}
    sink.store("g", [Result(0, 1, b"a"), Result(0, 2, [facts, "c"])], marks((0, 1, 3)))
    found = [(p.feed, p.ident, bytes(p.payload), p.priority) for p in queue.read("oldest")]
    assert found == [("out", "", b"a", 4), ("out/b", "two", b"b", 6), ("out", "", b"c", 4)]
    sink.close()
    assert queue.put(b"still open", feed="x")


def test_equal_results_of_different_products_are_different(make_quick: Make) -> None:
    queue = make_quick()
    sink = QueueSink(queue, "out")
    sink.store("g", [Result(0, n, ["same", "same"]) for n in (1, 2)], marks((0, 1, 3)))
    assert len(queue.read_batch()) == 4


def test_a_repetition_is_dropped_while_the_queue_holds_the_first_copy_and_not_longer(make_quick: Make) -> None:
    queue = make_quick(size="1MiB")
    sink = QueueSink(queue, "out")
    call = ([Result(0, 1, b"result")], marks((0, 1, 2)))
    sink.store("g", *call)
    sink.store("g", *call)
    assert queue.next == 2
    while queue.oldest == 1:
        queue.put_many([bytes(1000)] * 50, feed="other")
    before = queue.next
    sink.store("g", *call)
    assert queue.next == before + 1, "the first copy is evicted, so the queue has forgotten it"


@pytest.mark.parametrize(
    "value",
    [17, {}, {"payload": 3}, {"payload": "a", "moon": 1}, {"payload": "a", "feed": "a//b"}, {"payload": "\ud800"},
     {"payload": "a", "ident": "x" * 2000}, {"payload": bytes(1 << 20)}, {"payload": "a", "expiry": "soon"}],
)  # fmt: skip
def test_a_product_that_the_queue_refuses_is_named(make_quick: Make, value: object) -> None:
    queue = make_quick()
    sink = QueueSink(queue, "out")
    call = [Result(1, n, b"good") for n in range(1, 6)]
    call[3] = Result(1, 4, value)
    with pytest.raises(SinkRefusedError, match="result of product 4") as caught:
        sink.store("g", call, marks((1, 1, 6)))
    assert caught.value.sequence == 4
    del call[3]
    sink.store("g", call, marks((1, 1, 6)))
    assert len(queue.read_batch()) == 4


def test_more_results_than_fit_into_one_put_are_stored(make_quick: Make) -> None:
    queue = make_quick(size="4MiB")
    sink = QueueSink(queue, "out")
    sink.store("g", [Result(0, n, bytes(700)) for n in range(1, 3001)], marks((0, 1, 3001)))
    assert len(queue.read_batch()) == 3000


def test_a_queue_that_waits_for_its_consumers_is_unavailable(make_quick: Make) -> None:
    queue = make_quick()
    queue.station("slow", "out", blocking=True, capacity=1)
    sink = QueueSink(queue, "out", timeout="50ms")
    sink.store("g", [Result(0, 1, b"x")], marks((0, 1, 2)))
    with pytest.raises(SinkUnavailableError, match="slow"):
        sink.store("g", [Result(0, n, b"x") for n in range(2, 10)], marks((0, 1, 10)))


def test_wrong_options_are_named(make_quick: Make, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="keeps duplicates"):
        QueueSink(make_quick("none", dedup="none"), "out")
    with pytest.raises(FeedError):
        QueueSink(make_quick("one"), "a//b")
    sink = QueueSink(make_quick("two"))
    with pytest.raises(SinkRefusedError, match="it has no feed"):
        sink.store("g", [Result(0, 1, b"x")], marks((0, 1, 2)))


def test_results_go_to_another_site_and_are_dropped_there_if_repeated(fabric: Fabric) -> None:
    queue = fabric.add("far")
    sink = QueueSink(fabric._endpoints["far"], "out")
    for _ in range(2):
        sink.store("g", [Result(0, n, b"%d" % n) for n in range(1, 20)], marks((0, 1, 20)))
    assert [bytes(p.payload) for p in queue.read("oldest")] == [b"%d" % n for n in range(1, 20)]
    assert sink.statistics().repeated == 19
    sink.close()

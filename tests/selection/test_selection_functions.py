"""Functions that selections name: a process that knows the name calls them, and every other one refuses."""

import functools
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace import Product, Queue, Selection
from headrace.errors import OptionError, SelectionError
from headrace.selection.functions import Functions
from support.waiting import until

Make = Callable[..., Queue]


def even(product: Product) -> bool:
    return int(product.ident) % 2 == 0


def filled(queue: Queue, count: int = 10) -> Queue:
    for number in range(count):
        queue.put(b"", feed="a", ident=f"{number}")
    return queue


def found(queue: Queue, selection: Any) -> list[int]:
    return [int(product.ident) for product in queue.read("oldest", selection)]


def test_a_named_function_selects_as_the_function_itself_does(make_queue: Make) -> None:
    queue = filled(make_queue(functions={"even": even}))
    for selection in (even, Selection(function=even), Selection(function="even"), "** function even"):
        assert found(queue, selection) == [0, 2, 4, 6, 8]
        assert queue.read_batch("oldest", selection, limit=2).next == 4
        assert len(next(queue.follow(1, selection))) == 5
    assert found(queue, 'function even ident ~ "[1-4]"') == [2, 4]


@pytest.mark.parametrize(
    "use",
    [
        lambda queue: queue.read(1, "a function odd"),
        lambda queue: queue.read_batch(1, Selection(function="odd")),
        lambda queue: queue.follow(1, "function odd"),
        lambda queue: queue.cursor("c").read("function odd"),
        lambda queue: queue.station("s", "function odd"),
        lambda queue: queue.station("t").change(selection="function odd"),
        lambda queue: queue.delete("function odd"),
    ],
)
def test_a_name_that_a_process_does_not_know_is_refused_at_once(make_queue: Make, use: Callable[[Queue], Any]) -> None:
    queue = filled(make_queue(functions={"even": even}))
    with pytest.raises(SelectionError, match=r"no function 'odd' here; there is even; register it in \[functions\]"):
        use(queue)
    assert (queue.next, len(queue.read_batch(1))) == (11, 10)


def test_a_selection_that_names_a_function_decides_nothing_by_itself(make_queue: Make) -> None:
    (product,) = filled(make_queue(), 1).read()
    with pytest.raises(SelectionError, match="no function 'even' here"):
        Selection(function="even").wants(product)
    assert Selection(function="even").bound(Functions({"even": even})).wants(product)


def test_a_function_that_fails_or_does_not_decide_selects_nothing_and_is_counted(
    make_queue: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def faulty(product: Product) -> Any:
        return {0: True, 1: False, 2: None, 3: 1}[int(product.ident)]

    functions = {"faulty": faulty}
    queue = filled(make_queue(functions=functions), 5)
    with caplog.at_level(logging.ERROR, "headrace.selection"):
        assert found(queue, "function faulty") == [0]
    assert len(caplog.records) == 1
    assert "it returned None, and neither True nor False" in caplog.text
    assert queue._log.functions.failures() == {"faulty": (3, "KeyError: 4")}


async def awaits(product: Product) -> bool:
    return True


@pytest.mark.parametrize(
    ("name", "function", "words"),
    [
        ("f", 5, "is a int, not a function"), ("f", lambda: True, "does not take one product"),
        ("f", lambda a, b: True, "does not take one product"), ("f", awaits, "is asynchronous"),
        ("a b", even, "not the name of a function"), ("", even, "not the name of a function"),
        ("x" * 65, even, "not the name of a function"),
    ],
)  # fmt: skip
def test_what_cannot_be_such_a_function_is_refused(name: str, function: Any, words: str) -> None:
    with pytest.raises((OptionError, SelectionError), match=words):
        Functions({name: function})


def test_anything_that_takes_a_product_may_be_one() -> None:
    class Test:
        def __call__(self, product: Product, strict: bool = False) -> bool:
            return True

    assert "f" in Functions({"f": Test()})
    assert "f" in Functions({"f": functools.partial(lambda a, product: a, True)})


def test_a_function_is_called_once_for_each_product(make_queue: Make) -> None:
    called: list[int] = []

    def note(product: Product) -> bool:
        called.append(int(product.ident))
        return True

    queue = filled(make_queue(functions={"note": note}), 300)
    position = 1
    while position < queue.next:
        position = queue.read_batch(position, "function note", limit=7).next
    assert called == list(range(300))


# --- at stations --------------------------------------------------------------------------------------


def test_a_station_selects_by_a_named_function_in_every_process_that_knows_it(make_queue: Make) -> None:
    queue = filled(make_queue(functions={"even": even}))
    station = queue.station("s", "a function even", start="oldest")
    assert (station.terms.selection, station.terms.local) == ("a function even", False)
    with Queue.open(queue.path, functions={"even": even}) as other, other.station("s").attach() as consumer:
        assert [int(product.ident) for product in consumer.get(10)] == [0, 2, 4, 6, 8]
    assert queue.station("s", "a function even").statistics().selection == "a function even"


def test_a_process_that_does_not_know_the_function_is_refused_and_skips_nothing(make_queue: Make) -> None:
    queue = filled(make_queue(functions={"even": even}))
    queue.station("s", "a function even", start="oldest")
    with Queue.open(queue.path) as other:
        with pytest.raises(SelectionError, match="station 's' selects by function 'even': there is no function"):
            other.station("s").attach()
        assert other.station("s").statistics().behind == 10  # at most: it cannot say which
        filled(other, 12)
    with queue.station("s").attach() as consumer:
        assert [int(product.ident) for product in consumer.get(10)] == [0, 2, 4, 6, 8, 10]


def test_a_consumer_learns_that_its_station_got_a_function_that_it_does_not_know(make_queue: Make) -> None:
    queue = make_queue(functions={"even": even})
    with Queue.open(queue.path) as other, other.station("s", start="oldest").attach() as consumer:
        queue.station("s").change(selection="function even")
        filled(queue)
        with pytest.raises(SelectionError, match="station 's' selects by function 'even'"):
            consumer.get()
    with queue.station("s").attach() as consumer:
        assert [int(product.ident) for product in consumer.get(10)] == [0, 2, 4, 6, 8]


def test_a_consumer_behind_such_a_station_says_for_whom_it_waits(
    make_queue: Make, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_queue(functions={"even": even})
    queue.station("first", "function even")
    queue.station("second", after="first")
    filled(queue)
    with Queue.open(queue.path) as other, other.station("second").attach() as consumer:
        until(lambda: consumer.get(10, timeout=0.3) is None or "that has the function" in caplog.text, "the warning")
        assert "waiting at station second for a process that has the function" in caplog.text
        with queue.station("first").attach() as first:  # this process has it
            assert len(first.get(10)) == 5
        assert [int(product.ident) for product in consumer.get(10, timeout=60)] == [1, 3, 5, 7, 9]


def test_an_old_selection_whose_function_is_unknown_counts_as_wanting_everything(make_queue: Make) -> None:
    queue = make_queue(functions={"even": even})
    station = queue.station("s", "function even", start="oldest")
    filled(queue, 4)
    station.change(selection="b")
    with Queue.open(queue.path) as other, other.station("s").attach() as consumer:
        assert [int(product.ident) for product in consumer.get(10)] == [0, 1, 2, 3]


def test_a_slow_function_delivers_what_it_has_found_before_it_has_seen_everything(make_queue: Make) -> None:
    """And other threads do not wait for it."""
    go, hangs = threading.Event(), threading.Event()

    def slow(product: Product) -> bool:
        if product.ident == "20":
            hangs.set()
            return go.wait(240)
        return not threading.Event().wait(0.03)

    queue = filled(make_queue(functions={"slow": slow}), 30)
    station = queue.station("s", "function slow", start="oldest")

    def work() -> None:
        while not go.is_set():
            first.get(30, timeout=1)

    with station.attach() as first, station.attach() as second:
        assert len(first.get(2)) == 2
        assert not hangs.is_set()
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert hangs.wait(240)
        assert station.statistics().acknowledged == 0  # returns, though the function does not
        second.get(30, timeout=0)
        assert not go.is_set()
        go.set()
        thread.join(240)
        assert not thread.is_alive()

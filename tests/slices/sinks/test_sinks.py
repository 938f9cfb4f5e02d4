"""What every sink promises: results once, whatever is repeated; and nothing from a node that lost its slices."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sink_bench import FENCED, KINDS, create, marks, open_sink, results, stored

from headrace.errors import OptionError, SinkError, SinkFencedError, SinkRefusedError
from headrace.slices.sinks import Result, Sink

Open = Callable[[], Sink]


@pytest.fixture
def sink_of(shared_memory: Path) -> Iterator[Callable[[str], Open]]:
    """Opens sinks of one kind in one place; they are closed after the test."""
    opened: list[Sink] = []

    def choose(kind: str) -> Open:
        create(kind, shared_memory)

        def make() -> Sink:
            opened.append(open_sink(kind, shared_memory))
            return opened[-1]

        return make

    yield choose
    for sink in opened:
        sink.close()


Choose = Callable[[str], Open]


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_stored_in_order_and_a_repeated_store_changes_nothing(
    sink_of: Choose, shared_memory: Path, kind: str
) -> None:
    sink = sink_of(kind)()
    assert sink.claim("g", marks((0, 1, 1), (3, 1, 1))).tolist() == [1, 1]
    call = (results(kind, 0, [1, 5]) + results(kind, 3, [2, 4], parts=2), marks((0, 1, 6), (3, 1, 6)))
    for _ in range(3):
        sink.store("g", *call)
    expected = [(0, 1, 0), (0, 5, 0), (3, 2, 0), (3, 2, 1), (3, 4, 0), (3, 4, 1)]
    assert stored(kind, shared_memory) == expected
    assert (sink.statistics().stores, sink.statistics().repeated >= 8) == (3, True)


@pytest.mark.parametrize("kind", FENCED)
def test_a_new_owner_begins_where_the_results_of_the_old_one_end(
    sink_of: Choose, shared_memory: Path, kind: str
) -> None:
    make = sink_of(kind)
    old, new = make(), make()
    old.claim("g", marks((0, 1, 1), (1, 1, 1)))
    old.store("g", results(kind, 0, range(1, 8)), marks((0, 1, 8)))
    assert new.claim("g", marks((0, 2, 3), (1, 2, 3), (2, 1, 3))).tolist() == [8, 1, 3], "a slice is new to the sink"
    assert new.claim("g", marks((0, 2, 3))).tolist() == [8], "a claim may be repeated"


@pytest.mark.parametrize("kind", FENCED)
def test_a_zombie_with_an_old_epoch_stores_nothing_after_a_claim(
    sink_of: Choose, shared_memory: Path, kind: str
) -> None:
    make = sink_of(kind)
    zombie, owner = make(), make()
    zombie.claim("g", marks((0, 4, 1), (1, 4, 1)))
    zombie.store("g", results(kind, 0, [1]), marks((0, 4, 2)))
    owner.claim("g", marks((0, 5, 1)))
    with pytest.raises(SinkFencedError, match="slice 0 is claimed by a later owner") as caught:
        zombie.store("g", results(kind, 0, [2]) + results(kind, 1, [3]), marks((0, 4, 3), (1, 4, 4)))
    assert caught.value.slices == (0,)
    with pytest.raises(SinkFencedError):
        zombie.claim("g", marks((0, 4, 1)))
    with pytest.raises(SinkFencedError):
        zombie.store("g", [], marks((0, 4, 99)))
    assert stored(kind, shared_memory) == [(0, 1, 0)], "nothing of the call counts"
    zombie.store("g", results(kind, 1, [3]), marks((1, 4, 4)))
    owner.store("g", results(kind, 0, [2]), marks((0, 5, 3)))
    assert stored(kind, shared_memory) == [(0, 1, 0), (1, 3, 0), (0, 2, 0)]
    assert zombie.statistics().fenced == 3


def test_results_of_a_zombie_and_of_the_owner_are_the_same_products(sink_of: Choose, shared_memory: Path) -> None:
    make = sink_of("queue")
    zombie, owner = make(), make()
    for sink in (owner, zombie):
        sink.store("g", results("queue", 0, [1, 2], parts=2), marks((0, 1, 3)))
    assert stored("queue", shared_memory) == [(0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 2, 1)]
    assert zombie.statistics().repeated == 4


@pytest.mark.parametrize("kind", KINDS)
def test_two_groups_in_one_sink_do_not_see_each_other(sink_of: Choose, shared_memory: Path, kind: str) -> None:
    make = sink_of(kind)
    one, other = make(), make()
    one.claim("one", marks((0, 9, 1)))
    assert other.claim("other", marks((0, 1, 1))).tolist() == [1]
    one.store("one", results(kind, 0, [1]), marks((0, 9, 2)))
    other.store("other", results(kind, 0, [1]), marks((0, 1, 2)))
    assert stored(kind, shared_memory) == [(0, 1, 0)] * 2, "each of them has its own results"


@pytest.mark.parametrize("kind", FENCED)
def test_marks_and_results_must_fit_each_other(sink_of: Choose, shared_memory: Path, kind: str) -> None:
    sink = sink_of(kind)()
    with pytest.raises(SinkError, match="slice 0 is not claimed"):
        sink.store("g", [], marks((0, 1, 2)))
    sink.claim("g", marks((0, 1, 1)))
    for wrong in (marks((0, 1, 5)), marks((1, 1, 9))):
        with pytest.raises((OptionError, SinkError)):
            sink.store("g", results(kind, 0, [5]), wrong)
    with pytest.raises(OptionError, match="twice"):
        sink.claim("g", marks((0, 1, 1), (0, 2, 1)))
    with pytest.raises(OptionError, match="group '' is invalid"):
        sink.claim("", marks((0, 1, 1)))
    assert stored(kind, shared_memory) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_can_never_be_stored_is_named_and_the_others_can_be(
    sink_of: Choose, shared_memory: Path, kind: str
) -> None:
    sink = sink_of(kind)()
    sink.claim("g", marks((0, 1, 1)))
    good, bad = results(kind, 0, [1, 2, 4]), Result(0, 3, {"unheard": 1})
    with pytest.raises(SinkRefusedError, match="result of product 3") as caught:
        sink.store("g", [*good[:2], bad, good[2]], marks((0, 1, 5)))
    assert (caught.value.slice, caught.value.sequence) == (0, 3)
    sink.store("g", good, marks((0, 1, 5)))
    assert stored(kind, shared_memory) == [(0, 1, 0), (0, 2, 0), (0, 4, 0)]
    assert sink.statistics().refused == 1


@pytest.mark.parametrize("kind", FENCED)
def test_positions_pass_products_without_results(sink_of: Choose, shared_memory: Path, kind: str) -> None:
    make = sink_of(kind)
    sink = make()
    sink.claim("g", marks((7, 1, 1)))
    sink.store("g", [Result(7, 3, None), Result(7, 4, [])], marks((7, 1, 50)))
    sink.store("g", [], marks((7, 1, 20)))
    assert make().claim("g", marks((7, 2, 1))).tolist() == [50], "positions only grow"
    assert stored(kind, shared_memory) == []


@pytest.mark.parametrize("kind", KINDS)
def test_threads_may_share_a_sink(sink_of: Choose, shared_memory: Path, kind: str) -> None:
    sink = sink_of(kind)()

    def work(slice_: int) -> None:
        sink.claim("g", marks((slice_, 1, 1)))
        for n in range(slice_ + 1, 81, 4):
            sink.store("g", results(kind, slice_, [n]), marks((slice_, 1, n + 1)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    found = stored(kind, shared_memory)
    assert sorted(found) == [(slice_, n, 0) for slice_ in range(4) for n in range(slice_ + 1, 81, 4)]
    assert sink.statistics().results == 80

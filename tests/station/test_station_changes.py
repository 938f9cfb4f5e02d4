"""Terms change while producers and consumers work: nothing is lost, and nothing is delivered twice."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from arena_stations import UNLIMITED, Arena, Ledger, Note, checked_queue, consume, produce, read_ledger

from headrace import Queue
from headrace.station.stations import Stations
from support.seeds import random_seed
from support.waiting import until


@pytest.fixture
def path(shared_memory: Path) -> Iterator[Path]:
    with checked_queue(shared_memory / "q", "1GiB") as path:
        yield path


def change(folder: Path, path: Path, ledger: Ledger, seed: int) -> None:
    """Change selection, capacity and prescale repeatedly; note between which products each selection changed."""
    chance = random.Random(seed)
    with Queue.open(path) as queue:
        while not (folder / "stop").exists():
            wide = chance.random() < 0.5
            before = queue.next
            queue.station("choice").change(selection="**" if wide else "f/**")
            ledger.note("wide" if wide else "narrow", [before, queue.next])
            queue.station("full").change(
                capacity=chance.choice([10, 100, None]), order=chance.choice(["fifo", "priority"])
            )
            queue.station("some").change(prescale=chance.randrange(1, 5))
            time.sleep(0.01 * chance.random())


def changes(path: Path, seed: int, seconds: float) -> str:
    """Judge feed f, which every selection selects, and what else each selection selects in its period."""
    with Queue.open(path) as queue:
        queue.station("choice", "f/**", **UNLIMITED)
        queue.station("full", "f/**", blocking=True, capacity=10, **UNLIMITED)
        queue.station("some", "**", **UNLIMITED)
    with Arena(path, path.parent / "ledgers", seed) as arena:
        for station in ("choice", "choice", "full", "some"):
            arena.start(consume, station, 20)
        for _ in range(2):
            arena.start(produce, ("f/1", "g"), 0.004)
        changer = arena.start(change)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            time.sleep(0.05)
            assert arena.complaints() == []
        arena.end("stop", change)
        arena.finish("choice", "full", "some")
        with Queue.open(path) as queue:
            f, g = arena.acknowledged("f/1"), arena.acknowledged("g")
            arena.judge(queue, f, "full")
            put = {sequence for actor in arena.consumers("choice") for sequence in actor.sequences("trying")}
            notes = [note for note in read_ledger(changer.ledger) if note.what in ("wide", "narrow")]
            wanted, unwanted = _periods(notes, queue.next)
            assert put >= f | (g & wanted), f"lost: {sorted((f | (g & wanted)) - put)[:10]}"
            assert not put & g & unwanted, f"not selected: {sorted(put & g & unwanted)[:10]}"
            arena.judge(queue, put, "choice")
            thinned = {sequence for actor in arena.consumers("some") for sequence in actor.sequences("trying")}
            arena.judge(queue, thinned, "some")
            assert (len(f) + len(g)) / 5 < len(thinned) < len(f) + len(g)
    return f"{len(notes)} changes of three stations, {len(f) + len(g)} products"


def _periods(changes: list[Note], end: int) -> tuple[set[int], set[int]]:
    """Sequences that were certainly put while everything was selected, and while only feed f was."""
    wanted: set[int] = set()
    unwanted: set[int] = set(range(1, changes[0].sequences[0]))
    for change, following in zip(changes, [*(note.sequences[0] for note in changes[1:]), end], strict=True):
        (wanted if change.what == "wide" else unwanted).update(range(change.sequences[1], following))
    return wanted, unwanted


def test_changes_of_terms_lose_and_repeat_nothing(path: Path) -> None:
    print(changes(path, random_seed(), seconds=1.2))


@pytest.mark.soak
def test_minutes_of_changes_lose_and_repeat_nothing(path: Path) -> None:
    print(changes(path, random_seed(), seconds=90))


def test_every_change_applies_from_the_next_product_on(path: Path) -> None:
    with Queue.open(path) as queue, Arena(path, path.parent / "ledgers", random_seed()) as arena:
        station = queue.station("s", "a", **UNLIMITED)
        waiting = arena.start(consume, "s", 10)
        until(lambda: waiting.notes("attached"), "the consumer is attached")
        wanted = set()
        for number in range(200):
            selected = "ab"[number % 2]
            station.change(selection=selected)
            wanted |= {queue.put(b"", feed=feed) for feed in "ab" if feed == selected}
            queue.put(b"", feed="ba"[number % 2])
            time.sleep(0.002 * arena.chance.random())
        arena.finish("s")
        arena.judge(queue, wanted, "s")


def test_a_consumer_that_wakes_during_a_change_uses_the_new_terms(path: Path) -> None:
    def change_slowly(folder: Path, path: Path, ledger: Ledger, seed: int) -> None:
        update = Stations._update_chain

        def update_and_linger(self: Stations, *arguments: Any) -> None:
            update(self, *arguments)
            time.sleep(0.3)

        Stations._update_chain = update_and_linger  # type: ignore[method-assign]
        with Queue.open(path) as queue:
            queue.station("s").change(selection="g")

    with Queue.open(path) as queue, Arena(path, path.parent / "ledgers", random_seed()) as arena:
        queue.station("s", "f", **UNLIMITED)
        waiting = arena.start(consume, "s", 1)
        until(lambda: waiting.notes("attached"), "the consumer is attached")
        assert arena.run(change_slowly).process.exitcode == 0
        queue.put(b"", feed="f")
        wanted = queue.put(b"", feed="g")
        until(lambda: waiting.sequences("done") != [], "the consumer gets a product")
        assert waiting.sequences("done") == [wanted]

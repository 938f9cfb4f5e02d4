"""Processes that create, change and remove stations are killed at every step: a change applies everywhere, or nowhere."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from arena_stations import FORK, UNLIMITED, Arena, Ledger, checked_queue, consume, produce, sequences_of

from headrace import Queue
from headrace.errors import StationError, StationMissingError
from headrace.station import chain as chain_module
from headrace.station import stations as stations_module
from headrace.station.document import StationLines
from headrace.station.stations import Stations
from support.seeds import random_seed
from support.waiting import until


@pytest.fixture
def path(shared_memory: Path) -> Iterator[Path]:
    with checked_queue(shared_memory / "q") as path:
        yield path


# --- a kill at each step of a change --------------------------------------------------------------


def create(queue: Queue) -> None:
    queue.station("new", "**", start="oldest")


def create_behind(queue: Queue) -> None:
    queue.station("new", "**", after="b")


def change_selection(queue: Queue) -> None:
    queue.station("b").change(selection="g")


def pause_and_resume(queue: Queue) -> None:
    queue.station("b").pause()
    queue.station("b").resume()


def remove_middle(queue: Queue) -> None:
    with suppress(StationMissingError):
        queue.station("b", create=False).remove()


def remove_blocking(queue: Queue) -> None:
    with suppress(StationMissingError):
        queue.station("full", create=False).remove()


def seek(queue: Queue) -> None:
    queue.station("a").seek("oldest")


CHANGE = ("save_stations", "set_member", "note_terms", "updated", "change")
STEPS: dict[Callable[[Queue], None], tuple[str, ...]] = {
    create: ("make_chain", *CHANGE),
    create_behind: CHANGE,
    change_selection: CHANGE,
    pause_and_resume: CHANGE,
    remove_middle: (*CHANGE, "remove_member"),
    remove_blocking: ("save_stations", "remove_member", "note_terms", "updated", "change"),
    seek: ("seek",),
}
DEATHS = [
    pytest.param(act, step, moment, id=f"{act.__name__}-{moment}-{step}")
    for act, steps in STEPS.items()
    for step in steps
    for moment in ("before", "after")
]


def die_at(step: str, moment: str) -> None:
    """Make this process kill itself before or after the first pass of a step."""

    def deadly(plain: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **more: Any) -> Any:
            if moment == "after":
                plain(*arguments, **more)
            os.kill(os.getpid(), signal.SIGKILL)

        return run

    if step == "save_stations":
        StationLines.save = deadly(StationLines.save)  # type: ignore[method-assign]
    elif step in ("make_chain", "updated", "change"):
        name = {"make_chain": "_make_chain", "updated": "_update_chain", "change": "change"}[step]
        setattr(Stations, name, deadly(getattr(Stations, name)))
    else:

        class DeadlyChain:
            def __init__(self, kernel_chain: Any) -> None:
                self.plain = kernel_chain

            def __getattr__(self, name: str) -> Any:
                found = getattr(self.plain, name)
                return deadly(found) if name == step else found

        class DeadlyOpenChain(chain_module.OpenChain):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                self.kernel = DeadlyChain(self.kernel)  # type: ignore[assignment]

        stations_module.OpenChain = DeadlyOpenChain  # type: ignore[misc]


def terms_of(queue: Queue) -> dict[str, Any]:
    return {name: queue.station(name).terms for name in queue.stations()}


def get_all(queue: Queue, station: str) -> list[int]:
    with queue.station(station).attach() as consumer:
        found = []
        while len(batch := consumer.get(100, 0.0)):
            found += batch.sequences.tolist()
            consumer.ack(batch)
        return found


@pytest.mark.parametrize(("act", "step", "moment"), DEATHS)
def test_a_change_is_complete_or_absent_after_a_kill_and_can_be_repeated(
    path: Path, act: Callable[[Queue], None], step: str, moment: str
) -> None:
    witness = Queue.open(path)
    for name, more in (("a", {}), ("b", {"after": "a"}), ("c", {"after": "b"})):
        witness.station(name, "**", **more)
    witness.station("full", "f", blocking=True, capacity=10)
    early = [witness.put(b"", feed="f") for _ in range(10)]
    assert get_all(witness, "a") == early  # they wait at b, and at the full station

    def act_and_die() -> None:
        with Queue.open(path) as queue:
            die_at(step, moment)
            act(queue)

    worker = FORK.Process(target=act_and_die)
    worker.start()
    worker.join(240)
    assert worker.exitcode == -signal.SIGKILL, "the step was not reached"

    with Queue.open(path) as fresh:
        assert terms_of(fresh) == terms_of(witness)
        act(fresh)
        assert terms_of(fresh) == terms_of(witness)
        late = [fresh.put(b"", feed="g", timeout=0) for _ in range(3)]
        if act is remove_blocking:
            late += [fresh.put(b"", feed="f", timeout=60)]
        judge_flow(fresh, act, early, late)
        assert fresh.check() == []
    witness.close()


def judge_flow(queue: Queue, act: Callable[[Queue], None], early: list[int], late: list[int]) -> None:
    """Every station gets its products: `early` wait at b, `late` at a. A seek drops what waits, and starts again."""
    assert get_all(queue, "a") == (early + late if act is seek else late)
    if act is not remove_middle:
        assert get_all(queue, "b") == early + late
    if act is create_behind:
        assert get_all(queue, "new") == late
    assert get_all(queue, "c") == early + late
    if act is create:
        assert get_all(queue, "new") == early + late
    if act is not remove_blocking:
        assert get_all(queue, "full") == early


# --- a kill at any moment -------------------------------------------------------------------------


def administrate(folder: Path, path: Path, ledger: Ledger, seed: int, names: tuple[str, ...]) -> None:
    """Create, change and remove stations, in chains of their own and behind "s", over and over."""
    chance = random.Random(seed)
    with Queue.open(path) as queue:
        while not (folder / "stop").exists():
            name = chance.choice(names)
            with suppress(StationError):  # another process was faster
                after = {"after": "s"} if name.startswith("behind") else {}
                station = queue.station(name, "f/**", **after)
                station.change(selection=chance.choice(["f/**", "f/1", "**"]), capacity=chance.choice([None, 10]))
                station.pause()
                station.resume()
                if not after:
                    station.seek(chance.choice(["oldest", "next"]))
                if chance.random() < 0.5:
                    station.remove()
            ledger.note("round")


def administration(path: Path, seed: int, kills: int, names: tuple[str, ...]) -> str:
    """Kill administrators at random; station "s" is not affected, and the others work in the end."""
    with Queue.open(path) as queue:
        queue.station("s", "f/**", **UNLIMITED)
    with Arena(path, path.parent / "ledgers", seed) as arena:
        for _ in range(2):
            arena.start(consume, "s", 20)
            arena.start(administrate, names)
        arena.start(produce, ("f/1", "f/2", "other"), 0.005)
        for _ in range(kills):
            time.sleep(arena.chance.uniform(0.005, 0.06))
            arena.kill_one(administrate)
            assert arena.complaints() == []
        arena.end("stop", administrate)
        arena.finish("s")
        rounds = sum(len(actor.notes("round")) for actor in arena.actors)
        with Queue.open(path) as queue:
            assert queue.check() == []
            arena.judge(queue, sequences_of(queue, "f/**"), "s")
            left = queue.stations()
            for name in left:
                queue.station(name).resume()  # the process that paused it may have been killed
                get_all(queue, name)
                assert queue.station(name).statistics().waiting == 0
                if name != "s":
                    queue.station(name).remove()
            assert queue.stations() == ["s"]
            assert [file.name for file in (path / "stations").iterdir()] == ["1.chain"]
    return f"{arena.kills()} kills, {rounds} rounds of administration, stations left: {', '.join(left)}"


OWN, BEHIND = ("own 1", "own 2", "own 3"), ("behind 1", "behind 2")


@pytest.mark.parametrize("names", [OWN, BEHIND], ids=["chains of their own", "behind the station"])
def test_administrators_may_be_killed_at_any_moment(path: Path, names: tuple[str, ...]) -> None:
    print(administration(path, random_seed(), 10, names))


@pytest.mark.soak
@pytest.mark.parametrize("names", [OWN, BEHIND], ids=["chains of their own", "behind the station"])
def test_administrators_may_be_killed_at_any_moment_hundreds_of_times(path: Path, names: tuple[str, ...]) -> None:
    print(administration(path, random_seed(), 400, names))


def test_puts_never_fail_while_stations_are_created_and_removed(path: Path) -> None:
    """No process is killed here."""
    with Arena(path, path.parent / "ledgers", random_seed()) as arena:
        administrators = [arena.start(administrate, OWN) for _ in range(3)]
        producers = [arena.start(produce, ("f/1",), 0.0) for _ in range(2)]
        until(lambda: all(len(actor.notes("round")) >= 20 for actor in administrators), "stations come and go")
        until(lambda: all(len(actor.notes("f/1")) >= 20 for actor in producers), "products are put")
        arena.end("stop", administrate)
        arena.end("stop", produce)


# --- a kill while the first process opens the queue ------------------------------------------------


@pytest.mark.parametrize("durability", ["memory", "process"])
def test_a_kill_during_the_recovery_of_stations_brings_nothing_back(shared_memory: Path, durability: str) -> None:
    path = shared_memory / "other"

    def work_and_die() -> None:
        queue = Queue.create(path, size="16MiB", durability=durability, origin="here")
        station = queue.station("s", "**")
        queue.put_many([b"%d" % n for n in range(10)], feed="f")
        with station.attach() as consumer:
            consumer.ack(consumer.get(10, 5.0))
        os.kill(os.getpid(), signal.SIGKILL)

    def open_and_die() -> None:
        def die(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        Stations.settle_chain = die  # type: ignore[assignment,method-assign]
        Queue.open(path)

    for target in (work_and_die, open_and_die):
        worker = FORK.Process(target=target)
        worker.start()
        worker.join(240)
        assert worker.exitcode == -signal.SIGKILL
    with Queue.open(path) as queue:
        assert get_all(queue, "s") == []
        assert queue.check() == []


def test_a_seek_back_survives_the_death_of_its_process(path: Path) -> None:
    """The process holds the hundredth product, seeks to the oldest, and dies."""

    def hold_and_die() -> None:
        queue = Queue.open(path)
        consumer = queue.station("s").attach()
        consumer.ack(consumer.get(99, 5.0))
        assert len(consumer.get(1, 5.0)) == 1
        assert queue.station("s").seek("oldest") == 1
        os.kill(os.getpid(), signal.SIGKILL)

    with Queue.open(path) as queue:
        queue.station("s", "**", **UNLIMITED)
        queue.put_many([b""] * 200, feed="f")
    worker = FORK.Process(target=hold_and_die)
    worker.start()
    worker.join(240)
    assert worker.exitcode == -signal.SIGKILL
    with Queue.open(path) as queue:
        assert set(get_all(queue, "s")) == set(range(1, 201))

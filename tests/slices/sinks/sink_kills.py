"""Nodes that are killed, stopped and replaced while they store, for the tests of sinks.

    python sink_kills.py everywhere KIND FOLDER        a node dies before each of its steps, in turn
    python sink_kills.py random KIND FOLDER SEED       two nodes at a time; they die or are stopped at random moments

Nodes are forks of this process. The stream is made up: slice `s` of SLICES has the sequences s + 1, s + 1 + SLICES, …
Whatever happens, each of them must be in the sink once in the end, in the order of its slice.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sink_bench import create, marks, open_sink, results, stored

from headrace.errors import SinkFencedError
from headrace.kernel import _kernel as kernel
from headrace.slices.sinks import Sink

SLICES, PARTS = 6, 2  # two results of each product
END = 121 if sys.argv[1] == "everywhere" else 120 * int(sys.argv[5]) + 1  # sequences are 1 … END - 1
GROUP = "b2f0"
STEPS_MAX = 4000
EVENTS = {"open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "sqlite3.connect"}
QUEUE_POINTS = [point for point in kernel.FAILPOINTS if point.startswith("append:")]


def sequences(slice_: int, begin: int) -> list[int]:
    return [n for n in range(slice_ + 1, END, SLICES) if n >= begin]


def work(kind: str, sink: Sink, owned: dict[int, int], chance: random.Random) -> None:
    """What a node does: claim, then store stretch after stretch, of some slices at a time."""
    begins = sink.claim(GROUP, marks(*((number, epoch, 1) for number, epoch in owned.items()))).tolist()
    positions = dict(zip(owned, begins, strict=True))
    while left := [number for number in owned if positions[number] < END]:
        chosen = chance.sample(left, chance.randint(1, len(left)))
        made = []
        for number in chosen:
            stretch = sequences(number, positions[number])[: chance.randint(1, 6)]
            made += results(kind, number, stretch, PARTS)
            positions[number] = stretch[-1] + 1 if sequences(number, stretch[-1] + 1) else END
        sink.store(GROUP, made, marks(*((number, owned[number], positions[number]) for number in chosen)))


def forked(act: Callable[[], object]) -> int:
    """Run it in a child, which exits with 0, 3 if it was fenced, or 9 after another error."""
    child = os.fork()
    if child:
        return child
    code = 9
    try:
        act()
        code = 0
    except SinkFencedError:
        code = 3
    except BaseException as error:  # noqa: BLE001 - a child must not return into the code of its parent
        print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(code)


def judge(kind: str, folder: Path) -> None:
    """Each result once; in the order of its slice, if the sink has a fence."""
    found = stored(kind, folder)
    for slice_ in range(SLICES):
        expected = [(slice_, n, part) for n in sequences(slice_, 0) for part in range(PARTS)]
        got = [each for each in found if each[0] == slice_]
        got = sorted(got) if kind == "queue" else got
        if got != expected:
            twice = {each for each in got if got.count(each) > 1}
            sys.exit(f"slice {slice_}: missing {sorted(set(expected) - set(got))}, twice {sorted(twice)}")
    if len(found) != (END - 1) * PARTS:
        sys.exit(f"{len(found)} results")


# --- before each step -------------------------------------------------------------------------------


def lighted(kind: str, sink_made: Callable[[], Sink], step: int) -> Callable[[], Sink]:
    """A sink whose process dies before the given step: of the file system, of the database, or of the log."""
    left = step

    def burn(*_: Any) -> int:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def make() -> Sink:
        if kind == "queue":
            kernel.arm_failpoint(QUEUE_POINTS[step % len(QUEUE_POINTS)], 1 + step // len(QUEUE_POINTS) * 5)
            return sink_made()
        sys.addaudithook(lambda event, args: burn() if event in EVENTS else None)
        sink = sink_made()
        if kind == "sqlite":
            sink._database.set_progress_handler(burn, 3)  # type: ignore[attr-defined]
        return sink

    return make


def steps(kind: str) -> Iterator[int]:
    """Every step at first, then every tenth: later ones are the same again."""
    yield from range(1, 60)
    yield from range(60, STEPS_MAX, 37 if kind == "sqlite" else 11)


def everywhere(kind: str, folder: Path) -> str:
    """In each round a node begins with what is there, and dies a little later than the one before."""
    rounds = deaths = 0
    for step in steps(kind):
        place = folder / str(step)
        place.mkdir()
        create(kind, place)
        make = lighted(kind, lambda place=place: open_sink(kind, place), step)
        chance = random.Random(step)
        _, status = os.waitpid(forked(lambda make=make, chance=chance: work(kind, make(), owned(1), chance)), 0)
        rounds, died = rounds + 1, os.WIFSIGNALED(status)
        deaths += died
        if not died and os.waitstatus_to_exitcode(status) != 0:
            sys.exit(f"step {step}: status {status}")
        work(kind, open_sink(kind, place), owned(2), random.Random(-step))
        judge(kind, place)
        if not died:
            break
    return f"{rounds} rounds, {deaths} deaths"


def owned(epoch: int) -> dict[int, int]:
    return dict.fromkeys(range(SLICES), epoch)


# --- at random moments ------------------------------------------------------------------------------


def at_random(kind: str, folder: Path, seed: int, rounds: int) -> str:
    """Slices move between two nodes; nodes die at any instruction, or are stopped and go on after their time."""
    chance, outcomes, stopped = random.Random(seed), dict[str, int](), list[int]()
    create(kind, folder)
    for epoch in range(1, rounds + 1):
        numbers = chance.sample(range(SLICES), SLICES)
        nodes = []
        for share in (numbers[: SLICES // 2], numbers[SLICES // 2 :]):
            pace = random.Random(chance.random())
            nodes.append(forked(lambda share=share, pace=pace, epoch=epoch: slowly(kind, folder, share, epoch, pace)))
        time.sleep(chance.uniform(0.0, 0.06))
        resume(stopped, outcomes)
        stopped = []
        for node in nodes:
            time.sleep(chance.uniform(0.0, 0.02))
            if chance.random() < 0.5:
                os.kill(node, signal.SIGSTOP)
                stopped.append(node)
            else:
                os.kill(node, signal.SIGKILL)
                outcome(node, outcomes)
    resume(stopped, outcomes)
    work(kind, open_sink(kind, folder), owned(rounds + 1), chance)
    judge(kind, folder)
    return " ".join(f"{name} {count}" for name, count in sorted(outcomes.items()))


def resume(stopped: list[int], outcomes: dict[str, int]) -> None:
    """Let stopped nodes go on: others have claimed their slices meanwhile, or are about to."""
    for node in stopped:
        os.kill(node, signal.SIGCONT)
    for node in stopped:
        outcome(node, outcomes)


def slowly(kind: str, folder: Path, share: list[int], epoch: int, pace: random.Random) -> None:
    """A node that takes its time, so that it is seldom done before something happens to it."""
    work(kind, _Slow(open_sink(kind, folder), pace), dict.fromkeys(share, epoch), pace)


class _Slow:
    """A sink that pauses before each store."""

    def __init__(self, sink: Sink, pace: random.Random) -> None:
        self.claim, self.statistics, self.close = sink.claim, sink.statistics, sink.close
        self._sink, self._pace = sink, pace

    def store(self, *arguments: Any) -> None:
        time.sleep(self._pace.uniform(0.0, 0.004))
        self._sink.store(*arguments)


def outcome(child: int, outcomes: dict[str, int]) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    name = {0: "done", 3: "fenced"}.get(code, "killed" if code < 0 else "failed")
    outcomes[name] = outcomes.get(name, 0) + 1
    if name == "failed":
        sys.exit("a node failed")


if __name__ == "__main__":
    how, kind, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if how == "everywhere":
        print(everywhere(kind, folder))
    else:
        print(at_random(kind, folder, int(sys.argv[4]), int(sys.argv[5])))

"""The balancer on the files of a queue: threads and processes, one of which is killed."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace import Queue
from headrace.errors import OptionError, SeatLostError
from headrace.share.interface import NOBODY, AnySeat, Marks, Progress
from headrace.slices.balancer import Balancer
from support.nodes import silence
from support.waiting import until

SLICES = 32


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    made = make_quick()
    made.channel("radar", "wx/**", slices=SLICES)
    return made


class Node:
    """A node without work: it holds, releases and reports, in a thread."""

    def __init__(self, seat: AnySeat) -> None:
        self.seat, self.held = seat, 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        seen, progress = 0, Progress()
        while not self._ending.is_set():
            try:
                answer = self.seat.exchange(progress)
            except SeatLostError:
                return
            seen, progress = answer.version, Progress(answer.version)
            if answer.holding is not None:
                held = answer.holding
                self.held = len(held.slices)
                marks = Marks(held.slices, held.epochs, held.positions).where(held.leaving)
                progress = Progress(seen, release=marks)
                if len(marks.slices):
                    continue
            self.seat.wait(seen, 0.1)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


@pytest.fixture
def join(queue: Queue) -> Iterator[Callable[[str], Node]]:
    made: list[Node] = []

    def join(name: str) -> Node:
        made.append(Node(queue.share("radar", dead_after="1h").join(name)))
        return made[-1]

    yield join
    for node in made:
        node.end()


def test_a_balancer_in_a_thread_spreads_slices_and_moves_those_of_a_dead_node(
    queue: Queue, join: Callable[[str], Node]
) -> None:
    first, second = join("first"), join("second")
    with Balancer(queue, "radar") as balancer:
        until(lambda: first.held + second.held == SLICES)
        assert balancer.is_leader
        third = join("third")
        until(lambda: third.held > 0 and first.held + second.held + third.held == SLICES)
        second.end()
        silence(queue.share("radar"), second.seat.number)
        until(lambda: first.held + third.held == SLICES)
        assert balancer.statistics().seized == 1
    assert not balancer.is_leader
    assert queue.share("radar").state().counters["deaths"] == 1


def test_a_standby_leads_when_the_process_of_the_balancer_is_killed(
    queue: Queue, join: Callable[[str], Node], tmp_path: Path
) -> None:
    program = (
        "import sys; from headrace.slices.balancer import Balancer; Balancer(sys.argv[1], 'radar', name='killed').run()"
    )
    first = join("first")
    process = subprocess.Popen([sys.executable, "-c", program, str(queue.path)])
    try:
        until(lambda: first.held == SLICES)
        until(lambda: queue.share("radar").state().leader.startswith("killed"))
        with Balancer(str(queue.path), "radar", name="standby") as standby:
            assert not standby.is_leader
            process.kill()
            process.wait()
            second = join("second")
            until(lambda: second.held > 0 and first.held + second.held == SLICES)
            until(lambda: standby.is_leader and queue.share("radar").state().leader.startswith("standby"))
    finally:
        process.kill()
        process.wait()
    assert not np.any(queue.share("radar").state().owners == NOBODY)


def test_options_of_a_balancer_are_checked(queue: Queue) -> None:
    for wrong in ({"algorithm": "best"}, {"algorithm": 3}, {"patience": "0s"}, {"lease": "2h"}):
        with pytest.raises(OptionError):
            Balancer(queue, "radar", **wrong)
    with pytest.raises(OptionError, match="stream"):
        Balancer(queue)

"""Processing nodes as processes that are killed, also in the middle of any change of their table, stopped and cut off.

    python node_chaos.py local|remote FOLDER SEED FAULTS
    python node_chaos.py deadly FOLDER SEED 0                  one product ends every node that works on it

Nodes, site and link are forks of this process, and every node stands by as the balancer. Each line of the log is one
attempt. In the end every product was worked on and is confirmed, in the order of its slice, and no work of a node that
was never harmed was repeated. A node that a busy machine has kept from its heartbeats counts as harmed, too.
"""

import os
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import headrace
from headrace import Queue
from headrace.link.session import SessionTerms, open_session
from headrace.share import attempts, ownership
from headrace.share.interface import Slices
from headrace.share.sessions import Moment
from headrace.site.site import Site
from headrace.slices import ProcessingNode
from support.fleet import free_port
from support.serving import Wire

SLICES, NODES = 12, 3
DEAD_AFTER_S = 0.6
LIMIT_S = 150.0  # a safety net
STEPS = 4000  # lines of the code that changes tables: an armed node dies after one of so many


class Attempt(NamedTuple):
    time_ns: int
    slice: int
    sequence: int
    pid: int


def forked(act: Callable[[], object]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        act()
    except KeyboardInterrupt:
        os._exit(0)
    finally:
        os._exit(9)


def die_after(lines: int) -> None:
    """Kill this process when any of its threads has executed so many lines of the code that changes tables."""
    left = [lines]

    def count(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return count

    files = (attempts.__file__, ownership.__file__)
    threading.settrace(lambda frame, *_: count if frame.f_code.co_filename in files else None)


def note_deaths(file: Path) -> None:
    """In this process and its forks: note the process of each node before its slices are taken."""
    seize = ownership.Ownership.seize

    def noting(own: ownership.Ownership, term: int, seat: int, now: Moment, head: int) -> Slices:
        if not own.is_alive(seat, now):
            with file.open("a") as deaths:
                deaths.write(f"{int(own.table.seats[seat]['pid'])}\n")
        return seize(own, term, seat, now, head)

    ownership.Ownership.seize = noting  # type: ignore[method-assign]


class Chaos:
    def __init__(self, how: str, folder: Path, seed: int) -> None:
        self.how, self.folder, self.chance = how, folder, random.Random(seed)
        note_deaths(folder / "deaths")
        self.queue = Queue.create(folder / "in", size="32MiB", durability="memory", origin="there")
        self.queue.channel("s", "x", slices=SLICES)
        self.share = self.queue.share("s", dead_after=DEAD_AFTER_S, tries_max=2)
        self.endpoint, self.wire, self.site = str(folder / "in"), 0, 0
        if how == "remote":
            port = self._listen()
            self.endpoint = f"tcp/127.0.0.1:{port}?site=there"
        self.put, self.harmed = 0, set[int]()
        self.nodes: list[int] = []
        self.positions = self.share.state().positions

    # --- processes --------------------------------------------------------------------------------

    def _listen(self) -> int:
        """Start the link; the port by which nodes reach the site."""
        self.site_port = free_port()
        self.serve()
        told, tell = os.pipe()

        def carry() -> None:
            wire = Wire(f"tcp/127.0.0.1:{self.site_port}")
            signal.signal(signal.SIGUSR1, lambda *_: wire.cut())
            signal.signal(signal.SIGUSR2, lambda *_: wire.restore())
            os.write(tell, wire.endpoint.rpartition(":")[2].encode())
            while True:
                signal.pause()

        self.wire = forked(carry)
        return int(os.read(told, 10))

    def serve(self) -> None:
        def run() -> None:
            session = open_session(SessionTerms("router", listen=(f"tcp/127.0.0.1:{self.site_port}",)))
            with Queue.open(self.folder / "in") as queue:
                Site(session, queue, [])
                signal.pause()

        self.site = forked(run)

    def spawn(self, is_armed: bool = False) -> None:
        lines = self.chance.randrange(1, STEPS)

        def run() -> None:
            log = os.open(self.folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            if is_armed:
                die_after(lines)

            def work(product: Any) -> None:
                os.write(log, b"%d %d %d %d\n" % (time.monotonic_ns(), product.slice, product.sequence, os.getpid()))
                if bytes(product.payload[:6]) == b"deadly":
                    os._exit(9)
                time.sleep(0.0002)

            ProcessingNode(headrace.connect(self.endpoint), "s", work, retry="20ms").run()

        pid = forked(run)
        self.nodes.append(pid)
        if is_armed:
            self.harmed.add(pid)

    def replace_dead(self) -> None:
        for pid in list(self.nodes):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.nodes.remove(pid)
                if status:
                    self.harmed.add(pid)
        while len(self.nodes) < NODES:
            self.spawn(is_armed=self.how == "local" and self.chance.random() < 0.5)

    # --- faults -----------------------------------------------------------------------------------

    def fault(self) -> str:
        victim = self.chance.choice(self.nodes)
        choices = {"local": "kill stop brief leave join", "remote": "kill stop leave cut site"}
        what = self.chance.choice(choices[self.how].split())
        if what in ("kill", "stop"):
            self.harmed.add(victim)
        if what == "kill":
            os.kill(victim, signal.SIGKILL)
        elif what == "leave":
            os.kill(victim, signal.SIGINT)
        elif what == "join" and len(self.nodes) < 5:
            self.spawn()
        elif what in ("stop", "brief"):
            os.kill(victim, signal.SIGSTOP)
            time.sleep(self.chance.uniform(1.2, 2.0) * DEAD_AFTER_S if what == "stop" else 0.05)
            os.kill(victim, signal.SIGCONT)
        elif what == "cut":
            os.kill(self.wire, signal.SIGUSR1)
            time.sleep(self.chance.uniform(0.1, 2 * DEAD_AFTER_S))
            os.kill(self.wire, signal.SIGUSR2)
        elif what == "site":
            os.kill(self.site, signal.SIGKILL)
            os.waitpid(self.site, 0)
            time.sleep(self.chance.uniform(0, DEAD_AFTER_S))
            self.serve()
        return what

    def fill(self, count: int, deadly: int | None = None) -> None:
        payloads = [b"deadly" if n == deadly else b"x" for n in range(count)]
        self.queue.put_many(payloads, feed="x", ident=[f"i{self.put + n}" for n in range(count)])
        self.put += count

    def look(self) -> bool:
        """Whether all is confirmed; positions only grow."""
        positions = self.share.state().positions
        assert (positions >= self.positions).all(), "a position went back"
        self.positions = positions
        return bool((positions >= self.queue.next).all())

    def wait(self) -> None:
        end_s = time.monotonic() + LIMIT_S
        while not self.look():
            self.replace_dead()
            if time.monotonic() > end_s:
                state = self.share.state()
                raise AssertionError(f"not confirmed: {state.positions}, {state.owners}, {state.nodes}, {state.leader}")
            time.sleep(0.02)

    def end(self) -> None:
        for pid in (*self.nodes, self.site, self.wire):
            if pid:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    # --- the oracle -------------------------------------------------------------------------------

    def check(self, but: frozenset[int] = frozenset()) -> str:
        attempts = sorted(Attempt(*map(int, line.split())) for line in (self.folder / "log").read_text().splitlines())
        by_product: dict[int, list[Attempt]] = defaultdict(list)
        for each in attempts:
            by_product[each.sequence].append(each)
        lost = set(range(1, self.put + 1)) - set(by_product)
        assert not lost, f"lost {sorted(lost)[:20]}"
        last: dict[int, int] = defaultdict(int)
        for sequence, tries in sorted(by_product.items(), key=lambda item: item[1][0]):  # by the first attempt
            assert sequence > last[tries[0].slice], f"slice {tries[0].slice}: {sequence} after {last[tries[0].slice]}"
            last[tries[0].slice] = sequence
        repeated = [tries for tries in by_product.values() if len(tries) > 1]
        counters = self.share.state().counters
        if self.how == "local":
            deaths = self.folder / "deaths"
            harmed = self.harmed | set(map(int, deaths.read_text().split() if deaths.exists() else ()))
            wrong = [each for tries in repeated for each in tries[:-1] if each.pid not in harmed]
            assert not wrong, f"work of healthy nodes was repeated: {wrong[:5]}"
        parked = [(each.sequence, each.error) for each in self.share.parked()]
        assert {sequence for sequence, _ in parked} == but, parked
        assert self.queue.check() == []
        return f"{self.put} products, {len(repeated)} repeated, {len(self.harmed)} nodes harmed, {counters}"


def main(how: str, folder: Path, seed: int, faults: int) -> None:
    chaos = Chaos(how, folder, seed)
    try:
        if how == "deadly":
            chaos.fill(3000, deadly=2000)
        chaos.replace_dead()
        done = []
        for _ in range(faults):
            chaos.fill(chaos.chance.randint(1, 1500))
            time.sleep(chaos.chance.uniform(0.05, 0.5))
            chaos.look()
            chaos.replace_dead()
            done.append(chaos.fault())
        chaos.wait()
    finally:
        chaos.end()
    print(" ".join(done))
    print(chaos.check(but=frozenset([2001] if how == "deadly" else [])))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))

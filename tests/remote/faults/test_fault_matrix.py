"""Every kind of remote call, under every fault: site killed, link cut, frozen and slow, client killed, clock wrong.

A site and a client are processes of their own, with a link between them that the test controls. The client makes every
kind of call at the same time (support/faulty_client.py), and keeps ledgers. When the faults are over, the ledgers are
compared with the queue: nothing is lost, nothing is stored or acknowledged twice, and nothing has expired, though the
clock of the client is wrong by an hour. The queue recognises no duplicates (`dedup="none"`), which is the hardest case.

How much later than their timeout calls ended is printed, and judged only in the long form (`make soak`).
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace import Queue
from support import faulty_client
from support.daemon import Daemon
from support.fleet import free_port
from support.seeds import random_seed
from support.serving import Wire
from support.waiting import until

FAULTS = (
    "site killed", "link cut", "link frozen", "link slow", "replies lost with the site", "client killed", "site stopped",
)  # fmt: skip
KINDS = ("put", "putmany", "push", "pushmany", "pull")
HOUR = 3600.0

Account = dict[str, dict[str, list[str]]]  # by kind and word: the names, in their order


def whole_lines(ledger: Path) -> list[str]:
    """The lines of a ledger; a line that is being written is left out."""
    return ledger.read_text().rpartition("\n")[0].splitlines()


class Scene:
    """A site, a link and a client; faults befall them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledgers = folder, folder / "ledgers"
        self.ledgers.mkdir()
        self.queue = Queue.create(folder / "q", size="64MiB", durability="memory", dedup="none", origin="site")
        self.queue.channel("pushed", "m/push")
        self.queue.channel("pulled", "m/pull")
        self.queue.station("all", "m/**", start="oldest", deliveries_max=0)
        self.queue.station("few", "m/**", start="oldest", capacity=20, discard="fifo")
        self.queue.station("brief", "m/**", start="oldest", timeout="1s")
        endpoint = f"tcp/127.0.0.1:{free_port()}"
        self.file = folder / "site.toml"
        self.file.write_text(f'[site]\nqueue = "q"\nlisten = ["{endpoint}"]\n')
        self.runs = 0
        self.start_site()
        self.wire = Wire(endpoint)
        self.start_client()

    def start_site(self) -> None:
        self.site = Daemon(self.file)
        self.site.wait_until_ready()

    def start_client(self) -> None:
        """Its clock is an hour ahead, or behind."""
        self.runs += 1
        clock_s = HOUR if self.runs % 2 else -HOUR
        program = [sys.executable, faulty_client.__file__, self.wire.endpoint, str(self.ledgers), str(self.runs)]
        with (self.folder / f"client.{self.runs}.log").open("wb") as log:
            self.client = subprocess.Popen([*program, str(clock_s)], stderr=log, stdout=log)

    def befall(self, fault: str, seconds: float) -> None:
        """Let the fault last for a while, and end it."""
        if fault in ("site killed", "site stopped"):
            if fault == "site stopped":
                self.site.stop()
            self.site.kill()
            time.sleep(seconds)
            self.start_site()
        elif fault == "replies lost with the site":  # it executes calls, and dies before it can say so
            self.wire.mute()
            time.sleep(seconds)
            self.site.kill()
            self.wire.cut()
            self.wire.unmute()
            self.wire.restore()
            self.start_site()
        elif fault == "client killed":
            self.client.kill()
            self.client.wait(240)
            self.start_client()
        elif fault == "link cut":
            self.wire.cut()
            time.sleep(seconds)
            self.wire.restore()
        elif fault == "link frozen":
            self.wire.freeze()
            time.sleep(seconds)
            self.wire.thaw()
        else:
            self.wire.rate = 3000
            time.sleep(2 * seconds)
            self.wire.rate = None

    # --- ledgers ----------------------------------------------------------------------------------

    def account(self) -> Account:
        found: Account = defaultdict(lambda: defaultdict(list))
        for path in sorted(self.ledgers.glob("*.*")):
            for line in whole_lines(path):
                word, _, name = line.partition(" ")
                found[path.stem][word].append(name)
        return found

    def wait_for_progress(self) -> None:
        """Until every kind of call has succeeded some more times."""

        def done() -> list[int]:
            account = self.account()
            crashes = [why for words in account.values() for why in words["crash"]]
            assert not crashes, crashes
            acked = len(account["get"]["acked"]) + len(account["get2"]["acked"])
            return [*(len(account[kind]["done"]) for kind in KINDS), acked]

        before = done()
        until(lambda: all(now >= then + 3 for now, then in zip(done(), before, strict=True)), lambda: (before, done()))

    # --- the end ----------------------------------------------------------------------------------

    def finish(self) -> Account:
        """Let the client end, after everything was consumed."""
        (self.ledgers / "stop").touch()
        station = self.queue.station("all")

        def is_drained() -> bool:
            account = self.account()
            told = station.statistics()
            ended = all(set(account[kind]["begin"]) <= self.settled(account, kind) for kind in KINDS)
            followed = sum(line.startswith("got ") for line in whole_lines(self.latest("follow")))
            return ended and followed == self.queue.next - 1 and not (told.waiting or told.leased or told.behind)

        until(is_drained, lambda: station.statistics())
        (self.ledgers / "end").touch()
        assert self.client.wait(240) == 0
        return self.account()

    def latest(self, kind: str) -> Path:
        """The ledger of the client that runs now."""
        return self.ledgers / f"{kind}.{self.runs}"

    def settled(self, account: Account, kind: str) -> set[str]:
        """Products whose put has returned, or whose client was killed."""
        killed = {name for name in account[kind]["begin"] if int(name.split(".")[1]) < self.runs}
        return set(account[kind]["done"]) | killed


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    made = Scene(folder)
    try:
        yield made
    finally:
        made.wire.close()
        made.client.kill()
        made.client.wait(240)
        made.site.kill()
        assert made.queue.check() == []
        made.queue.close()


def judge(made: Scene, account: Account) -> None:
    """Compare what the client knows with what the queue holds, and with what its station counts."""
    stored = Counter(bytes(product.payload).decode() for product in made.queue.read())
    begun = {name for kind in KINDS for name in account[kind]["begin"]}
    done = {name for kind in KINDS for name in account[kind]["done"]}
    assert {name: count for name, count in stored.items() if count > 1} == {}, "stored twice"
    assert done - set(stored) == set(), "lost"
    assert set(stored) - begun == set(), "never put"
    acked = Counter(name for kind in ("get", "get2") for name in account[kind]["acked"])
    unsure = {name for kind in ("get", "get2") for name in account[kind]["unsure"]}
    in_hand = {name for kind in ("get", "get2") for name in account[kind]["got"]}  # perhaps, when the client was killed
    assert {name: count for name, count in acked.items() if count > 1} == {}, "acknowledged twice"
    assert set(stored) - set(acked) - unsure - in_hand == set(), "never delivered"
    in_order = [bytes(product.payload).decode() for product in made.queue.read()]
    for path in sorted(made.ledgers.glob("follow.*"), key=lambda path: int(path.suffix[1:])):
        followed = [line.partition(" ")[2] for line in whole_lines(path) if line.startswith("got ")]
        assert followed == in_order[: len(followed)], "not followed in order"
    assert len(followed) == len(in_order), "not followed to the end"
    told = made.queue.station("all").statistics()
    assert (told.acknowledged, told.expired, told.parked, sum(told.dropped.values())) == (len(stored), 0, 0, 0)


def judge_discards(made: Scene) -> None:
    """What was dropped, and what has expired, adds up with what was put."""
    stored = made.queue.next - 1
    few = made.queue.station("few").statistics()
    assert few.waiting + sum(few.dropped.values()) == stored
    brief, got = made.queue.station("brief"), 0
    with brief.attach() as consumer:
        while (told := brief.statistics()).waiting or told.behind:
            batch = consumer.get_nowait(1000)  # may be empty: a get examines some thousands that have expired
            got += len(batch)
            consumer.ack(batch)
    assert got + brief.statistics().expired == stored
    assert brief.statistics().expired > 0


def lateness(account: Account) -> float:
    """How much later than its timeout a call ended at worst; printed by kind."""
    worst = {kind: max(map(float, words["late"]), default=0.0) for kind, words in account.items()}
    print("later than the timeout, at worst:", {kind: f"{late_s:.2f} s" for kind, late_s in sorted(worst.items())})
    return max(worst.values())


@pytest.mark.processes
def test_nothing_is_lost_or_done_twice_under_any_fault(shared_memory: Path) -> None:
    """Each fault once, with every kind of call under way."""
    with scene(shared_memory) as made:
        made.wait_for_progress()
        for fault in FAULTS:
            made.befall(fault, 0.7)
            made.wait_for_progress()
        account = made.finish()
        judge(made, account)
        judge_discards(made)
        lateness(account)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("turn", range(4))
def test_nothing_is_lost_or_done_twice_under_many_faults(shared_memory: Path, turn: int) -> None:
    """Faults in any order, of any length, also while the calls have not recovered from the one before."""
    chance = random.Random(random_seed() + turn)
    with scene(shared_memory) as made:
        made.wait_for_progress()
        for _ in range(60):
            made.befall(chance.choice(FAULTS), chance.choice((0.05, 0.3, 1.0, 4.0)))
            if chance.random() < 0.6:
                made.wait_for_progress()
        account = made.finish()
        judge(made, account)
        judge_discards(made)
        assert lateness(account) <= float(os.environ.get("HEADRACE_LATE_S", 1.0))

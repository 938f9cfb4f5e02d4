"""Nodes of a group at a site, while messages are lost, late, repeated and out of order, and the site dies.

Oracle of the last test: an owner of a slice begins exactly where the one before it was confirmed, and nothing was
confirmed for that one afterwards. So no product is skipped, and none is confirmed twice.
"""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace import Queue
from headrace.errors import HeadraceError, SeatLostError, ShareError
from headrace.remote.client.share import RemoteSeat
from headrace.remote.protocol import share_calls
from headrace.share.interface import NO_MARKS, NOBODY, AnySeat, Exchanged, Marks, Progress, Work, marks
from headrace.share.share import Share
from support.daemon import Daemon
from support.fleet import free_port
from support.lost_replies import PendingCall, lose_replies
from support.nodes import silence
from support.seeds import random_seed
from support.serving import Served, Wire
from support.waiting import until

SLICES = 8
ALL = np.arange(SLICES, dtype=np.uint32)


@pytest.fixture
def share(served: Served) -> Share:
    served.queue.channel("radar", "wx/radar", slices=SLICES)
    for number in range(20):
        served.queue.put(b"x", feed="wx/radar/kftg", ident=str(number))
    return served.queue.share("radar", dead_after="1h")


def epochs_of(exchanged: Exchanged, *slices: int) -> list[int]:
    assert exchanged.holding is not None
    return [int(epoch) for epoch in exchanged.holding.epochs[np.isin(exchanged.holding.slices, slices)]]


# --- messages ---------------------------------------------------------------------------------------


@pytest.fixture
def lose_first_replies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first reply to every call about a group is lost, and the same call comes again; the names of those calls."""
    seen: set[bytes] = set()

    def is_lost(pending: PendingCall) -> bool:
        head = bytes(str((pending.number, pending.call)), "utf-8")
        is_first = isinstance(pending.call, share_calls.ShareStruct) and head not in seen
        seen.add(head)
        return is_first

    return lose_replies(monkeypatch, is_lost)


def test_calls_whose_replies_are_lost_count_once(served: Served, share: Share, lose_first_replies: list[str]) -> None:
    remote = served.connect().share("radar")
    first, second = remote.join("n1"), remote.join("n2")
    assert [node.name for node in share.state().nodes] == ["n1", "n2"]
    assert remote.give(0, first.number, ALL, "hand") == SLICES
    epochs = epochs_of(first.exchange(Progress()), *ALL)
    one = np.array([1], np.uint64)
    work = Work(1, ALL[:1], one * 5, one * 100)
    assert first.exchange(Progress(confirm=marks(ALL, epochs, [5] * SLICES), work=work)).refused.tolist() == []
    assert (share.state().positions.tolist(), share.state().products[0]) == ([5] * SLICES, 5)
    assert remote.begin(0, first.number, second.number, ALL[:2], "hand") == 2
    assert remote.cancel(0, ALL[:1]) == 1
    first.exchange(Progress(release=marks([1], [1], [6])))
    assert [int(share.state().owners[slice_]) for slice_ in (0, 1)] == [first.number, second.number]
    assert (share.state().positions[1], share.state().epochs[1]) == (6, 2)
    assert [first.fail(2, 1, 7), first.fail(2, 1, 7)] == [1, 2]
    assert first.begin(2, 1, 7)
    assert first.park(2, 1, 7, "no")
    assert len(remote.unpark()) == 1
    remote.drain(second.number)
    second.leave()
    first.leave()
    remote.remove()
    expected = {
        "OpenShare", "JoinShare", "GiveSlices", "Exchange", "MoveSlices", "CancelMoves", "FailProduct", "BeginProduct",
        "ParkProduct", "UnparkProducts", "DrainSeat", "LeaveSeat", "RemoveShare",
    }  # fmt: skip
    assert expected <= set(lose_first_replies)


def test_messages_that_arrive_late_and_out_of_order_change_nothing(served: Served, share: Share) -> None:
    """A node's earlier messages arrive again after later ones: after its slice moved, and after it came back."""
    remote = served.connect().share("radar")
    first, second = remote.join("n1"), remote.join("n2")
    remote.give(0, first.number, ALL, "hand")
    (epoch,) = epochs_of(first.exchange(Progress()), 3)
    one = np.array([1], np.uint64)
    reports = [
        Progress(confirm=marks([3], [epoch], [4 + turn]), work=Work(turn, ALL[3:4], one * turn, one))
        for turn in (1, 2, 3)
    ]
    for turn in (2, 0, 1, 2, 0):
        first.exchange(reports[turn])
    assert (share.state().positions[3], share.state().products[3]) == (7, 3)

    def move(giver: RemoteSeat, taker: RemoteSeat, epoch: int, position: int) -> None:
        remote.begin(0, giver.number, taker.number, ALL[3:4], "hand")
        release = Progress(release=marks([3], [epoch], [position]))
        giver.exchange(release)
        for late in (*reports, release):
            giver.exchange(late)
            first.exchange(late)

    move(first, second, epoch, 8)
    assert (share.state().owners[3], share.state().positions[3], share.state().epochs[3]) == (second.number, 8, 2)
    move(second, first, 2, 9)
    assert (share.state().owners[3], share.state().positions[3], share.state().epochs[3]) == (first.number, 9, 3)


def test_the_version_never_goes_back(served: Served, share: Share) -> None:
    """A reply of a call that waited arrives after that of a later exchange."""
    seat = served.connect().share("radar").join("n1")
    seen = seat.exchange(Progress()).version
    assert seat.version == seen
    share.give(0, seat.number, ALL, "hand")
    newer = seat.exchange(Progress(seen=seen)).version
    assert newer > seen
    for _ in range(3):
        assert seat.wait(newer, 0.05) == newer


# --- the site and the line --------------------------------------------------------------------------


def test_seats_survive_a_restart_of_the_site(served: Served, share: Share) -> None:
    """Nothing is attached again: neither the seat, nor the call that waits, nor what is confirmed."""
    remote = served.connect()
    seat = remote.share("radar").join("n1")
    share.give(0, seat.number, ALL, "hand")
    told = seat.exchange(Progress())
    assert seat.version == told.version
    served.stop()
    served.start()
    epochs = epochs_of(told, *ALL)
    again = seat.exchange(Progress(seen=told.version, confirm=marks(ALL, epochs, [6] * SLICES)))
    assert (again.holding, again.refused.tolist(), again.version) == (None, [], told.version)
    assert share.state().positions.tolist() == [6] * SLICES
    share.drain(seat.number)
    assert seat.wait(told.version, 240) > told.version


def test_a_node_that_waits_while_the_line_is_cut_learns_of_the_change(served: Served, share: Share, wire: Wire) -> None:
    seat = served.connect(wire.endpoint).share("radar").join("n1")
    seen = seat.exchange(Progress()).version
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(seat.wait(seen, 240)))
    waiting.start()
    until(lambda: served.site.statistics().remote.nodes == 1, "it waits")  # type: ignore[union-attr]
    wire.cut()
    until(lambda: served.misses_a_client, "the site notices")
    share.drain(seat.number)
    wire.restore()
    waiting.join(240)
    assert found[0] > seen


def test_a_node_that_was_cut_off_for_too_long_loses_its_seat_and_joins_again(served: Served, wire: Wire) -> None:
    served.queue.channel("radar", "wx/radar", slices=SLICES)
    served.queue.put(b"x", feed="wx/radar")
    share = served.queue.share("radar", dead_after="1h")
    remote = served.connect(wire.endpoint).share("radar")
    seat = remote.join("n1")
    share.give(0, seat.number, ALL, "hand")
    told = seat.exchange(Progress())
    wire.cut()
    silence(share, seat.number)
    assert share.seize(0, seat.number) == SLICES
    wire.restore()
    with pytest.raises(SeatLostError, match="join the group again"):
        seat.exchange(Progress(confirm=marks(ALL, epochs_of(told, *ALL), [2] * SLICES)))
    assert share.state().positions.tolist() == [1] * SLICES
    assert seat.wait(told.version, 240) != told.version
    again = remote.join("n1")
    assert share.give(0, again.number, ALL, "dead") == SLICES
    assert epochs_of(again.exchange(Progress()), *ALL) == [2] * SLICES


# --- everything at once -----------------------------------------------------------------------------

FAULTS = ("link cut", "link cut for long", "link frozen", "replies lost with the site", "site killed")
NODES = 3


class Ledger:
    """What all nodes saw and did, by slice and epoch."""

    def __init__(self) -> None:
        self.begun: dict[tuple[int, int], int] = {}  # position at which the owner began
        self.sent: dict[tuple[int, int], set[int]] = defaultdict(set)
        self.accepted: dict[tuple[int, int], int] = {}  # the highest that the table acknowledged
        self.exchanges = [0] * NODES

    def judge(self, share: Share) -> None:
        state = share.state()
        for slice_ in range(SLICES):
            epochs = sorted(epoch for other, epoch in self.begun if other == slice_)
            ends = [(epoch, self.begun[slice_, epoch]) for epoch in epochs]
            ends.append((1 << 40, int(state.positions[slice_])))
            for (epoch, begun), (_, end) in pairwise(ends):
                sent, accepted = self.sent[slice_, epoch], self.accepted.get((slice_, epoch), begun)
                assert end == begun or end in sent, f"slice {slice_}, epoch {epoch}: {begun} to {end}, sent {sent}"
                assert accepted <= end, f"slice {slice_}, epoch {epoch}: {accepted} confirmed, then begun at {end}"


class Node(threading.Thread):
    """Holds slices, confirms and releases them, and joins again when it lost its seat."""

    def __init__(
        self, ledger: Ledger, place: int, endpoint: str, chance: random.Random, stopped: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self.ledger, self.place, self.endpoint, self.chance, self.stopped = ledger, place, endpoint, chance, stopped
        self.joins, self.failure = 0, ""

    def run(self) -> None:
        try:
            with headrace.connect(self.endpoint, patience=1, on_loss="wait") as queue:
                share = queue.share("radar", create=False)
                while not self.stopped.is_set():
                    self.joins += 1
                    with suppress(SeatLostError):
                        self.work(share.join())
        except HeadraceError as error:
            self.failure = repr(error)

    def work(self, seat: AnySeat) -> None:
        version, held, leaving = 0, dict[int, tuple[int, int]](), set[int]()  # slice: epoch, position
        while not self.stopped.is_set():
            confirm, release = self.marks(held, held.keys() - leaving), self.marks(held, leaving)
            exchanged = seat.exchange(Progress(version, confirm, release))
            refused = set(exchanged.refused.tolist())
            for each in (confirm, release):
                self.note(each, refused)
            if exchanged.holding is not None:
                version, holding = exchanged.version, exchanged.holding
                before, held = held, {}
                leaving = set(holding.slices[holding.leaving].tolist())
                columns = (holding.slices, holding.epochs, holding.positions)
                for slice_, epoch, position in zip(*(each.tolist() for each in columns), strict=True):
                    if slice_ in before and before[slice_][0] == epoch:
                        held[slice_] = before[slice_]
                    else:
                        self.ledger.begun.setdefault((slice_, epoch), position)
                        held[slice_] = (epoch, position)
            for slice_, (epoch, position) in held.items():
                if slice_ not in leaving:
                    held[slice_] = (epoch, position + self.chance.randrange(3))
                    self.ledger.sent[slice_, epoch].add(held[slice_][1])
            self.ledger.exchanges[self.place] += 1
            seat.wait(version, 0.02)

    def marks(self, held: dict[int, tuple[int, int]], chosen: set[int]) -> Marks:
        rows = [(slice_, *held[slice_]) for slice_ in sorted(chosen & held.keys())]
        return marks(*zip(*rows, strict=True)) if rows else NO_MARKS

    def note(self, sent: Marks, refused: set[int]) -> None:
        for slice_, epoch, position in zip(*(each.tolist() for each in sent), strict=True):
            if slice_ not in refused:
                key = (slice_, epoch)
                self.ledger.accepted[key] = max(self.ledger.accepted.get(key, 0), position)


def balance(share: Share, chance: random.Random, stopped: threading.Event) -> None:
    """Move slices at random, and take those of dead nodes."""
    while not stopped.wait(0.02):
        state = share.state()
        for node in state.nodes:
            if not node.is_alive:
                share.seize(0, node.seat)
        alive = [node.seat for node in state.nodes if node.is_alive]
        if alive:
            share.give(0, chance.choice(alive), ALL[state.owners == NOBODY], "hand")
            chosen = np.array(chance.sample(range(SLICES), 3), np.uint32)
            share.begin(0, chance.choice(alive), chance.choice(alive), chosen, "hand")


@pytest.fixture
def scene(shared_memory: Path) -> Iterator[tuple[Queue, Wire, Callable[[str], None]]]:
    """A queue with a group, its site in a process of its own, the line to it, and what does a fault."""
    queue = Queue.create(shared_memory / "q", size="64MiB", durability="memory", dedup="none", origin="site")
    queue.channel("radar", "wx/radar", slices=SLICES)
    queue.put_many([b""] * 100_000, feed="wx/radar")
    queue.share("radar", dead_after="0.6s")
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    file = shared_memory / "site.toml"
    file.write_text(f'[site]\nqueue = "q"\nlisten = ["{endpoint}"]\n')
    sites = [Daemon(file)]
    sites[0].wait_until_ready()
    wire = Wire(endpoint)

    def befall(fault: str) -> None:
        if fault in ("link cut", "link cut for long"):
            wire.cut()
            time.sleep(0.1 if fault == "link cut" else 1.2)
            wire.restore()
        elif fault == "link frozen":
            wire.freeze()
            time.sleep(0.8)
            wire.thaw()
        else:
            if fault == "replies lost with the site":
                wire.mute()
                time.sleep(0.3)
            sites[-1].kill()
            wire.cut()
            wire.unmute()
            wire.restore()
            sites.append(Daemon(file))
            sites[-1].wait_until_ready()

    yield queue, wire, befall
    wire.close()
    sites[-1].kill()
    assert queue.check() == []
    queue.close()


@pytest.mark.processes
def test_nothing_is_skipped_or_confirmed_twice_under_any_fault(
    scene: tuple[Queue, Wire, Callable[[str], None]],
) -> None:
    queue, wire, befall = scene
    chance, share, ledger, stopped = random.Random(random_seed()), queue.share("radar"), Ledger(), threading.Event()
    nodes = [Node(ledger, place, f"{wire.endpoint}?site=site", random.Random(chance.random()), stopped)
             for place in range(NODES)]  # fmt: skip
    balancer = threading.Thread(target=balance, args=(share, chance, stopped), daemon=True)

    def wait_for_progress() -> None:
        """Until every node has exchanged some more times, and every slice has moved on."""
        exchanges, positions = list(ledger.exchanges), share.state().positions
        until(
            lambda: (
                all(now > then + 10 for now, then in zip(ledger.exchanges, exchanges, strict=True))
                and (share.state().positions > positions).all()
            ),
            lambda: (ledger.exchanges, share.state(), [node.failure for node in nodes]),
        )

    for thread in (*nodes, balancer):
        thread.start()
    try:
        wait_for_progress()
        for fault in FAULTS:
            befall(fault)
            wait_for_progress()
    finally:
        stopped.set()
        for thread in (*nodes, balancer):
            thread.join(240)
    assert [node.failure for node in nodes] == [""] * NODES
    ledger.judge(share)
    state = share.state()
    print(f"{state.counters}, joins {[node.joins for node in nodes]}, exchanges {ledger.exchanges}")
    assert state.counters["deaths"] > 0
    assert state.counters["sessions"] > 20


def test_a_seat_of_a_removed_group_is_gone(served: Served, share: Share) -> None:
    seat = served.connect().share("radar").join("n1")
    share.seat(seat.number, seat._instance).leave()
    share.remove()
    served.queue.share("radar").join("other")
    for use in (lambda: seat.exchange(Progress()), seat.leave):
        with pytest.raises(ShareError):
            use()
    assert [node.name for node in served.queue.share("radar").state().nodes] == ["other"]

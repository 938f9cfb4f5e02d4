"""Groups of processing nodes at a site: who may use them, calls that lie, and nodes that wait."""

import fcntl
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace.errors import AccessDeniedError, QueueClosedError, ShareError
from headrace.link.rights import Rule
from headrace.remote.client.share import RemoteSeat
from headrace.remote.protocol import replies, share_calls
from headrace.remote.protocol.envelope import encode
from headrace.remote.protocol.hello import VERSION
from headrace.remote.protocol.share_calls import Marked, Worked, column
from headrace.remote.protocol.share_replies import Seated, SeatTold
from headrace.remote.server import seat_waits
from headrace.remote.server.access import ClientAccess
from headrace.remote.server.clients import Client
from headrace.share import file as files
from headrace.share.interface import Load, Progress, marks
from headrace.share.share import Seat, Share
from support.serving import Router, Served, Stranger
from support.waiting import until

SLICES = 8
ALL = np.arange(SLICES, dtype=np.uint32)
PLACE = ("radar", "main")


@pytest.fixture
def share(served: Served) -> Share:
    served.queue.channel("radar", "wx/radar", slices=SLICES)
    for number in range(20):
        served.queue.put(b"x", feed="wx/radar/kftg", ident=str(number))
    return served.queue.share("radar", dead_after="1h")


@pytest.fixture
def honest(share: Share) -> Seat:
    """A node that owns the even slices."""
    seat = share.join("honest")
    share.give(0, seat.number, ALL[::2], "hand")
    return seat


def snapshot(share: Share) -> list[Any]:
    state = share.state()
    nodes = [(node.name, node.draining, node.slices, node.products, node.load) for node in state.nodes]
    columns = (state.owners, state.takers, state.epochs, state.positions, state.products, state.busy_ns)
    return [*(each.tolist() for each in columns), nodes, share.parked(), share.history()]


# --- rights -----------------------------------------------------------------------------------------


def test_only_a_client_that_may_receive_all_of_a_channel_uses_its_groups(make_served: Callable[..., Served]) -> None:
    served = make_served(rules=(Rule(("*",), receive=("a/**",), publish=("b/x/1",)),))
    for name in ("a", "b"):
        served.queue.channel(name, f"{name}/x", slices=SLICES)
        served.queue.share(name)
    remote = served.connect()
    assert remote.shares() == [("a", "main")]
    assert remote.share("a", create=False).state().nodes == []
    for use in (lambda: remote.share("b"), lambda: remote.share("b", create=False), lambda: remote.share("b", "other")):
        with pytest.raises(AccessDeniedError, match="may not use the groups of channel 'b'"):
            use()
    assert served.queue.shares() == [("a", "main"), ("b", "main")]
    with pytest.raises(AccessDeniedError, match="may not use the groups of channel 'c'; ask the operator"):
        remote.share("c")  # which does not exist, and that is nobody's business
    with pytest.raises(AccessDeniedError, match="may not use channel 'c'; ask the operator"):
        remote.channel("c")


def calls_of(place: tuple[str, str], seat: int, instance: int) -> list[share_calls.ShareStruct]:
    """Every call about a group, with valid arguments."""
    slices, mark = column([0], "<u4"), Marked.of(marks([0], [1], [2]))
    return [
        share_calls.OpenShare(*place, "oldest", {}), share_calls.DescribeShare(*place, "state"),
        share_calls.DescribeShare(*place, "history"), share_calls.DescribeShare(*place, "parked"),
        share_calls.UnparkProducts(*place, None), share_calls.JoinShare(*place, 77, "liar"),
        share_calls.Exchange(*place, seat, instance, confirm=mark), share_calls.WatchSeat(*place, seat, instance, 0),
        share_calls.BeginProduct(*place, seat, instance, 0, 1, 2),
        share_calls.FailProduct(*place, seat, instance, 0, 1, 2),
        share_calls.ParkProduct(*place, seat, instance, 0, 1, 2, "x"), share_calls.LeaveSeat(*place, seat, instance),
        share_calls.LeadShare(*place, "b", 1.0), share_calls.MoveSlices(*place, 0, seat, 1, slices, "hand"),
        share_calls.CancelMoves(*place, 0, slices), share_calls.GiveSlices(*place, 0, seat, slices, "hand"),
        share_calls.SeizeSeat(*place, 0, seat), share_calls.DrainSeat(*place, seat), share_calls.RemoveShare(*place),
    ]  # fmt: skip


def test_every_call_about_a_group_needs_the_right(make_served: Callable[..., Served], router: Router) -> None:
    served = make_served(rules=(Rule(("*",), receive=("a/**",), publish=("b/x/1",)),))
    served.queue.channel("b", "b/x", slices=SLICES)
    share = served.queue.share("b", dead_after="1h")
    seat = share.join("honest")
    share.give(0, seat.number, ALL, "hand")
    before, stranger = snapshot(share), Stranger(router[0], served)
    tried = calls_of(("b", "main"), seat.number, seat.instance)
    assert {type(call) for call in tried} == set(share_calls.ShareCall.__args__) - {share_calls.ListShares}
    for call in tried:
        reply = stranger.call(call)
        assert isinstance(reply, replies.Failure), call
        assert reply.error == "AccessDeniedError", call
    assert snapshot(share) == before
    assert share.state().leader == ""


def test_users_and_processes_of_nodes_are_told_only_to_clients_that_may_receive_everything(
    make_served: Callable[..., Served],
) -> None:
    served = make_served(rules=(Rule(("*",), receive=("a/**",)),))
    served.queue.channel("a", "a", slices=SLICES)
    served.queue.share("a").join("here", user="ada", pid=7)
    (node,) = served.connect().share("a").state().nodes
    assert (node.name, node.user, node.pid) == ("here", "", 0)
    other = make_served()
    other.queue.channel("a", "a", slices=SLICES)
    other.queue.share("a").join("here", user="ada", pid=7)
    (node,) = other.connect().share("a").state().nodes
    assert (node.name, node.user, node.pid) == ("here", "ada", 7)


# --- lies -------------------------------------------------------------------------------------------


def test_a_client_without_the_instance_of_a_seat_changes_nothing(
    share: Share, honest: Seat, stranger: Stranger
) -> None:
    before = snapshot(share)
    for instance in (1, honest.instance ^ 2, (1 << 63) - 1):
        for call in calls_of(PLACE, honest.number, instance):
            if isinstance(call, share_calls.SeatStruct):
                reply = stranger.call(call)
                assert isinstance(reply, replies.Failure), call
                assert reply.error == "SeatLostError", call
    assert snapshot(share) == before


def test_no_reply_shows_an_instance(share: Share, honest: Seat, stranger: Stranger) -> None:
    shown = [stranger.call(call) for call in calls_of(PLACE, honest.number, 1)[:5]]
    assert not any(isinstance(reply, replies.Failure | str) for reply in shown)
    secret = honest.instance.to_bytes(8, "big")
    assert all(secret not in encode(reply) and secret[::-1] not in encode(reply) for reply in shown)


def test_a_node_confirms_and_releases_nothing_of_others(share: Share, honest: Seat, stranger: Stranger) -> None:
    seated = stranger.call(share_calls.JoinShare(*PLACE, 77, "liar"))
    assert isinstance(seated, Seated)
    share.give(0, seated.seat, ALL[1:2], "hand")
    before, state = snapshot(share), share.state()
    for epochs in (state.epochs, state.epochs + 1, np.zeros(SLICES, np.uint32)):
        others = Marked.of(marks(ALL[::2], epochs[::2], [20] * 4))
        for call in (
            share_calls.Exchange(*PLACE, seated.seat, 77, confirm=others),
            share_calls.Exchange(*PLACE, seated.seat, 77, release=others),
        ):
            reply = stranger.call(call)
            assert isinstance(reply, SeatTold)
            assert reply.exchanged().refused.tolist() == ALL[::2].tolist()
    beyond = Marked.of(marks([1], state.epochs[1:2], [22]))
    reply = stranger.call(share_calls.Exchange(*PLACE, seated.seat, 77, confirm=beyond))
    assert isinstance(reply, SeatTold)
    assert reply.exchanged().refused.tolist() == [1]
    for place, epoch in ((0, 1), (1, 5), (SLICES, 1), (1 << 32, 1)):
        for call in (
            share_calls.BeginProduct(*PLACE, seated.seat, 77, place, epoch, 2),
            share_calls.FailProduct(*PLACE, seated.seat, 77, place, epoch, 2),
            share_calls.ParkProduct(*PLACE, seated.seat, 77, place, epoch, 2, "x"),
        ):
            assert stranger.call(call) == replies.Number(0), call
    assert snapshot(share) == before


NUMBERED = {each.__struct_config__.tag for each in share_calls.NumberedShareCall.__args__}
ONE, EIGHT = column([1], "<u4"), column([1], "<u8")
SEAT: dict[str, Any] = {"stream": "radar", "group": "main", "seat": 0, "instance": 1}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("exchange", {**SEAT, "seat": -1}),
        ("exchange", {**SEAT, "seat": 4096}),
        ("exchange", {**SEAT, "instance": 0}),
        ("exchange", {**SEAT, "instance": -1}),
        ("exchange", {**SEAT, "instance": 1 << 63}),
        ("exchange", {**SEAT, "seen": -1}),
        ("exchange", {**SEAT, "confirm": {"slices": [1], "epochs": ONE, "positions": EIGHT}}),
        ("exchange", {**SEAT, "confirm": {"slices": ONE, "epochs": ONE}}),
        ("exchange", {**SEAT, "confirm": {"slices": ONE, "epochs": ONE, "positions": EIGHT, "owner": 1}}),
        ("exchange", {**SEAT, "confirm": {"slices": bytes(8 * 65_536 + 4), "epochs": ONE, "positions": EIGHT}}),
        ("exchange", {**SEAT, "load": {"cpu": -1.0}}),
        ("exchange", {**SEAT, "load": {"cpu": float("nan")}}),
        ("exchange", {**SEAT, "load": {"capacity": float("inf")}}),
        ("exchange", {**SEAT, "load": {"waiting": -1}}),
        ("exchange", {**SEAT, "load": {"metrics": {"x": float("nan")}}}),
        ("exchange", {**SEAT, "load": {"name": "x"}}),
        ("exchange", {**SEAT, "work": {"number": -1, "slices": b"", "products": b"", "busy_ns": b""}}),
        ("watchseat", {**SEAT, "seen": 0, "wait_s": 6}),
        ("watchseat", {**SEAT, "seen": 0, "wait_s": -1}),
        ("beginproduct", {**SEAT, "slice": -1, "epoch": 1, "sequence": 1}),
        ("failproduct", {**SEAT, "slice": 1, "epoch": 1, "sequence": -1}),
        ("joinshare", {"stream": "radar", "group": "main", "instance": 0, "node": "n"}),
        ("joinshare", {"stream": "x" * 1025, "group": "main", "instance": 1, "node": "n"}),
        ("joinshare", {"stream": "radar", "group": "main", "instance": 1, "node": "n", "pid": -1}),
        ("moveslices", {"stream": "radar", "group": "main", "term": 0, "giver": 0, "taker": 65_535, "slices": ONE,
                        "reason": "hand"}),
        ("moveslices", {"stream": "radar", "group": "main", "term": 0, "giver": 0, "taker": 1, "slices": ONE,
                        "reason": "greed"}),
        ("seizeseat", {"stream": "radar", "group": "main", "term": 0, "seat": -1}),
        ("unparkproducts", {"stream": "radar", "group": "main", "sequences": [1] * 4097}),
        ("describeshare", {"stream": "radar", "group": "main", "what": "instances"}),
    ],
)  # fmt: skip
def test_a_call_with_an_impossible_field_is_refused(stranger: Stranger, kind: str, fields: dict[str, Any]) -> None:
    number = 1 if kind in NUMBERED else 0
    refusal = stranger.send(encode([VERSION, stranger.client, None, number, 1, {"type": kind, **fields}]))
    assert isinstance(refusal, str)
    assert refusal.startswith("the call is invalid: ")


@pytest.mark.parametrize(
    "lie",
    [
        {"confirm": Marked(ONE, ONE + ONE, EIGHT)},
        {"confirm": Marked(ONE, ONE, EIGHT[:-1])},
        {"confirm": Marked(ONE[:-1], ONE, EIGHT)},
        {"release": Marked(column([1, 1], "<u4"), column([1, 1], "<u4"), column([1, 1], "<u8"))},
        {"release": Marked(column([2, 1], "<u4"), column([1, 1], "<u4"), column([1, 1], "<u8"))},
        {"confirm": Marked(bytes(4 * 65_537), bytes(4 * 65_537), b"")},
        {"work": Worked(1, ONE, EIGHT, column([1 << 63], "<u8"))},
        {"work": Worked(1, ONE, column([1 << 63], "<u8"), EIGHT)},
        {"work": Worked(1, ONE, EIGHT + EIGHT, EIGHT)},
        {"load": Load(metrics={"x" * 2000: 1.0})},
    ],
    ids=lambda lie: next(iter(lie)),
)  # fmt: skip
def test_an_exchange_that_lies_counts_not_at_all(
    share: Share, honest: Seat, stranger: Stranger, lie: dict[str, Any]
) -> None:
    """Also the valid confirmation that it has beside the lie."""
    seated = stranger.call(share_calls.JoinShare(*PLACE, 77, "liar"))
    assert isinstance(seated, Seated)
    share.give(0, seated.seat, ALL[1::2], "hand")
    before = snapshot(share)
    valid = {"confirm": Marked.of(marks([1], [1], [5]))}
    reply = stranger.call(share_calls.Exchange(*PLACE, seated.seat, 77, **{**valid, **lie}))
    assert isinstance(reply, replies.Failure)
    assert reply.error in ("FabricMessageError", "OptionError")
    assert snapshot(share) == before


def test_options_that_a_group_does_not_have_are_refused(share: Share, stranger: Stranger) -> None:
    for options in (
        {"log": 1},
        {"start": "next"},
        {"number": 7},
        {"dead_after": -1},
        {"tries_max": "x"},
        {"only": "9"},
    ):
        reply = stranger.call(share_calls.OpenShare("radar", "new", "oldest", options))
        assert isinstance(reply, replies.Failure)
        assert reply.error in ("OptionError", "SelectionError", "InvalidError"), reply
    assert share.log.path.exists()


# --- nodes that wait --------------------------------------------------------------------------------


class Waiting:
    """A call that waits, as far as WaitingSeats looks at it."""

    def __init__(self, call: share_calls.WatchSeat) -> None:
        self.call, self.client, self.deadline = call, Client(ClientAccess((), None), None), 0.0
        self.replies: list[replies.Reply] = []
        self.finish = self.replies.append


def test_puts_and_other_groups_answer_no_node_that_waits(served: Served, share: Share) -> None:
    waits = seat_waits.WaitingSeats(served.queue.path, lambda act, pending: act(pending))
    seat, other = share.join("n"), served.queue.share("radar", "other")
    pending = Waiting(share_calls.WatchSeat(*PLACE, seat.number, seat.instance, seat.version, 1e6))
    waits.add(pending, pending.call, share)  # type: ignore[arg-type]
    for number in range(50):
        served.queue.put(b"x", feed="wx/radar/kftg", ident=f"later {number}")
        other.join(str(number)).leave()
        share.join(str(number)).leave()
    assert (len(waits), pending.replies) == (1, [])
    share.drain(seat.number)
    until(lambda: pending.replies == [replies.Number(seat.version)], lambda: pending.replies)
    until(lambda: len(waits) == 0, "nobody waits")
    waits.close()


def until_all_wait(served: Served, seats: list[RemoteSeat]) -> None:
    """Until the site holds a call of each; one that it has answered is made again when the version is asked for."""
    site = served.site
    assert site is not None
    until(lambda: [seat.version for seat in seats] and site.statistics().remote.nodes == len(seats), "all wait")


def test_hundreds_of_nodes_wait_without_a_thread_each(served: Served, share: Share) -> None:
    remote = served.connect().share("radar")
    seats = [remote.join() for _ in range(200)]
    seen = [seat.exchange(Progress()).version for seat in seats]
    threads = threading.active_count()
    assert [seat.version for seat in seats] == seen
    until_all_wait(served, seats)
    assert threading.active_count() <= threads + 20  # those of the site that execute calls, and one that waits
    share.drain(seats[7].number)
    assert seats[7].wait(seen[7], 240) > seen[7]
    assert [seat.version for seat in seats[8:]] == seen[8:]
    share.give(0, seats[199].number, ALL, "hand")
    assert seats[199].wait(seen[199], 240) > seen[199]


def test_nodes_beyond_the_limit_learn_of_changes_by_their_exchanges(
    served: Served, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seat_waits, "WAITING_OF_ONE_MAX", 2)
    remote = served.connect().share("radar")
    seats = [remote.join() for _ in range(3)]
    seen = [seat.exchange(Progress()).version for seat in seats]
    assert [seat.version for seat in seats] == seen
    assert seats[2].wait(seen[2], 0.1) == seen[2]
    share.drain(seats[2].number)
    exchanged = seats[2].exchange(Progress(seen=seen[2]))
    assert exchanged.holding is not None
    assert seats[2].version == exchanged.version


def test_nodes_that_wait_are_answered_when_the_site_ends(served: Served, share: Share, stranger: Stranger) -> None:
    seated = stranger.call(share_calls.JoinShare(*PLACE, 77, "n"))
    assert isinstance(seated, Seated)
    version = share.seat(seated.seat, 77).version
    found: list[Any] = []
    call = share_calls.WatchSeat(*PLACE, seated.seat, 77, version, 5.0)
    waiting = threading.Thread(target=lambda: found.append(stranger.call(call)))
    waiting.start()
    until(lambda: served.site.statistics().remote.nodes == 1, "it waits")  # type: ignore[union-attr]
    assert served.site is not None
    served.site._remote._seats.close()
    waiting.join(240)
    assert found == [replies.Number(version)]


def test_a_closed_connection_is_an_error_of_the_seat(served: Served, share: Share) -> None:
    remote = served.connect()
    seat = remote.share("radar").join("n")
    remote.close()
    with pytest.raises(QueueClosedError):
        seat.exchange(Progress())
    with pytest.raises(QueueClosedError):
        seat.wait(0, 1)


def test_a_join_that_is_repeated_finds_its_seat(share: Share, stranger: Stranger) -> None:
    first, again = (stranger.call(share_calls.JoinShare(*PLACE, 99, "n")) for _ in range(2))
    assert first == again
    other = stranger.call(share_calls.JoinShare(*PLACE, 98, "n"))
    assert isinstance(other, replies.Failure)
    assert other.error == "ShareError"
    varied = stranger.call(share_calls.JoinShare(*PLACE, 97, "n", may_vary=True))
    assert isinstance(varied, Seated)
    assert varied.name == "n.2"
    assert [node.name for node in share.state().nodes] == ["n", "n.2"]


def test_a_seat_that_was_taken_by_another_node_is_not_its_former_owner_s(share: Share, stranger: Stranger) -> None:
    first = stranger.call(share_calls.JoinShare(*PLACE, 99, "first"))
    assert isinstance(first, Seated)
    assert stranger.call(share_calls.LeaveSeat(*PLACE, first.seat, 99)) == replies.Done()
    second = stranger.call(share_calls.JoinShare(*PLACE, 98, "second"))
    assert isinstance(second, Seated)
    assert second.seat == first.seat
    reply = stranger.call(share_calls.Exchange(*PLACE, first.seat, 99))
    assert isinstance(reply, replies.Failure)
    assert reply.error == "SeatLostError"


# --- a lock that is held ----------------------------------------------------------------------------


def test_a_group_whose_lock_is_held_holds_up_nothing_else_of_the_site(
    served: Served, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process on the machine of the site was stopped while it held the lock of the table."""
    remote = served.connect()
    group = remote.share("radar")
    seats = [group.join() for _ in range(8)]
    errors: list[str] = []

    def exchange(seat: RemoteSeat) -> None:
        try:
            seat.exchange(Progress())
        except ShareError as error:
            errors.append(str(error))

    with (share.log.path / "shares" / "1.share").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        before = served.calls
        threads = [threading.Thread(target=exchange, args=(seat,)) for seat in seats]
        for thread in threads:
            thread.start()
        until(lambda: served.calls == before + len(seats), "all calls are at the site")
        assert [remote.put(b"y", feed="a") for _ in range(10)] == list(range(21, 31))
        assert remote.channels() == ["radar"]
    for thread in threads:
        thread.join(240)
    assert errors == []
    monkeypatch.setattr(files, "_LOCK_S", 0.05)
    with (share.log.path / "shares" / "1.share").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        exchange(seats[0])
    assert "is locked" in errors[0]


def test_a_site_with_many_nodes_asks_for_fewer_confirmations(served: Served, share: Share) -> None:
    remote = served.connect().share("radar")
    seats = [remote.join() for _ in range(40)]
    assert seats[0].exchange(Progress()).pause_s == 0
    versions = [seat.exchange(Progress()).version for seat in seats]
    assert [seat.version for seat in seats] == versions
    until_all_wait(served, seats)
    assert seats[0].exchange(Progress()).pause_s == pytest.approx(0.04)

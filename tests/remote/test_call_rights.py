"""Every call of the protocol, made by every kind of principal: what is allowed, and that the rest is refused.

    stranger    has a certificate, and no rule names it          R  receives
    P  publishes      S  receives and has stations      C  receives and consumes what the site shares
    M  manages        E  everybody: receives and publishes

A call without a row fails the test. A site without rules allows everything to everybody, as the last test shows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import msgspec
import pytest

from headrace.link.rights import Rule
from headrace.remote.protocol import calls, channel_calls, member_calls, replies, share_calls
from headrace.remote.protocol.calls import Columns
from headrace.remote.server.call_rights import NEEDED
from support.serving import Router, Served, Stranger

_A = ("a/**",)
RULES = {
    "R": Rule(("R",), receive=_A),
    "P": Rule(("P",), publish=_A),
    "S": Rule(("S",), receive=_A, station=_A),
    "C": Rule(("C",), receive=_A, consume=("ours", "radar/main")),
    "M": Rule(("M",), receive=("**",), manage=("**",)),
    "E": Rule(("*",), receive=_A, publish=_A),
}
ALL, READERS = "RPSCME", "RSCME"
LETTER = b"\1\0\0\0"
WHOLE = {"selection": "a/**"}
MAIN, SEAT = ("radar", "main"), ("radar", "main", 3, 5)


@dataclass(frozen=True)
class Row:
    """A call and who may make it; `error`: what those hear instead, because what the call names is not there."""

    call: calls.Call
    allowed: str
    payload: bytes = b""
    error: str = ""


def station(name: str, **options: object) -> calls.OpenStation:
    return calls.OpenStation(name, "next", {**WHOLE, **options})  # type: ignore[dict-item]


ROWS = [
    # the queue
    Row(calls.Identify(), ALL), Row(calls.Resolve("next"), ALL), Row(calls.GetBounds(), ALL),
    Row(calls.GetStatistics(), ALL), Row(calls.ListNames("cursors"), ALL), Row(calls.ListNames("origins"), ALL),
    Row(calls.WantedBy("a/x"), ALL), Row(calls.WantedBy("b"), "M"), Row(calls.Flush(), "PME"),
    Row(calls.PutOne("a/x"), "PE", b"x"), Row(calls.PutOne("b"), "", b"x"), Row(calls.PutBatch(), "PE"),
    Row(calls.PutMany(LETTER, msgspec.msgpack.encode(Columns("a/x"))), "PE", b"x"),
    Row(calls.PutMany(LETTER, msgspec.msgpack.encode(Columns("b"))), "", b"x"),
    Row(calls.PutPart(bytes(16), 0, 1), "PE", b"x"), Row(calls.AddDictionary(1), "PE", b"x", "DictionaryError"),
    Row(calls.GetDictionary(1), READERS), Row(calls.ReadProducts("**", 1, 1, 1), READERS),
    Row(calls.ReadPart(1, 0, 1), READERS), Row(calls.Weigh("**", 1, 2, 0), READERS),
    # cursors: one's own, the site's, another's
    Row(calls.OpenCursor("mine", "oldest"), READERS), Row(calls.LoadCursor("mine"), READERS),
    Row(calls.SaveCursor("mine", 1), READERS), Row(calls.RemoveCursor("mine"), READERS),
    *(Row(call, "M") for name in ("ours", "bobs") for call in (
        calls.OpenCursor(name, "oldest"), calls.LoadCursor(name), calls.SaveCursor(name, 1), calls.RemoveCursor(name),
    )),
    # stations: new ones
    Row(calls.ListStations(), READERS), Row(station("mine"), "SM"), Row(station("mine"), "SM"),
    Row(station("blocks", blocking=True, capacity=1), "M"), Row(station("limits", max_queue=1), "M"),
    Row(station("wide", selection="**"), "M"), Row(station("behind", after="ours"), "M"),
    Row(station("beside", group="g"), "M"), Row(station("pair", group="mine"), "SM"),
    # ... those that exist
    *(Row(calls.OpenStation(name, "next", {}), READERS) for name in ("ours", "bobs")),
    Row(calls.OpenStation("hidden", "next", {}), "M"), Row(calls.DescribeStation("hidden", "terms"), "M"),
    *(Row(calls.DescribeStation("ours", what), READERS) for what in ("terms", "statistics", "consumers", "parked")),
    # ... one's own
    Row(calls.ChangeStation("mine", {"prescale": 2}), "SM"), Row(calls.ChangeStation("mine", {"blocking": True}), "M"),
    Row(calls.ChangeStation("mine", {"blocking": False}), "SM"),
    Row(calls.ChangeStation("mine", {"selection": "**"}), "M"),
    # ... of the site, and of another
    *(Row(call, "M") for name in ("ours", "bobs") for call in (
        calls.ChangeStation(name, {"prescale": 2}), calls.PauseStation(name, True), calls.SeekStation(name, "next"),
        calls.Unpark(name, None, True), calls.PauseStation(name, False),
    )),
    # consumers
    Row(calls.Attach("ours", 1), "CM"), Row(calls.Attach("bobs", 1), "M"), Row(calls.Attach("hidden", 1), "M"),
    Row(calls.Get(1, 1, 0), "SCM"), Row(calls.Settle(1, 1, 1, "ack"), "SCM"), Row(calls.Revise(1, 1, b"", b""), "SCM"),
    Row(calls.Interrupt(1), "SCM"), Row(calls.DescribeConsumer(1), "SCM"), Row(calls.Detach(1), ALL),
    Row(calls.Leave(), ALL),
    # channels
    Row(channel_calls.ListChannels(), ALL), Row(channel_calls.OpenChannel("radar", None, {}), ALL),
    Row(channel_calls.OpenChannel("new", "a/new", {}), "M"),
    *(Row(channel_calls.DescribeChannel("radar", what), ALL) for what in ("definition", "statistics", "stations")),
    Row(channel_calls.ChangeChannel("radar", {"timeout": "1s"}), "M"),
    Row(channel_calls.OpenMember("radar", "member", None, {}, True), "SM"),
    Row(channel_calls.OpenMember("radar", "ours of radar", None, {}, False), READERS),
    Row(channel_calls.OpenMember("strict", "waits", None, {}, True), "M"),
    Row(channel_calls.ChangeMember("radar", "member", None, {"batch_max": 2}), "SM", error="StationMissingError"),
    Row(channel_calls.ChangeMember("radar", "ours of radar", None, {"batch_max": 2}), "M"),
    Row(channel_calls.RemoveChannel("strict", True), "M"), Row(channel_calls.OpenSupplier("radar", 1), "PE"),
    Row(channel_calls.CloseSupplier(1), ALL),
    # members
    Row(member_calls.WatchMembers(), ALL),
    # groups of nodes
    Row(share_calls.ListShares(), READERS), Row(share_calls.OpenShare(*MAIN, "oldest", {}), READERS),
    Row(share_calls.OpenShare("radar", "new", "oldest", {}), "M"),
    *(Row(share_calls.DescribeShare(*MAIN, what), READERS) for what in ("state", "history", "parked")),
    Row(share_calls.UnparkProducts(*MAIN, None), "M"), Row(share_calls.JoinShare(*MAIN, 7, "node"), "CM"),
    Row(share_calls.JoinShare("radar", "private", 7, "node"), "M"),
    *(Row(call, "CM", error="SeatLostError") for call in (
        share_calls.Exchange(*SEAT), share_calls.WatchSeat(*SEAT, 0), share_calls.BeginProduct(*SEAT, 0, 1, 2),
        share_calls.FailProduct(*SEAT, 0, 1, 2), share_calls.ParkProduct(*SEAT, 0, 1, 2, "x"),
        share_calls.LeaveSeat(*SEAT),
    )),
    Row(share_calls.LeadShare(*MAIN, "b", 1.0), "CM"),
    *(Row(call, allowed, error=error) for term, allowed, error in (
        (9, "CM", "BalancerDeposedError"), (0, "M", "ShareError"),
    ) for call in (
        share_calls.MoveSlices(*MAIN, term, 3, 4, b"", "hand"), share_calls.CancelMoves(*MAIN, term, b""),
        share_calls.GiveSlices(*MAIN, term, 3, b"", "hand"), share_calls.SeizeSeat(*MAIN, term, 3),
    )),
    Row(share_calls.DrainSeat(*MAIN, 3), "M", error="SeatLostError"), Row(share_calls.RemoveShare("radar", "private"), "M", error="ShareError"),
    # the end of stations
    Row(calls.PauseStation("mine", True), "SM"), Row(calls.SeekStation("mine", "next"), "SM"),
    Row(calls.Unpark("mine", None, True), "SM"), Row(calls.RemoveStation("ours"), "M"),
    Row(calls.RemoveStation("bobs"), "M"), Row(calls.RemoveStation("mine"), "SM"),
]  # fmt: skip


def all_calls(union: object) -> set[type]:
    return {each for kind in get_args(union) for each in (all_calls(kind) or {kind})}


def test_every_call_has_a_row_and_a_right() -> None:
    assert {type(row.call) for row in ROWS} == all_calls(calls.Call)
    assert set(NEEDED) == all_calls(calls.Call)


def prepared(served: Served, router: Router) -> None:
    """Stations, cursors, channels and groups of the site, and a station and a cursor of bob."""
    queue = served.queue
    queue.put(b"x", feed="a/x")
    queue.station("ours", "a/**", group="g")
    queue.station("hidden", "b")
    queue.cursor("ours")
    radar = queue.channel("radar", "a/radar", slices=8)
    radar.station("ours of radar")
    queue.channel("strict", "a/strict", reliability="persistent")
    for name in ("main", "private"):
        queue.share("radar", name)
    bob = Stranger(router[0], served, "bob")
    for call in (station("bobs"), calls.OpenCursor("bobs", "oldest")):
        assert bob.call(call) == replies.Done()


def outcomes(someone: Stranger) -> list[str]:
    """For each row: the error, or empty."""
    found = []
    for row in ROWS:
        reply = someone.call(row.call, row.payload)
        assert isinstance(reply, replies.Reply), (row.call, reply)
        found.append(reply.error if isinstance(reply, replies.Failure) else "")
    return found


@pytest.mark.parametrize("principal", ["stranger", *RULES])
def test_each_principal_may_do_what_the_rules_say_and_nothing_else(
    make_served: Callable[..., Served], router: Router, principal: str
) -> None:
    rules = (RULES.get(principal, RULES["R"]), Rule(("bob",), receive=_A, station=_A))
    served = make_served(rules=rules)
    prepared(served, router)
    someone = Stranger(router[0], served, "" if principal == "E" else principal)
    for row, error in zip(ROWS, outcomes(someone), strict=True):
        if principal in row.allowed:
            assert error in ("", row.error), (principal, row, error)
        else:
            assert error == "AccessDeniedError", (principal, row, error)


def test_without_rules_everybody_may_do_everything(make_served: Callable[..., Served], router: Router) -> None:
    served = make_served()
    prepared(served, router)
    assert "AccessDeniedError" not in outcomes(Stranger(router[0], served))

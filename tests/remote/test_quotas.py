"""Quotas of principals: what is refused, what is slowed down, what is counted, and that others are not concerned."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import zenoh

from headrace.errors import QuotaError
from headrace.link.quotas import Quotas, QuotaTable
from headrace.link.rights import Rule
from headrace.product.put import Put
from headrace.remote.protocol import calls, replies
from headrace.remote.server import pending_call as pending_calls
from headrace.remote.server.gets import GET_THREADS
from headrace.remote.server.principal import Principal, Principals
from support.serving import Router, Served, Stranger
from support.waiting import until

RULES = (
    Rule(("ann", "bob"), receive=("**",), station=("**",), publish=("**",), relay=True),
    Rule(("*",), receive=("**",), station=("**",)),
)


class Clock:
    now = 100.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


def principal(clock: Clock, **quotas: float) -> Principal:
    return Principal("ann", QuotaTable(Quotas(**quotas)), now=lambda: clock.now)  # type: ignore[arg-type]


def test_calls_per_second_are_a_budget_that_recovers(clock: Clock) -> None:
    ann = principal(clock, calls_per_s=10)
    assert [ann.takes("calls_per_s") for _ in range(12)] == [True] * 10 + [False] * 2
    clock.now += 0.25
    assert [ann.takes("calls_per_s") for _ in range(4)] == [True] * 3 + [False]
    clock.now += 3600
    assert sum(ann.takes("calls_per_s") for _ in range(100)) == 10
    assert ann.refused["calls_per_s"].count == 93


def test_one_large_payload_passes_and_has_to_be_paid_back(clock: Clock) -> None:
    ann = principal(clock, bytes_per_s=1000)
    assert ann.takes("bytes_per_s", 5000)
    assert not ann.takes("bytes_per_s", 1)
    clock.now += 3.9
    assert not ann.takes("bytes_per_s", 1)
    clock.now += 0.2
    assert ann.takes("bytes_per_s", 1)


def test_processor_time_is_paid_afterwards(clock: Clock) -> None:
    ann = principal(clock, selection_s=0.5)
    assert ann.may_spend("selection_s")
    ann.spend("selection_s", 2.0)
    assert not ann.may_spend("selection_s")
    clock.now += 3.8
    assert not ann.may_spend("selection_s")
    clock.now += 0.2
    assert ann.may_spend("selection_s")


def test_processor_time_is_reserved_for_what_waits(clock: Clock) -> None:
    """Otherwise all that is queued before the first piece is done would be free."""
    ann = principal(clock, selection_s=0.5)  # of which 0.05 s may be used at once
    assert ann.reserve("selection_s") == 0.0, "nothing is known of its pieces"
    ann.settle("selection_s", 0.0, 0.016)
    reserved = []
    while (piece := ann.reserve("selection_s")) is not None:
        reserved.append(piece)
    assert 0.034 <= sum(reserved) < 0.04
    for piece in reserved:
        ann.settle("selection_s", piece, piece)
    assert ann.reserve("selection_s") is None
    clock.now += 1
    assert ann.reserve("selection_s") is not None


def test_payloads_that_wait_are_bounded_and_a_single_one_always_fits(clock: Clock) -> None:
    ann = principal(clock, waiting_bytes=100)
    assert ann.hold(400)
    assert not ann.hold(1)
    ann.release(400)
    assert ann.hold(60)
    assert ann.hold(40)
    assert not ann.hold(1)


def test_names_that_no_rule_has_share_the_quotas_of_those_without_a_name() -> None:
    principals = Principals(RULES, QuotaTable(), lambda name, error: None)
    assert principals.of("mallory") is principals.of(None)
    assert principals.of("ann") is principals.of("ann")
    assert principals.of("ann") is not principals.of("bob")


def test_without_rules_nothing_is_limited() -> None:
    everybody = Principals((), QuotaTable(Quotas(calls_per_s=1)), lambda name, error: None).of(None)
    assert all(everybody.takes("calls_per_s") for _ in range(100))
    assert everybody.hold(1 << 40)
    everybody.check("stations", 10_000)


def station(name: str) -> calls.OpenStation:
    return calls.OpenStation(name, "next", {"selection": "a"})


@pytest.mark.parametrize(
    ("quota", "some"),
    [
        ("feeds", [calls.PutOne("a/1"), calls.PutOne("a/1"), calls.PutOne("a/2")]),
        ("origins", [calls.PutOne("a", facts=Put(origin=name, origin_sequence=1)) for name in ("ann", "other")]),
        ("stations", [station("1"), station("2")]),
        ("cursors", [calls.OpenCursor("1", "oldest"), calls.OpenCursor("2", "oldest")]),
        ("consumers", [station("s"), calls.Attach("s", 1), calls.Attach("s", 1)]),
        ("waiting_bytes", [calls.PutPart(bytes(16), 0, 1 << 19), calls.PutPart(b"\1" * 16, 0, 1 << 20)]),
    ],
)
def test_a_quota_is_refused_by_its_name_and_others_are_not_concerned(
    make_served: Callable[..., Served], router: Router, quota: str, some: list[calls.Call]
) -> None:
    served = make_served(rules=RULES, quotas=Quotas(**{quota: 1 << 20 if quota == "waiting_bytes" else 1}))
    ann, bob = (Stranger(router[0], served, name) for name in ("ann", "bob"))
    payload = b"x" if quota == "waiting_bytes" else b""
    *allowed, refused = [ann.call(call, payload) for call in some]
    assert not any(isinstance(reply, replies.Failure) for reply in allowed)
    assert isinstance(refused, replies.Failure)
    assert (refused.error, f"ann: the quota {quota} of" in refused.problem) == ("QuotaError", True)
    renamed = calls.OpenStation("other", "next", {"selection": "a"}) if quota != "cursors" else None
    assert bob.call(renamed or calls.OpenCursor("other", "oldest")) == replies.Done()
    assert served.site is not None
    assert [(each.principal, each.quota, each.count) for each in served.site._remote.refusals()] == [("ann", quota, 1)]
    assert [problem.subject for problem in served.site.problems() if problem.kind == "quota"] == [f"ann {quota}"]


def test_sessions_are_limited_for_each_principal(make_served: Callable[..., Served], router: Router) -> None:
    served = make_served(rules=RULES, quotas=Quotas(sessions=2))
    sessions = [Stranger(router[0], served, "ann") for _ in range(3)]
    told = [each.call(call) for each in sessions[:2] for call in (station("s"), calls.Attach("s", 10))]
    assert not any(isinstance(reply, replies.Failure) for reply in told)
    refused = sessions[2].call(calls.GetBounds())
    assert isinstance(refused, str)
    assert "ann: the quota sessions of 2 is used up" in refused
    assert isinstance(Stranger(router[0], served, "bob").call(calls.GetBounds()), replies.Bounds)


def test_a_principal_that_calls_too_often_is_slowed_down_and_does_not_fail(
    make_served: Callable[..., Served], router: Router
) -> None:
    served = make_served(rules=(Rule(("*",), receive=("**",)),), quotas=Quotas(calls_per_s=50))
    remote = served.connect()
    for _ in range(60):
        assert remote.next == 1
    served.close_users()
    slow = make_served(rules=(Rule(("*",), receive=("**",)),), quotas=Quotas(calls_per_s=0.01))
    stranger = Stranger(router[0], slow)
    assert [stranger.call(calls.GetBounds()) for _ in range(3)][1:] == ["busy"] * 2


def test_a_quota_that_changes_counts_at_once(clock: Clock) -> None:
    table = QuotaTable(Quotas(stations=1))
    ann = Principal("ann", table, now=lambda: clock.now)
    with pytest.raises(QuotaError):
        ann.check("stations", 1)
    table.change(QuotaTable(Quotas(stations=1), {"ann": Quotas(stations=5)}))
    ann.check("stations", 4)


def test_gets_and_reads_are_paid_with_processor_time(make_served: Callable[..., Served], router: Router) -> None:
    served = make_served(rules=RULES, quotas=Quotas(selection_s=1e-9))
    served.queue.put(b"x", feed="a")
    ann = Stranger(router[0], served, "ann")
    assert ann.call(station("s")) == replies.Done()
    attached = ann.call(calls.Attach("s", 10))
    assert isinstance(attached, replies.Attached)
    assert isinstance(ann.call(calls.Get(attached.attachment, 1, 0)), replies.Products)
    assert ann.call(calls.Get(attached.attachment, 1, 0)) == "busy"
    assert ann.call(calls.ReadProducts("**", 1, 1, 1)) == "busy"
    assert isinstance(Stranger(router[0], served, "bob").call(calls.ReadProducts("**", 1, 1, 1)), replies.Products)


def test_slow_links_of_one_principal_do_not_hold_up_what_others_get(
    make_served: Callable[..., Served], router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, may_go, held, send = make_served(rules=RULES), threading.Event(), list[str](), pending_calls._send

    def send_slowly(query: zenoh.Query, *more: Any) -> None:
        """As over a link that is full; only products of ann meet it."""
        if str(query.key_expr).endswith("/ann") and may_be_held:
            held.append("")
            may_go.wait()
        send(query, *more)

    may_be_held = False
    monkeypatch.setattr(pending_calls, "_send", send_slowly)
    waiting = []
    for name in (*["ann"] * (GET_THREADS + 2), "bob"):
        someone = Stranger(router[0], served, name)
        assert someone.call(station(name)) == replies.Done()
        attached = someone.call(calls.Attach(name, 10))
        assert isinstance(attached, replies.Attached)
        waiting.append((someone, calls.Get(attached.attachment, 1, 5.0)))
    assert served.site is not None
    with ThreadPoolExecutor(len(waiting)) as threads:
        told = [threads.submit(someone.call, get) for someone, get in waiting]
        gets = served.site._remote._gets
        until(lambda: len(gets) == len(waiting), "all of them wait")
        may_be_held = True
        try:
            served.queue.put_many([b"%d" % number for number in range(len(waiting))], feed="a")
            until(lambda: len(held) > GET_THREADS // 2, "more replies of ann hang than these threads may send")
            assert isinstance(told[-1].result(60), replies.Products)
        finally:
            may_go.set()

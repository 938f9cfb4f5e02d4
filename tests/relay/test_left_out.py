"""What a site asked for and does not get is counted there, once, by cause: live, from the log, and after a fail-over."""

import dataclasses
import time

import pytest
from click.testing import CliRunner
from relaying import has_examined, is_live

from headrace import Queue, Selection
from headrace.cli.main import headrace
from headrace.product.cause import Cause
from headrace.product.options import Options
from headrace.queue.request_lags import RequestLag, read_lags
from headrace.relay.receive.receiver import Request
from support.fleet import Fabric, want
from support.waiting import until


class Ahead:
    """A clock that runs ahead of the real one."""

    def __init__(self, seconds: float) -> None:
        self._ns = round(seconds * 1e9)

    def now_ns(self) -> int:
        return time.time_ns() + self._ns

    def elapsed_ns(self) -> int:
        return time.monotonic_ns()


def put_expiring(queue: Queue, count: int, name: str, feed: str = "x") -> None:
    for number in range(count):
        queue.put(f"{name}{number}".encode(), feed=feed, ident=f"{name}{number}", expiry="10min")


def left_out(fabric: Fabric, name: str, at: str) -> dict[Cause, int]:
    (counts,) = (each.counts for each in fabric.sites[name].statistics().upstreams if each.site == at)
    return counts.left_out


def beats(fabric: Fabric, name: str, count: int = 3) -> None:
    """Wait for some more beats: whatever is counted twice is counted by then."""
    upstreams = fabric.sites[name]._receiver.upstreams()
    for _ in range(count):
        heard = [upstream.upstream._heard for _, upstream in upstreams]
        until(lambda heard=heard: [each.upstream._heard for _, each in upstreams] > heard, "a beat")  # type: ignore[misc]


@pytest.mark.parametrize("is_early", [False, True], ids=["live", "from the log"])
def test_what_expires_at_a_relay_whose_clock_is_ahead_is_counted_behind_it(fabric: Fabric, is_early: bool) -> None:
    a = fabric.add("a")
    relay = fabric.add("relay", want("**", "oldest", "a"), near=("a",), clock=Ahead(3600))
    if not is_early:
        c = fabric.add("c", want("**", "oldest", "relay"), near=("relay",))
        until(lambda: is_live(fabric, "c") and is_live(fabric, "relay"), "both listen")
    put_expiring(a, 30, "e")
    a.put(b"stays", feed="y")
    until(lambda: relay.next == 32, "the relay has them")
    if is_early:
        c = fabric.add("c", want("**", "oldest", "relay"), near=("relay",))
    until(lambda: has_examined(fabric, "c", "relay"), "c has everything that comes")
    beats(fabric, "c")
    assert [bytes(product.payload) for product in c.read("oldest")] == [b"stays"]
    assert left_out(fabric, "c", "relay") == {"expired": 30}
    assert left_out(fabric, "relay", "a") == {}
    assert fabric.sites["relay"].statistics().arrivals["r"].expired == 30
    (problem,) = (each for each in fabric.sites["c"].problems() if each.kind == "left out")
    assert problem.text == "site relay left out products of request r: 30 expired"
    assert [each.kind for each in fabric.sites["relay"].problems()] == ["expired"]
    (request,) = fabric.sites["c"].describe().requests
    assert request.left_out == {"expired": 30}


def test_products_that_came_live_are_not_counted_when_they_expire(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    until(lambda: is_live(fabric, "b"), "b listens")
    for number in range(20):
        a.put(b"%d" % number, feed=f"x{number % 3}", expiry="50ms")
    a.put(b"the log is read because of this", feed="y", expiry=1)
    until(lambda: has_examined(fabric, "b", "a"), "b has everything that comes")
    beats(fabric, "b")
    assert left_out(fabric, "b", "a") == {"expired": 22 - b.next}


def test_programs_beside_the_queue_see_how_far_the_requests_are(fabric: Fabric) -> None:
    a = fabric.add("a")
    b = fabric.add("b", want("x", "oldest"), want("nothing", "oldest", "nobody", name="other"), near=("a",))
    a.put(b"gone", feed="x", expiry=1)
    a.put(b"1", feed="x")
    until(lambda: has_examined(fabric, "b", "a"), "b has everything that comes")

    def lags() -> list[RequestLag]:
        return sorted(read_lags(b.path, time.time_ns()), key=lambda lag: lag.request, reverse=True)

    until(lambda: len(lags()) == 2 and lags()[0].state == "live" and lags()[1].problem, "the site has written them")
    one, other = lags()
    assert (one.request, one.site, one.behind, one.left_out, one.problem) == ("r", "a", 0, {"expired": 1}, "")
    assert (other.request, other.site, other.problem, other.behind) == ("other", "nobody", "no reply", None)
    assert read_lags(b.path, time.time_ns() + 10**12) == []  # the site has died long ago
    result = CliRunner().invoke(headrace, ["lag", str(b.path)])
    assert result.exit_code == 0
    assert "1 expired" in result.output
    assert "unknown" in result.output
    limited = CliRunner().invoke(headrace, ["lag", str(b.path), "--max-seconds", "1h"])
    assert limited.exit_code == 1, "one of its requests is served by nobody"
    fabric.stop("b")
    assert lags() == []


def test_deleted_products_are_counted_and_no_problem(fabric: Fabric) -> None:
    a = fabric.add("a")
    for number in range(10):
        a.put(b"%d" % number, feed="x" if number < 7 else "y")
    a.delete("x")
    b = fabric.add("b", want("**", "oldest"), near=("a",))
    until(lambda: has_examined(fabric, "b", "a"), "b has everything that comes")
    assert b.next == 4
    assert left_out(fabric, "b", "a") == {"deleted": 7}
    assert [each for each in fabric.sites["b"].problems() if each.kind == "left out"] == []


def test_counts_stay_when_a_request_fails_over_and_when_requests_change(fabric: Fabric) -> None:
    source = fabric.add("s")
    for name in ("p", "q"):
        fabric.add(name, Request("r", Selection("**"), "oldest"), near=("s",), clock=Ahead(3600))
    request = Request("r", Selection("**"), "oldest", ("p", "q"), "failover")
    fabric.add("c", request, near=("p", "q"))
    put_expiring(source, 5, "e")
    until(lambda: fabric.queues["p"].next == fabric.queues["q"].next == 6, "both relays have them")
    until(lambda: has_examined(fabric, "c", "p"), "c has everything that comes")
    assert left_out(fabric, "c", "p") == {"expired": 5}
    fabric.stop("p")
    until(lambda: is_live(fabric, "c", at="q"), "it fails over")
    total = fabric.sites["c"].describe().requests[0].left_out
    assert total["expired"] >= 5
    fabric.sites["c"].change_requests([request, want("nothing", name="another")])
    assert fabric.sites["c"].describe().requests[0].left_out["expired"] >= 5


@pytest.mark.parametrize("is_early", [False, True], ids=["live", "from the log"])
def test_products_are_passed_on_as_often_as_their_hops_allow(fabric: Fabric, is_early: bool) -> None:
    """In a row of three sites; and what stays behind is counted where it would have arrived."""
    a = fabric.add("a")

    def put_all() -> None:
        for hops in (None, 0, 1, 2):
            a.put(b"x", feed="x", ident=f"hops {hops}", options=Options(hops=hops))

    if is_early:
        put_all()
    b = fabric.add("b", want("**", "oldest", "a"), near=("a",))
    c = fabric.add("c", want("**", "oldest", "b"), near=("b",))
    if not is_early:
        until(lambda: is_live(fabric, "c") and is_live(fabric, "b"), "both listen")
        put_all()
    until(lambda: (b.next, c.next) == (4, 3), "everything that comes is there")
    assert {each.ident: each.options.hops for each in b.read()} == {"hops None": None, "hops 1": 0, "hops 2": 1}
    assert {each.ident: each.options.hops for each in c.read()} == {"hops None": None, "hops 2": 0}
    for name, at in (("b", "a"), ("c", "b")):
        until(lambda name=name, at=at: left_out(fabric, name, at) == {"not passed on": 1}, "it is counted")  # type: ignore[misc]
        assert not fabric.sites[name].problems()


@pytest.mark.parametrize("is_early", [False, True], ids=["live", "from the log"])
def test_options_that_nobody_here_knows_pass_through_sites_as_they_are(fabric: Fabric, is_early: bool) -> None:
    """Also one that changes what the payload means: the product is passed on, and its payload is not used."""
    a = fabric.add("a")
    strange = [Options(unknown=((77, b"later"),)), Options(unknown=((77, b""), (200, bytes(255))))]

    def put_all() -> None:
        for number, options in enumerate(strange):
            a.put(b"x", feed="x", ident=str(number), options=options)

    if is_early:
        put_all()
    b = fabric.add("b", want("**", "oldest", "a"), near=("a",))
    c = fabric.add("c", want("**", "oldest", "b"), near=("b",))
    if not is_early:
        until(lambda: is_live(fabric, "c") and is_live(fabric, "b"), "both listen")
        put_all()
    until(lambda: c.next == 3, "everything is there")
    for queue in (b, c):
        assert [queue.read_batch(1).record(place) for place in (0, 1)] == [a.read_batch(1).record(n) for n in (0, 1)]
        assert [dataclasses.replace(each.options, bound_us=0) for each in queue.read()] == strange

"""Threads of a site: no client that leaves, and no error of its session, ends one of them."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zenoh
from relaying import is_live

from headrace import Queue, Selection
from headrace.link.fair import WORK_MAX
from headrace.link.rights import Rule
from headrace.relay.messages.query import Read, Resolve, ResolveReply, decode_reply, encode
from headrace.relay.receive.actions import Action, FindMissing, Pause, Steps
from headrace.relay.receive.driver import Driver
from headrace.relay.receive.pool import Pool
from headrace.relay.receive.upstream import UpstreamStatistics
from headrace.relay.send import Streams
from headrace.relay.serve import Server
from headrace.relay.stream import Stream
from support.fleet import Fabric, want
from support.waiting import until

SOON_S = 20.0


class Declaring:
    """Stands for Declarations: it declares at once."""

    def add(self, declare: Callable[[], Any]) -> Any:
        return declare()


class Session:
    """Stands for a Zenoh session, as far as a Server and Streams use it."""

    def __init__(self) -> None:
        self.sent = threading.Semaphore(0)

    def declare_queryable(self, *about: Any, **terms: Any) -> Any:
        return SimpleNamespace(undeclare=lambda: None)

    def declare_publisher(self, *about: Any, **terms: Any) -> Any:
        return SimpleNamespace(put=lambda *what, **more: self.sent.release(), undeclare=lambda: None)


class Asked:
    """A query; the client of a query that is `gone` cannot be replied to."""

    key_expr, parameters = "headrace/log/a", zenoh.Parameters("")

    def __init__(self, payload: bytes, gone: bool) -> None:
        self.payload = SimpleNamespace(to_bytes=lambda: payload)
        self._gone = gone
        self.reply_came: bytes | None = None
        self.over = threading.Event()

    def reply(self, key: str, payload: bytes) -> None:
        self.reply_err(payload)

    def reply_err(self, payload: bytes) -> None:
        if self._gone:
            raise zenoh.ZError("the session is closed")
        self.reply_came = payload

    def drop(self) -> None:
        self.over.set()


@pytest.mark.parametrize("query", [b"nonsense", encode(Resolve("next")), encode(Resolve("nonsense"))])
def test_clients_that_leave_before_the_reply_end_no_thread(queue: Queue, query: bytes) -> None:
    server = Server(Session(), Declaring(), queue, "a", str, lambda server: None)  # type: ignore[arg-type, return-value]
    try:
        for _ in range(9):
            server._take(asked := Asked(query, gone=True))  # type: ignore[arg-type]
            assert asked.over.wait(SOON_S)
        server._take(asked := Asked(encode(Resolve("next")), gone=False))  # type: ignore[arg-type]
        assert asked.over.wait(SOON_S)
        assert asked.reply_came is not None
        assert decode_reply(asked.reply_came, ResolveReply, "a").sequence == 1
        assert (server.refused, server.answered) == (9, 1)
    finally:
        server.close()


class AskedBy(Asked):
    """A query of a principal. Its replies go out over a slow link: not before `is_free` is set."""

    def __init__(self, name: str, query: Any, is_free: threading.Event) -> None:
        super().__init__(encode(query), gone=False)
        self.key_expr, self._is_free = f"headrace/log/a/{name}", is_free
        self.pages = 0

    def reply(self, key: str, payload: bytes, **more: Any) -> None:
        assert self._is_free.wait(SOON_S)
        self.pages += 1
        super().reply(key, payload)


RULES = (Rule(("greedy", "honest"), receive=("x",)),)


def test_a_principal_that_asks_without_pause_takes_neither_all_threads_nor_all_room(queue: Queue) -> None:
    slow, fast = threading.Event(), threading.Event()
    fast.set()
    server = Server(Session(), Declaring(), queue, "a", str, str, RULES)  # type: ignore[arg-type]
    try:
        greedy = [AskedBy("greedy", Resolve("next"), slow) for _ in range(2 * WORK_MAX)]
        for each in greedy:
            server._take(each)  # type: ignore[arg-type]
        assert greedy[-1].reply_came == b"busy"
        for _ in range(9):
            server._take(asked := AskedBy("honest", Resolve("next"), fast))  # type: ignore[arg-type]
            assert asked.over.wait(SOON_S)
            assert asked.reply_came is not None
        assert not greedy[0].over.is_set()
    finally:
        slow.set()
        server.close()


def test_a_long_reply_has_a_turn_for_each_page(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.relay.serve._THREADS", 1)
    for number in range(8):
        queue.put(b"%d" % number, feed="x")
    slow, pages = threading.Event(), list[int]()
    server = Server(Session(), Declaring(), queue, "a", str, str, RULES)  # type: ignore[arg-type]
    try:
        read, short = AskedBy("greedy", Read("x", 0, 8, 1, 1), slow), AskedBy("honest", Resolve("next"), slow)
        short.reply = lambda key, payload: pages.append(read.pages)  # type: ignore[assignment, misc]
        for each in (read, short):
            server._take(each)  # type: ignore[arg-type]
        slow.set()
        assert all(each.over.wait(SOON_S) for each in (read, short))
        assert (pages, read.pages) == ([1], 8)
    finally:
        server.close()


def test_beats_go_on_if_an_idle_stream_cannot_be_ended(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(stream: Stream) -> bool:
        raise zenoh.ZError("the session is closed")

    monkeypatch.setattr(Stream, "has_subscribers", fail)
    session = Session()
    streams = Streams(session, queue, "a", beat_s=0.001)  # type: ignore[arg-type]
    try:
        streams.listen(Selection("wx/**", ident="^K"))
        for _ in range(20):
            assert session.sent.acquire(timeout=SOON_S)
    finally:
        streams.close()


class Failing:
    """An upstream that fails once in a way that it does not expect, at its start or during an action."""

    site = "b"

    def __init__(self, *actions: Action) -> None:
        self._actions = list(actions)
        self.statistics = UpstreamStatistics()
        self.goes_on = threading.Event()
        self._runs = 0

    def run(self) -> Steps[None]:
        self._runs += 1
        if self._runs == 1:
            yield from self._actions
            raise ValueError("unexpected")
        self.goes_on.set()
        yield Pause(SOON_S)


@pytest.mark.parametrize("actions", [(), (FindMissing(1, 2),)])
def test_an_unexpected_error_does_not_end_an_upstream(monkeypatch: pytest.MonkeyPatch, actions: tuple[Action]) -> None:
    def fail(*about: int) -> tuple[int, int]:
        raise OSError("the disk")

    monkeypatch.setattr("headrace.relay.receive.driver._RESTART_S", 0.0)
    upstream, pool = Failing(*actions), Pool()
    driver = Driver(
        upstream, pool, None, None, store=lambda page, keep: (_ for _ in ()), find_missing=fail, recognise=fail, admit=fail, holders=list,  # type: ignore[arg-type]
        save_progress=lambda: None,
    )  # fmt: skip
    driver.start()
    try:
        assert upstream.goes_on.wait(SOON_S)
        assert upstream.statistics.problem in ("ValueError('unexpected')", "OSError('the disk')")
    finally:
        driver.stop()
        pool.close()


# --- sites that appear ------------------------------------------------------------------------------


def test_the_sites_that_may_be_present_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any client can declare the token of any site."""
    monkeypatch.setattr("headrace.relay.receive.receiver.SITES_MAX", 3)
    fabric = Fabric(tmp_path)
    try:
        fabric.add("a", want("wx/**"))
        receiver = fabric.sites["a"]._receiver
        for number in range(9):
            receiver._see(SimpleNamespace(key_expr=f"headrace/site/s{number}/0", kind=zenoh.SampleKind.PUT))  # type: ignore[arg-type]
        assert receiver._present == {"s0", "s1", "s2"}
        receiver._see(SimpleNamespace(key_expr="headrace/site/s0/0", kind=zenoh.SampleKind.DELETE))  # type: ignore[arg-type]
        receiver._see(SimpleNamespace(key_expr="headrace/site/s9/0", kind=zenoh.SampleKind.PUT))  # type: ignore[arg-type]
        assert receiver._present == {"s1", "s2", "s9"}
        until(lambda: not receiver._meeting, "all were asked")
    finally:
        fabric.close()


def test_a_site_that_lists_many_origins_is_reported_and_leaves_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.relay.receive.places.LISTED_BY_ONE_MAX", 2)
    fabric = Fabric(tmp_path)
    try:
        listing = fabric.add("listing")
        for number in range(5):
            listing.put(b"x", feed="wx", origin=f"o{number}", origin_sequence=1)
        fabric.add("other")
        here = fabric.add("here", want("wx/**"), near=("listing", "other"))
        until(lambda: is_live(fabric, "here", at="other"), "here listens")
        until(lambda: fabric.sites["here"]._receiver.turned_away == {"listing": 3}, "three are counted")
        (problem,) = [each for each in fabric.sites["here"].problems() if each.kind == "ignored"]
        assert problem.text == "site listing lists too many origins that are away; 3 of them are ignored"
        fabric.queues["other"].put(b"y", feed="wx")
        until(lambda: [p.origin for p in here.read("oldest")] == ["other"], "the other site is served")
    finally:
        fabric.close()


def test_a_site_that_could_not_be_met_is_met_when_it_appears_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise RuntimeError("unexpected")

    fabric = Fabric(tmp_path)
    try:
        fabric.add("a", want("wx/**"))
        receiver = fabric.sites["a"]._receiver
        monkeypatch.setattr(receiver, "_add_origin", fail)
        receiver._see(SimpleNamespace(key_expr="headrace/site/b/0", kind=zenoh.SampleKind.PUT))  # type: ignore[arg-type]
        until(lambda: not receiver._meeting, "it is over")
    finally:
        fabric.close()

"""Quench: a feed is wanted by subscribers elsewhere, by stations, readers and cursors here, and by recent ones."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zenoh

from headrace import Queue, connect
from headrace.errors import FeedError
from headrace.link.session import SessionTerms, open_session
from headrace.queue.demand import LINGER_S, read_wanted, wanted_by
from support.fleet import Fabric, want
from support.waiting import until

LATER_NS = int((LINGER_S + 5) * 1e9)


@pytest.fixture
def routers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fabric]:
    """Sites on sessions as `headrace serve` opens them."""

    def open_router(listen: list[str], connect: list[str]) -> zenoh.Session:
        return open_session(SessionTerms("router", tuple(listen), tuple(connect)))

    monkeypatch.setitem(Fabric.start.__globals__, "open_plain", open_router)
    made = Fabric(tmp_path)
    yield made
    made.close()


def by(queue: Queue, feed: str, later_ns: int = 0) -> list[str]:
    return wanted_by(queue.path, queue._log, queue._stations.document, feed, time.time_ns() + later_ns)


def test_a_feed_is_wanted_while_a_site_subscribes_and_for_a_while_after(routers: Fabric) -> None:
    a = routers.add("a")
    assert not a.wanted("wx/radar/K")
    routers.add("b", want("wx/radar/**"), near=("a",))
    until(lambda: a.wanted("wx/radar/K"), "a knows that b listens")
    assert a.wanted_by("wx/radar/K") == ["subscribers to wx/radar/**"]
    assert not a.wanted("wx/text")
    assert routers.sites["a"].describe().wanted == ("wx/radar/**",)
    routers.stop("b")
    until(lambda: not routers.sites["a"].describe().wanted, "a knows that b has gone")
    until(lambda: "recent subscribers" in by(a, "wx/radar/K")[0], "a notes it")
    assert a.wanted("wx/radar/K")  # b may have been cut off
    assert by(a, "wx/radar/K", LATER_NS) == []


def test_requests_with_conditions_count_by_their_feeds(routers: Fabric) -> None:
    a = routers.add("a")
    routers.add("b", want('wx/** ident ~ "^K"'), near=("a",))
    until(lambda: a.wanted("wx/text"), "a knows that b listens")
    assert not a.wanted("tel/frames")
    assert routers.sites["a"].describe().wanted == ("wx/**",)


def test_requests_for_other_origins_do_not_count(routers: Fabric) -> None:
    a = routers.add("a")
    b = routers.add("b", want("**", "next", "a", name="from a"), near=("a",))
    routers.add("c", want("** origin a", "next", "b"), near=("b",))
    until(lambda: len([s for s in routers.sites["b"].statistics().streams if s != "own"]) == 1, "c listens to b")
    until(lambda: a.wanted("x"), "b listens to a")
    routers.sites["b"]._quench._look_once()
    assert not b.wanted("x")


def test_without_a_site_everything_is_wanted(queue: Queue) -> None:
    assert queue.wanted_by("x") == ["possible subscribers (no site runs at this queue)"]
    with pytest.raises(FeedError):
        queue.wanted("no feed")


def test_the_notes_of_a_dead_site_are_ignored(routers: Fabric) -> None:
    a = routers.add("a")
    assert not a.wanted("x")
    noted = read_wanted(a.path)
    assert noted is not None
    file = a.path / "site" / "wanted.json"
    file.write_text(file.read_text().replace(f'"process_start": {noted.process_start}', '"process_start": 1'))
    assert a.wanted("x")
    file.write_text("{")
    assert a.wanted("x")


def test_stations_and_cursors_count(routers: Fabric) -> None:
    a = routers.add("a")
    a.station("decode", "wx/**")
    assert a.wanted_by("wx/text") == ["station decode"]
    assert not a.wanted("tel/frames")
    a.cursor("archive")
    assert a.wanted_by("tel/frames") == ["cursor archive"]
    assert by(a, "tel/frames", LATER_NS) == []


def test_a_process_that_reads_counts(routers: Fabric) -> None:
    a = routers.add("a")
    program = "import sys; from headrace import Queue; q = Queue.open(sys.argv[1]); q.read_batch(); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program, a.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        assert a.wanted_by("x") == [f"process {reader.pid}, which reads the queue"]
        reader.communicate(b"\n")
    assert not a.wanted("x")


def test_remote_clients_count_by_what_they_read(routers: Fabric) -> None:
    a = routers.add("a")
    with connect(routers._endpoints["a"]) as there:
        assert not there.wanted("wx/text")  # a connected client that reads nothing does not count
        there.follow("next", "wx/**", timeout=0.01).next_nowait()
        until(lambda: a.wanted("wx/text"), "a notices that it is read")
        assert there.wanted_by("wx/text") == ["subscribers to wx/**"]
        assert not there.wanted("tel/frames")
        (told,) = [fabric.describe() for fabric in routers.sites.values()]
        assert (told.users, told.wanted) == (1, ("wx/**",))
    until(lambda: routers.sites["a"].describe().users == 0, "the client has left")


def test_wanted_feeds_survive_a_restart(routers: Fabric) -> None:
    a = routers.add("a")
    routers.add("b", want("x/**"), near=("a",))
    until(lambda: a.wanted("x/y"), "b listens")
    routers.stop("b")
    routers.stop("a")
    routers.start("a")
    assert "recent subscribers" in a.wanted_by("x/y")[0]
    assert not a.wanted("z")


def test_an_invalid_token_counts_for_every_feed(routers: Fabric) -> None:
    a, b = routers.add("a"), routers.add("b", near=("a",))
    token = routers.sessions["b"].liveliness().declare_token("headrace/client/a/listens/**")
    until(lambda: a.wanted("x"), "a notices")
    assert a.wanted_by("x") == ["subscribers to **"]
    token.undeclare()
    odd = routers.sessions["a"].liveliness().declare_token("headrace/client/b/listens/own/a$*b")
    until(lambda: b.wanted("x"), "b notices")
    odd.undeclare()


def test_reading_the_wanted_feeds_blocks_no_router(routers: Fabric) -> None:
    """A router that is queried for its subscriptions while others are declared would block."""
    a = routers.add("a")
    routers.add("b", want("wx/**"), near=("a",))
    quench, session = routers.sites["a"]._quench, routers.sessions["b"]
    until(lambda: a.wanted("wx/text"), "b listens")
    for number in range(300):
        subscriber = session.declare_subscriber(f"x/{number}", lambda _: None)
        quench._look_once()
        subscriber.undeclare()
    assert quench.patterns == ["wx/**"]


def test_patterns_that_come_and_go_are_remembered_up_to_a_limit(
    routers: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any client can declare a new pattern every second, and each is remembered for ten minutes."""
    monkeypatch.setattr("headrace.relay.quench.PATTERNS_MAX", 10)
    a = routers.add("a")
    quench = routers.sites["a"]._quench
    listened: set[str] = set()
    monkeypatch.setattr(quench, "_listened", lambda: listened)
    for turn in range(4):
        listened = {f"wx/{turn}/{number}" for number in range(4)}
        quench._look_once()
        assert len(quench._last) <= 10
    assert "**" in quench._last
    listened = set()
    quench._look_once()
    assert by(a, "any/feed") == ["recent subscribers to **"]
    assert by(a, "any/feed", LATER_NS) == []

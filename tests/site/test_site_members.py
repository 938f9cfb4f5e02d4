"""Real sites that stop, die and start again, as another site and its clients see them."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace import Queue
from headrace.link.keys import site_key
from headrace.queue import AnyQueue, MemberEvent, MemberStream
from headrace.remote.server.offers import OtherOffers
from support.daemon import Daemon
from support.fleet import Fabric, free_port
from support.seeds import random_seed
from support.waiting import until

LIMIT_S = 240


class Pair:
    """Site `hub`, which a client watches, and site `denver`, which comes and goes."""

    def __init__(self, folder: Path) -> None:
        self._hub_file, self._denver_file = folder / "hub.toml", folder / "denver.toml"
        _configure(self._hub_file, f"tcp/127.0.0.1:{free_port()}")
        self._started = [Daemon(self._hub_file)]
        self.endpoint = self._started[0].wait_until_ready()
        _configure(self._denver_file, f"tcp/127.0.0.1:{free_port()}", connect=self.endpoint)
        self.queue_of_denver = folder / "denver"

    def start(self) -> Daemon:
        self._started.append(Daemon(self._denver_file))
        self._started[-1].wait_until_ready()
        return self._started[-1]

    def close(self) -> None:
        for daemon in self._started:
            daemon.kill()


def _configure(file: Path, listen: str, connect: str = "") -> None:
    name, near = file.stem, f'connect = ["{connect}"]\n' if connect else ""
    file.write_text(f'[site]\nqueue = "{file.with_suffix("")}"\nname = "{name}"\nlisten = ["{listen}"]\n{near}')


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


@pytest.fixture
def queue(pair: Pair) -> Iterator[AnyQueue]:
    with headrace.connect(pair.endpoint) as connected:
        yield connected


def of_denver(stream: MemberStream) -> MemberEvent:
    return next(event for event in stream if event.name == "denver")


def test_a_site_joins_with_its_feeds_changes_stops_and_is_restarted(pair: Pair, queue: AnyQueue) -> None:
    stream = queue.members("site", timeout=LIMIT_S)
    assert str(next(stream)) == "site:hub joined (present)"
    site = pair.start()
    assert str(of_denver(stream)) == "site:denver joined (new)"
    with Queue.open(pair.queue_of_denver) as there:
        there.put(b"1", feed="wx/text")
    changed = of_denver(stream)
    assert (changed.kind, changed.reason, changed.feeds) == ("changed", "feeds", ("wx/text",))
    assert site.stop() == 0
    assert str(of_denver(stream)) == "site:denver left (stopped)"
    pair.start()
    returned = of_denver(stream)
    assert (str(returned), returned.feeds) == ("site:denver joined (restarted)", ("wx/text",))


def test_a_site_that_is_killed_is_lost_and_somebody_who_waits_gets_its_successor(pair: Pair, queue: AnyQueue) -> None:
    stream = queue.members("site", timeout=LIMIT_S)
    next(stream)
    first = pair.start()
    joined = of_denver(stream)
    first.kill()
    assert str(of_denver(stream)) == "site:denver left (lost)"
    pair.start()
    found = queue.wait_for("site:denver", LIMIT_S)
    assert found.instance != joined.member.instance
    assert str(of_denver(stream)) == "site:denver joined (restarted)"


@pytest.mark.processes
def test_after_any_number_of_kills_and_restarts_a_watcher_knows_who_is_there(pair: Pair, queue: AnyQueue) -> None:
    """The events add up to what is true, however late they are read."""
    chance = random.Random(random_seed())
    watched = headrace.connect(pair.endpoint, on_loss="wait")
    stream = watched.members("site", timeout=LIMIT_S)
    for _ in range(4):
        site = pair.start()
        if chance.random() < 0.5:
            watched.wait_for("site:denver", LIMIT_S)  # otherwise it may be gone before anybody noticed
        (site.kill if chance.random() < 0.6 else site.stop)()
    last = pair.start()
    with Queue.open(pair.queue_of_denver) as there:
        there.put(b"1", feed="last/run")
    here: dict[str, MemberEvent] = {}
    while "hub" not in here or "denver" not in here or here["denver"].feeds != ("last/run",):
        event = next(stream)
        print(event, event.member.instance)
        if event.kind == "left":
            assert here.pop(event.name).member == event.member
        else:
            assert (event.name in here) == (event.kind == "changed")
            here[event.name] = event
    assert last.stop() == 0
    assert str(of_denver(stream)) == "site:denver left (stopped)"
    watched.close()


# --- sites in this process ----------------------------------------------------------------------------


def digest_of_b(fabric: Fabric) -> str:
    """The digest of the feeds of site b, as site a sees it."""
    present = fabric.sites["a"]._remote._membership._seen.present(time.monotonic())
    return next((digest for (name, _), digest in present.items() if name == "b"), "")


def test_the_feeds_of_other_sites_are_queried_only_while_somebody_watches(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = OtherOffers._ask, list[str]()
    monkeypatch.setattr(OtherOffers, "_ask", lambda self, run, digest: (asked.append(run[0]), ask(self, run, digest)))
    fabric.add("a")
    there = fabric.add("b", near=("a",))
    until(lambda: digest_of_b(fabric), "a sees b")
    before = digest_of_b(fabric)
    there.put(b"1", feed="wx/text")
    until(lambda: digest_of_b(fabric) != before, "a sees that b has another feed")
    assert asked == []
    with headrace.connect(fabric._endpoints["a"]) as queue:
        found = next(event for event in queue.members("site", timeout=LIMIT_S) if event.name == "b")
        assert (found.reason, found.feeds) == ("present", ("wx/text",))
    assert set(asked) == {"b"}


def test_a_token_without_a_site_behind_it_is_a_site_without_feeds(fabric: Fabric) -> None:
    """Without access rules, anybody can declare it; a site with rules admits only tokens of the right name."""
    fabric.add("a")
    session = fabric.sessions["a"]
    with headrace.connect(fabric._endpoints["a"]) as queue:
        stream = queue.members("site", timeout=LIMIT_S)
        next(stream)
        tokens = [session.liveliness().declare_token(site_key(name, "abc")) for name in ("ghost", "no name", "*")]
        ghost = next(stream)
        assert (str(ghost), ghost.feeds) == ("site:ghost joined (new)", ())
        for token in tokens:
            token.undeclare()  # type: ignore[no-untyped-call]
        assert str(next(stream)) == "site:ghost left (lost)"
        assert [member.name for member in stream.here] == ["a"]


def test_a_second_site_of_a_name_joins_and_leaves_and_nothing_was_restarted(fabric: Fabric) -> None:
    """Each with its own feeds, although both reply to a query for their name."""
    fabric.add("a")
    fabric.add("b", near=("a",)).put(b"1", feed="wx/text")
    session = fabric.sessions["a"]
    with headrace.connect(fabric._endpoints["a"]) as queue:
        stream = queue.members("site", timeout=LIMIT_S)
        first = next(event for event in stream if event.feeds == ("wx/text",))
        token = session.liveliness().declare_token(site_key("b", "abc"))
        second = next(stream)
        assert (str(second), second.member.instance, second.feeds) == ("site:b joined (duplicate)", "abc", ())
        token.undeclare()  # type: ignore[no-untyped-call]
        gone = next(stream)
        assert (str(gone), gone.member.instance) == ("site:b left (lost)", "abc")
        assert first.member in stream.here

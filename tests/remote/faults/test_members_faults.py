"""Members while links break, and sites and watchers stop or die."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.errors import SiteUnreachableError
from headrace.queue import MemberEvent, MemberStream
from headrace.remote.client import members as remote_members
from headrace.remote.protocol.member_calls import MemberChanges
from headrace.remote.server import pending_call
from support.serving import Served, Wire
from support.waiting import until

LIMIT_S = 240

WATCHES = """
import sys, headrace
stream = headrace.connect(sys.argv[1]).members()
print(next(stream), flush=True)
for event in stream:
    pass
"""


@contextmanager
def told_by(stream: MemberStream) -> Iterator[list[str]]:
    """The events of a stream as they come, read in a thread; the last one may be an error."""
    told: list[str] = []

    def read() -> None:
        try:
            for event in stream:
                told.append(str(event))
        except SiteUnreachableError as error:
            told.append(type(error).__name__)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield told
    finally:
        stream.stop()
        reader.join(LIMIT_S)
        assert not reader.is_alive()


def test_members_behind_a_link_that_is_cut_are_unreachable_and_return_with_it(served: Served, wire: Wire) -> None:
    name = f"site:{served.name}"
    remote = served.connect(wire.endpoint, on_loss="wait")
    with served.queue.channel("radar", "wx/**").supplier(), told_by(remote.members()) as told:
        until(lambda: "supplier:radar joined (present)" in told, lambda: told)
        wire.cut()
        until(
            lambda: f"{name} left (unreachable)" in told and "supplier:radar left (unreachable)" in told, lambda: told
        )
        wire.restore()
        until(lambda: f"{name} joined (returned)" in told and "supplier:radar joined (returned)" in told, lambda: told)


def test_a_short_break_is_not_told_but_what_changed_meanwhile_is(
    served: Served, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_members, "UNREACHABLE_S", LIMIT_S)
    channel = served.queue.channel("radar", "wx/**")
    remote = served.connect(wire.endpoint, on_loss="wait")
    leaves = channel.supplier()
    with told_by(remote.members("supplier")) as told:
        until(lambda: len(told) == 1)
        wire.cut()
        until(lambda: remote._connection.silence.is_silent, "the break is noticed")
        leaves.close()
        with channel.supplier():
            wire.restore()
            until(lambda: len(told) == 3, lambda: told)
    assert told == ["supplier:radar joined (present)", "supplier:radar left (stopped)", "supplier:radar joined (new)"]


def test_a_stream_ends_after_patience_and_its_members_are_unreachable_before(served: Served, wire: Wire) -> None:
    remote = served.connect(wire.endpoint, patience=3)
    with told_by(remote.members("site")) as told:
        until(lambda: told, "the site")
        wire.cut()
        until(lambda: told[-1] == "SiteUnreachableError", lambda: told)
    name = f"site:{served.name}"
    assert told == [f"{name} joined (present)", f"{name} left (unreachable)", "SiteUnreachableError"]


def test_a_site_that_stops_says_so_to_those_who_watch_it(served: Served) -> None:
    remote = served.connect(on_loss="wait")
    name = f"site:{served.name}"
    with told_by(remote.members("site")) as told:
        until(lambda: told, "the site")
        served.stop()
        until(lambda: len(told) == 2, lambda: told)
        served.start()
        until(lambda: len(told) == 3, lambda: told)
    assert told == [f"{name} joined (present)", f"{name} left (stopped)", f"{name} joined (restarted)"]


@pytest.mark.parametrize("fault", ["freeze", "cut"])
def test_wait_for_ends_by_its_timeout_whatever_the_link_does(served: Served, wire: Wire, fault: str) -> None:
    remote = served.connect(wire.endpoint, patience="1h")
    getattr(wire, fault)()
    begun_s = time.monotonic()
    with pytest.raises(SiteUnreachableError):
        remote.wait_for("site:denver", 0.5)
    print(f"{time.monotonic() - begun_s:.2f} s for 0.5 s")
    wire.thaw()
    wire.restore()
    assert remote.wait_for(f"site:{served.name}", LIMIT_S).site == served.name


def next_of(stream: MemberStream, matches: Callable[[MemberEvent], Any]) -> MemberEvent:
    return next(event for event in stream if matches(event))


def test_a_watcher_that_is_killed_is_lost_and_leaves_no_call_behind(served: Served) -> None:
    assert served.site is not None
    stream = served.connect().members("client", timeout=LIMIT_S)
    assert next(stream).reason == "present"  # ourselves
    where = f"{served.endpoint}?site={served.name}"
    with subprocess.Popen([sys.executable, "-c", WATCHES, where], stdout=subprocess.PIPE) as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline().endswith(b"joined (present)\n")
        joined = next_of(stream, lambda event: event.kind == "joined")
        watcher.kill()
    left = next_of(stream, lambda event: event.kind == "left")
    assert (left.reason, left.member) == ("lost", joined.member)
    until(lambda: served.site.statistics().remote.watching == 0, "its call has ended")  # type: ignore[union-attr]


def test_one_thread_serves_all_watchers(served: Served) -> None:
    def threads() -> int:
        return sum(thread.name == "headrace-members" for thread in threading.enumerate())

    before = threads()
    users = [served.connect() for _ in range(3)]
    for user in users:
        next(user.members())
    assert threads() == before == 1


def test_a_watcher_whose_link_is_full_holds_up_no_other(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply blocks while the link of its client is full."""
    send, is_full, is_stuck = pending_call._send, threading.Event(), threading.Event()

    def send_when_there_is_room(query: Any, make: Any, *more: Any) -> None:
        if isinstance(make()[0], MemberChanges) and not is_stuck.is_set():
            is_stuck.set()
            is_full.wait(LIMIT_S)
        send(query, make, *more)

    monkeypatch.setattr(pending_call, "_send", send_when_there_is_room)
    with told_by(served.connect(patience="1h").members("site")) as told:
        assert is_stuck.wait(LIMIT_S)
        assert served.connect().wait_for(f"site:{served.name}", LIMIT_S).name == served.name
        assert told == []
        is_full.set()
        until(lambda: told, "the first one continues")

"""Rights that change while sites run: what is permitted later comes whole, what is denied ends at once, on every path."""

from pathlib import Path

from siteconfig import Serve

import headrace
from headrace import Queue
from headrace.link.credentials import UserTerms
from support.daemon import Daemon
from support.fleet import free_port
from support.waiting import until

HUB = """[site]
queue = "hub.queue"
name = "hub"
listen = ["tcp/127.0.0.1:{port}"]
[users]
name = "hub"
password_file = "password"
dictionary_file = "users"
[[allow]]
who = ["boulder"]
receive = {feeds}
"""
BOULDER = """[site]
queue = "boulder.queue"
name = "boulder"
mode = "client"
connect = ["tcp/127.0.0.1:{port}"]
[users]
name = "boulder"
password_file = "password"
[[request]]
select = "**"
from = "oldest"
"""


class Hub:
    """A site with rules, in a process of its own."""

    def __init__(self, folder: Path, serve: Serve) -> None:
        self._folder, self._port = folder, free_port()
        for name, text in {"password": "open sesame\n", "users": "hub:open sesame\nboulder:open sesame\n"}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        (folder / "boulder.toml").write_text(BOULDER.format(port=self._port))
        self._process = self._started(serve)
        self.queue = Queue.open(folder / "hub.queue")

    def _started(self, serve: Serve) -> Daemon:
        self._write("wx/a")
        process = serve(self._folder / "hub.toml")
        process.wait_until_ready()
        return process

    def _write(self, *feeds: str) -> None:
        (self._folder / "hub.toml").write_text(HUB.format(port=self._port, feeds=list(feeds)))

    def permit(self, *feeds: str) -> None:
        self._write(*feeds)
        self._process.reload("hub.toml is loaded")

    def put(self, feed: str, *idents: str) -> None:
        for ident in idents:
            self.queue.put(ident.encode(), feed=feed, ident=ident)

    def connect(self) -> "headrace.AnyQueue":
        user = UserTerms("boulder", "open sesame")
        return headrace.connect(f"tcp/127.0.0.1:{self._port}", user=user)


def start_boulder(folder: Path, serve: Serve) -> Daemon:
    process = serve(folder / "boulder.toml")
    until(lambda: (folder / "boulder.queue" / "queue.json").exists(), "its queue exists")
    return process


def held(folder: Path) -> list[str]:
    with Queue.open(folder / "boulder.queue") as queue:
        return [product.ident for batch in queue.follow("oldest", timeout=0) for product in batch]


def test_feeds_that_are_permitted_later_come_whole_also_after_a_restart(tmp_path: Path, serve: Serve) -> None:
    hub = Hub(tmp_path, serve)
    hub.put("wx/a", "a1")
    hub.put("wx/b", "b1", "b2")
    hub.put("tel/c", "c1")
    boulder = start_boulder(tmp_path, serve)
    until(lambda: held(tmp_path) == ["a1"], "what is permitted arrives")
    hub.permit("wx/a", "wx/b")
    hub.put("wx/a", "a2")
    until(lambda: sorted(held(tmp_path)) == ["a1", "a2", "b1", "b2"], "what was put before it was permitted arrives")
    assert boulder.stop() == 0
    hub.permit("**")
    hub.put("wx/b", "b3")
    start_boulder(tmp_path, serve)
    everything = ["a1", "a2", "b1", "b2", "b3", "c1"]
    until(lambda: sorted(held(tmp_path)) == everything, "also what was permitted while it was down")


def test_a_site_without_credentials_receives_what_everybody_may_receive(tmp_path: Path, serve: Serve) -> None:
    port = free_port()
    (tmp_path / "hub.toml").write_text(
        f'[site]\nqueue = "hub.queue"\nname = "hub"\nlisten = ["tcp/127.0.0.1:{port}"]\n'
        '[[allow]]\nwho = "*"\nreceive = ["wx/**"]\n'
    )
    (tmp_path / "boulder.toml").write_text(
        f'[site]\nqueue = "boulder.queue"\nname = "boulder"\nconnect = ["tcp/127.0.0.1:{port}"]\n'
        '[[request]]\nselect = "**"\nfrom = "oldest"\n'
    )
    serve(tmp_path / "hub.toml").wait_until_ready()
    with Queue.open(tmp_path / "hub.queue") as queue:
        queue.put(b"before", feed="wx/a", ident="before")
        start_boulder(tmp_path, serve)
        until(lambda: held(tmp_path) == ["before"], "the log arrives")
        queue.put(b"denied", feed="tel/a", ident="denied")
        queue.put(b"live", feed="wx/a", ident="live")
        until(lambda: held(tmp_path) == ["before", "live"], "what is put now arrives")


def test_feeds_that_are_denied_end_at_once_on_every_path(tmp_path: Path, serve: Serve) -> None:
    hub = Hub(tmp_path, serve)
    hub.permit("wx/a", "wx/b")
    start_boulder(tmp_path, serve)
    hub.put("wx/a", "a1")
    hub.put("wx/b", "b1")
    until(lambda: sorted(held(tmp_path)) == ["a1", "b1"], "both arrive")
    with hub.connect() as remote:
        assert [product.ident for product in remote.read_batch("oldest")] == ["a1", "b1"]
        hub.permit("wx/a")
        hub.put("wx/b", "b2")
        hub.put("wx/a", "a2")
        until(lambda: "a2" in held(tmp_path), "what is permitted still arrives, live or from the log")
        assert sorted(held(tmp_path)) == ["a1", "a2", "b1"]
        assert [product.ident for product in remote.read_batch("oldest")] == ["a1", "a2"], (
            "an open connection obeys, too"
        )
    with hub.connect() as remote:
        assert [product.ident for product in remote.read_batch("oldest")] == ["a1", "a2"]


def test_a_user_with_few_rights_sees_sites_join_and_stop_with_the_feeds_that_it_may_receive(
    tmp_path: Path, serve: Serve
) -> None:
    hub = Hub(tmp_path, serve)
    hub.put("wx/a", "a1")
    hub.put("wx/b", "b1")
    with hub.connect() as queue:
        stream = queue.members(timeout=240)
        first = next(stream)
        if not first.feeds:  # the hub has not looked at its new feeds yet
            first = next(stream)
        assert (first.name, first.feeds) == ("hub", ("wx/a",))
        boulder = start_boulder(tmp_path, serve)
        assert str(next(stream)) == "site:boulder joined (new)"
        assert boulder.stop() == 0
        assert str(next(stream)) == "site:boulder left (stopped)"
        assert [str(member) for member in stream.here] == ["site:hub"]  # and no clients
    hub.queue.close()

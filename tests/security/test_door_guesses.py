"""Guesses of passwords: they are noticed and logged, and slowed down until they are hopeless; honest clients go on."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
import zenoh

import headrace
from headrace.errors import FabricError
from headrace.link.credentials import UserTerms
from headrace.link.passwords import secret_of
from support.commandline import Run, objects
from support.daemon import Daemon
from support.waiting import until

_PASSWORD = "correct horse battery"
_SITE = """
[site]
queue = "wx.queue"
name = "denver"
listen = ["tcp/127.0.0.1:0"]
scouting = "off"
[users]
dictionary_file = "users"
[log]
per_second = 1000
[[allow]]
who = ["alice"]
publish = ["wx/**"]
receive = ["wx/**"]
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "users").write_text(f"alice:{secret_of('alice', _PASSWORD)}\n")
    (tmp_path / "users").chmod(0o600)
    (tmp_path / "site.toml").write_text(_SITE)
    with Daemon(tmp_path / "site.toml") as site:
        yield site


def guess(endpoint: str, password: str) -> bool:
    """One guess, as a program makes it that knows Zenoh only: whether it had an answer."""
    config = zenoh.Config()
    for key, value in {
        "mode": "client", "connect/endpoints": [endpoint], "connect/timeout_ms": 0, "scouting/multicast/enabled": False,
        "transport/auth/usrpwd/user": "alice", "transport/auth/usrpwd/password": password,
        "transport/unicast/open_timeout": 500,
    }.items():  # fmt: skip
        config.insert_json5(key, json.dumps(value))
    with pytest.raises(zenoh.ZError):
        zenoh.open(config)
    return True


@contextmanager
def guesser(endpoint: str) -> Iterator[None]:
    """Guesses at full speed until the end of the block."""
    is_over = threading.Event()

    def run() -> None:
        for number in count():
            if is_over.is_set():
                return
            guess(endpoint, f"guess {number}")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_guesses_are_logged_with_address_and_count_and_the_address_is_locked_out(site: Daemon) -> None:
    endpoint = site.wait_until_ready()
    with guesser(endpoint):
        until(lambda: "from 127.0.0.0/8" in site.log.read_text(), "they are noticed")
        until(lambda: "it is locked out for 1 s" in site.log.read_text(), "it is locked out")


def test_an_honest_client_goes_on_while_another_guesses(site: Daemon) -> None:
    endpoint = site.wait_until_ready()
    with headrace.connect(endpoint, user=UserTerms("alice", _PASSWORD)) as before, guesser(endpoint):
        until(lambda: "it is locked out" in site.log.read_text(), "it is locked out")
        assert before.put(b"1", feed="wx/text", ident="1") == 1
        with headrace.connect(endpoint, user=UserTerms("alice", _PASSWORD), patience="240s") as after:
            assert after.put(b"2", feed="wx/text", ident="2") == 2


def test_an_operator_sees_it(site: Daemon, tmp_path: Path, run: Run) -> None:
    endpoint = site.wait_until_ready()
    with guesser(endpoint):
        until(lambda: "logins from 127.0.0.0/8 have failed; it is locked out" in site.log.read_text(), "a problem")
    audit = run("audit", tmp_path / "wx.queue", "--refused", "--json")
    assert [each["peer"] for each in objects(audit.stdout) if each["action"] == "login"][:1] == ["127.0.0.0/8"]


def test_honest_clients_are_no_guessers(site: Daemon) -> None:
    endpoint = site.wait_until_ready()
    for number in range(1, 13):
        with headrace.connect(endpoint, user=UserTerms("alice", _PASSWORD)) as queue:
            assert queue.put(b"%d" % number, feed="wx/text") == number
    with pytest.raises(FabricError, match="refused user alice"):
        headrace.connect(endpoint, user=UserTerms("alice", "wrong password")).close()
    until(lambda: "failed login" in site.log.read_text(), "the wrong one is noticed")
    assert "locked out" not in site.log.read_text()

"""Passwords: no file that a site writes or reads has one, and what is stored does not tell it."""

from pathlib import Path

import pytest

import headrace
from headrace.errors import FabricError
from headrace.link.credentials import UserTerms
from headrace.link.passwords import secret_of
from support.daemon import Daemon

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
file = "site.log"
level = "debug"
[[allow]]
who = ["alice"]
publish = ["wx/**"]
receive = ["wx/**"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "users").write_text(f"alice:{secret_of('alice', _PASSWORD)}\n")
    (tmp_path / "users").chmod(0o600)
    (tmp_path / "site.toml").write_text(_SITE)
    return tmp_path / "site.toml"


def put_as_alice(endpoint: str, password: str) -> None:
    with headrace.connect(endpoint, user=UserTerms("alice", password)) as queue:
        queue.put(b"1", feed="wx/text")


def test_a_user_logs_in_by_password_and_no_file_of_the_site_has_it(file: Path) -> None:
    with Daemon(file) as site:
        put_as_alice(site.wait_until_ready(), _PASSWORD)
        descriptors = Path(f"/proc/{site.process.pid}/fd")
        assert not [each for each in descriptors.iterdir() if "headrace-users" in str(each.readlink())]
    written = [each.read_bytes() for each in file.parent.rglob("*") if each.is_file()]
    assert len(written) > 5
    assert not any(_PASSWORD.encode() in content for content in written)


def test_a_wrong_password_is_refused(file: Path) -> None:
    with Daemon(file) as site, pytest.raises(FabricError, match="refused user alice"):
        put_as_alice(site.wait_until_ready(), "correct horse batterz")


def test_a_client_that_sends_the_password_itself_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.link.credentials.secret_of", lambda name, password: password)
    with Daemon(file) as site, pytest.raises(FabricError, match="refused user alice"):
        put_as_alice(site.wait_until_ready(), _PASSWORD)


def test_a_file_with_passwords_in_clear_works_with_a_warning_that_names_the_remedy(file: Path) -> None:
    (file.parent / "users").write_text(f"alice:{_PASSWORD}\n")
    with Daemon(file) as site:
        put_as_alice(site.wait_until_ready(), _PASSWORD)
    log = (file.parent / "site.log").read_text()
    assert "has the passwords of 1 user in clear; convert it with: headrace users import" in log
    assert _PASSWORD not in log

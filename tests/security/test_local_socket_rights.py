"""With rules, programs at the socket in the directory of a queue may do everything, and nobody else gets that by it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import zenoh

import headrace
from headrace.errors import AccessDeniedError, HeadraceError
from headrace.link.access import principal_key
from headrace.link.credentials import UserTerms
from headrace.link.keys import AT_SOCKET, call_key, live_key, log_key, name_at_socket
from headrace.link.local import name_by_socket
from headrace.link.session import SessionTerms, open_session
from headrace.relay.messages.query import Identify, encode
from support.realm import Allow, Realm, SecureSite

_READER = Allow("reader", receive=["wx/public/**"])


def hub_of(realm: Realm, *rules: Allow, more: str = "", also: tuple[str, ...] = ()) -> SecureSite:
    """A site that listens on the socket of its queue first."""
    return realm.site("hub", *rules or (_READER,), more=more, before=("local", *also))


def socket_of(hub: SecureSite) -> str:
    return f"unixsock-stream/{hub.queue.path}/socket/site"


def reached(session: zenoh.Session, name: str | None) -> list[str]:
    """At which keys of the hub a query under this name gets a reply, even a refusal."""
    keys = [principal_key(key, name) for key in (log_key("hub"), call_key("hub"))]
    return [key for key in keys if list(session.get(key, payload=encode(Identify()), timeout=5))]


def json_of(*words: str) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(run(*words, "--json"))
    return found


def run(*words: str, given: str = "") -> str:
    """What a command writes."""
    done = subprocess.run([sys.executable, "-m", "headrace", *words], input=given, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_a_program_at_the_socket_may_do_everything(realm: Realm) -> None:
    hub = hub_of(realm, Allow("*", receive=["wx/public/**"]), _READER)
    with headrace.connect(socket_of(hub)) as queue:
        queue.put(b"1", feed="wx/secret/a", origin="elsewhere", origin_sequence=1)
        queue.station("strict", "**", blocking=True)
        queue.cursor("mine", "oldest")
        assert queue.read_batch("oldest", limit=1).feeds == ["wx/secret/a"]
        assert "elsewhere" in queue.origins
    owners = hub.queue.path / "site" / "owners.json"
    assert not owners.exists() or b"strict" not in owners.read_bytes()  # they belong to the site
    assert AT_SOCKET in run("audit", str(hub.queue.path))


def test_programs_find_the_site_by_its_name_at_the_socket(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = hub_of(realm)
    hub.queue.put(b"1", feed="wx/secret/a")
    monkeypatch.setenv("HEADRACE_SITES", socket_of(hub))
    assert "wx/secret/a" in run("queue", "info", "site:hub")


def test_the_sites_command_works_with_the_file_whose_first_endpoint_is_the_socket(realm: Realm) -> None:
    hub = hub_of(realm)
    hub.queue.put(b"1", feed="wx/secret/a")
    text = hub.file.read_text()
    for listen in ('["local",', "["):
        hub.file.write_text(text.replace('["local",', listen))
        found = json_of("sites", str(hub.file), "--check")
        assert found["problems"] == []
        (node,) = found["nodes"]  # type: ignore[misc]
        assert (node["state"], node["description"]["held_products"]) == ("here", 1)


def test_the_key_of_the_socket_is_worth_nothing_elsewhere(realm: Realm) -> None:
    also = (f"unixsock-stream/{realm.folder}/other",)
    hub = hub_of(realm, _READER, Allow("relay", receive=["**"], publish=["**"], relay=True), also=also)
    name = name_by_socket(socket_of(hub))
    assert name is not None
    at_socket = open_session(SessionTerms("client", connect=(socket_of(hub),)))
    at_other = open_session(SessionTerms("client", connect=(f"unixsock-stream/{realm.folder}/other",)))
    with at_socket, at_other:
        assert len(reached(at_socket, name)) == 2
        assert reached(at_socket, name_at_socket("hub", "0" * 32)) == []
        assert reached(at_socket, AT_SOCKET) == []
        assert name_by_socket(f"unixsock-stream/{realm.folder}/other") is None
        for who in ("relay", "reader", "stranger"):
            assert reached(realm.session(who, hub), name) == []
        with pytest.raises(HeadraceError):
            headrace.connect(f"unixsock-stream/{realm.folder}/other", patience=1)


def test_a_program_at_the_socket_cannot_speak_as_a_site(realm: Realm) -> None:
    hub = hub_of(realm)
    with open_session(SessionTerms("client", connect=(socket_of(hub),))) as session:
        session.put(live_key("hub", "own", "wx/public/a"), b"junk")
        token = session.liveliness().declare_token("headrace/site/denver/abc")
        found = realm.session("reader", hub).liveliness().get("headrace/site/*/*", timeout=5)
        assert [str(each.ok.key_expr).split("/")[2] for each in found if each.ok is not None] == ["hub"]
        token.undeclare()  # type: ignore[no-untyped-call]


def test_a_program_stays_connected_when_the_site_starts_again_and_its_rules_change(realm: Realm) -> None:
    hub = hub_of(realm)
    with headrace.connect(socket_of(hub), on_loss="wait") as queue:
        queue.put(b"1", feed="wx/secret/a")
        hub.restart()
        queue.put(b"2", feed="wx/secret/a")
        hub.allow(Allow("boulder", publish=["**"]))
        assert queue.put(b"3", feed="wx/secret/a") == 3


def test_with_users_a_program_logs_in_at_the_socket_too_and_has_the_rights_of_the_user(realm: Realm) -> None:
    folder = realm.folder
    for name in ("alice", "hub"):
        (folder / f"{name}.password").write_text(f"{name}-password\n")
        (folder / f"{name}.password").chmod(0o600)
        run("users", "create", str(folder / "users"), name, given=f"{name}-password\n")
    more = '[users]\ndictionary_file = "users"\nname = "hub"\npassword_file = "hub.password"\n'
    hub = hub_of(realm, Allow("alice", receive=["wx/public/**"]), more=more)
    with pytest.raises(HeadraceError):
        headrace.connect(socket_of(hub), patience=1)
    user = UserTerms("alice", "alice-password")
    with headrace.connect(socket_of(hub), user=user) as queue, pytest.raises(AccessDeniedError):
        queue.put(b"1", feed="wx/secret/a")
    assert json_of("sites", str(hub.file), "--check")["problems"] == []


def test_only_who_may_write_to_the_queue_can_reach_the_key(realm: Realm) -> None:
    hub = hub_of(realm)
    key = Path(socket_of(hub).partition("/")[2]).with_name("key")
    assert stat.S_IMODE(key.parent.stat().st_mode) & 0o007 == 0
    assert stat.S_IMODE(key.stat().st_mode) == 0o444
    assert key.stat().st_uid == os.getuid()
    assert key.read_text().split()[1] not in hub.log

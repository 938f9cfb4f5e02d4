"""The audit log of a running site has who joined, who was refused and who changed what, and `headrace audit` shows it."""

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import headrace as program
from headrace.errors import HeadraceError
from headrace.link.audit import Audit, Entry
from headrace.link.audit_files import audit_folder, paths_of
from headrace.link.audit_reading import Tail, entries_of
from headrace.remote.protocol import calls
from headrace.remote.server.audited import ACTIONS
from headrace.remote.server.call_rights import NEEDED
from support.hostile import MakeHostile
from support.realm import Allow, Realm, SecureSite
from support.waiting import until


def logged(site: SecureSite, is_it: Callable[[Entry], bool]) -> Entry:
    """The first entry of the kind, as soon as it is there."""
    found: list[Entry] = []

    def look() -> bool:
        found[:] = filter(is_it, entries_of(audit_folder(site.queue.path)))
        return bool(found)

    until(look, lambda: list(entries_of(audit_folder(site.queue.path))))
    return found[0]


def run(*words: str) -> Result:
    return CliRunner().invoke(program, list(words))


@pytest.fixture
def hub(realm: Realm) -> SecureSite:
    return realm.site("hub", Allow("alice", receive=["wx/**"], station=["wx/**"]), Allow("mallory", receive=["wx/**"]))


def test_who_makes_and_removes_a_station_is_in_the_log(realm: Realm, hub: SecureSite) -> None:
    with realm.connect("alice", hub) as queue:
        queue.station("radar", "wx/radar/**")
        queue.station("radar", create=False).remove()
    made = logged(hub, lambda entry: entry.action == "open station")
    assert (made.principal, made.subject, made.outcome) == ("alice", "radar", "done")
    removed = logged(hub, lambda entry: entry.action == "remove station")
    assert (removed.principal, removed.subject) == ("alice", "radar")
    joined = logged(hub, lambda entry: entry.action == "join" and entry.principal == "alice")
    assert joined.peer.startswith("tls/127.0.0.1:")
    logged(hub, lambda entry: entry.action == "connect" and entry.principal == "alice")


def test_who_is_refused_is_in_the_log_with_the_reason(realm: Realm, hub: SecureSite) -> None:
    with realm.connect("mallory", hub) as queue:
        for _ in range(100):
            with pytest.raises(HeadraceError):
                queue.put(b"x", feed="wx/radar/KFTG", ident="x")
    refused = logged(hub, lambda entry: entry.outcome == "refused")
    assert (refused.principal, refused.action, refused.subject) == ("mallory", "put one", "wx/radar/KFTG")
    assert "mallory" in refused.detail or "publish" in refused.detail
    size = sum(path.stat().st_size for path in paths_of(audit_folder(hub.queue.path), "refusals") if path.exists())
    assert size < 30 * 1024, "100 refusals are some lines and a count"


def test_a_site_that_brings_what_it_may_not_is_in_the_log(realm: Realm, hostile: MakeHostile) -> None:
    request = 'name = "wx"\nselect = "wx/**"\nfrom = "oldest"'
    hub = realm.site("hub", Allow("evil", publish=["wx/text/**"]), requests=[request])
    evil = hostile("evil", hub)
    evil.hold("evil", ("wx/radar/x", "radar"), ("wx/text/a", "text"))
    evil.appear()
    refused = logged(hub, lambda entry: entry.outcome == "refused")
    assert (refused.principal, refused.action, refused.subject) == ("evil", "publish", "wx/radar/x")


def test_the_command_shows_filters_and_escapes(realm: Realm, hub: SecureSite) -> None:
    folder = audit_folder(hub.queue.path)
    audit = Audit(folder)
    audit.refuse("put one", "wx/\x1b[31m", principal="mallory", why="no rule")
    audit.note("remove station", "radar", principal="alice")
    audit.close()
    shown = run("audit", str(hub.queue.path), "--who", "mallory", "--refused")
    assert shown.exit_code == 0, shown.stderr
    assert "no rule" in shown.stdout
    assert "radar" not in shown.stdout
    assert "\x1b" not in shown.stdout
    lines = run("audit", str(hub.queue.path), "--json", "--since", "1h").stdout.splitlines()
    assert {json.loads(line)["action"] for line in lines} >= {"start", "put one", "remove station"}
    assert (
        run("audit", str(hub.queue.path), "--since", "2099-01-01T00:00Z").stdout == "the audit log has no such entry\n"
    )


def test_a_tail_continues_in_the_next_file(realm: Realm, hub: SecureSite) -> None:
    folder = audit_folder(hub.queue.path)
    audit = Audit(folder)
    audit.note("before", principal="a")
    tail = Tail(folder)
    audit.note("one", principal="a")
    audit.close()
    newest, older = paths_of(folder, "changes")[:2]
    newest.rename(older)
    audit = Audit(folder)
    audit.note("two", principal="a")
    assert [entry.action for entry in tail.read() if entry.principal == "a"] == ["one", "two"]
    assert tail.read() == []
    tail.close()
    audit.close()


def test_every_audited_call_exists_and_each_call_that_needs_manage_alone_is_audited() -> None:
    assert set(ACTIONS) <= set(NEEDED)
    assert calls.PutOne not in ACTIONS
    assert {call for call, needed in NEEDED.items() if needed == {"manage"}} <= set(ACTIONS)

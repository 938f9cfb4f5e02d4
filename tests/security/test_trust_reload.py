"""Rules, certificates and users change by SIGHUP, without a restart and without losing a product."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.errors import FabricError, HeadraceError, QuotaError
from headrace.link.audit_files import audit_folder, lines_of
from headrace.link.certificates import make_authority, make_certificate
from headrace.link.credentials import UserTerms
from headrace.link.session import SessionTerms, open_session
from headrace.queue import AnyQueue
from headrace.testing.draft import Draft
from headrace.testing.oracle import Oracle
from support.daemon import Daemon
from support.fleet import free_port
from support.links import LOOPBACK
from support.realm import Allow, Realm, SecureSite
from support.waiting import until

LOADED, REFUSED = "hub.toml is loaded", "hub.toml is not loaded"
FROM_OLDEST = 'name = "wx"\nselect = "wx/**"\nfrom = "oldest"\nsites = ["hub"]'
EDGE = Allow("edge", receive=["wx/**"])
ALICE = Allow("alice", publish=["wx/**"], receive=["wx/**"])


class Ledger:
    """What was put, by all writers, against what a site holds."""

    def __init__(self) -> None:
        self._oracle, self._lock = Oracle(), threading.Lock()
        self.of_feed: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self.of_feed.total()

    def put(self, queue: AnyQueue, feed: str, ident: str) -> None:
        queue.put(ident.encode(), feed=feed, ident=ident)
        with self._lock:
            self._oracle.sent(Draft(feed, ident, ident.encode(), 0))
            self.of_feed[feed] += 1

    def check(self, site: SecureSite, expect: Callable[[str, str], bool] | None = None) -> None:
        for product in site.queue.read_batch("oldest", limit=1_000_000):
            self._oracle.received(product.feed, product.ident, product.payload)
        verdict = self._oracle.verdict(expect=expect, order="feed")
        assert verdict.ok, verdict


@contextmanager
def writers(ledger: Ledger, *flows: tuple[AnyQueue, str]) -> Iterator[None]:
    """Each puts into a queue until the block ends, products of its own feed."""
    stopped, failures = threading.Event(), []

    def write(queue: AnyQueue, feed: str) -> None:
        number = 0
        try:
            while not stopped.wait(0.002):
                ledger.put(queue, feed, f"{feed} {number}")
                number += 1
        except HeadraceError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=flow) for flow in flows]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert failures == []


def flow(ledger: Ledger, *feeds: str) -> None:
    """Wait until some more products were put into each feed."""
    targets = {feed: ledger.of_feed[feed] + 15 for feed in feeds}
    until(lambda: all(ledger.of_feed[feed] >= targets[feed] for feed in feeds), lambda: (targets, ledger.of_feed))


def renew(realm: Realm, name: str) -> None:
    for suffix in ("crt", "key"):
        (realm.certs / f"{name}.{suffix}").unlink()
    make_certificate(realm.certs, name, LOOPBACK)


@pytest.fixture
def hub(realm: Realm) -> SecureSite:
    return realm.site("hub", EDGE, ALICE)


@pytest.fixture
def edge(realm: Realm, hub: SecureSite) -> SecureSite:
    return realm.site("edge", Allow("hub", publish=["wx/**"]), requests=[FROM_OLDEST], near=[hub])


def test_certificates_and_rules_change_while_products_flow_and_none_is_lost(
    realm: Realm, hub: SecureSite, edge: SecureSite
) -> None:
    ledger, before = Ledger(), (realm.folder / "certs" / "hub.crt").read_bytes()
    with writers(ledger, (hub.queue, "wx/local"), (realm.connect("alice", hub, on_loss="wait"), "wx/remote")):
        flow(ledger, "wx/local", "wx/remote")
        renew(realm, "hub")
        hub.daemon.reload(LOADED)
        flow(ledger, "wx/local", "wx/remote")
        hub.allow(EDGE, ALICE, Allow("bob", receive=["wx/**"]))
        flow(ledger, "wx/local", "wx/remote")
        renew(realm, "edge")
        edge.daemon.reload("edge.toml is loaded")
        flow(ledger, "wx/local", "wx/remote")
        hub.daemon.reload(LOADED)
    assert (realm.folder / "certs" / "hub.crt").read_bytes() != before
    assert hub.daemon.process.poll() is None
    until(lambda: len(edge.idents()) >= ledger.count, lambda: (len(edge.idents()), ledger.count))
    ledger.check(edge)


def test_widened_rights_reach_back_and_narrowed_ones_end_at_once_while_products_flow(realm: Realm) -> None:
    hub = realm.site("hub", Allow("edge", receive=["wx/a"]))
    edge = realm.site("edge", Allow("hub", publish=["wx/**"]), requests=[FROM_OLDEST], near=[hub])
    ledger, marked = Ledger(), Ledger()
    with writers(ledger, (hub.queue, "wx/a"), (hub.queue, "wx/b")):
        flow(ledger, "wx/a", "wx/b")
        assert edge.idents("wx/b") == []
        hub.allow(Allow("edge", receive=["wx/a", "wx/b"]))
        flow(ledger, "wx/a", "wx/b")
        until(lambda: "wx/b 0" in edge.idents("wx/b"), "what was put before it was permitted arrives")
    until(lambda: len(edge.idents()) >= ledger.count, lambda: (len(edge.idents()), ledger.count))
    ledger.check(edge)
    hub.allow(Allow("edge", receive=["wx/**"]), Allow("edge", receive=["wx/b"]))
    hub.allow(Allow("edge", receive=["wx/a"]))
    marked.put(hub.queue, "wx/b", "after b")
    marked.put(hub.queue, "wx/a", "after a")
    until(lambda: "after a" in edge.idents("wx/a"), "what is permitted still arrives")
    assert "after b" not in edge.idents("wx/b")


def spoil(path: Path) -> bytes:
    before = path.read_bytes()
    path.write_text("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n")
    return before


@pytest.mark.parametrize("broken", ["authority.crt", "hub.crt", "hub.key"])
def test_a_broken_new_file_is_named_and_the_old_terms_stay_in_force(
    realm: Realm, hub: SecureSite, edge: SecureSite, broken: str
) -> None:
    path = realm.certs / broken
    content = spoil(path)
    hub.daemon.reload(REFUSED)
    assert broken in hub.log.split(REFUSED)[-1]
    hub.queue.put(b"still", feed="wx/a", ident="still")
    until(lambda: edge.idents() == ["still"], lambda: hub.log)
    path.write_bytes(content)
    hub.daemon.reload(LOADED)
    assert b"refused" in list(lines_of(audit_folder(hub.queue.path), "site"))[-2]


def test_a_key_that_does_not_belong_to_the_new_certificate_is_refused(realm: Realm, hub: SecureSite) -> None:
    realm.certify("other")
    (realm.certs / "hub.key").write_bytes((realm.certs / "other.key").read_bytes())
    hub.daemon.reload(REFUSED)
    assert "does not match the certificate" in hub.log


def test_a_second_authority_is_trusted_after_a_reload_and_no_longer_after_another(
    realm: Realm, hub: SecureSite, tmp_path: Path
) -> None:
    authority = realm.certs / "authority.crt"
    first, second = authority.read_bytes(), tmp_path / "second"
    make_authority(second, name="the second authority")
    make_certificate(second, "alice", LOOPBACK)
    realm.certify("alice")
    for suffix in ("crt", "key"):
        (realm.certs / f"alice.{suffix}").write_bytes((second / f"alice.{suffix}").read_bytes())
    both = first + (second / "authority.crt").read_bytes()
    authority.write_bytes(both)
    hub.daemon.reload(LOADED)
    hub.queue.put(b"1", feed="wx/a", ident="one")
    with realm.connect("alice", hub) as user:
        assert [product.ident for product in user.read_batch("oldest")] == ["one"]
    authority.write_bytes(first)
    hub.daemon.reload(LOADED)
    authority.write_bytes(both)
    with pytest.raises(HeadraceError):
        realm.session("alice", hub, timeout_s=1.0)


def test_quotas_change_for_clients_that_are_connected(realm: Realm) -> None:
    quota = '[[quota]]\nwho = ["alice"]\nstations = {}\n'
    hub = realm.site("hub", Allow("alice", receive=["wx/**"], station=["wx/**"]), more=quota.format(1))
    queue = realm.connect("alice", hub)
    queue.station("first", "wx/a")
    with pytest.raises(QuotaError, match="stations of 1"):
        queue.station("second", "wx/a")
    hub.file.write_text(hub.file.read_text().replace("stations = 1", "stations = 2"))
    hub.daemon.reload(LOADED)
    queue.station("second", "wx/a")
    with pytest.raises(QuotaError, match="stations of 2"):
        queue.station("third", "wx/a")


def test_users_come_and_go_with_a_reload_of_the_same_file(tmp_path: Path) -> None:
    users, port = tmp_path / "users", free_port()
    users.write_text("alice:sesame\n")
    users.chmod(0o600)
    (tmp_path / "hub.toml").write_text(
        f'[site]\nqueue = "hub.queue"\nname = "hub"\nlisten = ["tcp/127.0.0.1:{port}"]\n'
        '[users]\ndictionary_file = "users"\n[[allow]]\nwho = ["alice", "bob"]\nreceive = ["wx/**"]\n'
    )

    def may_connect(name: str) -> bool:
        try:
            open_session(
                SessionTerms("client", connect=(f"tcp/127.0.0.1:{port}",), user=UserTerms(name, "sesame"), timeout_s=2)
            ).close()  # type: ignore[no-untyped-call]
        except FabricError:
            return False
        return True

    with Daemon(tmp_path / "hub.toml") as hub:
        hub.wait_until_ready()
        assert (may_connect("alice"), may_connect("bob")) == (True, False)
        users.write_text("bob:sesame\n")
        hub.reload(LOADED)
        assert (may_connect("alice"), may_connect("bob")) == (False, True)
        users.write_text("bob\n")
        hub.reload(REFUSED)
        assert "users, line 1" in hub.log.read_text().split(REFUSED)[-1]
        assert may_connect("bob")


def test_the_audit_log_says_what_a_reload_has_changed_and_who_joined(
    realm: Realm, hub: SecureSite, edge: SecureSite
) -> None:
    renew(realm, "hub")
    hub.allow(EDGE)
    folder = audit_folder(hub.queue.path)
    last = list(lines_of(folder, "site"))[-1].decode()
    assert '"reload"' in last
    assert "[[allow]], hub.crt, hub.key" in last
    until(lambda: any(b'"edge"' in line and b'"join"' in line for line in lines_of(folder, "changes")), "edge joins")

"""Members that take more of a site than their share: memory, calls, stations; and one that answers for the site."""

import os
from pathlib import Path

import pytest
import zenoh

from headrace.errors import AccessDeniedError, QuotaError
from headrace.link.keys import beat_key, call_key, live_key
from headrace.remote.protocol import calls
from headrace.remote.protocol.envelope import Envelope, encode
from headrace.remote.protocol.hello import VERSION
from support.realm import Allow, Realm, SecureSite
from support.waiting import until

ALICE = Allow("alice", receive=["wx/**"], publish=["wx/**"], station=["wx/**"])
EVIL = Allow("evil", receive=["wx/**"], publish=["wx/**"], station=["wx/**"])


def memory_of(site: SecureSite) -> int:
    """The most bytes of memory that the process of a site has had."""
    status = Path(f"/proc/{site.daemon.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def quota_problems(realm: Realm, site: SecureSite) -> set[str]:
    return {each.subject for each in realm.describe(site).problems if each.kind == "quota"}


def test_a_large_put_of_a_reader_is_refused_before_its_payload_comes(realm: Realm) -> None:
    hub = realm.site("hub", Allow("reader", receive=["wx/**"]))
    reader, before = realm.connect("reader", hub), memory_of(hub)
    with pytest.raises(AccessDeniedError, match="may not publish"):
        reader.put(os.urandom(96 << 20), feed="wx/a")
    assert memory_of(hub) - before < 48 << 20


def test_a_member_that_takes_too_much_is_refused_by_the_name_of_the_quota(realm: Realm) -> None:
    hub = realm.site("hub", ALICE, EVIL, Allow("hub", receive=["**"]), more="[[quota]]\nstations = 2\ncursors = 1\n")
    evil, alice = realm.connect("evil", hub), realm.connect("alice", hub)
    for name in ("a", "b"):
        evil.station(name, "wx/**")
    with pytest.raises(QuotaError, match="the quota stations of 2"):
        evil.station("c", "wx/**")
    evil.cursor("a")
    with pytest.raises(QuotaError, match="the quota cursors of 1"):
        evil.cursor("b")
    evil.station("a").remove()
    evil.station("c", "wx/**")
    alice.station("mine", "wx/**")
    alice.cursor("mine")
    until(lambda: quota_problems(realm, hub) == {"evil stations", "evil cursors"}, "both are problems of the site")


def test_honest_clients_are_served_beside_a_flood_of_calls(realm: Realm) -> None:
    hub = realm.site("hub", ALICE, EVIL, Allow("hub", receive=["**"]), more="[[quota]]\ncalls_per_s = 500\n")
    evil, alice = realm.session("evil", hub), realm.connect("alice", hub)
    head = encode(Envelope(VERSION, os.urandom(16), None, 0, 0, calls.ReadProducts("wx/**", 1, 1, 1, 5.0)))
    for number in range(50):
        for _ in range(100):
            evil.get(f"{call_key('hub')}/evil", lambda reply: None, attachment=head, timeout=60)
        assert alice.put(b"%d" % number, feed="wx/a") == number + 1
    until(lambda: "evil calls_per_s" in quota_problems(realm, hub), "the flood is a problem of the site")
    assert not {each for each in quota_problems(realm, hub) if each.startswith("alice")}


def test_everybody_may_call_and_nobody_answers_or_speaks_for_the_site(realm: Realm) -> None:
    hub = realm.site("hub", Allow("*", receive=["wx/**"], publish=["wx/**"]), ALICE)
    evil, alice = realm.session("evil", hub), realm.connect("alice", hub)
    heard: list[str] = []
    asked: list[str] = []
    listener = realm.session("alice", hub)
    for kind in ("live", "beat"):
        listener.declare_subscriber(f"headrace/{kind}/**", lambda sample: heard.append(str(sample.key_expr)))

    def lie(query: zenoh.Query) -> None:
        asked.append(str(query.key_expr))
        with query:
            query.reply(query.key_expr, b"lies", attachment=b"lies")

    for kind in ("call", "log"):
        evil.declare_queryable(f"headrace/{kind}/hub/**", lie, complete=True)
    for key in (beat_key("hub", "own"), live_key("hub", "own", "wx/forged"), live_key("evil", "own", "wx/forged")):
        evil.put(key, b"lies", attachment=b"lies")
    assert list(evil.get("headrace/round/trip", timeout=240)) == []
    for number in range(30):
        assert alice.put(b"%d" % number, feed="wx/a") == number + 1
    assert list(listener.get("headrace/round/trip", timeout=240)) == []  # all that the site has passed on has come
    assert asked == []
    assert not [key for key in heard if "forged" in key]

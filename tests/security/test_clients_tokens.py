"""Tokens of clients: whether a client lives is decided by what only its own principal can declare."""

from contextlib import suppress
from typing import Any

import zenoh

from headrace.link.keys import client_key
from headrace.queue import AnyQueue
from headrace.remote.client.queue import RemoteQueue
from headrace.remote.protocol.envelope import client_digest
from support.realm import Allow, Realm, SecureSite

RULES = (
    Allow("victim", receive=["wx/**"], station=["wx/**"]),
    Allow("evil", receive=["wx/**"], publish=["wx/**"], station=["wx/**"]),
)


def digest_of(queue: AnyQueue) -> str:
    assert isinstance(queue, RemoteQueue)
    return client_digest(queue._connection._client)


def die(queue: AnyQueue) -> None:
    """Lose the link without a goodbye."""
    assert isinstance(queue, RemoteQueue)
    with suppress(zenoh.ZError):
        queue._connection._session.close()  # type: ignore[no-untyped-call]


def seen_by(session: zenoh.Session, site: SecureSite) -> list[str]:
    found = session.liveliness().get(f"headrace/client/{site.name}/**", timeout=240)
    return [str(reply.ok.key_expr) for reply in found if reply.ok is not None]


def declare(session: zenoh.Session, *keys: str) -> list[Any]:
    tokens = [session.liveliness().declare_token(key) for key in keys]
    assert list(session.get("headrace/round/trip", timeout=240)) == []  # the site has handled them
    return tokens


def test_leases_of_a_dead_client_come_back_although_a_member_declares_its_token(realm: Realm) -> None:
    hub = realm.site("hub", *RULES)
    victim, heir = realm.connect("victim", hub), realm.connect("victim", hub)
    consumer = victim.station("work", "wx/**").attach(keep="0.1s")
    hub.queue.put(b"1", feed="wx/a", ident="1")
    assert len(consumer.get(1)) == 1
    evil, digest = realm.session("evil", hub), digest_of(victim)
    tokens = declare(
        evil, *(client_key("hub", digest, name) for name in (None, "victim", "evil")), f"headrace/client/hub/*/{digest}"
    )
    die(victim)
    with heir.station("work").attach() as other:
        assert [product.ident for product in other.get(1, timeout=120)] == ["1"]
    assert tokens


def test_a_member_does_not_see_the_tokens_of_others(realm: Realm) -> None:
    hub = realm.site("hub", *RULES, Allow("hub", receive=["**"]))
    realm.connect("victim", hub).station("work", "wx/**")
    evil = realm.session("evil", hub)
    assert seen_by(evil, hub) == []
    assert len(seen_by(realm.session("hub", hub), hub)) == 2  # the site itself does: with its name, and without

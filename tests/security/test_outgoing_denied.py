"""What a rule denies leaves on no path, and what a reload denies ends at once: a raw session that listens and asks."""

import itertools

import zenoh

from headrace.link.access import principal_key
from headrace.link.keys import log_key
from headrace.relay.messages.query import (
    Describe,
    Identify,
    Inventory,
    Listen,
    ListenReply,
    Read,
    decode_reply,
    encode,
)
from support.links import Listener
from support.realm import Allow, Deny, Realm, SecureSite
from support.waiting import until

OWNER = Allow("hub", receive=["**"])
READER = Allow("reader", receive=["wx/**"])
NARROW = Deny("reader", receive=["wx/secret/**"])


def ask(session: zenoh.Session, payload: bytes) -> bytes:
    """All that a query brings, attachments included."""
    replies = session.get(
        principal_key(log_key("hub"), "reader"), payload=payload, timeout=240,
        consolidation=zenoh.ConsolidationMode.NONE,
    )  # fmt: skip
    return b"".join(
        reply.ok.payload.to_bytes() + (reply.ok.attachment.to_bytes() if reply.ok.attachment else b"")
        for reply in replies if reply.ok is not None
    )  # fmt: skip


def listen(session: zenoh.Session) -> list[Listener]:
    """Ask for the stream of everything, and listen to its pages and beats."""
    told: ListenReply = decode_reply(ask(session, encode(Listen("**"))), ListenReply, "hub")
    return [Listener(session, f"headrace/{key}") for key in (f"live/hub/{told.stream}/**", f"beat/hub/{told.stream}")]


def put_both(hub: SecureSite, number: int) -> None:
    hub.queue.put(b"hidden%d" % number, feed="wx/secret/a", ident=f"hidden{number}")
    hub.queue.put(b"open%d" % number, feed="wx/public/a", ident=f"open{number}")


def test_a_denied_feed_leaves_on_no_path(realm: Realm) -> None:
    hub = realm.site("hub", READER, NARROW, OWNER)
    session = realm.session("reader", hub)
    pages, beats = listen(session)
    numbers = itertools.count()
    until(lambda: put_both(hub, next(numbers)) or (pages.keys and beats.keys), "the stream is heard")
    queries = [Identify(), Describe(), Inventory("**", 0, 100)]
    queries += [Read(text, 0, 8, 100, 1 << 20) for text in ("**", "wx/secret/**", "wx/secret/a|wx/public/a")]
    told = b"".join(ask(session, encode(query)) for query in queries)
    assert b"open0" in told
    heard = b"".join(pages.payloads + beats.payloads) + "".join(pages.keys).encode()
    assert b"hidden" not in told + heard
    assert b"secret" not in told + heard


def test_rights_that_a_reload_narrows_end_for_streams_that_exist(realm: Realm) -> None:
    hub = realm.site("hub", READER, OWNER)
    session = realm.session("reader", hub)
    before = listen(session)
    numbers = itertools.count()
    until(lambda: put_both(hub, next(numbers)) or any("secret" in key for key in before[0].keys), "all is heard")
    hub.allow(READER, NARROW, OWNER)
    heard = len(before[0].keys)
    until(lambda: ask(session, encode(Identify())), "the site is back")
    after = listen(session)
    until(lambda: put_both(hub, next(numbers)) or after[0].keys, "what is still permitted is heard")
    assert not [key for key in (*before[0].keys[heard:], *after[0].keys) if "secret" in key]
    assert b"hidden" not in ask(session, encode(Read("**", 0, 64, 1000, 1 << 20)))

"""Streams of a site tell nobody about feeds that it may not receive: raw sessions that listen to everything they can."""

import itertools
from collections.abc import Iterator

import pytest
import zenoh

from headrace.link.access import principal_key
from headrace.link.keys import log_key
from headrace.relay.messages.beat import Beat, decode_beat
from headrace.relay.messages.query import Listen, ListenReply, decode_reply, encode
from headrace.relay.stream import stream_name
from headrace.selection import Selection
from support.links import Listener
from support.realm import Allow, Realm, SecureSite
from support.waiting import until

READER = Allow("reader", receive=["wx/public/**"])
OWNER = Allow("hub", receive=["**"])
TOKENS = ("headrace/site/**", "headrace/client/**")
QUERY_S_MAX = 240


def ask(session: zenoh.Session, site: str, name: str | None, payload: bytes) -> list[bytes]:
    """The replies to a query, refusals included."""
    replies = session.get(
        principal_key(log_key(site), name), payload=payload, timeout=QUERY_S_MAX,
        consolidation=zenoh.ConsolidationMode.NONE,
    )  # fmt: skip
    return [(reply.ok or reply.err).payload.to_bytes() for reply in replies if reply.ok or reply.err]


def listen(session: zenoh.Session, site: str, name: str, selection: str) -> str:
    """Ask for a stream as a principal; its name."""
    (reply,) = ask(session, site, name, encode(Listen(selection)))
    told: ListenReply = decode_reply(reply, ListenReply, site)
    return told.stream


class Spy:
    """A session that listens to every key that could tell something: of one stream, of `own`, of all."""

    def __init__(self, session: zenoh.Session, *streams: str) -> None:
        keys = ["headrace/**", "headrace/live/**", "headrace/beat/**", "headrace/beat/*/*", "headrace/live/*/own/**"]
        keys += [f"headrace/live/hub/{stream}/**" for stream in ("own", *streams)]
        keys += [f"headrace/beat/hub/{stream}" for stream in ("own", *streams)]
        self._listeners = [Listener(session, key) for key in keys]

    @property
    def keys(self) -> set[str]:
        return {key for listener in self._listeners for key in listener.keys}

    @property
    def payloads(self) -> list[bytes]:
        return [payload for listener in self._listeners for payload in listener.payloads]

    def beats(self) -> Iterator[Beat]:
        for listener in self._listeners:
            for key, payload in zip(tuple(listener.keys), tuple(listener.payloads), strict=False):
                if key.startswith("headrace/beat/"):
                    yield decode_beat(payload)


def put_both(hub: SecureSite, number: int) -> None:
    hub.queue.put(f"secret{number}".encode(), feed="wx/secret/a", ident=f"s{number}")
    hub.queue.put(f"open{number}".encode(), feed="wx/public/a", ident=f"p{number}")


def test_conditions_on_secret_products_tell_nothing(realm: Realm) -> None:
    hub = realm.site("hub", READER, OWNER)
    session = realm.session("reader", hub)
    guesses = ['wx/** ident ~ "^s"', "wx/secret/**", "** where bytes > 0", "**"]
    streams = [listen(session, "hub", "reader", guess) for guess in guesses]
    shared = [stream_name(Selection.parse(guess)) for guess in guesses]
    spy = Spy(session, *streams, *shared)
    numbers = itertools.count()

    def is_heard() -> bool:
        put_both(hub, next(numbers))
        return any("wx/public/a" in (beat.recent or {}) for beat in spy.beats())

    until(is_heard, "beats about what the reader may receive")
    (count,) = {max(next(numbers), 1)}
    put_both(hub, count)
    until(lambda: f"open{count}".encode() in b"".join(spy.payloads), "the last product, live")
    seen = spy.keys
    assert {key.split("/")[3] for key in seen} <= set(streams)
    assert all(stream.startswith("reader:") for stream in streams)
    assert not [key for key in seen if "secret" in key]
    assert b"secret" not in b"".join(spy.payloads)
    for beat in spy.beats():
        assert beat.left_out == 0
        assert set(beat.recent or {}) <= {"wx/public/a"}
        if beat.stream == streams[1]:
            assert beat.recent == {}


def test_a_reader_hears_nothing_of_the_streams_of_others(realm: Realm) -> None:
    hub = realm.site("hub", READER, Allow("other", receive=["wx/**"]), OWNER)
    other, session = realm.session("other", hub), realm.session("reader", hub)
    mine, theirs = listen(session, "hub", "reader", "wx/**"), listen(other, "hub", "other", "wx/**")
    spy, heard = Spy(session, mine, theirs), Spy(other, theirs)
    numbers = itertools.count()

    def both_hear() -> bool:
        put_both(hub, next(numbers))
        pages = f"headrace/live/hub/{theirs}/wx/secret/a", f"headrace/live/hub/{mine}/wx/public/a"
        return pages[0] in heard.keys and pages[1] in spy.keys and f"headrace/beat/hub/{mine}" in spy.keys

    until(both_hear, "both get what they may receive")
    assert {key.split("/")[3] for key in spy.keys} == {mine}
    assert b"secret" not in b"".join(spy.payloads)


def test_what_others_listen_to_is_not_shown(realm: Realm) -> None:
    """Neither their tokens and subscriptions nor the digest of a site's feeds."""
    hub = realm.site("hub", READER, Allow("other", receive=["wx/**"]), Allow("reader", publish=["in/**"]), OWNER)
    session = realm.session("reader", hub)
    tokens: list[str] = []
    watching = [
        session.liveliness().declare_subscriber(key, lambda sample: tokens.append(str(sample.key_expr)), history=True)
        for key in TOKENS
    ]
    realm.site(
        "other", Allow("hub", publish=["**"]), near=[hub], requests=['name = "r"\nselect = "wx/secret/**"'],
    )  # fmt: skip
    until(lambda: any(stream.has_listeners for stream in realm.describe(hub).streams if ":" in stream.name),
          "the other site listens")  # fmt: skip
    until(lambda: any(token.startswith("headrace/site/hub/") for token in tokens), "the hub is seen")
    found = [str(reply.ok.key_expr) for key in TOKENS for reply in session.liveliness().get(key) if reply.ok]
    assert not [token for token in [*found, *tokens] if token.startswith("headrace/client/")]
    assert not [token for token in [*found, *tokens] if token.startswith("headrace/site/hub/") and token.count("/") > 3]
    for key in ("wx/secret/x", "wx/public/x"):
        with session.declare_publisher(f"headrace/live/hub/own/{key}") as publisher:
            assert not publisher.matching_status.matching
    for each in watching:
        each.undeclare()  # type: ignore[no-untyped-call]


def test_a_principal_has_a_quota_of_streams(realm: Realm) -> None:
    hub = realm.site("hub", READER, Allow("other", receive=["wx/**"]), OWNER, more="[[quota]]\nstreams = 3\n")
    session, other = realm.session("reader", hub), realm.session("other", hub)
    for number in range(3):
        listen(session, "hub", "reader", f"wx/public/{number}")
    (refusal,) = ask(session, "hub", "reader", encode(Listen("wx/public/more")))
    assert b"reader: the quota streams of 3 is used up" in refusal
    listen(session, "hub", "reader", "wx/public/1")  # it has this one already
    listen(other, "hub", "other", "wx/public/0")


@pytest.mark.parametrize("name", ["near", "far"])
def test_sites_with_few_rights_receive_live_directly_and_through_a_relay(realm: Realm, name: str) -> None:
    """hub - far, or hub - relay - far."""
    hub = realm.site("hub", Allow("far", "near", receive=["wx/public/**"]), Allow("relay", receive=["**"],
                     publish=["**"], relay=True), OWNER)  # fmt: skip
    between = hub if name == "near" else realm.site(
        "relay", Allow("far", receive=["wx/public/**"]), Allow("hub", receive=["**"], publish=["**"], relay=True),
        Allow("relay", receive=["**"]), near=[hub],
    )  # fmt: skip
    site = realm.site(
        name, Allow("hub", publish=["**"]), Allow("relay", publish=["**"], relay=True), Allow(name, receive=["**"]),
        near=[between], requests=['name = "r"\nselect = "**"\nfrom = "oldest"'],
    )  # fmt: skip
    put_both(hub, 0)
    until(lambda: site.idents() == ["p0"], lambda: site.log)

    def live_pages() -> int:
        return sum(each.live_pages for each in realm.describe(site).upstreams if each.site == "hub")

    numbers = itertools.count(1)

    def comes_live() -> bool:
        put_both(hub, next(numbers))
        return live_pages() > 0

    until(comes_live, lambda: site.log)
    last = f"p{next(numbers) - 1}"
    until(lambda: last in site.idents(), lambda: str(site.idents()))
    assert not [ident for ident in site.idents() if ident.startswith("s")]

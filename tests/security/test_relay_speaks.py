"""A relay speaks only for sites that may publish nothing else than it may bring itself: nobody else moves positions.

The liar is a relay for rel/** that plays boulder, which publishes obs/**: it answers that the log of boulder has a
million products, and that none of them is wanted.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import zenoh
from zenoh.handlers import Callback

from headrace.link.keys import ROOT
from headrace.relay.messages.query import Identify, IdentifyReply, Read, ResolveReply, decode_query, encode
from headrace.remote.protocol.envelope import encode as encode_call
from headrace.remote.protocol.hello import HELLO, OLDEST_VERSION, VERSION, Hello
from support.hostile import Hostile, MakeHostile, Message
from support.realm import Allow, Realm, SecureSite
from support.waiting import until

FAR = 10**6
ALL = 'name = "all"\nselect = "**"\nfrom = "oldest"'
OBS = 'name = "obs"\nselect = "obs/**"\nfrom = "oldest"\nsites = ["boulder"]'
BOULDER = Allow("boulder", receive=["wx/**"], publish=["obs/**"])
LIMITED = Allow("relay", receive=["wx/**"], publish=["rel/**"], relay=True)


class Liar(Hostile):
    """Plays a site under its own key, and under keys with wild cards."""

    def __init__(self, session: zenoh.Session, name: str, honest: Hostile, folder: Any) -> None:
        super().__init__(session, name, folder)
        self.queue = honest.queue
        self.wild = [
            session.declare_queryable(f"{ROOT}/log/boul$*/**", Callback(self._take_wild, indirect=False)),
            session.liveliness().declare_token(f"{ROOT}/site/{name}/{honest.session.zid()}"),
        ]

    @property
    def next(self) -> int:
        return FAR + 5

    def card(self) -> IdentifyReply:
        return IdentifyReply(self.name, self.queue, FAR, FAR + 5, 1, interval_ms=100)

    def pages(self, query: Any) -> Iterator[Message]:
        yield self.page(query.after, [], upto=FAR, head=FAR + 1)

    def _take_wild(self, query: zenoh.Query) -> None:
        with query:
            asked = decode_query(query.payload.to_bytes() if query.payload else b"")
            for key in (f"{ROOT}/log/*/**", f"{ROOT}/log/boul$*/**"):
                reply = self.answers[type(asked)](asked) if type(asked) in self.answers else ResolveReply(FAR)
                if isinstance(reply, Iterator):
                    for head, payload in reply:
                        query.reply(key, payload, attachment=head)
                else:
                    query.reply(key, encode(reply))


def lie(realm: Realm, site: SecureSite, honest: Hostile) -> Liar:
    liar = Liar(realm.session("relay", site), "boulder", honest, realm.folder)
    liar.appear()
    for stream in ("own", "0123456789abcdef"):
        liar.beat(stream, examined=FAR, recent={"obs/y": FAR})
        liar.publish("obs/y", liar.page(0, [], stream, upto=FAR, head=FAR + 1), stream)
    return liar


def bases(realm: Realm, site: SecureSite) -> dict[str, int]:
    return {each.site: each.base for each in realm.describe(site).upstreams}


def test_a_relay_does_not_speak_for_a_site_that_may_publish_more(realm: Realm, hostile: MakeHostile) -> None:
    denver = realm.site("denver", BOULDER, LIMITED, requests=[OBS, 'name = "rel"\nselect = "rel/**"\nfrom = "oldest"'])
    boulder = Hostile(realm.session("boulder", mode="peer"), "boulder", realm.folder)  # not linked yet
    liar = lie(realm, denver, boulder)
    relay = hostile("relay", denver)
    relay.hold("relay", ("rel/a", "of the relay"))
    relay.appear()
    until(lambda: denver.idents() == ["of the relay"], lambda: denver.log)
    linked = hostile("boulder", denver)
    linked.queue = boulder.queue
    linked.hold("boulder", ("obs/y", "first"), ("obs/y", "second"))
    linked.appear()
    until(lambda: {"first", "second"} <= set(denver.idents()), lambda: denver.log)
    assert liar.asked == []
    assert bases(realm, denver)["boulder"] == 2


def test_a_third_site_hears_nothing_of_a_relay_that_speaks_for_another_one(realm: Realm, hostile: MakeHostile) -> None:
    """keep knows only denver, which holds the relay to its feeds."""
    denver = realm.site("denver", BOULDER, LIMITED, Allow("keep", receive=["**"]))
    keep = realm.site("keep", Allow("denver", publish=["**"], relay=True), requests=[ALL], near=[denver])
    boulder = Hostile(realm.session("boulder", mode="peer"), "boulder", realm.folder)
    liar = lie(realm, denver, boulder)
    relay = hostile("relay", denver)
    relay.hold("relay", ("rel/a", "of the relay"))
    relay.appear()
    until(lambda: "of the relay" in keep.idents(), lambda: keep.log)
    linked = hostile("boulder", denver)
    linked.queue = boulder.queue
    linked.hold("boulder", ("obs/y", "first"), ("obs/y", "second"))
    linked.appear()
    until(lambda: {"first", "second"} <= set(keep.idents()), lambda: keep.log)
    assert liar.asked == []
    assert bases(realm, keep)["boulder"] == 2


@pytest.mark.parametrize(
    ("relay", "asks_for"),
    [
        (LIMITED, {"relay", "pal", "unnamed"}),
        (Allow("relay", receive=["**"], publish=["**"], relay=True), {"relay", "pal", "boulder", "unnamed"}),
        (Allow("relay", receive=["**"], publish=["**"], manage=["**"], relay=True),
         {"relay", "pal", "boulder", "unnamed", "boss"}),
    ],
)  # fmt: skip
def test_a_relay_asks_for_nobody_who_may_do_more(realm: Realm, relay: Allow, asks_for: set[str]) -> None:
    pal, boss = Allow("pal", receive=["wx/**"]), Allow("boss", receive=["wx/**"], manage=["wx/**"])
    denver = realm.site("denver", BOULDER, relay, pal, boss)
    session = realm.session("relay", denver)
    hello = encode_call(Hello(HELLO, OLDEST_VERSION, VERSION))
    answered = set()
    for name in ("relay", "pal", "boulder", "unnamed", "boss", "denver"):
        replies = [
            reply for kind, payload, attachment in (("call", b"", hello), ("log", encode(Identify()), None))
            for reply in session.get(f"{ROOT}/{kind}/denver/{name}", payload=payload, attachment=attachment)
            if reply.ok is not None
        ]  # fmt: skip
        assert len(replies) in (0, 2)
        if replies:
            answered.add(name)
    assert answered == asks_for


def test_a_lie_about_the_end_of_a_log_ends_with_the_liar(realm: Realm, hostile: MakeHostile) -> None:
    """Here the liar may speak for boulder: it has its certificate."""
    denver = realm.site("denver", BOULDER, Allow("denver", receive=["**"]), requests=[OBS])
    honest = hostile("boulder", denver)
    honest.hold("boulder", ("obs/y", "first"), ("obs/y", "second"))
    told = dict(honest.answers)
    honest.answers |= {
        Identify: lambda _: IdentifyReply("boulder", honest.queue, 1, FAR + 5, 1, interval_ms=100),
        Read: lambda query: iter([honest.page(query.after, [], upto=FAR + 4, head=FAR + 5)]),
    }
    honest.appear()
    until(lambda: bases(realm, denver).get("boulder") == FAR + 4, lambda: denver.log)
    honest.answers = told
    until(lambda: denver.idents() == ["first", "second"], lambda: denver.log)
    until(lambda: bases(realm, denver)["boulder"] == 2, lambda: denver.log)
    assert any(each.kind == "position" for each in realm.describe(denver).problems)

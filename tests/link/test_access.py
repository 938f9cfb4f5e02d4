"""Access: real sessions over TLS and by password. A principal without a rule gets nothing, others what their rules allow.

No test waits for a while to see that nothing arrives. A query and its reply take the same link as everything else, in the
same order, and a denied query is replied to as well, with nothing. So after `Caller.round_trip` everything that was sent
before, in either direction, has arrived or was dropped.
"""

from pathlib import Path

import pytest
import zenoh
from zenoh.handlers import Callback

from headrace.errors import OptionError, SelectionError
from headrace.link.access import access_settings, principal_in, principal_key
from headrace.link.credentials import UserTerms
from headrace.link.keys import audience_stream
from headrace.link.rights import Feeds, Rule, may_speak_for, rights_of
from headrace.link.session import locators
from support.links import Listener, Open, make_certs, tls
from support.waiting import until

NAMES = ("hub", "alice", "denver", "boulder", "mallory")
SENDERS = (*NAMES, "anything")
RULES = (
    Rule(("alice", "boulder"), receive=("wx/**",)),
    Rule(("denver",), publish=("wx/radar/**",)),
    Rule(("boulder",), publish=("wx/text/**",)),
)
DIGEST = "0123456789abcdef"  # of a selection
LIVE = "headrace/live/hub"
REPLY_S_MAX = 240  # a safety net: queries end with their last reply, denied ones at once


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certs(tmp_path_factory.mktemp("certs") / "certs", *NAMES)


class Hub:
    """A site with rules. It replies to queries, declares its token, and records what it receives."""

    def __init__(self, session: zenoh.Session) -> None:
        self.session = session
        # one subscription for each site, because a site is shown only what is subscribed of its own
        self._all = [Listener(session, f"headrace/{kind}/{name}/**") for kind in ("live", "beat") for name in SENDERS]
        self.heard = self._all[0]
        for each in self._all:
            each.keys, each.payloads = self.heard.keys, self.heard.payloads
        self.asked: list[str] = []
        self.tokens: list[str] = []
        self._parts = [
            session.declare_queryable("headrace/log/hub/**", self._answer),
            session.declare_queryable("headrace/call/hub/**", self._answer),
            session.liveliness().declare_token("headrace/site/hub"),
            *(
                session.liveliness().declare_subscriber(key, Callback(self._token, indirect=False), history=True)
                for key in ("headrace/site/**", "headrace/client/**")
            ),
        ]

    def _answer(self, query: zenoh.Query) -> None:
        with query:
            self.asked.append(str(query.key_expr))
            query.reply(query.key_expr, b"answer")

    def _token(self, sample: zenoh.Sample) -> None:
        if sample.kind == zenoh.SampleKind.PUT:
            self.tokens.append(str(sample.key_expr))

    def publish(self) -> None:
        for stream in ("own", DIGEST, *(audience_stream(name, DIGEST) for name in (None, *NAMES))):
            for feed in ("wx/radar/KFTG", "wx/text", "secret"):
                self.session.put(f"{LIVE}/{stream}/{feed}", stream)
            self.session.put(f"headrace/beat/hub/{stream}", stream)
        self.session.put("elsewhere/x", b"x")


class Caller:
    """A session at the hub that subscribes to everything: of all sites, of the hub, and of the streams of one name."""

    def __init__(self, session: zenoh.Session, name: str | None = None) -> None:
        self.session = session
        self.tokens: list[str] = []
        stream = audience_stream(name, DIGEST)
        keys = (f"live/*/{stream}/**", f"beat/*/{stream}", "live/hub/**", "beat/hub/**")
        self._more = [Listener(session, f"headrace/{key}") for key in keys]
        self.heard = Listener(session, "headrace/live/**")
        self.beats = Listener(session, "headrace/beat/**")
        self.all = Listener(session, "**")
        liveliness = session.liveliness()
        token = Callback(self._token, indirect=False)
        self._tokens = liveliness.declare_subscriber("headrace/site/*", token, history=True)

    def _token(self, sample: zenoh.Sample) -> None:
        self.tokens.append(str(sample.key_expr))

    def round_trip(self) -> None:
        """Return when the hub has handled all that this client sent, and this client all that the hub sent."""
        assert self.ask("headrace/round/trip") == []

    def ask(self, key: str) -> list[bytes]:
        return replies(self.session, key)

    def alive(self, key: str) -> list[str]:
        found = self.session.liveliness().get(key, timeout=REPLY_S_MAX)
        return [str(reply.ok.key_expr) for reply in found if reply.ok is not None]


def replies(session: zenoh.Session, key: str) -> list[bytes]:
    found = session.get(key, timeout=REPLY_S_MAX)
    return [reply.ok.payload.to_bytes() for reply in found if reply.ok is not None]


@pytest.fixture
def hub(opened: Open, certs: Path) -> Hub:
    return Hub(opened("router", listen=("tls/127.0.0.1:0",), tls=tls(certs, "hub"), rules=RULES))


def caller(opened: Open, certs: Path, hub: Hub, name: str) -> Caller:
    return Caller(opened("client", connect=tuple(locators(hub.session)), tls=tls(certs, name)), name)


# --- principals without a rule ---------------------------------------------------------------------------------


def test_a_principal_without_a_rule_receives_nothing(opened: Open, certs: Path, hub: Hub) -> None:
    mallory, alice = caller(opened, certs, hub, "mallory"), caller(opened, certs, hub, "alice")
    until(lambda: alice.tokens, "alice to be known")
    mallory.round_trip()
    hub.publish()
    until(lambda: len(alice.heard.keys) == 2, "alice's products")
    mallory.round_trip()
    assert mallory.heard.keys + mallory.beats.keys + mallory.all.keys + mallory.tokens == []
    for key in ("headrace/log/hub", "headrace/call/hub", "headrace/log/*", "headrace/log/hub/alice", "**"):
        assert mallory.ask(key) == []
    assert mallory.ask("@/*/router") == []
    assert mallory.ask("@/*/router/**") == []
    assert mallory.alive("headrace/**") + mallory.alive("headrace/site/*") == []
    assert hub.asked == []


def test_messages_of_a_principal_without_a_rule_are_dropped(opened: Open, certs: Path, hub: Hub) -> None:
    mallory, denver = (caller(opened, certs, hub, name) for name in ("mallory", "denver"))
    mallory.session.liveliness().declare_token("headrace/site/mallory")
    with mallory.session.declare_queryable("headrace/log/mallory", lambda query: query.reply(query.key_expr, b"lies")):
        for key in (
            "headrace/live/mallory/own/wx/radar",
            "headrace/live/denver/own/wx/radar/x",
            "headrace/beat/mallory",
        ):
            mallory.session.put(key, b"x")
        mallory.round_trip()
        denver.session.put("headrace/live/denver/own/wx/radar/KFTG", b"x")
        until(lambda: hub.heard.keys, "denver's product")
        assert hub.heard.keys == ["headrace/live/denver/own/wx/radar/KFTG"]
        assert hub.tokens == ["headrace/site/hub"]
        assert replies(hub.session, "headrace/log/mallory") == []


# --- receive ------------------------------------------------------------------------------------------------


def test_a_principal_that_may_receive_gets_its_feeds_heartbeats_tokens_and_replies(
    opened: Open, certs: Path, hub: Hub
) -> None:
    alice = caller(opened, certs, hub, "alice")
    until(lambda: alice.tokens == ["headrace/site/hub"], "the token")
    alice.round_trip()
    hub.publish()
    until(lambda: len(alice.heard.keys) >= 2 and alice.beats.keys, "products and beats")
    alice.round_trip()
    stream = audience_stream("alice", DIGEST)
    assert alice.beats.keys == [f"headrace/beat/hub/{stream}"]
    assert alice.heard.keys == [f"{LIVE}/{stream}/wx/radar/KFTG", f"{LIVE}/{stream}/wx/text"]
    assert alice.ask("headrace/log/hub") == [b"answer"]
    assert alice.ask("headrace/call/hub") == [b"answer"]
    until(lambda: alice.alive("headrace/site/*") == ["headrace/site/hub"], "the token is there for a query, too")
    token = alice.session.liveliness().declare_token("headrace/client/hub/1")
    until(lambda: "headrace/client/hub/1" in hub.tokens, "alice's token")
    token.undeclare()


def test_a_principal_that_may_only_receive_cannot_publish(opened: Open, certs: Path, hub: Hub) -> None:
    alice, denver = (caller(opened, certs, hub, name) for name in ("alice", "denver"))
    with alice.session.declare_queryable("headrace/log/alice", lambda query: query.reply(query.key_expr, b"lies")):
        for key in ("live/alice/own/wx/radar", "live/hub/own/wx/radar", "live/denver/own/wx/radar/x", "beat/alice"):
            alice.session.put(f"headrace/{key}", b"x")
            alice.session.delete(f"headrace/{key}")
        alice.round_trip()
        denver.session.put("headrace/live/denver/own/wx/radar/KFTG", b"x")
        until(lambda: hub.heard.keys, "denver's product")
        assert hub.heard.keys == ["headrace/live/denver/own/wx/radar/KFTG"]
        assert replies(hub.session, "headrace/log/alice") == []


def test_a_principal_cannot_query_under_another_name(opened: Open, certs: Path, hub: Hub) -> None:
    alice = caller(opened, certs, hub, "alice")
    key = principal_key("headrace/log/hub", "alice")
    assert alice.ask(key) == [b"answer"]
    assert [principal_in(each, RULES) for each in hub.asked] == ["alice"]
    for stolen in (
        "headrace/log/hub/denver",
        "headrace/call/hub/denver",
        "headrace/log/hub/*",
        "headrace/log/hub/**",
        "headrace/**",
    ):
        assert alice.ask(stolen) == []
    assert hub.asked == [key]


# --- publish ------------------------------------------------------------------------------------------------


def test_a_principal_publishes_only_its_feeds_and_under_its_own_name(opened: Open, certs: Path, hub: Hub) -> None:
    denver = caller(opened, certs, hub, "denver")
    names = ("hub/2", "denver", "denver/2")
    tokens = [denver.session.liveliness().declare_token(f"headrace/site/{name}") for name in names]
    refused = (
        "live/denver/own/wx/text",
        "live/boulder/own/wx/radar/x",
        "live/denver/own/**",
        "live/*/own/wx/radar/x",
        "beat/hub",
    )
    taken = ("live/denver/own/wx/radar/KFTG", "live/denver/0123456789abcdef/wx/radar", "beat/denver", "beat/denver/own")
    for key in (*refused, *taken):
        denver.session.put(f"headrace/{key}", b"x")
    denver.round_trip()
    assert sorted(hub.heard.keys) == sorted(f"headrace/{key}" for key in taken)
    assert sorted(hub.tokens) == ["headrace/site/denver", "headrace/site/denver/2", "headrace/site/hub"]
    for token in tokens:
        token.undeclare()


def test_a_principal_that_may_only_publish_receives_no_products_no_heartbeats_and_no_log(
    opened: Open, certs: Path, hub: Hub
) -> None:
    denver, alice = caller(opened, certs, hub, "denver"), caller(opened, certs, hub, "alice")
    until(lambda: alice.tokens, "alice to be known")
    denver.round_trip()
    hub.publish()
    until(lambda: len(alice.heard.keys) == 2, "alice's products")
    denver.round_trip()
    assert denver.heard.keys + denver.beats.keys + denver.all.keys == []
    assert denver.ask("headrace/log/hub") == []
    assert denver.ask("headrace/call/hub/denver") == [b"answer"]


def test_rules_for_one_name_add_up(opened: Open, certs: Path, hub: Hub) -> None:
    boulder, alice = caller(opened, certs, hub, "boulder"), caller(opened, certs, hub, "alice")
    until(lambda: boulder.tokens and alice.tokens, "both to be known")
    for each in (boulder, alice):
        each.round_trip()
    for_alice = f"headrace/live/boulder/{audience_stream('alice', DIGEST)}/wx/text/metar"
    boulder.session.put(for_alice, b"x")
    until(lambda: alice.heard.keys, "alice to get boulder's product")
    assert alice.heard.keys == [for_alice]
    hub.publish()
    until(lambda: len(boulder.heard.keys) == 3, "boulder's own and the hub's products")


def test_sites_with_rules_for_each_other_work_in_both_directions(opened: Open, certs: Path) -> None:
    def rules(other: str) -> tuple[Rule, ...]:
        return (Rule((other,), receive=("**",), publish=("wx/**",)),)

    hub = Hub(opened("router", listen=("tls/127.0.0.1:0",), tls=tls(certs, "hub"), rules=rules("denver")))
    denver = Caller(
        opened("router", connect=tuple(locators(hub.session)), tls=tls(certs, "denver"), rules=rules("hub"))
    )
    token = denver.session.liveliness().declare_token("headrace/site/denver")
    until(lambda: "headrace/site/hub" in denver.tokens and "headrace/site/denver" in hub.tokens, "both tokens")
    streams = ("own", DIGEST, *(audience_stream(name, DIGEST) for name in (None, *NAMES)))
    allowed = {f"{LIVE}/{stream}/{feed}" for stream in streams for feed in ("wx/radar/KFTG", "wx/text")}
    own = {"headrace/live/denver/own/wx/radar", "headrace/beat/denver/own"}

    def all_arrive() -> bool:  # again and again, since sites learn of each other's subscriptions one by one
        hub.publish()
        for key in own:
            denver.session.put(key, b"x")
        return allowed <= set(denver.heard.keys) and own <= set(hub.heard.keys)

    until(all_arrive, "what each may send to the other")
    until(lambda: denver.ask("headrace/log/hub/denver") == [b"answer"], "a reply, behind all that was published")
    assert set(denver.heard.keys) == allowed | {"headrace/live/denver/own/wx/radar"}
    with denver.session.declare_queryable("headrace/log/denver/**", lambda query: query.reply(query.key_expr, b"mine")):
        until(lambda: replies(hub.session, "headrace/log/denver/hub"), "an answer")
    token.undeclare()


@pytest.mark.parametrize("relay", [False, True])
def test_only_a_relay_publishes_for_others(opened: Open, certs: Path, relay: bool) -> None:
    """hub - boulder - denver: products of denver pass through boulder."""
    rules = (Rule(("boulder",), receive=("**",), publish=("**",), relay=relay),)
    hub = Hub(opened("router", listen=("tls/127.0.0.1:0",), tls=tls(certs, "hub"), rules=rules))
    between = opened(
        "router", listen=("tls/127.0.0.1:0",), connect=tuple(locators(hub.session)), tls=tls(certs, "boulder")
    )
    denver = opened("router", connect=tuple(locators(between)), tls=tls(certs, "denver"))
    token = denver.liveliness().declare_token("headrace/site/denver")
    product = "headrace/live/denver/own/x"
    publisher = denver.declare_publisher(product)
    until(lambda: not relay or publisher.matching_status.matching, "denver to know the hub's subscription")
    passing = Listener(between, product)

    def last_arrives(key: str) -> bool:
        between.put(key, b"x")
        return key in hub.heard.keys

    until(lambda: last_arrives("headrace/live/boulder/own/first"), "boulder's product")
    until(lambda: publisher.put(b"x") or passing.keys, "denver's product at boulder")
    until(lambda: last_arrives("headrace/live/boulder/own/last"), "boulder's product, behind denver's")
    assert relay or product not in hub.heard.keys
    until(lambda: not relay or publisher.put(b"x") or product in hub.heard.keys, "denver's product")
    until(lambda: not relay or "headrace/site/denver" in hub.tokens, "denver's token")
    expected = [b"answer"] if relay else []
    until(lambda: replies(denver, "headrace/log/hub/denver") == expected, f"{expected}")
    assert ("headrace/site/denver" in hub.tokens) is relay
    token.undeclare()


# --- passwords -----------------------------------------------------------------------------------------------


def test_users_have_the_rights_of_their_names(opened: Open, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("alice:a1\ndenver:d1\nmallory:m1\n")
    hub = Hub(opened("router", listen=("tcp/127.0.0.1:0",), users_file=users, rules=RULES))
    where = tuple(locators(hub.session))
    alice, denver, mallory = (
        Caller(opened("client", connect=where, user=UserTerms(name, f"{name[0]}1")), name)
        for name in ("alice", "denver", "mallory")
    )
    until(lambda: alice.tokens, "alice to be known")
    mallory.round_trip()
    alice.session.put("headrace/live/alice/own/x", b"x")
    for_alice = f"headrace/live/denver/{audience_stream('alice', DIGEST)}/wx/radar/KFTG"
    for each in (mallory, denver):
        each.session.put(for_alice, each.session.zid().__str__())
        each.round_trip()
    alice.round_trip()
    assert hub.heard.keys == [for_alice]
    assert hub.heard.payloads == alice.heard.payloads[1:] == [str(denver.session.zid()).encode()]
    assert mallory.tokens == []
    assert alice.ask("headrace/log/hub/alice") == [b"answer"]
    assert mallory.ask("headrace/log/hub/alice") + mallory.ask("headrace/log/hub") == []


def test_a_site_with_a_certificate_and_one_with_a_password_exchange_products(
    opened: Open, certs: Path, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text("denver:d1\n")
    rules = (Rule(("denver",), receive=("**",), publish=("**",)),)
    hub = Hub(
        opened(
            "router", listen=("tls/127.0.0.1:0",), tls=tls(certs, "hub", mutual=False), users_file=users, rules=rules
        )
    )
    denver = Caller(
        opened(
            "router",
            connect=tuple(locators(hub.session)),
            tls=tls(certs),
            user=UserTerms("denver", "d1"),
            rules=(Rule(("hub",), receive=("**",), publish=("**",)),),
        )
    )
    until(lambda: denver.tokens == ["headrace/site/hub"], "the token of the hub")

    def both_hear() -> bool:
        hub.publish()
        denver.session.put("headrace/live/denver/own/wx", b"x")
        return "headrace/live/hub/own/secret" in denver.heard.keys and "headrace/live/denver/own/wx" in hub.heard.keys

    until(both_hear, "the hub's products and denver's")


def test_a_rule_for_everybody_applies_to_any_client(opened: Open) -> None:
    rules = (Rule(("*",), receive=("wx/**",), publish=("in/**",)), Rule(("alice",), receive=("secret/**",)))
    hub = Hub(opened("router", listen=("tcp/127.0.0.1:0",), rules=rules))
    anyone = Caller(opened("client", connect=tuple(locators(hub.session))))
    until(lambda: anyone.tokens, "the token")
    anyone.round_trip()
    hub.publish()
    until(lambda: len(anyone.heard.keys) >= 2, "products")
    anyone.round_trip()
    assert len(anyone.heard.keys) == 2
    anyone.session.put("headrace/live/anything/own/in/x", b"x")
    anyone.session.put("headrace/live/anything/own/wx/x", b"x")
    anyone.round_trip()
    assert not [key for key in hub.heard.keys if "anything" in key]
    assert anyone.ask("headrace/log/hub") == [b"answer"]
    assert anyone.ask("headrace/log/hub/alice") == []
    assert anyone.ask("headrace/log/hub/eve") == [b"answer"], "a name without a rule has the rights of everybody"
    assert anyone.ask("headrace/call/hub") == [b"answer"]


def test_everybody_never_replies_for_a_site(opened: Open) -> None:
    rules = (Rule(("*",), receive=("**",), publish=("**",)),)
    hub = Hub(opened("router", listen=("tcp/127.0.0.1:0",), rules=rules))
    anyone = Caller(opened("client", connect=tuple(locators(hub.session))))
    until(lambda: anyone.tokens, "the token")
    answer = lambda query: query.reply(query.key_expr, b"lies")  # noqa: E731
    with (
        anyone.session.declare_queryable("headrace/log/**", answer),
        anyone.session.declare_queryable("headrace/call/**", answer),
    ):
        anyone.session.put("headrace/beat/hub/own", b"x")
        token = anyone.session.liveliness().declare_token("headrace/site/other/1")
        anyone.round_trip()
        for key in ("headrace/log/other", "headrace/call/other", "headrace/log/*", "headrace/call/other/alice"):
            assert b"lies" not in replies(hub.session, key)
        assert hub.heard.keys == []
        assert hub.tokens == ["headrace/site/hub"]
        token.undeclare()


def test_a_denied_feed_neither_leaves_nor_comes_in(opened: Open, certs: Path) -> None:
    rules = (
        *RULES,
        Rule(("alice",), receive=("wx/radar/**",), deny=True),
        Rule(("denver",), publish=("wx/radar/KFTG",), deny=True),
    )
    hub = Hub(opened("router", listen=("tls/127.0.0.1:0",), tls=tls(certs, "hub"), rules=rules))
    alice, denver = caller(opened, certs, hub, "alice"), caller(opened, certs, hub, "denver")
    until(lambda: alice.tokens, "alice to be known")
    alice.round_trip()
    hub.publish()
    for name in ("KFTG", "PABC"):
        denver.session.put(f"headrace/live/denver/own/wx/radar/{name}", b"x")
    for each in (denver, alice):
        each.round_trip()
    assert alice.heard.keys == [f"{LIVE}/{audience_stream('alice', DIGEST)}/wx/text"]
    assert "headrace/live/denver/own/wx/radar/PABC" in hub.heard.keys
    assert "headrace/live/denver/own/wx/radar/KFTG" not in hub.heard.keys


def test_what_everybody_may_receive_cannot_be_denied_to_one() -> None:
    rules = (Rule(("*",), receive=("wx/**",)), Rule(("eve",), receive=("wx/radar/**",), deny=True))
    with pytest.raises(OptionError, match=r"denies eve to receive wx/radar/\*\*, which everybody may receive"):
        access_settings(rules)


@pytest.mark.parametrize("right", ["receive", "publish", "station", "manage"])
def test_nothing_that_everybody_may_do_can_be_denied_to_one(right: str) -> None:
    """He would call without his name."""
    rules = (Rule(("*",), **{right: ("wx/**",)}), Rule(("eve",), **{right: ("wx/radar/**",)}, deny=True))
    with pytest.raises(OptionError, match=f"denies eve to {right} wx/radar/\\*\\*, which everybody may {right}"):
        access_settings(rules)
    with pytest.raises(OptionError, match="denies eve to consume s, which everybody may consume"):
        access_settings((Rule(("*",), consume=("*",)), Rule(("eve",), consume=("s",), deny=True)))


def test_without_rules_everything_is_allowed(opened: Open) -> None:
    hub = Hub(opened("router", listen=("tcp/127.0.0.1:0",)))
    anyone = Caller(opened("client", connect=tuple(locators(hub.session))))
    until(lambda: anyone.tokens, "the token")
    anyone.round_trip()
    hub.publish()
    until(lambda: f"{LIVE}/own/secret" in anyone.heard.keys, "products")
    assert anyone.ask("headrace/log/hub/alice") == [b"answer"]


# --- rules ---------------------------------------------------------------------------------------------------


def test_the_rights_of_each_principal_follow_from_all_its_rules() -> None:
    rules = (*RULES, Rule(("*",), receive=("news",)))
    texts = [rights_of(rules, name).receive.allowed for name in ("alice", "denver", None)]
    assert texts == [("wx/**", "news"), ("news",), ("news",)]
    assert rights_of(rules, "boulder").publish.allowed == ("wx/text/**",)
    assert not rights_of(rules, "alice").publish
    assert rights_of((), None).receive.is_all


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("headrace/log/hub", None),
        ("headrace/log/hub/alice", "alice"),
        ("headrace/call/hub/*", None),
        ("headrace/call/hub/eve", None),
        ("headrace/call/hub/al$*", None),
    ],
)
def test_the_principal_of_a_query_is_in_its_key(key: str, name: str | None) -> None:
    """A name that no rule has is no name: everybody may use it."""
    assert principal_in(key, RULES) == name


def test_patterns_are_normalized() -> None:
    rule = Rule(("a", "a"), receive=("**/**", "mqtt:wx/+/#"), publish=("a/**/*",))
    assert (rule.who, rule.receive, rule.publish) == (("a",), ("**", "wx/*/**"), ("a/*/**",))


def test_invalid_rules_are_refused() -> None:
    with pytest.raises(OptionError, match="has no names"):
        Rule((), receive=("**",))
    with pytest.raises(OptionError, match="has no feeds"):
        Rule(("alice",))
    with pytest.raises(OptionError, match=r"has the name 'al\*ce'"):
        Rule(("al*ce",), receive=("**",))
    with pytest.raises(SelectionError):
        Rule(("alice",), receive=("wx//x",))


def test_zenoh_denies_by_default_as_soon_as_there_is_a_rule() -> None:
    assert access_settings(()) == {"enabled": False}
    settings = access_settings(RULES)
    assert (settings["enabled"], settings["default_permission"]) == (True, "deny")
    assert {rule["permission"] for rule in settings["rules"]} == {"allow"}


# --- for whom a relay speaks -----------------------------------------------------------------------------------

SPEAKERS = (
    Rule(("wide",), publish=("wx/**", "obs/**"), relay=True),
    Rule(("narrow",), publish=("wx/text/**",), relay=True),
    Rule(("text",), publish=("wx/text/metar",)),
    Rule(("obs",), publish=("obs/**",)),
    Rule(("obs",), publish=("obs/secret",), deny=True),
    Rule(("reader",), receive=("**",)),
)


@pytest.mark.parametrize(
    ("relay", "sites"),
    [
        ("wide", {"narrow", "text", "obs", "reader", "unnamed"}),
        ("narrow", {"text", "reader"}),
        ("text", set[str]()),
        ("reader", set[str]()),
        ("unnamed", set[str]()),
    ],
)
def test_a_relay_speaks_for_those_who_may_publish_no_more_than_it_brings(relay: str, sites: set[str]) -> None:
    others = {"wide", "narrow", "text", "obs", "reader", "unnamed"} - {relay}
    assert {site for site in others if may_speak_for(SPEAKERS, relay, site)} == sites


@pytest.mark.parametrize(
    ("ours", "theirs", "covers"),
    [
        (Feeds(["wx/**"]), Feeds(["wx/a", "wx/b/*"]), True),
        (Feeds(["wx/**"]), Feeds(["wx/a", "obs"]), False),
        (Feeds(["wx/**"], ["wx/x"]), Feeds(["wx/**"]), False),
        (Feeds(["wx/**"], ["wx/x"]), Feeds(["wx/**"], ["wx/x"]), True),
        (Feeds(["wx/**"], ["wx/x/y"]), Feeds(["wx/**"], ["wx/x/**"]), True),
        (Feeds(["wx/**"], ["wx/x/**"]), Feeds(["wx/**"], ["wx/x/y"]), False),
        (Feeds(["wx/**"], ["wx/x"]), Feeds(["wx/y/**"]), True),
        (Feeds(["wx/**"]), Feeds(), True),
    ],
)
def test_feeds_cover_others(ours: Feeds, theirs: Feeds, covers: bool) -> None:
    assert ours.covers(theirs) is covers


@pytest.mark.parametrize("feeds", ["**", "wx/**"])
def test_a_relay_speaks_neither_for_the_site_itself_nor_for_one_that_may_publish_more(
    opened: Open, certs: Path, feeds: str
) -> None:
    rules = (Rule(("denver",), ("**",), (feeds,), relay=True), Rule(("boulder",), publish=("wx/**", "obs/**")))
    hub = Hub(
        opened("router", listen=("tls/127.0.0.1:0",), tls=tls(certs, "hub"), rules=rules, names=("hub",))
    )  # fmt: skip
    denver = caller(opened, certs, hub, "denver")
    tokens = [denver.session.liveliness().declare_token(f"headrace/site/{site}/2") for site in SENDERS]
    for site in SENDERS:
        denver.session.put(f"headrace/live/{site}/own/wx/x", b"x")
        denver.session.put(f"headrace/beat/{site}/own", b"x")
    denver.round_trip()
    spoken_for = {"denver", "anything", "alice", "mallory"} | ({"boulder"} if feeds == "**" else set())
    assert {key.split("/")[2] for key in hub.heard.keys} == spoken_for
    assert {key.split("/")[2] for key in hub.tokens if key.endswith("/2")} == spoken_for
    for name in ("hub", *(() if feeds == "**" else ("boulder",))):
        assert denver.ask(principal_key("headrace/log/hub", name)) == []
    for token in tokens:
        token.undeclare()

"""What arrives is held against what was asked for and what its sender may publish, on every path."""

from headrace.relay.messages.query import Read
from support.hostile import Hostile, MakeHostile, made
from support.realm import Allow, Realm, SecureSite
from support.waiting import until

OLDEST = 'name = "wx"\nselect = "wx/**"\nfrom = "oldest"'


def refused(realm: Realm, site: SecureSite, sender: str) -> dict[str, int]:
    """What a site has refused of what another one sent, by cause."""
    return next((each.refused_here for each in realm.describe(site).upstreams if each.site == sender), {})


def reads(peer: Hostile) -> list[Read]:
    return [query for query in peer.asked if isinstance(query, Read)]


def test_a_page_from_the_log_brings_only_what_was_asked_for_and_what_its_site_may_publish(
    realm: Realm, hostile: MakeHostile
) -> None:
    hub = realm.site(
        "hub", Allow("evil", publish=["wx/text/**", "tel/**"]), Allow("hub", receive=["**"]), requests=[OLDEST]
    )
    evil = hostile("evil", hub)
    evil.hold(
        "evil", ("wx/text/a", "text1"), ("wx/radar/x", "radar"), ("secret/x", "secret"), ("tel/x", "tel"),
        ("wx/text/a", "text2"),
    )  # fmt: skip
    evil.appear()
    until(lambda: "text2" in hub.idents(), lambda: hub.log)
    assert hub.idents() == ["text1", "text2"]
    assert refused(realm, hub, "evil") == {"refused by rights": 2, "not asked for": 1}
    (upstream,) = realm.describe(hub).upstreams
    assert upstream.base == 5
    assert all(query.after >= 5 for query in reads(evil)[1:]), "it is asked again for what was refused"
    for feed in ("wx/radar/x", "secret/x"):
        assert f"products of feed '{feed}' and origin 'evil' are refused" in hub.log
    assert any("refused by rights" in problem.text for problem in realm.describe(hub).problems)


def test_conditions_of_a_request_hold_for_live_pages_and_for_pages_from_the_log(
    realm: Realm, hostile: MakeHostile
) -> None:
    request = 'name = "wx"\nselect = """wx/** ident ~ "^good" priority >=3"""\nfrom = "oldest"'
    hub = realm.site("hub", Allow("evil", publish=["wx/**"]), Allow("hub", receive=["**"]), requests=[request])
    evil = hostile("evil", hub)
    evil.stream = "0123456789abcdef"
    evil.hold("evil", ("wx/a", "bad1"), ("wx/a", "good1"))
    evil.appear()
    until(lambda: hub.idents() == ["good1"], lambda: hub.log)
    until(lambda: realm.describe(hub).upstreams[0].state == "live")
    evil.publish_held("wx/a", ("wx/a", "bad2"), ("wx/a", "good2"))
    until(lambda: "good2" in hub.idents(), lambda: hub.log)
    assert hub.idents() == ["good1", "good2"]
    assert refused(realm, hub, "evil") == {"not asked for": 2}
    assert realm.describe(hub).upstreams[0].live_pages == 1


def test_a_live_page_in_the_name_of_another_origin_is_refused(realm: Realm, hostile: MakeHostile) -> None:
    hub = realm.site("hub", Allow("evil", publish=["wx/**"]), Allow("hub", receive=["**"]), requests=[OLDEST])
    evil = hostile("evil", hub)
    evil.hold("evil", ("wx/a", "mine1"))
    evil.appear()
    until(lambda: hub.idents() == ["mine1"], lambda: hub.log)
    until(lambda: realm.describe(hub).upstreams[0].state == "live")
    evil.publish_held("wx/a", ("wx/a", "forged"), origin="victim")
    evil.publish_held("wx/a", ("wx/a", "mine2"))
    until(lambda: "mine2" in hub.idents(), lambda: hub.log)
    assert hub.idents() == ["mine1", "mine2"]
    assert refused(realm, hub, "evil") == {"refused by rights": 1}


def test_a_site_of_a_fail_over_list_brings_only_what_it_may(realm: Realm, hostile: MakeHostile) -> None:
    request = OLDEST + '\nsites = ["evil", "other"]\nredundancy = "failover"'
    hub = realm.site(
        "hub", Allow("evil", publish=["wx/**"]), Allow("other", publish=["wx/**"], relay=True), requests=[request]
    )  # fmt: skip
    evil = hostile("evil", hub)
    evil.hold("victim", ("wx/a", "forged"))
    evil.hold("evil", ("secret/x", "secret"), ("wx/a", "mine"))
    evil.appear()
    until(lambda: "mine" in hub.idents(), lambda: hub.log)
    assert hub.idents() == ["mine"]


def test_a_relay_brings_products_of_others_within_its_feeds(realm: Realm, hostile: MakeHostile) -> None:
    hub = realm.site(
        "hub", Allow("relay", publish=["wx/**"], relay=True), Allow("relay", publish=["tel/**"]),
        requests=['name = "all"\nselect = "**"\nfrom = "oldest"\nsites = ["relay"]'],
    )  # fmt: skip
    relay = hostile("relay", hub)
    relay.hold("victim", ("wx/a", "relayed"), ("tel/a", "forged"), ("secret/a", "secret"))
    relay.hold("relay", ("tel/a", "its own"))
    relay.appear()
    until(lambda: "its own" in hub.idents(), lambda: hub.log)
    assert hub.idents() == ["relayed", "its own"]


def test_decisions_end_with_the_rules_that_they_were_made_by(realm: Realm, hostile: MakeHostile) -> None:
    both = Allow("evil", publish=["wx/**"])
    hub = realm.site("hub", Allow("evil", publish=["wx/text/**"]), requests=[OLDEST])
    evil = hostile("evil", hub)
    evil.hold("evil", ("wx/radar", "refused"), ("wx/text", "text1"))
    evil.appear()
    until(lambda: hub.idents() == ["text1"], lambda: hub.log)
    hub.allow(both)
    evil.hold("evil", ("wx/radar", "radar2"), ("wx/text", "text2"))
    until(lambda: hub.idents() == ["text1", "radar2", "text2"], lambda: hub.log)
    hub.allow(Allow("evil", publish=["wx/radar/**"]))
    evil.hold("evil", ("wx/text", "refused too"), ("wx/radar", "radar3"))
    until(lambda: hub.idents() == ["text1", "radar2", "text2", "radar3"], hub.idents)


# --- the names of absent sites ------------------------------------------------------------------------


def test_only_a_relay_is_asked_for_the_products_of_an_absent_site(realm: Realm, hostile: MakeHostile) -> None:
    hub = realm.site(
        "hub", Allow("evil", publish=["wx/**"]), Allow("relay", publish=["wx/**"], relay=True),
        Allow("victim", publish=["wx/**"]), requests=[OLDEST],
    )  # fmt: skip
    relay, evil = hostile("relay", hub), hostile("evil", hub)
    for peer in (relay, evil):
        peer.origins = (peer.name, "victim", "nobody")
        peer.hold(peer.name, ("wx/a", f"of {peer.name}"))
    evil.hold("victim", ("wx/a", "forged"))
    evil.appear()
    until(lambda: hub.idents() == ["of evil"], lambda: hub.log)
    relay.hold("victim", ("wx/a", "true"))
    relay.appear()
    until(lambda: "true" in hub.idents(), lambda: hub.log)
    asked = [query for query in reads(relay) if "victim" in query.selection]
    until(lambda: len([query for query in reads(relay) if "victim" in query.selection]) > len(asked), "a second round")
    assert sorted(hub.idents()) == ["of evil", "of relay", "true"]
    assert not [query for query in reads(evil) if "victim" in query.selection]


def test_a_holder_moves_no_position_of_an_origin_that_it_may_not_speak_for(realm: Realm, hostile: MakeHostile) -> None:
    """The relay's rule is for wx/text alone: what it says about wx/radar neither enters nor hides the origin's own."""
    hub = realm.site(
        "hub", Allow("relay", publish=["wx/text/**"], relay=True), Allow("victim", publish=["wx/**"]),
        requests=[OLDEST],
    )  # fmt: skip
    relay = hostile("relay", hub)
    relay.origins = ("relay", "victim")
    relay.hold("victim", *[("wx/radar/x", f"forged{number}") for number in range(9)], ("wx/text/a", "true"))
    relay.appear()
    until(lambda: hub.idents() == ["true"], lambda: hub.log)
    victim = hostile("victim", hub)
    batch = made(realm.folder, "victim", ("wx/radar/x", "radar"), ("wx/text/b", "text"))
    victim.add(batch)
    victim.appear()
    until(lambda: {"radar", "text"} <= set(hub.idents()), lambda: hub.log)
    assert not [ident for ident in hub.idents() if ident.startswith("forged")]

"""The tools of these tests work: without them, an attack that fails would prove nothing."""

from support.hostile import MakeHostile
from support.realm import Allow, Realm
from support.waiting import until


def test_a_peer_that_plays_a_site_is_asked_and_what_it_may_publish_arrives(realm: Realm, hostile: MakeHostile) -> None:
    hub = realm.site(
        "hub", Allow("peer", publish=["wx/**"]), Allow("alice", receive=["wx/**"]), Allow("hub", receive=["**"]),
        requests=['name = "wx"\nselect = "wx/**"\nfrom = "oldest"'],
    )  # fmt: skip
    peer = hostile("peer", hub)
    peer.hold("peer", ("wx/a", "logged"))
    peer.appear()
    until(lambda: hub.idents() == ["logged"], lambda: hub.log)
    with realm.connect("alice", hub) as user:
        assert [product.ident for product in user.read_batch("oldest")] == ["logged"]
    assert [each.site for each in realm.describe(hub).upstreams] == ["peer"]


def test_rules_are_replaced_by_a_reload(realm: Realm, hostile: MakeHostile) -> None:
    hub = realm.site("hub", requests=['name = "wx"\nselect = "wx/**"\nfrom = "oldest"'])
    hub.allow(Allow("peer", publish=["wx/**"]))
    peer = hostile("peer", hub)
    peer.hold("peer", ("wx/a", "logged"))
    peer.appear()
    until(lambda: hub.idents() == ["logged"], lambda: hub.log)

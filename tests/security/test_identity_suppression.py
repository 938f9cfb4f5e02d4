"""Nobody suppresses a product that is still to come by junk with its signature, put first."""

from support.hostile import MakeHostile, made
from support.realm import Allow, Realm
from support.records import identity, with_signature
from support.waiting import until

WARNING = ("wx/warn/tornado", "take shelter")  # the text is the ident, too
COMING = identity(*WARNING, WARNING[1].encode())
REQUEST = 'name = "wx"\nselect = "wx/**"\nfrom = "oldest"'


def test_a_site_cannot_suppress_the_warning_of_another_one(realm: Realm, hostile: MakeHostile) -> None:
    """It knows the text of the warning, and claims its signature, of each kind that there is."""
    hub = realm.site(
        "hub", Allow("evil", publish=["wx/text/**"]), Allow("office", publish=["wx/warn/**"]),
        Allow("hub", receive=["**"]), requests=[REQUEST],
    )  # fmt: skip
    evil = hostile("evil", hub)
    for kind in (1, 2, 3, 4, 5, 6, 7):
        junk = made(realm.folder, "evil", ("wx/text/a", f"junk {kind}")).record(0)
        evil.hold_record(with_signature(junk, kind, COMING))
    evil.hold("evil", ("wx/text/a", "honest"))
    evil.appear()
    until(lambda: "honest" in hub.idents(), lambda: hub.log)
    office = hostile("office", hub)
    assert office.hold("office", WARNING)[0].signature == COMING
    office.appear()
    until(lambda: "take shelter" in hub.idents(), lambda: hub.log)
    assert hub.idents() == ["junk 4", "honest", "take shelter"]  # what it made up is stored, and suppresses nothing
    refused = {
        upstream.site: upstream.refused_here.get("wrong signature") for upstream in realm.describe(hub).upstreams
    }
    assert refused["evil"] == 6


def test_a_program_cannot_suppress_the_warning_of_another_one(realm: Realm) -> None:
    """It chooses the signature of its product, or sends a whole record."""
    hub = realm.site("hub", Allow("mallory", publish=["wx/text/**"]), Allow("office", publish=["wx/warn/**"]))
    with realm.connect("mallory", hub) as mallory, realm.connect("office", hub) as office:
        mallory.put(b"junk", feed="wx/text/a", ident="junk", signature=COMING)
        mallory.put_many([b"more junk"], feed="wx/text/a", ident="more", signature=[COMING])
        assert office.put(WARNING[1].encode(), feed=WARNING[0], ident=WARNING[1]) == hub.queue.next - 1
    assert hub.idents() == ["junk", "take shelter"]

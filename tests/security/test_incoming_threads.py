"""A site has the same threads whatever others say, and honest sites are served beside those that say too much."""

from headrace.link.keys import site_key
from headrace.relay.receive.places import LISTED_BY_ONE_MAX
from headrace.relay.receive.pool import THREADS
from support.hostile import MakeHostile
from support.realm import Allow, Realm, SecureSite
from support.waiting import until

OLDEST = 'name = "wx"\nselect = "wx/**"\nfrom = "oldest"'


def own_threads(site: SecureSite) -> int:
    """Those of Headrace, some of which are started when they are first needed; Zenoh names its own."""
    return site.threads.count("python")


def test_a_relay_that_lists_3000_origins_and_speaks_for_200_sites_gets_no_threads_and_hinders_nobody(
    realm: Realm, hostile: MakeHostile
) -> None:
    hub = realm.site(
        "hub", Allow("evil", publish=["wx/**"], relay=True), Allow("office", publish=["wx/**"]),
        Allow("hub", receive=["**"]), requests=[OLDEST],
    )  # fmt: skip
    before = own_threads(hub)
    evil, office = hostile("evil", hub), hostile("office", hub)
    evil.origins = tuple(f"ghost{number}" for number in range(3000))
    evil.hold("evil", ("wx/a", "evil"))
    evil.appear()
    for number in range(200):
        evil.keep(evil.session.liveliness().declare_token(site_key(f"spirit{number}", str(evil.session.zid()))))
    until(lambda: "site evil lists too many origins that are away" in hub.log, lambda: hub.log)
    until(lambda: len(realm.describe(hub).upstreams) > LISTED_BY_ONE_MAX + 200, lambda: hub.log)
    office.hold("office", ("wx/b", "logged"))
    office.appear()
    until(lambda: "logged" in hub.idents(), lambda: hub.log)
    until(lambda: any(each.state == "live" for each in realm.describe(hub).upstreams if each.site == "office"))
    office.publish_held("wx/b", ("wx/b", "live"))
    until(lambda: "live" in hub.idents(), lambda: hub.log)
    assert own_threads(hub) < before + 2 * THREADS

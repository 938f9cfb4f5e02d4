"""Members that use the queue of a site beyond their rights: its stations, its cursors, its writers."""

from collections.abc import Callable

import pytest

from headrace.errors import AccessDeniedError
from headrace.site import check_config
from support.realm import Allow, Realm, SecureSite

READER = Allow("reader", receive=["wx/**"])
WORKER = Allow("worker", receive=["wx/**"], station=["wx/**"])
OPERATOR = Allow("operator", receive=["**"], manage=["**"])


@pytest.fixture
def hub(realm: Realm) -> SecureSite:
    return realm.site("hub", READER, WORKER, OPERATOR)


def refused(*acts: Callable[[], object]) -> None:
    for act in acts:
        with pytest.raises(AccessDeniedError):
            act()


def test_a_member_that_may_only_receive_cannot_stop_the_writers_of_a_site(realm: Realm, hub: SecureSite) -> None:
    reader, worker = realm.connect("reader", hub), realm.connect("worker", hub)
    for member in (reader, worker):
        refused(
            lambda member=member: member.station("trap", "wx/**", blocking=True, capacity=1),
            lambda member=member: member.station("trap", "wx/**", max_queue=1),
            lambda member=member: member.channel("trap", "wx/trap", reliability="persistent", max_per_consumer=1),
        )
    refused(lambda: reader.station("harmless", "wx/**"))
    worker.station("harmless", "wx/**")
    refused(lambda: worker.station("harmless").change(blocking=True, capacity=1))
    for number in range(10):
        hub.queue.put(b"%d" % number, feed="wx/a", timeout=0)
    assert hub.queue.stations() == ["harmless"]
    realm.connect("operator", hub).station("careful", "wx/**", blocking=True, capacity=1000)


def test_a_member_cannot_use_stations_and_cursors_of_others(realm: Realm, hub: SecureSite) -> None:
    hub.queue.station("archive", "wx/**")
    hub.queue.cursor("bookmark")
    owner = realm.connect("worker", hub)
    owner.station("mine", "wx/**")
    owner.cursor("position")
    hub.queue.put(b"1", feed="wx/a")
    for member in (realm.connect("reader", hub), owner):
        archive = member.station("archive")
        refused(
            archive.attach, archive.remove, archive.pause, lambda a=archive: a.seek("next"),
            lambda a=archive: a.change(prescale=1000), lambda m=member: m.cursor("bookmark"),
            lambda m=member: m.station("before", "wx/**", group="x", after="archive"),
        )  # fmt: skip
    reader = realm.connect("reader", hub)
    refused(
        reader.station("mine").attach, reader.station("mine").remove, lambda: reader.cursor("position"),
    )  # fmt: skip
    assert reader.cursors() == []
    assert sorted(hub.queue.stations()) == ["archive", "mine"]
    assert sorted(hub.queue.cursors()) == ["bookmark", "position"]
    with owner.station("mine").attach() as consumer:
        assert len(consumer.get(1)) == 1
    operator = realm.connect("operator", hub)
    operator.station("mine").remove()
    operator.cursor("position").remove()
    assert operator.cursors() == ["bookmark"]


def test_a_station_stays_its_makers_when_the_site_restarts(realm: Realm, hub: SecureSite) -> None:
    realm.connect("worker", hub).station("mine", "wx/**")
    hub.restart()
    refused(realm.connect("reader", hub).station("mine").remove)
    mine = realm.connect("worker", hub).station("mine")
    mine.change(prescale=2)
    mine.remove()
    hub.queue.station("mine", "wx/**")  # and now the site has one of that name
    refused(realm.connect("worker", hub).station("mine").remove)


def test_a_station_of_the_site_is_shared_by_its_name(realm: Realm) -> None:
    hub = realm.site("hub", READER, Allow("worker", receive=["wx/**"], consume=["archive"]))
    for name in ("archive", "other"):
        hub.queue.station(name, "wx/**")
    hub.queue.put(b"1", feed="wx/a")
    worker = realm.connect("worker", hub)
    refused(worker.station("other").attach, worker.station("archive").remove)
    with worker.station("archive").attach() as consumer:
        batch = consumer.get(1)
        consumer.ack(batch)
    assert hub.queue.station("archive").statistics().acknowledged == 1


def test_a_station_whose_selection_widens_hands_out_nothing_more(realm: Realm) -> None:
    hub = realm.site("hub", Allow("worker", receive=["wx/**"], station=["wx/**"], consume=["archive"]))
    station = hub.queue.station("archive", "wx/**")
    with realm.connect("worker", hub).station("archive").attach() as consumer:
        hub.queue.put(b"1", feed="wx/a")
        consumer.ack(consumer.get(1))
        station.change(selection="**")
        hub.queue.put(b"secret", feed="secret/a")
        with pytest.raises(AccessDeniedError):
            consumer.get(1, timeout=60)
    assert station.statistics().waiting == 1


def test_a_member_cannot_join_a_group_of_nodes(realm: Realm) -> None:
    hub = realm.site("hub", READER, WORKER, Allow("node", receive=["wx/**"], consume=["wx/main"]))
    hub.queue.channel("wx", "wx/**", slices=8)
    hub.queue.share("wx", "main")
    for name in ("reader", "worker"):
        share = realm.connect(name, hub).share("wx", "main", create=False)
        refused(lambda share=share: share.join("thief"))
    realm.connect("node", hub).share("wx", "main", create=False).join("honest")
    assert [node.name for node in hub.queue.share("wx", "main").state().nodes] == ["honest"]


def test_a_member_that_no_rule_names_has_the_rights_of_everybody(realm: Realm) -> None:
    site = realm.site("open", Allow("*", receive=["wx/**"], publish=["in/**"]), READER)
    visitor = realm.connect("visitor", site)
    assert visitor.put(b"hello", feed="in/a") == 1
    site.queue.put(b"news", feed="wx/a")
    site.queue.put(b"secret", feed="other")
    assert [product.payload for product in visitor.read()] == [b"news"]
    refused(lambda: visitor.put(b"x", feed="wx/a"))


def test_what_is_denied_to_a_name_is_denied_without_it(realm: Realm) -> None:
    """A rule that everybody could evade by leaving out his name is refused."""
    rules = "[[allow]]\nwho = '*'\npublish = ['pub/**']\n[[deny]]\nwho = ['mallory']\npublish = ['pub/no/**']\n"
    path = realm.folder / "refused.toml"
    path.write_text(f"[site]\nqueue = 'q'\n[tls]\nauthority = '{realm.certs / 'authority.crt'}'\n{rules}")
    assert "everybody may publish pub/no/**" in "\n".join(str(each) for each in check_config(path))

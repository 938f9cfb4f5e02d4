"""Signed products: a relay cannot forge, alter or replay what an origin has signed; keys change and are revoked."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Queue
from headrace.errors import AccessDeniedError
from headrace.log.records import Names, read_batch
from headrace.relay.signing.covered import PROOF, SIGNED, parts_of, with_options
from headrace.relay.signing.keyring import id_text, key_id, make_key, public_text, read_private
from headrace.relay.signing.sign import Signer
from support.hostile import Hostile, MakeHostile
from support.realm import Allow, Realm, SecureSite
from support.records import sealed
from support.waiting import until

REQUEST = 'name = "wx"\nselect = "wx/**"\nfrom = "oldest"\nsites = ["relay"]'
REQUIRE = '[[verify]]\nfeeds = ["wx/warn/**"]\nmode = "require"\n'


def key_table(origin: str, public: bytes, more: str = "") -> str:
    return f'[[key]]\norigin = "{origin}"\npublic = "{public_text(public)}"\n{more}\n'


class Office:
    """The origin: its queue and its keys. What it signs is what its site would send."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.queue = Queue.create(folder / "office", size="4MiB", origin="office")
        self.file, self.public = make_key(folder / "keys", "office")

    def signed(self, feed: str, ident: str, key: Path | None = None) -> bytes:
        """The record of a product as it leaves the office."""
        sequence = self.queue.put(ident.encode(), feed=feed, ident=ident)
        batch = self.queue.read_batch(int(sequence), limit=1)
        return read_batch(Signer("office", read_private(key or self.file)).records(batch), Names()).record(0)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(tmp_path)
    yield made
    made.queue.close()


def hub_of(realm: Realm, more: str, *rules: Allow, queue: str = "") -> SecureSite:
    return realm.site(
        "hub", Allow("relay", publish=["wx/**"]), Allow("hub", receive=["**"]), *rules, requests=[REQUEST],
        more=more, queue=queue,
    )  # fmt: skip


def refused(realm: Realm, hub: SecureSite) -> Counter[str]:
    """What the hub has refused, by cause."""
    found = Counter[str]()
    for upstream in realm.describe(hub).upstreams:
        found.update(upstream.refused_here)
    return found


def relay_of(hostile: MakeHostile, hub: SecureSite) -> Hostile:
    """A peer that says it holds products of the office."""
    relay = hostile("relay", hub)
    relay.origins = ("relay", "office")
    return relay


def until_read(relay: Hostile, hub: SecureSite, *idents: str) -> None:
    """Wait until the hub has these, while the relay says that its log has more: a beat may come before it is heard."""

    def is_there() -> bool:
        relay.beat(recent={"wx/warn/a": relay.next - 1})
        return set(idents) <= set(hub.idents())

    until(is_there, lambda: hub.log)


def test_a_relay_can_neither_forge_nor_alter_and_brings_what_is_signed(
    realm: Realm, hostile: MakeHostile, office: Office
) -> None:
    """Its rule does not let it speak for others: the signature alone does."""
    hub = hub_of(realm, key_table("office", office.public) + REQUIRE)
    relay = relay_of(hostile, hub)
    warning = office.signed("wx/warn/a", "take shelter")
    altered = bytearray(office.signed("wx/warn/a", "all is well"))
    altered[altered.rindex(b"well")] ^= 1
    retimed = bytearray(office.signed("wx/warn/a", "yesterday"))
    retimed[32] ^= 1  # the time of its creation
    options = [entry for entry in parts_of(warning).options if entry[0] in (SIGNED, PROOF)]
    moved = with_options(parts_of(office.queue.read_batch(2, limit=1).record(0)), options)
    forger, _ = make_key(office.folder / "forger", "office")
    forged = office.signed("wx/warn/a", "forged", forger)
    for record in (sealed(altered), sealed(retimed), moved, forged, warning):
        relay.hold_record(record)
    relay.hold("office", ("wx/warn/b", "unsigned"))
    relay.hold("relay", ("wx/warn/b", "its own, unsigned"), ("wx/text/a", "honest"))
    relay.appear()
    until(lambda: {"take shelter", "honest"} <= set(hub.idents()), lambda: hub.log)
    assert sorted(hub.idents()) == ["honest", "take shelter"]
    until(lambda: refused(realm, hub)["invalid signature"] >= 3 and refused(realm, hub)["not signed"] >= 3)


def test_a_relay_that_may_speak_for_others_cannot_forge_either(
    realm: Realm, hostile: MakeHostile, office: Office
) -> None:
    hub = hub_of(realm, key_table("office", office.public) + REQUIRE, Allow("relay", publish=["wx/**"], relay=True))
    relay = relay_of(hostile, hub)
    altered = bytearray(office.signed("wx/text/a", "all is well"))
    altered[32] ^= 1  # the time of its creation
    relay.hold_record(sealed(altered))
    relay.hold("office", ("wx/warn/a", "unsigned"), ("wx/text/a", "need not be signed"))
    relay.hold_record(office.signed("wx/warn/a", "signed"))
    relay.appear()
    until(lambda: {"signed", "need not be signed"} <= set(hub.idents()), lambda: hub.log)
    assert sorted(hub.idents()) == ["need not be signed", "signed"]
    until(lambda: {"not signed", "invalid signature"} <= set(refused(realm, hub)))


def test_a_relay_cannot_replay_an_old_product_as_a_new_one(realm: Realm, hostile: MakeHostile, office: Office) -> None:
    """The queue of the hub has evicted it."""
    hub = hub_of(realm, key_table("office", office.public))
    relay = relay_of(hostile, hub)
    warning = office.signed("wx/warn/a", "take shelter")
    relay.hold_record(warning)
    relay.appear()
    until(lambda: "take shelter" in hub.idents(), lambda: hub.log)
    while hub.queue.oldest == 1:
        hub.queue.put(bytes(1 << 20), feed="fill")
    relay.hold_record(warning)
    relay.hold_record(office.signed("wx/warn/a", "all clear"))
    until_read(relay, hub, "all clear")
    assert hub.idents("wx/warn/a") == ["all clear"]
    assert refused(realm, hub)["replayed"] >= 1


def test_keys_change_and_are_revoked_by_a_reload(realm: Realm, hostile: MakeHostile, office: Office) -> None:
    next_file, next_public = make_key(office.folder / "next", "office")
    revoked = realm.folder / "revoked.keys"
    revoked.write_text("")
    hub = hub_of(realm, f'[sign]\nrevoked = "{revoked}"\n' + key_table("office", office.public) + REQUIRE)
    relay = relay_of(hostile, hub)
    relay.hold_record(office.signed("wx/warn/a", "by the first"))
    relay.appear()
    until(lambda: "by the first" in hub.idents(), lambda: hub.log)
    hub.add(key_table("office", next_public))  # both count while one replaces the other
    relay.hold_record(office.signed("wx/warn/a", "by the next", next_file))
    relay.hold_record(office.signed("wx/warn/a", "by the first again"))
    until_read(relay, hub, "by the next", "by the first again")
    revoked.write_text(f"{id_text(key_id(office.public))} office, stolen\n")
    hub.add("")
    relay.hold_record(office.signed("wx/warn/a", "by the thief"))
    relay.hold_record(office.signed("wx/warn/a", "by the next again", next_file))
    until_read(relay, hub, "by the next again")
    assert "by the thief" not in hub.idents()


def test_a_site_signs_what_it_sends_live_and_from_its_log(realm: Realm) -> None:
    """A site between them passes the signatures on; the hub trusts neither it nor anybody else."""
    file, public = make_key(realm.folder / "keys", "office")
    office = realm.site(
        "office", Allow("between", receive=["**"]), Allow("office", receive=["**"]), more=f'[sign]\nkey = "{file}"\n'
    )
    office.queue.put(b"from the log", feed="wx/warn/a", ident="from the log")
    between = realm.site(
        "between", Allow("office", publish=["**"]), Allow("hub", receive=["**"], publish=["**"]),
        requests=['select = "wx/**"\nfrom = "oldest"\nsites = ["office"]'], near=[office],
    )  # fmt: skip
    hub = realm.site(
        "hub", Allow("between", publish=["wx/**"], receive=["**"]), Allow("hub", receive=["**"]), near=[between],
        requests=['select = "wx/**"\nfrom = "oldest"\nsites = ["between"]'],
        more=key_table("office", public) + REQUIRE,
    )  # fmt: skip
    until(lambda: "from the log" in hub.idents(), lambda: hub.log)
    office.queue.put(b"live", feed="wx/warn/a", ident="live")
    between.queue.put(b"unsigned", feed="wx/warn/a", ident="unsigned")
    between.queue.put(b"honest", feed="wx/text/a", ident="honest")
    until(lambda: {"live", "honest"} <= set(hub.idents()), lambda: hub.log)
    assert sorted(hub.idents()) == ["from the log", "honest", "live"]
    until(lambda: refused(realm, hub)["not signed"] >= 1)


def test_without_a_rule_signatures_are_accepted_and_nothing_is_required(
    realm: Realm, hostile: MakeHostile, office: Office
) -> None:
    hub = hub_of(realm, key_table("office", office.public) + '[[verify]]\nfeeds = ["wx/off/**"]\nmode = "off"\n',
                 Allow("relay", publish=["wx/**"], relay=True))  # fmt: skip
    relay = relay_of(hostile, hub)
    for feed in ("wx/warn/a", "wx/off/a"):
        altered = bytearray(office.signed(feed, f"altered {feed}"))
        altered[32] ^= 1
        relay.hold_record(sealed(altered))
    relay.hold("office", ("wx/warn/a", "unsigned"))
    relay.appear()
    until(lambda: {"unsigned", "altered wx/off/a"} <= set(hub.idents()), lambda: hub.log)
    assert sorted(hub.idents()) == ["altered wx/off/a", "unsigned"]


def test_a_program_that_may_speak_for_others_cannot_forge_by_a_call(realm: Realm, office: Office) -> None:
    hub = realm.site(
        "hub", Allow("relay", publish=["wx/**"], relay=True), more=key_table("office", office.public) + REQUIRE
    )
    signed = office.signed("wx/warn/a", "signed")
    bare = office.queue.read_batch()
    with realm.connect("relay", hub) as relay:
        with pytest.raises(AccessDeniedError, match=r"office in feed wx/warn/b must be signed"):
            relay.put(b"forged", feed="wx/warn/b", origin="office", origin_sequence=7)
        with pytest.raises(AccessDeniedError, match="must be signed"):
            relay.put_many([b"forged"], feed="wx/warn/b", origin="office", origin_sequence=[7])
        with pytest.raises(AccessDeniedError, match="not signed"):
            relay.put_batch(bare)
        assert relay.put_batch(read_batch(signed + bytes(-len(signed) % 8), Names())).stored == 1
        relay.put(b"free", feed="wx/text/a", ident="free", origin="office", origin_sequence=7)
    assert hub.idents() == ["signed", "free"]

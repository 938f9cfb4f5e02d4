"""What a relay forges of an absent origin neither enters nor hides what the origin has signed."""

from headrace import Queue
from headrace.log.records import Names, read_batch
from headrace.relay.signing.keyring import make_key, public_text, read_private
from headrace.relay.signing.sign import Signer
from support.hostile import MakeHostile
from support.realm import Allow, Realm
from support.waiting import until


def test_unsigned_products_of_a_holder_do_not_move_the_position_of_their_origin(
    realm: Realm, hostile: MakeHostile
) -> None:
    key, public = make_key(realm.folder / "keys", "office")
    hub = realm.site(
        "hub", Allow("relay", publish=["wx/**"], relay=True), Allow("office", publish=["wx/**"]),
        requests=['name = "wx"\nselect = "wx/**"\nfrom = "oldest"'],
        more=f'[[key]]\norigin = "office"\npublic = "{public_text(public)}"\n'
        '[[verify]]\nfeeds = ["wx/warn/**"]\nmode = "require"\n',
    )  # fmt: skip
    office = hostile("office", hub)
    origin = Queue.create(realm.folder / "office", size="4MiB", origin="office")
    for ident in ("all is well", "take shelter"):
        origin.put(ident.encode(), feed="wx/warn/a", ident=ident)
    signed = read_batch(Signer("office", read_private(key)).records(origin.read_batch("oldest")), Names())
    office.hold_record(signed.record(0))
    office.appear()
    until(lambda: hub.idents() == ["all is well"], lambda: hub.log)
    answers = dict(office.answers)
    office.answers.clear()  # it is away
    relay = hostile("relay", hub)
    relay.origins = ("relay", "office")
    forged = [("wx/warn/a", f"forged {number}") for number in range(9)]
    relay.hold("office", *forged, ("wx/text/a", "need not be signed"))
    relay.appear()
    until(lambda: "need not be signed" in hub.idents(), lambda: hub.log)
    office.hold_record(signed.record(1))
    office.answers.update(answers)
    until(lambda: "take shelter" in hub.idents(), lambda: hub.log)
    assert sorted(hub.idents()) == ["all is well", "need not be signed", "take shelter"]
    origin.close()

"""An independent client consumes from stations and supplies channels; all that it knows is docs/protocol.md."""

import struct
import time
from collections.abc import Callable

import pytest
import xxhash
from independent_client import Client, Failed, Refused, Silence, has_expired, take

from support.serving import Served
from support.waiting import until


def attach(client: Client, station: str = "s", keep_s: float = 10.0) -> int:
    client.call("openstation", name=station, start="oldest", options={})
    return int(client.call("attach", station=station, keep_s=keep_s)["attachment"])


def payloads(reply: dict[str, object]) -> list[bytes]:
    return [product["payload"] for product in reply["products"]]  # type: ignore[attr-defined]


def put(client: Client, *contents: bytes) -> None:
    for payload in contents:
        client.put(payload, "a")


# --- leases -----------------------------------------------------------------------------------------


def test_products_are_leased_and_settled(client: Client, served: Served) -> None:
    attachment = attach(client)
    put(client, b"0", b"1", b"2", b"3")
    got, reply = client.get(attachment)
    assert payloads(reply) == [b"0", b"1", b"2", b"3"]
    assert [product["deliveries"] for product in reply["products"]] == [1] * 4
    assert client.settle(attachment, got, "ack", 0) == {"type": "done"}
    client.settle(attachment, got, "discard", 1)
    client.settle(attachment, got, "nack", 2)
    client.settle(attachment, got, "failed", 3)
    assert client.call("tellstation", name="s", what="statistics")["station"]["acknowledged"] == 1
    got, reply = client.get(attachment)
    assert [(one["payload"], one["deliveries"]) for one in reply["products"]] == [(b"2", 1), (b"3", 2)]
    client.settle(attachment, got, "ack", count=2)
    with pytest.raises(Failed) as failed:
        client.settle(attachment, got, "ack")
    assert failed.value.error == "LeaseLostError"
    assert served.queue.station("s").statistics().acknowledged == 3


def test_the_next_get_acknowledges_the_rest(client: Client, served: Served) -> None:
    attachment = attach(client)
    put(client, b"0", b"1")
    got, _ = client.get(attachment)
    _, reply = client.get(attachment, wait_s=0, rest=got)
    assert reply["products"] == []
    assert served.queue.station("s").statistics().acknowledged == 2


def test_a_get_whose_reply_was_lost_is_repeated_and_has_the_same_products(client: Client) -> None:
    attachment = attach(client)
    put(client, b"0")
    number, first = client.get(attachment)
    put(client, b"1")
    again = client.call("get", number=number, attachment=attachment, n=100, wait_s=5)
    assert payloads(first) == payloads(again) == [b"0"]
    assert again["sent_ns"] >= first["sent_ns"]
    later, reply = client.get(attachment)
    assert payloads(reply) == [b"1"]
    with pytest.raises(Refused, match="was repeated"):
        client.call("get", number=number, attachment=attachment, n=100, wait_s=5)
    client.settle(attachment, number, "ack")
    client.settle(attachment, later, "ack")


def test_a_get_that_waits_replies_to_the_latest_query_and_is_the_only_one(client: Client) -> None:
    attachment = attach(client)
    number = client.new_number()
    head = client.envelope("get", number, attachment=attachment, n=1, wait_s=5)
    first, second = client.start(head), client.start(head)
    with pytest.raises(Silence):
        take(first)
    other = client.envelope("get", client.new_number(), attachment=attachment, n=1, wait_s=5)
    with pytest.raises(Refused, match=r"^busy$"):
        client.send(other)
    put(client, b"0")
    assert take(second)[0]["type"] == "products"


def test_interrupt_ends_the_wait_of_a_get(client: Client) -> None:
    attachment = attach(client)
    head = client.envelope("get", client.new_number(), attachment=attachment, n=1, wait_s=5)
    waiting = client.start(head)
    begun = time.monotonic()
    while True:
        client.call("interrupt", attachment=attachment)
        try:
            client.send(client.envelope("get", client.new_number(), attachment=attachment, n=1, wait_s=0))
            break
        except Refused:
            assert time.monotonic() - begun < 240
    reply, _ = take(waiting)
    assert (reply["type"], "places" in reply) == ("products", False)


def test_a_new_payload_goes_to_the_next_station(client: Client) -> None:
    first = attach(client, "first")
    client.call("openstation", name="second", start="next", options={"after": "first"})
    second = client.call("attach", station="second", keep_s=10)["attachment"]
    put(client, b"0", b"1")
    got, _ = client.get(first)
    lengths = struct.pack("<2q", 3, -1)
    client.call("revise", b"new", attachment=first, got=got, places=struct.pack("<2I", 0, 1), lengths=lengths)
    _, reply = client.get(second)
    assert [(one["payload"], one["revisions"]) for one in reply["products"]] == [(b"new", 1), (b"1", 0)]


def test_the_leases_of_a_client_that_is_gone_are_restored(
    client: Client, make_client: Callable[..., Client], served: Served
) -> None:
    gone = make_client(served)
    attachment = attach(gone, keep_s=0.1)
    put(client, b"0")
    gone.get(attachment)
    gone.close()  # without `leave`: the site sees that the token is gone
    _, reply = client.get(attach(client))
    assert [(one["payload"], one["deliveries"]) for one in reply["products"]] == [(b"0", 2)]
    until(lambda: served.queue.station("s").statistics().restored == 1, "its lease is restored")


def test_after_detach_the_attachment_is_unknown(client: Client) -> None:
    attachment = attach(client)
    put(client, b"0")
    client.get(attachment)
    assert client.call("tellconsumer", attachment=attachment)["consumers"][0]["leased"] == 1
    assert client.call("detach", attachment=attachment) == {"type": "done"}
    number, reply = client.get(attachment)
    assert reply == {"type": "unattached"}
    assert client.settle(attachment, number, "ack") == {"type": "unattached"}
    assert payloads(client.get(attach(client))[1]) == [b"0"]
    assert client.call("leave") == {"type": "done"}


def test_what_expired_on_the_way_is_seen_by_the_clock_of_the_site(client: Client) -> None:
    attachment = attach(client)
    client.put(b"0", "a", facts={"expiry": "10min"})
    client.put(b"1", "a")
    sent = time.monotonic_ns()
    got, reply = client.get(attachment)
    arrived = time.monotonic_ns()
    ahead = reply["sent_ns"] - reply["waited_ns"] - sent
    assert reply["sent_ns"] - arrived <= ahead
    after = {minutes: arrived + ahead + minutes * 60_000_000_000 for minutes in (0, 9, 11)}
    expired = {when: [has_expired(one, reply, now) for one in reply["products"]] for when, now in after.items()}
    assert expired == {0: [False, False], 9: [False, False], 11: [True, False]}
    client.settle(attachment, got, "nack", 0)
    client.settle(attachment, got, "ack", 1)


def test_stations_are_opened_changed_and_removed(client: Client) -> None:
    client.call("openstation", name="s", start="oldest", options={"selection": "a", "capacity": 5})
    client.call("changestation", name="s", options={"capacity": 7})
    assert client.call("tellstation", name="s", what="terms")["terms"]["capacity"] == 7
    client.call("pausestation", name="s", paused=True)
    client.call("pausestation", name="s", paused=False)
    assert client.call("seekstation", name="s", start="oldest")["value"] == 1
    assert client.call("unpark", name="s", sequences=None, retry=True)["value"] == 0
    assert client.call("liststations")["values"] == ["s"]
    client.call("removestation", name="s")
    assert client.call("liststations")["values"] == []


# --- channels ---------------------------------------------------------------------------------------


def test_a_supplier_pushes_into_a_channel_and_a_consumer_gets_it(client: Client) -> None:
    client.call("openchannel", name="radar", feed="wx/radar", options={"suppliers_max": 1, "timeout": "10min"})
    client.call("openmember", channel="radar", name="plots", selection=None, options={}, create=True)
    attachment = client.call("attach", station="plots", keep_s=10)["attachment"]
    opened = client.call("opensupplier", channel="radar", keep_s=10)
    assert (opened["type"], opened["feed"]) == ("supplying", "wx/radar/**")
    assert client.put(b"0", "wx/radar/KFTG", "t0", supplier=opened["supplier"]) == 1
    head = client.envelope("put", client.new_number(), feed="wx/radar/KFTG", ident="t1", supplier=opened["supplier"])
    assert take(client.start(head, b"1"))[0] == take(client.start(head, b"1"))[0] == {"type": "number", "value": 2}
    _, reply = client.get(attachment)
    assert payloads(reply) == [b"0", b"1"]
    assert reply["timeout_ns"] == 600 * 10**9
    assert all(product["expiry_ns"] for product in reply["products"])
    statistics = client.call("describechannel", name="radar", what="statistics")["channel_statistics"]
    assert (statistics["suppliers"], statistics["pushed"]) == (1, 2)


def test_the_limits_of_a_channel_hold_for_remote_suppliers(client: Client) -> None:
    client.call("openchannel", name="radar", feed="wx/radar", options={"suppliers_max": 1})
    supplier = client.call("opensupplier", channel="radar", keep_s=10)["supplier"]
    with pytest.raises(Failed) as failed:
        client.call("opensupplier", channel="radar", keep_s=10)
    assert failed.value.error == "SuppliersFullError"
    with pytest.raises(Failed) as failed:
        client.call("put", b"0", feed="wx/text", supplier=supplier)
    assert failed.value.error == "FeedError"
    client.call("closesupplier", supplier=supplier)
    assert client.call("put", b"0", feed="wx/radar", supplier=supplier) == {"type": "unattached"}
    assert client.call("opensupplier", channel="radar", keep_s=10)["type"] == "supplying"


def test_a_channel_with_slices_assigns_them_to_products_of_any_client(client: Client) -> None:
    options = {"slices": 8, "assign": "ident"}
    client.call("openchannel", name="radar", feed="wx/radar", options=options)
    definition = client.call("describechannel", name="radar", what="definition")["channel"]
    assert definition["slicing"] == options
    for ident in ("t0", "t1", ""):
        client.put(b"0", "wx/radar/KFTG", ident)
    reply = client.call("next", selection="**", position=1, limit=10, bytes_limit=1 << 20)
    expected = [xxhash.xxh3_64_intdigest(ident) * 8 // 2**64 for ident in (b"t0", b"t1")]
    found = [struct.unpack_from("<H", product["record"], 54)[0] for product in reply["products"]]
    assert found == [*expected, 0]
    assert client.call("describechannel", name="radar", what="statistics")["channel_statistics"]["spread"] == 1
    with pytest.raises(Failed) as failed:
        client.call("put", b"0", feed="wx/radar", facts={"slice": 3})
    assert failed.value.error == "OptionError"
    with pytest.raises(Failed) as failed:
        client.call("changechannel", name="radar", options={"slices": 9})
    assert failed.value.error == "OptionError"


def test_channels_are_described_changed_and_removed(client: Client) -> None:
    client.call("openchannel", name="radar", feed="wx/radar", options={})
    client.call("openmember", channel="radar", name="plots", selection="wx/radar/KFTG", options={}, create=True)
    client.call("changemember", channel="radar", name="plots", selection=None, options={"batch_max": 5})
    client.call("changechannel", name="radar", options={"timeout": "1min"})
    assert client.call("describechannel", name="radar", what="stations")["values"] == ["plots"]
    definition = client.call("describechannel", name="radar", what="definition")["channel"]
    assert definition["name"] == "radar"
    with pytest.raises(Failed) as failed:
        client.call("changechannel", name="radar", options={"max_per_consumer": 0})
    assert failed.value.error == "TermsError"
    assert failed.value.details["conflicts"][0]["options"] == ["max_per_consumer"]
    client.call("removechannel", name="radar", force=True)
    assert client.call("listchannels")["values"] == []

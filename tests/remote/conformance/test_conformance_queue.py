"""An independent client puts and reads products; all that it knows is docs/protocol.md."""

import ast
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import independent_client
import pytest
from independent_client import VERSIONS, Client, Failed, Refused, take
from msgspec import msgpack

from headrace.link.rights import Rule
from headrace.remote.protocol.hello import VERSION
from support.serving import Router, Served


def test_the_client_uses_nothing_of_headrace() -> None:
    tree = ast.parse(Path(independent_client.__file__).read_text())
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported - set(sys.stdlib_module_names) == {"zenoh", "msgspec", "format.reader"}


# --- hello ------------------------------------------------------------------------------------------


def test_hello_and_who(client: Client, served: Served) -> None:
    assert client.version == VERSIONS[1]
    assert (client.here["site"], client.here["next"]) == (served.name, 1)
    assert client.here["config"]["dedup"] == "identity"


def test_the_name_of_the_site_is_found_by_its_token(served: Served, router: Router) -> None:
    client = Client(router[1])
    assert client.site == served.name
    client.close()


def test_versions_are_negotiated_or_refused_with_both_ranges(client: Client) -> None:
    version = client.version
    assert client.hello(version - 1, VERSION + 1) == VERSION
    assert client.hello(version - 1, version) == version
    for lowest, highest, text in ((5, 6, "versions 5 to 6"), (99, 99, "version 99")):
        with pytest.raises(Refused, match=rf"speaks {text} of the protocol, the site versions? .*\b{VERSION};"):
            client.hello(lowest, highest)
    for garbage in (b"", b"\xc1", msgpack.encode([0]), msgpack.encode([0, "a", "b"]), msgpack.encode({"hello": 0})):
        with pytest.raises(Refused, match="is invalid"):
            client.send(garbage)
    client.version = 99
    with pytest.raises(Refused, match=rf"the call has version 99 of the protocol; .* versions? .*\b{VERSION};"):
        client.call("ends")


# --- put --------------------------------------------------------------------------------------------


def test_a_product_is_put_and_read_with_all_its_facts(client: Client) -> None:
    block = b"\x01\x03\x08\x00run" + struct.pack("<q", 5)
    facts = {"created": 10**18, "priority": 7, "expiry": 2 * 10**18, "properties": block, "slice": 3}
    assert client.put(b"METAR KDEN", "wx/text/metar", "SAUS70", facts=facts) == 1
    assert client.put(b"METAR KDEN", "wx/text/metar", "SAUS70") == -1
    reply = client.call("next", selection="wx/**", position="oldest", limit=10, bytes_limit=1 << 20)
    (product,) = reply["products"]
    assert (reply["next"], reply["head"], reply["payload_bytes"]) == (2, 2, 10)
    assert (product["sequence"], product["feed"], product["ident"]) == (1, "wx/text/metar", "SAUS70")
    assert (product["payload"], product["priority"], product["properties"]) == (b"METAR KDEN", 7, {"run": 5})
    assert (product["created_ns"], product["expiry_ns"], product["slice"]) == (10**18, 2 * 10**18, 3)
    assert product["origin"] == client.site


@pytest.mark.parametrize("dedup", ["identity", "payload", "none"])
def test_a_put_whose_reply_was_lost_is_repeated_and_stored_once(
    make_served: Callable[..., Served], make_client: Callable[..., Client], dedup: str
) -> None:
    served = make_served(dedup=dedup)
    client = make_client(served)
    head = client.envelope("put", client.new_number(), feed="a")
    lost = client.start(head, b"1")
    assert take(client.start(head, b"1"))[0] == {"type": "number", "value": 1}
    assert take(client.start(head, b"1"))[0] == {"type": "number", "value": 1}
    del lost
    assert served.queue.next == 2


@pytest.mark.parametrize("dedup", ["identity", "none"])
def test_a_put_is_recognised_after_a_restart_of_the_site(
    make_served: Callable[..., Served], make_client: Callable[..., Client], dedup: str
) -> None:
    """The next run does not remember the number, but finds the signature that the client drew."""
    served = make_served(dedup=dedup)
    client = make_client(served)
    put = {"feed": "a", "facts": {"signature": bytes(range(16))}}
    head = client.envelope("put", client.new_number(), **put)
    assert take(client.start(head, b"1"))[0]["value"] == 1
    served.stop()
    served.start()
    again = client.envelope("put", client.number, **put, since=client.here["next"] if dedup == "none" else 0)
    assert take(client.start(again, b"1"))[0]["value"] == (1 if dedup == "none" else -1)
    assert served.queue.next == 2


def test_a_call_below_oldest_is_not_executed_again(client: Client, served: Served) -> None:
    for payload in (b"1", b"2"):
        client.put(payload, "a")
    with pytest.raises(Refused, match="was repeated"):
        client.call("put", b"1", number=1, feed="a")
    assert served.queue.next == 3


def test_many_products_are_put_as_one(client: Client) -> None:
    payloads = [b"one", b"", b"three"]
    columns = msgpack.encode(
        {
            "feed": ["a", "b", "a"],
            "ident": ["1", "2", "1"],
            "facts": {"priority": bytes([1]), "created": struct.pack("<3Q", 5, 6, 7), "signature": [None] * 3},
        }
    )
    lengths = struct.pack("<3I", *map(len, payloads))
    reply = client.call("putmany", b"".join(payloads), lengths=lengths, columns=columns)
    assert reply == {"type": "received", "products": 3, "stored": 3, "first": 1}
    payloads[2] = b"3"
    lengths = struct.pack("<3I", *map(len, payloads))
    reply = client.call("putmany", b"".join(payloads), lengths=lengths, columns=columns)
    assert struct.unpack("<3q", reply["outcomes"]) == (-1, -2, 4)
    reply = client.call("next", selection="b", position=1, limit=10, bytes_limit=1 << 20)
    assert [(one["ident"], one["priority"], one["created_ns"]) for one in reply["products"]] == [("2", 1, 6)]


def test_records_are_put_into_another_queue_as_they_are(
    make_served: Callable[..., Served], make_client: Callable[..., Client]
) -> None:
    here, there = (make_client(make_served()) for _ in range(2))
    here.put(b"1", "a", "one")
    here.put(b"2", "a", "two")
    _, records = here.send(here.envelope("next", selection="**", position=1, limit=9, bytes_limit=9))
    reply = there.call("putbatch", records, keep=b"\0\1")
    assert (reply["products"], reply["stored"]) == (1, 1)
    (product,) = there.call("next", selection="**", position=1, limit=9, bytes_limit=9)["products"]
    assert (product["ident"], product["origin"], product["origin_sequence"]) == ("two", here.site, 2)


def test_a_put_that_waits_for_a_blocking_station_is_made_again(client: Client, served: Served) -> None:
    station = served.queue.station("s", "**", blocking=True, capacity=1)
    client.put(b"1", "a")
    with pytest.raises(Failed) as failed:
        client.call("put", b"2", feed="a", timeout_s=0)
    assert failed.value.error == "BlockedError"
    assert "s" in failed.value.details["waits_for"]
    reply = client.call("put", b"2", feed="a", timeout_s=60)
    assert reply["type"] == "again"
    with station.attach() as consumer:
        consumer.ack(consumer.get(1))
    assert client.call("put", b"2", feed="a", timeout_s=60, again=True) == {"type": "number", "value": 2}


# --- read -------------------------------------------------------------------------------------------


def test_a_follower_waits_and_misses_nothing(client: Client) -> None:
    follow = {"selection": "a", "limit": 10, "bytes_limit": 1 << 20}
    position = client.call("where", start="next")["value"]
    empty = client.call("next", position=position, wait_s=0.01, **follow)
    assert (empty["products"], empty["next"]) == ([], 1)
    waiting = client.start(client.envelope("next", position=position, wait_s=5, **follow))
    client.put(b"other", "b")
    client.put(b"1", "a")
    reply, _ = take(waiting)
    assert (reply["type"], reply["next"]) == ("products", 3)
    client.put(b"2", "a")
    reply = client.call("next", position=3, **follow)
    assert [product["payload"] for product in reply["products"]] == [b"2"]
    assert reply["next"] == reply["head"] == 4


def test_a_cursor_keeps_a_position(client: Client) -> None:
    client.put(b"1", "a")
    assert client.call("opencursor", name="mine", start="oldest") == {"type": "done"}
    assert client.call("loadcursor", name="mine")["position"] == 1
    client.call("savecursor", name="mine", position=2)
    assert client.call("loadcursor", name="mine")["position"] == 2
    assert client.call("listnames", what="cursors")["values"] == ["mine"]
    client.call("removecursor", name="mine")
    with pytest.raises(Failed) as failed:
        client.call("loadcursor", name="mine")
    assert failed.value.error == "CursorMissingError"


def test_descriptions(client: Client) -> None:
    client.put(b"12345", "a")
    assert client.call("ends") == {"type": "bounds", "oldest": 1, "next": 2}
    assert client.call("tell")["statistics"]["held_products"] == 1
    weights = client.call("weigh", selection="**", start=1, stop=2, limit=0)["weights"]
    assert (weights["sizes"], weights["products"]) == ([5 + 256], [1])
    assert client.call("listnames", what="origins")["values"] == [client.site]
    assert client.call("wantedby", feed="a")["type"] == "listed"
    assert client.call("flush") == {"type": "done"}


def test_members_are_listed_and_watched(client: Client, make_client: Callable[..., Client], served: Served) -> None:
    reply = client.call("watchmembers")
    assert (reply["type"], reply["is_whole"]) == ("memberchanges", True)
    assert (client.site, "site") in {(member["name"], member["role"]) for member in reply["members"]}
    attached = make_client(served)
    attached.call("openstation", name="s", start="next", options={})
    attached.call("attach", station="s", keep_s=10)
    names: set[str] = set()
    while "s" not in names:
        reply = client.call("watchmembers", list_id=reply["list_id"], state=reply["state"], wait_s=5)
        names |= {member["name"] for member in reply.get("members", ())}


# --- refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "number", "fields", "text"),
    [("explode", 0, {}, "Invalid value 'explode'"), ("ends", 0, {"more": 1}, "unknown field `more`"),
     ("where", 0, {}, "missing required field `start`"), ("where", 0, {"start": 1.5}, "got `float`"),
     ("put", 1, {"feed": "a", "facts": {"priority": 8}}, "<= 7"), ("put", 1, {"feed": b"a"}, "Expected `str`"),
     ("put", 0, {"feed": "a"}, "needs a number"), ("ends", 1, {}, "must not have a number"),
     ("get", 1, {"attachment": 1, "n": 1, "wait_s": 6}, "<= 5.0"), ("get", 1, {"attachment": 1, "n": 0, "wait_s": 1}, ">= 1")],
)  # fmt: skip
def test_an_invalid_call_is_refused(
    client: Client, served: Served, kind: str, number: int, fields: dict[str, object], text: str
) -> None:
    with pytest.raises(Refused, match=text):
        client.call(kind, number=number, **fields)
    assert served.queue.next == 1


def test_a_payload_where_none_belongs_and_more_elements_are_refused(client: Client) -> None:
    with pytest.raises(Refused, match="must not have a payload"):
        client.call("ends", b"x")
    with pytest.raises(Refused, match="is invalid"):
        client.send(msgpack.encode([client.version, client.id, client.queue, 0, 0, {"type": "ends"}, "more"]))


def test_arguments_that_only_the_queue_can_judge_are_failures(client: Client) -> None:
    for kind, fields, error in (
        ("put", {"feed": "a b"}, "FeedError"),
        ("next", {"selection": "a priority x", "position": 1, "limit": 1, "bytes_limit": 1}, "SelectionError"),
        ("attach", {"station": "none", "keep_s": 1}, "StationMissingError"),
    ):
        with pytest.raises(Failed) as failed:
            client.call(kind, **fields)
        assert failed.value.error == error
        assert error != "SelectionError" or set(failed.value.details) == {"column", "excerpt"}


def test_another_queue_than_the_one_that_is_meant_is_a_failure(client: Client) -> None:
    client.queue = bytes(16)
    with pytest.raises(Failed, match="another queue") as failed:
        client.call("ends")
    assert failed.value.error == "QueueError"


def test_a_principal_has_its_name_in_the_key(
    make_served: Callable[..., Served], make_client: Callable[..., Client]
) -> None:
    served = make_served(rules=(Rule(("ada",), publish=("a",)),))
    ada = make_client(served, name="ada")
    assert ada.put(b"1", "a") == 1
    for put, error in (
        (lambda: ada.put(b"1", "b"), "may not publish"),
        (lambda: make_client(served), "no access rule"),
    ):
        with pytest.raises(Failed, match=error) as failed:
            put()
        assert failed.value.error == "AccessDeniedError"

"""An independent client is a node of a group; all that it knows is docs/protocol.md."""

import secrets
import struct
from typing import Any

import pytest
from independent_client import Client, Failed, take

from headrace.share.share import Share
from support.serving import Served

GROUP = {"stream": "radar", "group": "main"}


def numbers(column: bytes, kind: str) -> list[int]:
    return list(struct.unpack(f"<{len(column) // struct.calcsize(kind)}{kind}", column))


def pack(kind: str, *values: int) -> bytes:
    return struct.pack(f"<{len(values)}{kind}", *values)


@pytest.fixture
def share(client: Client, served: Served) -> Share:
    client.call("openchannel", name="radar", feed="wx/radar", options={"slices": 4, "assign": "given"})
    for number in range(8):
        client.put(b"%d" % number, "wx/radar", facts={"slice": number % 4})
    opened = client.call("openshare", **GROUP, start="oldest", options={"dead_after": "1h"})
    assert (opened["terms"]["slices"], opened["terms"]["dead_after_s"], opened["feed"]) == (4, 3600.0, "wx/radar/**")
    assert client.call("listshares")["values"] == ["radar/main"]
    return served.queue.share("radar")


def join(client: Client, node: str) -> dict[str, Any]:
    instance = secrets.randbits(62) | 1
    seated = client.call("joinshare", **GROUP, instance=instance, node=node)
    assert client.call("joinshare", **GROUP, instance=instance, node=node) == seated
    assert seated["name"] == node
    return {**GROUP, "seat": seated["seat"], "instance": instance}


def test_a_node_works_and_hands_slices_over(client: Client, share: Share) -> None:
    first, second = join(client, "first"), join(client, "second")
    given = client.call("giveslices", **GROUP, term=0, taker=first["seat"], slices=pack("I", 0, 1, 2, 3), reason="hand")
    assert given == {"type": "number", "value": 4}
    told = client.call("exchange", **first)
    held, version = told["held"], told["version"]
    assert (numbers(held["slices"], "I"), numbers(held["positions"], "Q")) == ([0, 1, 2, 3], [1, 1, 1, 1])
    read = client.call("next", selection="wx/radar/** slice 1,3", position=1, limit=100, bytes_limit=1 << 20)
    assert len(read["products"]) == 4
    load = {"cpu": 0.5, "waiting": 4, "metrics": {"depth": 2.5}}
    work = {"number": 1, "slices": pack("I", 1), "products": pack("Q", 2), "busy_ns": pack("Q", 1000)}
    confirm = {"slices": pack("I", 1, 3), "epochs": pack("I", 1, 1), "positions": pack("Q", 9, 9)}
    for _ in range(2):  # a repeated message counts once
        told = client.call("exchange", **first, seen=version, confirm=confirm, load=load, work=work)
        assert (told["version"], "held" in told, "refused" in told) == (version, False, False)
    state = client.call("describeshare", **GROUP, what="state")["state"]
    assert (numbers(state["positions"], "Q"), numbers(state["products"], "Q")) == ([1, 9, 1, 9], [0, 2, 0, 0])
    assert (state["nodes"][0]["load"]["waiting"], numbers(state["owners"], "H")) == (4, [0, 0, 0, 0])
    moved = {"term": 0, "giver": first["seat"], "taker": second["seat"], "slices": pack("I", 3), "reason": "hand"}
    watch = client.start(client.envelope("watchseat", **first, seen=version, wait_s=5.0))
    assert client.call("moveslices", **GROUP, **moved)["value"] == 1
    assert take(watch)[0]["value"] > version
    held = client.call("exchange", **first, seen=version)["held"]
    assert numbers(held["leaving"], "B") == [0, 0, 0, 1]
    release = {"slices": pack("I", 3), "epochs": pack("I", 1), "positions": pack("Q", 9)}
    assert "refused" not in client.call("exchange", **first, release=release)
    assert numbers(client.call("exchange", **first, release=release)["refused"], "I") == [3]
    held = client.call("exchange", **second)["held"]
    assert [numbers(held[name], kind) for name, kind in (("slices", "I"), ("epochs", "I"), ("positions", "Q"))] == [
        [3], [2], [9],
    ]  # fmt: skip
    assert client.call("drainseat", **GROUP, seat=second["seat"]) == {"type": "done"}
    assert client.call("exchange", **second)["held"]["draining"]
    assert client.call("leaveseat", **second) == {"type": "done"}
    with pytest.raises(Failed, match="not heard of for too long"):
        client.call("exchange", **second)
    assert share.state().counters["refused"] == 1


def test_products_that_fail_are_given_up(client: Client, share: Share) -> None:
    node = join(client, "first")
    share.give(0, node["seat"], share.state().owners.nonzero()[0].astype("u4"), "hand")
    product = {**node, "slice": 1, "epoch": 1, "sequence": 2}
    assert client.call("beginproduct", **product)["value"] == 1
    assert [client.call("failproduct", **product)["value"] for _ in range(2)] == [1, 2]
    assert client.call("parkproduct", **product, error="no")["value"] == 1
    (parked,) = client.call("describeshare", **GROUP, what="parked")["parked"]
    assert (parked["sequence"], parked["tries"], parked["error"], parked["node"]) == (2, 2, "no", "first")
    assert client.call("unparkproducts", **GROUP, sequences=None)["parked"] == [parked]
    assert client.call("leadshare", **GROUP, balancer="b", lease_s=10.0)["value"] == 1
    assert client.call("leadshare", **GROUP, balancer="c", lease_s=10.0)["value"] == 0
    assert client.call("seizeseat", **GROUP, term=1, seat=node["seat"])["value"] == 0
    assert client.call("cancelmoves", **GROUP, term=1, slices=pack("I", 0))["value"] == 0
    with pytest.raises(Failed, match="another balancer leads"):
        client.call("seizeseat", **GROUP, term=2, seat=node["seat"])
    client.call("leaveseat", **node)
    assert client.call("removeshare", **GROUP) == {"type": "done"}
    assert client.call("listshares")["values"] == []

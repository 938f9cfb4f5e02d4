"""Sizes: what is larger than the queue could store is dropped while it comes in, whoever sends it."""

import os
import re
from pathlib import Path

import zenoh

from headrace.link.access import principal_key
from headrace.link.keys import live_key, log_key
from headrace.relay.messages.query import Resolve, encode
from support.realm import Allow, Realm, SecureSite
from support.waiting import until

_LARGE = 400 << 20
_GROWTH_MAX = 150 << 20  # a message of a queue of 16 MiB has 36 MiB; the rest is for a busy process


def peak_bytes(site: SecureSite) -> int:
    """The most memory that the process of a site has had since the last `forget_peak`."""
    status = Path(f"/proc/{site.daemon.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


def forget_peak(site: SecureSite) -> int:
    """Begin to measure the peak anew; what the process has now."""
    Path(f"/proc/{site.daemon.process.pid}/clear_refs").write_text("5")
    return peak_bytes(site)


def passed(session: zenoh.Session, site: str, name: str) -> None:
    """Wait until the site has seen what the session has sent before; messages of one priority keep their order."""
    key = principal_key(log_key(site), name)
    replies = session.get(
        key, payload=encode(Resolve("next")), priority=zenoh.Priority.DATA, timeout=60,
        congestion_control=zenoh.CongestionControl.BLOCK,
    )  # fmt: skip
    assert [reply.ok is not None for reply in replies] == [True]


def test_a_large_put_of_a_reader_is_dropped_before_it_is_in_memory(realm: Realm) -> None:
    hub = realm.site("hub", Allow("reader", receive=["wx/**"]))
    reader = realm.session("reader", hub)
    passed(reader, "hub", "reader")
    before = forget_peak(hub)
    reader.put(live_key("reader", "own", "wx/text"), bytes(_LARGE), congestion_control=zenoh.CongestionControl.BLOCK)
    passed(reader, "hub", "reader")
    assert peak_bytes(hub) - before < _GROWTH_MAX
    assert hub.queue.next == 1


def test_the_largest_product_of_a_queue_comes_in_from_clients_and_from_sites(realm: Realm) -> None:
    largest = os.urandom(4 << 20)  # a quarter of the queue
    hub = realm.site("hub", Allow("down", receive=["wx/**"]), Allow("ada", publish=["wx/**"]))
    down = realm.site(
        "down", Allow("hub", publish=["wx/**"]), requests=['select = "wx/**"\nfrom = "oldest"'], near=[hub]
    )
    user = realm.connect("ada", hub)
    assert user.put(largest, feed="wx/text") == 1
    until(lambda: down.queue.next == 2, "it arrives")
    assert bytes(next(iter(down.queue.read_batch("oldest"))).payload) == largest


def test_a_product_that_no_message_can_carry_is_named_as_lost_and_the_next_one_arrives(realm: Realm) -> None:
    hub = realm.site("hub", Allow("down", receive=["wx/**"]), size="256MiB")
    down = realm.site(
        "down", Allow("hub", publish=["wx/**"]), requests=['select = "wx/**"\nfrom = "oldest"'], near=[hub]
    )
    hub.queue.put(bytes(50 << 20), feed="wx/text", ident="large")
    hub.queue.put(b"small", feed="wx/text", ident="small")
    until(lambda: down.idents() == ["small"], "the small one arrives")
    until(lambda: any(each.kind == "lost" for each in realm.describe(down).problems), "and is a problem")
    (lost,) = (each for each in realm.describe(down).problems if each.kind == "lost")
    assert "too large" in str(lost)

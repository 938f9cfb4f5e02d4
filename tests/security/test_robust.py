"""No input ends a thread: a hostile site sends what no decoder expects, and the others are served as before."""

from typing import Any

import pytest
from messages import DEEP_ARRAY, DEEP_MEMBER

from headrace.relay.messages.query import Describe, Identify, Listen, Read, Resolve
from support.hostile import MakeHostile
from support.realm import Allow, Realm
from support.waiting import until

RULES = (Allow("evil", "honest", publish=["wx/**"]), Allow("hub", receive=["**"]))
REQUEST = 'name = "wx"\nselect = "wx/**"\nfrom = "oldest"'


def deep_page(_: Any) -> Any:
    yield DEEP_ARRAY, b""


def test_a_deep_description_does_not_end_the_thread_that_changes_to_another_site(
    realm: Realm, hostile: MakeHostile
) -> None:
    honest = realm.site("honest", Allow("hub", receive=["**"]))
    honest.queue.put(b"1", feed="wx/a", ident="honest")
    request = f'{REQUEST}\nsites = ["evil", "honest"]\nredundancy = "failover"'
    hub = realm.site("hub", *RULES, requests=[request], near=[honest])
    evil = hostile("evil", hub)
    evil.answers[Describe] = lambda _: DEEP_MEMBER
    evil.hold("evil", ("wx/a", "evil"))
    evil.appear()
    until(lambda: "evil" in hub.idents(), lambda: hub.log)

    def is_asked() -> bool:
        evil.beat(interval_ms=100)
        return any(isinstance(query, Describe) for query in evil.asked)

    until(is_asked, lambda: hub.log)
    evil.session.close()  # type: ignore[no-untyped-call]
    honest.queue.put(b"2", feed="wx/a", ident="later")
    until(lambda: "later" in hub.idents(), lambda: hub.log + honest.log)


@pytest.mark.parametrize("kind", [Identify, Resolve, Listen, Read], ids=lambda kind: kind.__name__)
def test_a_deep_reply_ends_nothing_and_a_right_one_is_taken_afterwards(
    realm: Realm, hostile: MakeHostile, kind: type
) -> None:
    conditions = ' ident ~ "e"' if kind is Listen else ""  # without any, there is no need for a stream of its own
    hub = realm.site("hub", *RULES, requests=[REQUEST.replace('"wx/**"', f"'wx/**{conditions}'")])
    evil, honest = hostile("evil", hub), hostile("honest", hub)
    right = evil.answers[kind]
    evil.answers[kind] = deep_page if kind is Read else lambda _: DEEP_MEMBER
    evil.hold("evil", ("wx/a", "evil"))
    evil.appear()
    until(lambda: any(isinstance(query, kind) for query in evil.asked), lambda: hub.log)
    honest.hold("honest", ("wx/a", "honest"))
    honest.appear()
    until(lambda: hub.idents() == ["honest"], lambda: hub.log)
    evil.answers[kind] = right
    evil.vanish()
    evil.appear()
    until(lambda: sorted(hub.idents()) == ["evil", "honest"], lambda: hub.log)


def test_deep_beats_and_pages_are_counted_and_the_stream_goes_on(realm: Realm, hostile: MakeHostile) -> None:
    hub = realm.site("hub", *RULES, requests=[REQUEST])
    evil = hostile("evil", hub)
    evil.hold("evil", ("wx/a", "first"))
    evil.appear()
    until(lambda: hub.idents() == ["first"], lambda: hub.log)
    evil.publish("wx/a", (DEEP_ARRAY, b""))
    evil.session.put("headrace/beat/evil/own", DEEP_ARRAY)
    evil.hold("evil", ("wx/a", "second"))
    evil.beat(recent={"wx/a": 2})
    until(lambda: hub.idents() == ["first", "second"], lambda: hub.log)
    until(lambda: sum(each.refused for each in realm.describe(hub).upstreams) >= 2, lambda: hub.log)

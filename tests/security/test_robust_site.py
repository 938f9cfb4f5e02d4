"""Mutated messages to every key of a running site, from a peer that its rules trust: honest work goes on as before."""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import zenoh
from fuzz import SELECTIONS, spoilt
from messages import messages, mutated

from headrace.link.keys import beat_key, call_key, client_key, live_key, log_key, site_key
from headrace.relay.messages.query import Describe, Inventory, Listen, Locate, Read, Resolve, Trace, encode
from headrace.remote.protocol import calls, hello
from headrace.remote.protocol.envelope import Envelope
from headrace.remote.protocol.envelope import encode as encode_call
from support.hostile import Hostile, MakeHostile
from support.realm import Allow, Realm, SecureSite
from support.seeds import random_seed
from support.waiting import until

MESSAGES = 1500
SUITE_SEED = int(os.environ.get("HEADRACE_SEED", "20261119"))
SOAK_S = float(os.environ.get("HEADRACE_FUZZ_S", "1800"))
EVERYTHING: dict[str, Any] = {right: ["**"] for right in ("receive", "publish", "station", "manage")}
RULES = (Allow("evil", **EVERYTHING, relay=True), Allow("honest", "alice", **EVERYTHING), Allow("hub", receive=["**"]))
REQUESTS = (
    'name = "all"\nselect = "wx/**"\nfrom = "oldest"',
    'name = "some"\nselect = "wx/** ident ~ \\"e\\""\nfrom = "oldest"',
    'name = "one"\nselect = "fx/**"\nsites = ["evil", "honest"]\nredundancy = "failover"',
)


class Storm:
    """Sends one mutated message after another; everything follows from the seed."""

    def __init__(self, evil: Hostile, chance: random.Random) -> None:
        self._evil, self._chance, self._session = evil, chance, evil.session
        self._messages = {message.name: message for message in messages()}
        self._tokens: list[Any] = []
        self._calls = list(self._right_calls())
        for kind, right in list(evil.answers.items()):
            evil.answers[kind] = self._spoilt_answer(right)
        for kind in (Describe, Inventory, Locate, Trace):
            evil.answers[kind] = self._spoilt_answer(lambda _: chance.choice(list(self._messages.values())).sample)
        self.deeds: list[Callable[[], None]] = [self.page, self.beat, self.query, self.call, self.call, self.token]

    def send(self) -> None:
        with suppress(zenoh.ZError, ValueError):  # Zenoh itself has refused it
            self._chance.choice(self.deeds)()

    def _any(self, *names: str) -> bytes:
        """A mutation of one of these messages, or of any."""
        wanted = names if self._chance.random() < 0.8 else tuple(self._messages)
        return mutated(self._chance, self._messages[self._chance.choice(wanted)])

    def _spoilt_answer(self, right: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def answer(query: Any) -> Any:
            made = right(query)
            if self._chance.random() < 0.3:
                return made
            if isinstance(made, Iterator):
                return iter([(self._spoil(head, 0.5), self._spoil(records, 0.5)) for head, records in made])
            return self._spoil(made if isinstance(made, bytes) else encode(made), 1.0)

        return answer

    def _spoil(self, data: bytes, likely: float) -> bytes:
        return spoilt(self._chance, data) if self._chance.random() < likely else data

    # --- each key -----------------------------------------------------------------------------------

    def page(self) -> None:
        head, records = next(self._evil.pages(Read("**", 0, 1, 1, 1)))
        feed = self._chance.choice(["wx/a", "wx/\u202e", "fx/a", "secret/x", "x" * 300, "wx/a/" * 60 + "b"])
        stream = self._chance.choice(["own", "0123456789abcdef", "alice:0123456789abcdef", "x"])
        self._session.put(
            live_key("evil", stream, feed), self._spoil(records, 0.7),
            attachment=self._any("page") if self._chance.random() < 0.5 else self._spoil(head, 0.5),
        )  # fmt: skip

    def beat(self) -> None:
        self._session.put(beat_key("evil", self._chance.choice(["own", "0123456789abcdef", "x"])), self._any("beat"))

    def query(self) -> None:
        names = [name for name in self._messages if name.startswith("query")]
        payload = self._any(*names)
        if self._chance.random() < 0.4:
            selection = spoilt(self._chance, self._chance.choice(SELECTIONS).encode()).decode("utf-8", "replace")
            kinds: list[Any] = [Read(selection, 0, 1, 10, 1000), Listen(selection), Inventory(selection, 0, 10)]
            payload = encode(self._chance.choice([*kinds, Resolve(selection[:64])]))
        self._ask(f"{log_key('hub')}/evil", payload, None)

    def call(self) -> None:
        names = [name for name in self._messages if name.startswith(("call", "hello"))]
        head = self._any(*names)
        if self._chance.random() < 0.6:
            head = self._spoil(encode_call(self._chance.choice(self._calls)), 0.7)
        self._ask(f"{call_key('hub')}/evil", self._chance.choice([b"", self._any("columns"), b"x" * 70_000]), head)

    def _right_calls(self) -> Iterator[Envelope]:
        """Calls that would be executed."""
        client = bytes(range(16))
        made: list[Any] = [
            calls.PutOne("wx/junk", "x"), calls.OpenStation("junk", "oldest", {"selection": "wx/**"}),
            calls.Attach("junk", 1.0), calls.ReadProducts("wx/**", 1, 10, 1 << 20, 0.1), calls.GetStatistics(),
            calls.OpenCursor("junk", "next"), calls.ListStations(), calls.Resolve("1h"), calls.Leave(),
        ]  # fmt: skip
        for number, call in enumerate(made, 1):
            counted = number if isinstance(call, calls.Numbered) else 0
            yield Envelope(hello.VERSION, client, None, counted, counted, call)

    def _ask(self, key: str, payload: bytes, head: bytes | None) -> None:
        self._session.get(key, lambda _: None, payload=payload, attachment=head, timeout=1.0)

    def token(self) -> None:
        """Of sites that are none, of clients that are none, of streams that are none."""
        odd = self._chance.choice(["x", "\u202e", "0" * 33, "g" * 8, "leaving", "a" * 200])
        keys = [site_key("evil", odd), f"{site_key('evil', '0123')}/{odd}", client_key("hub", odd, "evil"),
                f"headrace/client/hub/listens/{odd}/wx/**"]  # fmt: skip
        if len(self._tokens) >= 20:
            self._tokens.pop(0).undeclare()
        self._tokens.append(self._session.liveliness().declare_token(self._chance.choice(keys)))


def site_under_attack(realm: Realm, hostile: MakeHostile, seed: int) -> tuple[SecureSite, Storm]:
    hub = realm.site("hub", *RULES, requests=REQUESTS)
    evil = hostile("evil", hub)
    evil.hold("evil", *(("wx/a", f"e{number}") for number in range(20)))
    storm = Storm(evil, random.Random(seed))
    evil.appear()
    return hub, storm


def judge(realm: Realm, hostile: MakeHostile, hub: SecureSite) -> None:
    """An honest site and an honest program are served as if nothing had been, and no thread had anything to outlive."""
    honest = hostile("honest", hub)
    honest.hold("honest", ("wx/honest", "from a site"))
    honest.appear()
    until(lambda: hub.idents("wx/honest") == ["from a site"], lambda: hub.log[-5000:])
    with realm.connect("alice", hub) as user, user.station("honest", "wx/alice").attach() as consumer:
        user.put(b"1", feed="wx/alice", ident="put")
        batch = consumer.get(timeout=60)
        assert [product.ident for product in batch] == ["put"]
        consumer.ack(batch)
    assert hub.idents("wx/alice") == ["put"]
    described = realm.describe(hub)
    assert [problem.text for problem in described.problems if problem.kind == "thread"] == [], hub.log[-5000:]
    assert "Traceback" not in hub.log


def test_mutated_messages_to_every_key_of_a_site_do_no_harm(realm: Realm, hostile: MakeHostile) -> None:
    print(f"\nseed {SUITE_SEED} (repeat with HEADRACE_SEED={SUITE_SEED})")
    hub, storm = site_under_attack(realm, hostile, SUITE_SEED)
    for _ in range(MESSAGES):
        storm.send()
    judge(realm, hostile, hub)


@pytest.mark.soak
def test_half_an_hour_of_mutated_messages_does_no_harm(realm: Realm, hostile: MakeHostile) -> None:
    hub, storm = site_under_attack(realm, hostile, random_seed())
    end, sent = time.monotonic() + SOAK_S, 0
    while time.monotonic() < end:
        storm.send()
        sent += 1
        if sent % 100 == 0:
            time.sleep(0.05)  # a queue of messages in Zenoh is not what is tested
    print(f"{sent:,} messages in {SOAK_S:g} s")
    judge(realm, hostile, hub)

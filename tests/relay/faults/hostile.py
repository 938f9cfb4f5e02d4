"""A program that speaks Zenoh and no Headrace: `hostile.py ENDPOINT SEED SECONDS SITE…`.

It listens to the messages of sites and sends them back truncated, altered, forged and replayed, and garbage under every
key. The same seed does the same. In the end it prints how much it has sent, by kind.
"""

import json
import random
import string
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import zenoh

ROOT = "headrace"
HUGE = ((1 << 63) - 1, 1 << 62, 1 << 40, -1, (1 << 64) - 1)
NASTY = (
    '** ident ~ "(a+)+$"', '** ident ~ "((((((((((a*)*)*)*)*)*)*)*)*)*b"', "** where " + "(" * 20_000, "(" * 65_000,
    "** where " + " and ".join(f"size > {n}" for n in range(4000)), "a/" * 20_000, '** ident ~ "' + "(" * 30_000 + '"',
    "** xpath " + "/*" * 10_000, "** function os.system", "** every 0", "** every 99999999999999999999", "\0" * 500, "",
    '** ident ~ "a{1000}{1000}{1000}"', "** where x = '" + "é" * 20_000 + "'", "** origin " + "x" * 5000,
)  # fmt: skip
FEEDS = ("", "x", "wx/**", "*", "a//b", "$*", "wx/" * 40 + "x", "é" * 100, "own/own/own", "@/x", "a" * 300)


class Hostile:
    """Everything it sends follows from the seed and from what it hears."""

    def __init__(self, session: zenoh.Session, seed: int, sites: list[str]) -> None:
        self._session, self._sites = session, sites
        self._chance = random.Random(seed)
        self._pages: list[tuple[str, bytes, bytes]] = []  # key, head, records
        self._beats: list[tuple[str, bytes]] = []
        self._tokens: list[Any] = []
        self.sent: Counter[str] = Counter()

    def listen(self, seconds: float = 0.7) -> None:
        """Record messages of sites; it must be silent meanwhile."""
        self._pages, self._beats = self._pages[-100:], self._beats[-20:]
        listening = [
            self._session.declare_subscriber(f"{ROOT}/live/**", self._hear_page),
            self._session.declare_subscriber(f"{ROOT}/beat/**", self._hear_beat),
        ]
        time.sleep(seconds)
        for subscriber in listening:
            subscriber.undeclare()  # type: ignore[no-untyped-call]

    def _hear_page(self, sample: zenoh.Sample) -> None:
        if sample.attachment is not None:
            self._pages.append((str(sample.key_expr), sample.attachment.to_bytes(), sample.payload.to_bytes()))

    def _hear_beat(self, sample: zenoh.Sample) -> None:
        self._beats.append((str(sample.key_expr), sample.payload.to_bytes()))

    def run(self, seconds: float) -> None:
        deeds: list[Callable[[], None]] = [
            self.garbage, self.garbage, self.altered_page, self.forged_page, self.replayed_page, self.wrong_feed,
            self.nonsense_beat, self.forged_beat, self.odd_question, self.absurd_read, self.nasty_selection,
            self.odd_call, self.false_site, self.deletion, self.oversized,
        ]  # fmt: skip
        end, silent = time.monotonic() + seconds, 0.0
        while time.monotonic() < end:
            if time.monotonic() > silent:
                self.listen()
                silent = time.monotonic() + 1.5
            deed = self._chance.choice(deeds)
            try:
                deed()
            except (zenoh.ZError, ValueError):
                continue  # Zenoh itself has refused it
            self.sent[deed.__name__] += 1
            time.sleep(0.002)

    # --- live pages and beats -----------------------------------------------------------------------

    def _put(self, key: str, payload: bytes, attachment: bytes | None = None) -> None:
        self._session.put(key, payload, attachment=attachment)

    def _site(self) -> str:
        return self._chance.choice(self._sites)

    def _bytes(self, most: int = 2000) -> bytes:
        return self._chance.randbytes(self._chance.randrange(most))

    def _key(self) -> str:
        kind = self._chance.choice(["live", "live", "beat", "log", "call", "site", "client", "odd"])
        feed = self._chance.choice(FEEDS)
        levels = [ROOT, kind, self._site(), self._chance.choice(["own", "own", "0123456789abcdef", "x"]), feed]
        return "/".join(levels[: self._chance.randrange(2, 6)]).strip("/")

    def garbage(self) -> None:
        self._put(self._key(), self._bytes(), self._chance.choice([None, self._bytes(300)]))

    def deletion(self) -> None:
        self._session.delete(self._key())

    def oversized(self) -> None:
        key, head, records = self._page()
        self._put(key, (records or b"x") * self._chance.randrange(1, 1_000), head)

    def _page(self) -> tuple[str, bytes, bytes]:
        return self._chance.choice(self._pages) if self._pages else (f"{ROOT}/live/{self._site()}/own/x", b"", b"")

    def altered_page(self) -> None:
        key, head, records = self._page()
        if self._chance.random() < 0.5:
            self._put(key, self._spoilt(records), head)
        else:
            self._put(key, records, self._spoilt(head))

    def _spoilt(self, data: bytes) -> bytes:
        if not data or self._chance.random() < 0.3:
            return data[: self._chance.randrange(len(data) + 1)]
        spoilt = bytearray(data)
        for _ in range(self._chance.randrange(1, 5)):
            spoilt[self._chance.randrange(len(spoilt))] ^= 1 << self._chance.randrange(8)
        return bytes(spoilt)

    def forged_page(self) -> None:
        """A genuine page with one field of its head changed."""
        key, head, records = self._page()
        fields = msgspec.msgpack.decode(head) if head else [1] * 12
        place = self._chance.randrange(len(fields))
        fields[place] = self._chance.choice([*HUGE[:3], 0, -1, "", "b", b"", b"x" * 16, None, [], fields[place], 99])
        self._put(key, self._chance.choice([records, b""]), msgspec.msgpack.encode(fields))

    def replayed_page(self) -> None:
        self._put(*self._swapped(self._page()))

    def _swapped(self, page: tuple[str, bytes, bytes]) -> tuple[str, bytes, bytes]:
        return page[0], page[2], page[1]

    def wrong_feed(self) -> None:
        """Genuine products under the key of another feed, or of another site."""
        _, head, records = self._page()
        self._put(f"{ROOT}/live/{self._site()}/own/{self._chance.choice(['x', 'wx/y', 'daq/events'])}", records, head)

    def nonsense_beat(self) -> None:
        value = self._chance.choice([[], [1, 2], {"a": 1}, "x", [1] * 8, HUGE[0], None])
        self._put(f"{ROOT}/beat/{self._site()}/own", msgspec.msgpack.encode(value))

    def forged_beat(self) -> None:
        """A genuine heartbeat with impossible numbers, or of another queue."""
        if not self._beats:
            return
        key, beat = self._chance.choice(self._beats)
        fields = msgspec.msgpack.decode(beat)
        place = self._chance.choice([0, 1, 2, 3, 5, 5, 5, 6, 7])
        fields[place] = {1: "nobody", 2: self._chance.randbytes(16), 3: "x" * 16, 6: {"x": HUGE[1]}}.get(place, HUGE[1])
        if place == 5:
            fields[6] = {}
        self._put(key, msgspec.msgpack.encode(fields))

    # --- questions ----------------------------------------------------------------------------------

    def _ask(self, key: str, payload: bytes, attachment: bytes | None = None) -> None:
        """Send a query, without waiting for the reply."""
        self._session.get(key, lambda _: None, payload=payload, attachment=attachment, timeout=1.0)

    def odd_question(self) -> None:
        tags = ["card", "where", "read", "listen", "describe", "measure", "nothing", 7]
        value = {"type": self._chance.choice(tags), "start": self._chance.choice(["1h", "x" * 60, "99999999d", "-1", 3]),
                 "site": self._chance.choice([self._site(), "nobody", ""]), "times": self._chance.choice([1, 10**9])}  # fmt: skip
        for name in list(value)[1:]:
            if self._chance.random() < 0.5:
                del value[name]
        payload = self._chance.choice([msgspec.msgpack.encode(value), self._bytes(5000)])
        self._ask(f"{ROOT}/log/{self._site()}{self._chance.choice(['', '/x', '/a/b/c', ''])}", payload)

    def absurd_read(self) -> None:
        number = self._chance.choice
        read = {"type": "read", "selection": "**", "after": number([0, 1, *HUGE]), "pages": number([1, 64, 65, 0, HUGE[0]]),
                "products": number([1, 100_000, HUGE[0]]), "payload_bytes": number([1, 64 << 20, HUGE[1]])}  # fmt: skip
        self._ask(f"{ROOT}/log/{self._site()}", msgspec.msgpack.encode(read))

    def nasty_selection(self) -> None:
        kind = self._chance.choice(["read", "listen"])
        question: dict[str, Any] = {"type": kind, "selection": self._chance.choice(NASTY)}
        if self._chance.random() < 0.3:
            question["selection"] = "".join(self._chance.choices(string.printable, k=self._chance.randrange(200)))
        if kind == "read":
            question |= {"after": 0, "pages": 1, "products": 10, "payload_bytes": 1000}
        self._ask(f"{ROOT}/log/{self._site()}", msgspec.msgpack.encode(question))

    def odd_call(self) -> None:
        tags = ["who", "put", "putmany", "putbatch", "next", "where", "ends", "tell", "flush", "opencursor", "x"]
        call = {"type": self._chance.choice(tags), "feed": self._chance.choice(FEEDS), "selection": self._chance.choice(NASTY),
                "position": self._chance.choice(HUGE), "limit": self._chance.choice(HUGE), "lengths": self._bytes(50)}  # fmt: skip
        envelope = [2, self._bytes(40)[:16], self._chance.choice(HUGE), 0, call]
        head = self._chance.choice([msgspec.msgpack.encode(envelope), msgspec.msgpack.encode(call), self._bytes(500)])
        self._ask(f"{ROOT}/call/{self._site()}", self._bytes(), head)

    # --- tokens -------------------------------------------------------------------------------------

    def false_site(self) -> None:
        """Tokens of sites that do not exist; a few at a time."""
        name = self._chance.choice([f"false{self._chance.randrange(20)}", "x" * 80, "ü", self._site()])
        if len(self._tokens) >= 30:
            self._tokens.pop(0).undeclare()
        self._tokens.append(self._session.liveliness().declare_token(f"{ROOT}/site/{name}/0123456789abcdef"))


def main(endpoint: str, seed: int, seconds: float, sites: list[str]) -> None:
    config = zenoh.Config()
    for key, value in {
        "mode": "client", "connect/endpoints": [endpoint], "scouting/multicast/enabled": False,
        "transport/shared_memory/enabled": False,
    }.items():  # fmt: skip
        config.insert_json5(key, json.dumps(value))
    with zenoh.open(config) as session:
        hostile = Hostile(session, seed, sites)
        hostile.run(seconds)
        print(json.dumps(hostile.sent), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])

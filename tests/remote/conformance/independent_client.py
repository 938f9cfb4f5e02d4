"""A client of a site, written from docs/protocol.md and docs/format.md alone: it imports nothing of Headrace.

It uses Zenoh, a general encoder of MessagePack, and the slow reader of records (tests/format/reader.py), which was
written from a page as well. Calls and replies are plain dicts. It is a client to read: it has no threads, and does not
restore what it loses.

    client = Client("tcp/127.0.0.1:7447")
    client.call("put", payload=b"METAR", feed="wx/text/metar", ident="KDEN")      {"type": "number", "value": 1}
"""

import hashlib
import json
import os
import struct
import time
from typing import Any

import zenoh
from msgspec import msgpack

from format.reader import read_record

VERSIONS = (9, 11)
NUMBERED = {
    "put", "putmany", "putbatch", "savecursor", "removecursor", "openstation", "changestation", "pausestation",
    "seekstation", "removestation", "unpark", "attach", "get", "settle", "revise", "openchannel", "changechannel",
    "removechannel", "openmember", "changemember", "opensupplier", "openshare", "removeshare", "unparkproducts",
    "failproduct", "leaveseat", "moveslices", "cancelmoves", "giveslices", "seizeseat", "drainseat",
}  # fmt: skip
REPLY_S = 60.0
PLACE = struct.Struct("<QQHHI")  # sequence, inserted_ns, deliveries, revisions, reserved

Reply = dict[str, Any]
Product = dict[str, Any]


class Refused(Exception):  # noqa: N818 - a word of the page
    """The site refused a message as a whole, and says why."""


class Silence(Exception):  # noqa: N818
    """There was no reply."""


class Failed(Exception):  # noqa: N818
    """The reply is a failure."""

    def __init__(self, failure: Reply) -> None:
        super().__init__(failure["problem"])
        self.error, self.details = failure["error"], failure.get("details", {})


class Client:
    """Connected until `close`; `name` is that of its user or certificate, `settings` are further ones of Zenoh."""

    def __init__(self, endpoint: str, site: str | None = None, name: str | None = None, **settings: Any) -> None:
        self.session, self.reply_s = open_session(endpoint, settings), REPLY_S
        self.site = site or find_site(self.session)
        self.key = f"headrace/call/{self.site}" + (f"/{name}" if name else "")
        self.id = os.urandom(16)
        digest = hashlib.blake2b(self.id, digest_size=16).hexdigest()
        self.token = self.session.liveliness().declare_token(f"headrace/client/{self.site}/{digest}")
        self.version, self.queue, self.number = 0, None, 0
        self.open: list[int] = []  # numbers of calls that may be repeated
        self.version = self.hello(*VERSIONS)
        self.here = self.call("who")
        self.queue = self.here["queue"]

    # --- messages ---------------------------------------------------------------------------------

    def start(self, head: bytes | None, payload: bytes = b"") -> Any:
        """Send a query; its replies are taken from what this returns."""
        return self.session.get(
            self.key, zenoh.handlers.FifoChannel(2), attachment=head, payload=payload, timeout=self.reply_s,
            consolidation=zenoh.ConsolidationMode.NONE, congestion_control=zenoh.CongestionControl.BLOCK,
        )  # fmt: skip

    def send(self, head: bytes | None, payload: bytes = b"") -> tuple[Reply, bytes]:
        return take(self.start(head, payload))

    def hello(self, lowest: int, highest: int) -> int:
        """The version of the protocol that the site chooses."""
        return int(self.send(msgpack.encode([0, lowest, highest]))[0]["version"])

    def envelope(self, kind: str, number: int = 0, **fields: Any) -> bytes:
        oldest = min([number, *self.open])
        return msgpack.encode([self.version, self.id, self.queue, number, oldest, {"type": kind, **fields}])

    def new_number(self) -> int:
        self.number += 1
        return self.number

    def call(self, kind: str, payload: bytes = b"", number: int | None = None, **fields: Any) -> Reply:
        """Make a call, and repeat it while the site is busy; the reply has its products decoded."""
        if number is None:
            number = self.new_number() if kind in NUMBERED else 0
        head = self.envelope(kind, number, **fields)
        pause_s = 0.02
        while True:
            try:
                reply, records = self.send(head, payload)
                break
            except (Silence, Refused) as refused:
                if isinstance(refused, Refused) and str(refused) != "busy":
                    raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.5)
        if reply["type"] == "failure":
            raise Failed(reply)
        if reply["type"] == "products":
            reply["products"] = products_of(reply, records)
        return reply

    # --- what clients do --------------------------------------------------------------------------

    def put(self, payload: bytes, feed: str, ident: str = "", **fields: Any) -> int:
        """Store a product exactly once; minus the sequence of the product that is held, for a duplicate."""
        dedup, facts = self.here["config"]["dedup"], dict(fields.pop("facts", {}))
        is_own = "signature" not in facts and (dedup == "none" or (dedup == "identity" and not ident))
        if is_own:
            facts["signature"] = os.urandom(16)
        is_again = False
        while True:
            reply = self.call("put", payload, feed=feed, ident=ident, facts=facts, again=is_again, **fields)
            if reply["type"] != "again":
                value = int(reply["value"])
                return abs(value) if is_own else value
            is_again = True

    def get(self, attachment: int, n: int = 100, wait_s: float = 5.0, **fields: Any) -> tuple[int, Reply]:
        """The number of a get, and its reply."""
        number = self.new_number()
        return number, self.call("get", number=number, attachment=attachment, n=n, wait_s=wait_s, **fields)

    def settle(self, attachment: int, got: int, how: str, *places: int, count: int = 1) -> Reply:
        chosen = struct.pack(f"<{len(places)}I", *places) if places else None
        return self.call("settle", attachment=attachment, got=got, how=how, count=len(places) or count, places=chosen)

    def close(self) -> None:
        self.session.close()


# --- Zenoh ------------------------------------------------------------------------------------------


def open_session(endpoint: str, more: dict[str, Any]) -> zenoh.Session:
    settings = {"mode": "client", "connect/endpoints": [endpoint], "transport/link/tx/lease": 5000, **more}
    config = zenoh.Config()
    for name, value in settings.items():
        config.insert_json5(name, json.dumps(value))
    return zenoh.open(config)


def find_site(session: zenoh.Session) -> str:
    """The site at the router that the session is connected to."""
    routers = {str(zid) for zid in session.info.routers_zid()}
    for token in session.liveliness().get("headrace/site/*/*", timeout=REPLY_S):
        if token.ok is not None:
            _, _, site, zid = str(token.ok.key_expr).split("/")
            if zid in routers:
                return site
    raise Silence("no site at this endpoint")


def take(replies: Any) -> tuple[Reply, bytes]:
    """The reply to a query, and its payload."""
    for reply in replies:
        if reply.err is not None:
            why = reply.err.payload.to_bytes().decode()
            raise Silence(why) if why == "Timeout" else Refused(why)
        return msgpack.decode(reply.ok.attachment.to_bytes()), reply.ok.payload.to_bytes()
    raise Silence("no reply")


# --- products ---------------------------------------------------------------------------------------


def products_of(reply: Reply, records: bytes) -> list[Product]:
    """The products of a reply, each with its place."""
    products, at = [], 0
    for sequence, inserted_ns, deliveries, revisions, _ in PLACE.iter_unpack(reply.get("places", b"")):
        product = read_record(records, at)
        length = len(product["record"])
        product |= {"sequence": sequence, "inserted_ns": inserted_ns, "deliveries": deliveries, "revisions": revisions}
        products.append(product)
        at += (length + 7) // 8 * 8
    if at != len(records):
        raise ValueError(f"{len(records)} bytes of records, but {at} bytes of products")
    return products


def has_expired(product: Product, reply: Reply, now_ns: int) -> bool:
    """Whether a product of a get has expired at `now_ns`, by the clock of the site."""
    expires_ns, timeout_ns, stop_ns = product["expiry_ns"], reply.get("timeout_ns", 0), reply.get("stop_ns", 0)
    return bool(
        (expires_ns and expires_ns <= now_ns)
        or (timeout_ns and product["inserted_ns"] + timeout_ns <= now_ns)
        or (stop_ns and stop_ns <= now_ns)
    )

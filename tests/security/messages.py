"""One valid message of every kind that arrives from elsewhere, and its decoder; the tests spoil them.

Each decoder returns something or raises a HeadraceError. Anything else ends a thread somewhere.
"""

import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from headrace.log.config import QueueConfig
from headrace.payload.fragments.manifest import Manifest, decode_manifest, encode_manifest
from headrace.payload.fragments.receipt import Receipt, TransferState, decode_receipt, encode_receipt
from headrace.relay.messages.beat import VERSION as BEAT_VERSION
from headrace.relay.messages.beat import Beat, decode_beat, encode_beat
from headrace.relay.messages.page import VERSION, PageHead, decode_head, encode_head
from headrace.relay.messages.query import (
    Identify,
    IdentifyReply,
    Inventory,
    ListenReply,
    Locate,
    Query,
    Read,
    decode_query,
    decode_reply,
    encode,
)
from headrace.remote.protocol import calls, envelope, hello, replies
from headrace.remote.protocol.calls import decode_columns

ID = bytes(range(16))


@dataclass(frozen=True)
class Message:
    """`is_open`: it may have members that nobody knows."""

    name: str
    decode: Callable[[bytes], Any]
    sample: bytes
    is_json: bool = False
    is_open: bool = False


def _calls() -> Iterator[Message]:
    samples: list[Any] = [
        calls.Identify(), calls.PutOne(feed="wx/a", ident="x"),
        calls.ReadProducts("**", 1, 10, 1 << 20, 5.0), calls.Resolve("1h"), calls.OpenStation("s", "oldest", {}),
    ]  # fmt: skip
    for number, call in enumerate(samples, 1):
        counted = number if isinstance(call, calls.Numbered) else 0
        sent = envelope.Envelope(hello.VERSION, ID, ID, counted, counted, call)
        yield Message(f"call {type(call).__name__}", envelope.decode_head, envelope.encode(sent))


def messages() -> list[Message]:
    """One of each."""
    told = replies.Failure("TermsError", "a problem", "a hint", {"conflicts": ["a", {"options": ["x"]}], "at": 1})
    config = QueueConfig(
        format=1, uuid=str(uuid.UUID(bytes=ID)), size=1 << 20, age_s=None, durability="process", dedup="identity",
        hash="blake3", origin="denver",
    )  # fmt: skip
    answers: list[Any] = [
        told, replies.Identity("denver", ID, config, 1), replies.Bounds(1, 2),
        replies.Products(2, 2, 0, bytes(24)), replies.NameList(["a", "b"]),
    ]  # fmt: skip
    queries: list[Any] = [Identify(), Read("wx/**", 0, 1, 10, 1 << 20), Inventory("**", 0, 10)]
    queries.append(Locate("**", ID, b"\5", ("denver",), b"\0\0"))
    assert all(isinstance(each, get_args(Query)) for each in queries)
    card = IdentifyReply("denver", ID, 1, 2, 3, origins=("denver", "boulder"))
    head = PageHead(VERSION, "denver", ID, "own", 0, 5, 6, 0, 0, left_out={"expired": 1})
    beat = Beat(BEAT_VERSION, "denver", ID, "own", 0, 5, {"wx/a": 5}, 0, 1, 500)
    manifest = Manifest(transfer="0" * 32, kind="file", name="a.grib", size=10, hashes=bytes(32))
    receipt = Receipt("0" * 16, "here", "denver", 1, 100, transfers=[TransferState("0" * 32, "done", [(0, 1)])])
    columns = calls.Columns("wx/a", ["a", "b"], {"priority": b"\1", "origin": ["a", "b"]})
    welcome = envelope.encode(replies.Welcome(hello.VERSION))
    return [
        *_calls(),
        Message("hello", envelope.decode_head, envelope.encode(hello.Hello(0, 9, 13)), is_open=True),
        Message("welcome", replies.decode_reply, welcome, is_open=True),
        *(Message(f"reply {type(a).__name__}", replies.decode_reply, envelope.encode(a)) for a in answers),
        Message("columns", decode_columns, envelope.encode(columns)),
        *(Message(f"query {type(query).__name__}", decode_query, encode(query)) for query in queries),
        Message("card", lambda data: decode_reply(data, IdentifyReply, "denver"), encode(card)),
        Message("stream", lambda data: decode_reply(data, ListenReply, "denver"), encode(ListenReply("own"))),
        Message("page", decode_head, encode_head(head)),
        Message("beat", decode_beat, encode_beat(beat)),
        Message("manifest", decode_manifest, encode_manifest(manifest), is_json=True),
        Message("receipt", decode_receipt, encode_receipt(receipt), is_json=True),
    ]  # fmt: skip


# --- how they are spoilt ----------------------------------------------------------------------------

DEEP = b"\x91" * 3000 + b"\xc0"  # 3 kB of MessagePack: an array in an array in an array …
DEEP_MEMBER = b"\x81\xa7unknown" + DEEP  # in a member that nobody knows: decoders that skip it recurse
DEEP_ARRAY = b"\x92\x01" + DEEP  # behind a version that nobody knows
DEEP_JSON = b"[" * 3000 + b"]" * 3000
CLAIMS = (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff")
_VALUES: tuple[Any, ...] = (None, True, -1, 0, 1 << 63, (1 << 64) - 1, 1e308, float("nan"), "", "\ud7ff" * 300, b"",
                            b"\xff" * 40, [], [[]], {}, {"a": [1]}, "a" * 70_000, "\x9b31m\u202e\n")  # fmt: skip


def deep(message: Message) -> Iterator[bytes]:
    """The message with 3,000 levels in the place of each of its members, as a further one, and as a whole."""
    nested = DEEP_JSON if message.is_json else DEEP
    mark = "the place of the deep one"
    encode_any = (msgspec.json if message.is_json else msgspec.msgpack).encode
    yield nested
    if not message.is_json:
        yield from (DEEP_MEMBER, DEEP_ARRAY)
    for changed in _changed(_plain(message), mark):
        yield encode_any(changed).replace(encode_any(mark), nested)


def _plain(message: Message) -> Any:
    return (msgspec.json if message.is_json else msgspec.msgpack).decode(message.sample)


def _changed(value: Any, new: Any) -> Iterator[Any]:
    """The value with `new` in the place of each of its parts, at any depth, and as a further one."""
    if isinstance(value, dict):
        yield {**value, "further": new}
        for key, member in value.items():
            yield {**value, key: new}
            yield from ({**value, key: each} for each in _changed(member, new))
    elif isinstance(value, list):
        yield [*value, new]
        for place, member in enumerate(value):
            yield [*value[:place], new, *value[place + 1 :]]
            yield from ([*value[:place], each, *value[place + 1 :]] for each in _changed(member, new))


def mutated(chance: random.Random, message: Message) -> bytes:
    """The message with a random fault."""
    how = chance.randrange(6)
    if how == 0:
        return chance.randbytes(chance.randrange(200))
    if how == 1:
        return message.sample[: chance.randrange(len(message.sample))]
    if how == 2:
        return chance.choice(list(deep(message)))
    if how == 3:
        place = chance.randrange(len(message.sample))
        return message.sample[:place] + chance.choice(CLAIMS) + message.sample[place:]
    if how == 4:
        encode_any = (msgspec.json if message.is_json else msgspec.msgpack).encode
        return encode_any(chance.choice(list(_changed(_plain(message), chance.choice(_VALUES)))))
    return flipped(chance, message.sample)


def flipped(chance: random.Random, data: bytes) -> bytes:
    """Some bits of it changed."""
    spoilt = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
    return bytes(spoilt)

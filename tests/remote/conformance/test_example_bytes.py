"""The worked example of docs/protocol.md: every byte on the page is what the encoder makes, and what the decoder reads.

After a change of the protocol, `python tests/remote/conformance/test_example_bytes.py` writes the bytes again.
"""

import re
import struct
from pathlib import Path

import pytest

from headrace import Queue
from headrace.log.records import Names
from headrace.product.put import Put
from headrace.relay.messages.page import records_of
from headrace.remote.protocol import calls, replies
from headrace.remote.protocol.envelope import Envelope, client_digest, decode_head, encode
from headrace.remote.protocol.hello import HELLO, VERSION, Hello
from headrace.remote.protocol.products import batch_of

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"
CLIENT, QUEUE, SIGNATURE = bytes(range(16)), bytes(range(16, 32)), bytes(range(32, 48))
PAYLOAD, FEED, CREATED_NS = b"METAR KDEN", "wx/text/metar", 1_763_251_200_000_000_000
ATTACHMENT = 77
PLACE = struct.pack("<QQHHI", 1, CREATED_NS + 5_000_000, 1, 0, 0)

Message = Hello | calls.Call | replies.Reply


def envelope(call: calls.Call, number: int = 0) -> bytes:
    """The calls of the example are made one after the other, so each is the oldest that may be repeated."""
    queue = None if isinstance(call, calls.Identify) else QUEUE
    return encode(Envelope(VERSION, CLIENT, queue, number, number, call))


MESSAGES = {  # in the order of the page
    "hello": encode(Hello(HELLO, VERSION, VERSION)),
    "welcome": encode(replies.Welcome(VERSION)),
    "who": envelope(calls.Identify()),
    "put": envelope(calls.PutOne(FEED, "", Put(created=CREATED_NS, signature=SIGNATURE)), 1),
    "number": encode(replies.Number(1)),
    "openstation": envelope(calls.OpenStation("decode", "oldest", {"selection": "wx/**"}), 2),
    "done": encode(replies.Done()),
    "attach": envelope(calls.Attach("decode", 10.0), 3),
    "attached": encode(replies.Attached(ATTACHMENT, 0)),
    "get": envelope(calls.Get(ATTACHMENT, 100, 5.0), 4),
    "products": encode(replies.Products(2, 2, len(PAYLOAD), PLACE, sent_ns=CREATED_NS + 9_000_000)),
    "settle": envelope(calls.Settle(ATTACHMENT, 4, 1, "ack"), 5),
    "leave": envelope(calls.Leave()),
}


def place_of(name: str) -> str:
    """A pattern: a line that begins with the name, and the lines below it that are indented."""
    return rf"(?m)^({name:<12})([0-9a-f ]+(?:\n {{12}}[0-9a-f ]+)*)$"


def on_the_page(name: str) -> bytes:
    found = re.search(place_of(name), PAGE.read_text())
    assert found is not None, name
    return bytes.fromhex(found[2])


@pytest.mark.parametrize("name", MESSAGES)
def test_the_bytes_of_each_message_are_those_of_the_encoder(name: str) -> None:
    assert on_the_page(name).hex(" ") == MESSAGES[name].hex(" ")


def test_the_token_has_the_digest_on_the_page() -> None:
    assert f"`headrace/client/denver/{client_digest(CLIENT)}`" in PAGE.read_text()


def test_every_call_of_the_example_is_accepted_by_the_decoder() -> None:
    for name in ("hello", "who", "put", "openstation", "attach", "get", "settle", "leave"):
        decode_head(on_the_page(name))


def test_the_record_on_the_page_is_the_one_that_a_queue_writes(shared_memory: Path) -> None:
    with Queue.create(shared_memory / "q", size="1MiB", durability="memory", origin="denver") as queue:
        queue.put(PAYLOAD, feed=FEED, created=CREATED_NS, signature=SIGNATURE)
        assert on_the_page("record").hex(" ") == records_of(queue.read_batch()).hex(" ")


def test_reply_and_record_on_the_page_are_read_as_a_product() -> None:
    reply = replies.decode_reply(on_the_page("products"))
    assert isinstance(reply, replies.Products)
    (product,) = batch = batch_of(reply, on_the_page("record"), Names())
    assert (product.sequence, product.feed, bytes(product.payload)) == (1, FEED, PAYLOAD)
    assert batch.columns["deliveries"].tolist() == [1]


def written_again(text: str) -> str:
    """The page with the bytes of the encoder, and its version."""
    for name, message in MESSAGES.items():
        lines = (message[at : at + 24].hex(" ") for at in range(0, len(message), 24))
        text = re.sub(place_of(name), r"\g<1>" + f"\n{'':12}".join(lines), text)
    text = re.sub(r"\[0, \d+, \d+\]", f"[0, {VERSION}, {VERSION}]", text)
    text = re.sub(r'"welcome", "version": \d+', f'"welcome", "version": {VERSION}', text)
    return re.sub(r"\[\d+, client,", f"[{VERSION}, client,", text)


def test_writing_the_example_again_changes_nothing() -> None:
    assert written_again(PAGE.read_text()) == PAGE.read_text()


if __name__ == "__main__":
    PAGE.write_text(written_again(PAGE.read_text()))

"""Envelope: how a call travels, who makes it, and how a repeated call is recognised.

A call is one query to `headrace/call/<site>`. The attachment of the query is an Envelope; its payload is the bulk:
payloads one after another, or records. A reply travels the same way: a Reply as the attachment, records as the payload.
A hello (hello.py) comes in place of an Envelope.

A call that must not be executed twice (`Numbered`) has a number. If it is repeated because the reply did not arrive,
the site does not execute it again but sends the same reply again. `oldest` says which calls the client may still
repeat, so that the site remembers the replies of those and no others. A Get may be repeated much later; the site
remembers it until the next Get of that consumer. Calls that are idempotent have number 0.

A call that is invalid, or exceeds one of the limits, is refused as a whole: an error reply whose payload is text.
"""

import hashlib

import msgspec

from headrace.decoding import Decoder
from headrace.errors import FabricMessageError
from headrace.relay.messages.page import QueueId, Sequence64
from headrace.remote.protocol.calls import Call, Numbered
from headrace.remote.protocol.fields import ClientId
from headrace.remote.protocol.hello import HELLO, Hello, check_spoken, decode_hello

BUSY = b"busy"  # the error of a site that takes no more calls at the moment
HEAD_BYTES_MAX = 256 << 20  # of a call without its payload: a batch has an ident for each product
CALL_BYTES_MAX = 512 << 20  # of its payload


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A call, and the client that makes it."""

    version: int
    client: ClientId  # secret: the client's token has only a digest of it
    queue: QueueId | None  # the queue that is meant; the site may have a new one since
    number: Sequence64  # of a Numbered call; 0 for others
    oldest: Sequence64  # no call below this one will be repeated
    call: Call


class _First(msgspec.Struct, frozen=True, array_like=True):
    """What every attachment has, in any version."""

    version: int


_ENVELOPE: Decoder[Envelope] = Decoder(Envelope, bytes_max=HEAD_BYTES_MAX)
_FIRST: Decoder[_First] = Decoder(_First, bytes_max=HEAD_BYTES_MAX)
encode = msgspec.msgpack.Encoder().encode


def decode_head(head: bytes) -> Envelope | Hello:
    """The call or the hello in an attachment; FabricMessageError names what is invalid."""
    try:
        envelope = _ENVELOPE.decode(head)
    except msgspec.DecodeError as error:
        return _hello_in(head, error)
    check_spoken(envelope.version)
    if bool(envelope.number) != isinstance(envelope.call, Numbered):
        has = "must not have a number" if envelope.number else "needs a number"
        raise FabricMessageError(f"a call {type(envelope.call).__name__} {has}", "see docs/protocol.md")
    return envelope


def _hello_in(head: bytes, error: Exception) -> Hello:
    """The hello in an attachment that is no valid call; a call of another version is refused by its version."""
    try:
        version = _FIRST.decode(head).version
    except msgspec.DecodeError:
        version = None
    if version == HELLO:
        return decode_hello(head)
    if version is not None:
        check_spoken(version)
    raise FabricMessageError(f"the call is invalid: {error}", "see docs/protocol.md") from None


def client_digest(client: bytes) -> str:
    """What the token of a client shows of its id."""
    return hashlib.blake2b(client, digest_size=16).hexdigest()

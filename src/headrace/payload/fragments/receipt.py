"""Receipt: what a receiver tells the sender, as a product of the feed `FEED/receipts`.

A receiver reports what it is missing and how far it has read; the sender decides. A fragment that was put at sequence s
and is missing at a receiver that has read beyond s never reached it: it was evicted, or damaged. So the sender sends
exactly what is lost, without a timer, and knows how much is on its way. `room` is how much the queue of the receiver
may hold of it.
"""

from typing import Annotated, Literal

import msgspec

from headrace.decoding import Decoder
from headrace.errors import FabricMessageError
from headrace.payload.fragments.manifest import FRAGMENTS_MAX, Place, Size, decode_document

VERSION = 1
RANGES_MAX = 256
TRANSFERS_MAX = 256
RECEIPT_BYTES_MAX = 1 << 20
_Name = Annotated[str, msgspec.Meta(max_length=255)]
_Text = Annotated[str, msgspec.Meta(max_length=2000)]

State = Literal["unknown", "receiving", "waiting", "done", "refused"]


class TransferState(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One transfer at one receiver.

    unknown     fragments have come, and no manifest: the sender puts it again
    receiving   what is missing is named
    waiting     as receiving, and it stores nothing for now: its disk is full, for example; `problem` says why
    done        the file has its name
    refused     it will not be received; `problem` says why
    """

    transfer: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    state: State
    missing: Annotated[list[tuple[Place, Place]], msgspec.Meta(max_length=RANGES_MAX)] = []
    exact_to: Annotated[int, msgspec.Meta(ge=0, le=FRAGMENTS_MAX)] = 0  # what `missing` says of fragments below this
    problem: _Text = ""


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one receiver says about transfers of one origin."""

    receiver: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    where: _Name  # the host and directory, for people
    origin: _Name  # of the fragments
    seen: Annotated[
        int, msgspec.Meta(ge=0, le=(1 << 63) - 1)
    ]  # it has read everything up to this sequence of the origin
    room: Size  # bytes of fragments that may be on their way to it
    version: int = VERSION
    transfers: Annotated[list[TransferState], msgspec.Meta(max_length=TRANSFERS_MAX)] = []


_DECODER: Decoder[Receipt] = Decoder(Receipt, bytes_max=RECEIPT_BYTES_MAX, encoding="json")
encode_receipt = msgspec.json.Encoder().encode


def receipts_feed(feed: str) -> str:
    return f"{feed}/receipts"


def decode_receipt(payload: bytes | memoryview) -> Receipt:
    """The receipt in a product; FabricMessageError names what is invalid."""
    receipt = decode_document(_DECODER, payload, "receipt")
    if receipt.version != VERSION:
        raise FabricMessageError(f"the receipt has version {receipt.version}", "run the same version at both ends")
    return receipt

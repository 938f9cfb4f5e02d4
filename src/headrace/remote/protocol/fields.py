"""Fields: the types of what a call contains, each with its limit, and the base of all calls.

A call that exceeds one of the limits is refused with an explanation and has no effect.
"""

from typing import Annotated

import msgspec

PAGE_PRODUCTS_MAX = 100_000  # in one reply
PAGE_BYTES_MAX = 16 << 20  # of payload in one reply, the product that crosses it included
WAIT_S_MAX = 5.0  # for one call; a client that waits longer calls again
TEXT_MAX = 65_536  # characters

Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=1024)]
ClientId = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
UploadId = Annotated[bytes, msgspec.Meta(max_length=16)]
PartBytes = Annotated[int, msgspec.Meta(ge=0, le=PAGE_BYTES_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 32)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Wait = Annotated[float, msgspec.Meta(ge=0, le=WAIT_S_MAX)]
Number64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Start = Number64 | Annotated[str, msgspec.Meta(max_length=64)]
Value = bool | Number64 | float | Text | None
Options = Annotated[dict[Name, Value], msgspec.Meta(max_length=64)]


class CallStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=str.lower, omit_defaults=True):
    """The member `type` of a call (docs/protocol.md) is the `tag` of its class, or else its name in lower case."""

"""Beat: how far a stream has got. It reveals a product that was sent last and lost on its way."""

from typing import Annotated

import msgspec

from headrace.errors import FabricMessageError
from headrace.relay.page import VERSION, QueueId, Sequence64, SiteName, StreamName

INTERVAL_S = 0.5
FEEDS_MAX = 4096  # told by name; if more have changed, those who listen ask the log
_FeedName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Beat(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Sent about every INTERVAL_S."""

    version: int
    site: SiteName
    queue: QueueId
    stream: StreamName
    since: Sequence64
    examined: Sequence64  # the stream has sent what it had up to here
    recent: dict[_FeedName, Sequence64] | None  # last product of each feed that had one behind `since`; None: too many
    sent_ns: Sequence64


_DECODER = msgspec.msgpack.Decoder(Beat)
encode_beat = msgspec.msgpack.Encoder().encode


def decode_beat(payload: bytes) -> Beat:
    try:
        beat = _DECODER.decode(payload)
    except (msgspec.DecodeError, ValueError) as error:
        raise FabricMessageError(f"a beat cannot be read: {error}", "its sender is no Headrace") from None
    if beat.version != VERSION:
        raise FabricMessageError(f"a beat of site {beat.site!r} has version {beat.version}", "run one version")
    return beat

"""Beat: how far a stream is. It reveals a product that was sent last and lost on its way."""

from typing import Annotated

import msgspec

from headrace.decoding import Decoder
from headrace.errors import FabricMessageError
from headrace.relay.messages.page import VERSION, QueueId, Sequence64, SiteName, StreamName
from headrace.relay.messages.version import check_version, other_version

INTERVAL_S = 0.5  # unless the site is configured otherwise
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.01, 60.0
_SILENT_BEATS = 3  # so many in a row do not get lost
_SILENT_S_MIN = 3.0
FEEDS_MAX = 4096  # listed by name; if more feeds have changed, subscribers query the log
BEAT_BYTES_MAX = 8 << 20
IntervalMs = Annotated[int, msgspec.Meta(ge=int(1000 * INTERVAL_S_MIN), le=int(1000 * INTERVAL_S_MAX))]
_FeedName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Beat(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Sent about every `interval_ms`. Sequences are those of the sending site's queue."""

    version: int
    site: SiteName
    queue: QueueId
    stream: StreamName
    since: Sequence64
    examined: Sequence64  # everything of the stream up to here has been sent
    recent: dict[_FeedName, Sequence64] | None  # last product of each feed that had one behind `since`; None: too many
    sent_ns: Sequence64
    started_ns: Sequence64  # of the sending site, as in IdentifyReply: another one means that it has restarted
    interval_ms: IntervalMs
    left_out: Sequence64 = 0  # up to here something was left out, and not sent: the log says what, and why


def silence_s(interval_ms: int) -> float:
    """After how many seconds without a beat a site that beats so often counts as unreachable."""
    return max(_SILENT_S_MIN, _SILENT_BEATS * interval_ms / 1000)


_DECODER: Decoder[Beat] = Decoder(Beat, bytes_max=BEAT_BYTES_MAX)
encode_beat = msgspec.msgpack.Encoder().encode


def decode_beat(payload: bytes) -> Beat:
    """The beat in a message; FabricMessageError if it is invalid."""
    try:
        beat = _DECODER.decode(payload)
    except msgspec.DecodeError as error:
        check_version("a beat", payload, VERSION)
        raise FabricMessageError(f"invalid beat: {error}", "its sender is not a Headrace site") from None
    if beat.version != VERSION:
        raise other_version(f"a beat of site {beat.site!r}", beat.version, VERSION)
    return beat
